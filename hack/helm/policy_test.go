package helm

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// A party is somebody at the other end of a connection: a Pod, or an address alone.
type party struct {
	namespace string
	labels    map[string]string
	address   string
}

func pod(namespace string, keysAndValues ...string) party {
	p := party{namespace: namespace, labels: map[string]string{}, address: "10.128.0.9"}
	for i := 0; i < len(keysAndValues); i += 2 {
		p.labels[keysAndValues[i]] = keysAndValues[i+1]
	}
	return p
}

func address(ip string) party { return party{address: ip} }

// matches is what a network plugin makes of one peer. A Pod is matched by its address too, as most plugins do it.
func matches(t *testing.T, peer networkingv1.NetworkPolicyPeer, home string, p party) bool {
	t.Helper()
	if block := peer.IPBlock; block != nil {
		ip := netip.MustParseAddr(p.address)
		for _, except := range block.Except {
			if netip.MustParsePrefix(except).Contains(ip) {
				return false
			}
		}
		return netip.MustParsePrefix(block.CIDR).Contains(ip)
	}
	if p.namespace == "" {
		return false
	}
	if peer.NamespaceSelector == nil {
		if p.namespace != home {
			return false
		}
	} else if !selects(t, peer.NamespaceSelector, map[string]string{"kubernetes.io/metadata.name": p.namespace}) {
		return false
	}
	return peer.PodSelector == nil || selects(t, peer.PodSelector, p.labels)
}

func selects(t *testing.T, selector *metav1.LabelSelector, set labels.Set) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	return s.Matches(set)
}

func open(ports []networkingv1.NetworkPolicyPort, port int) bool {
	for _, p := range ports {
		if p.Port.IntValue() == port {
			return true
		}
	}
	return len(ports) == 0
}

func accepts(t *testing.T, policy *networkingv1.NetworkPolicy, home string, from party, port int) bool {
	t.Helper()
	for _, rule := range policy.Spec.Ingress {
		require.NotEmpty(t, rule.From, "an empty list is everybody")
		for _, peer := range rule.From {
			if matches(t, peer, home, from) && open(rule.Ports, port) {
				return true
			}
		}
	}
	return false
}

func reaches(t *testing.T, policy *networkingv1.NetworkPolicy, home string, to party, port int) bool {
	t.Helper()
	for _, rule := range policy.Spec.Egress {
		require.NotEmpty(t, rule.To, "an empty list is everybody")
		for _, peer := range rule.To {
			if matches(t, peer, home, to) && open(rule.Ports, port) {
				return true
			}
		}
	}
	return false
}

var (
	gateway = pod("agents", "app.kubernetes.io/name", "deer-flow", "app.kubernetes.io/component", "gateway")
	dns     = pod("kube-system", "k8s-app", "kube-dns")
)

func TestWhoReachesSandboxes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, values string
		from         party
		port         int
		want         bool
	}{
		{"the gateway beside the release does", "", gateway, 8080, true},
		{"the gateway beside the sandboxes does", "", pod("deer-flow", "app.kubernetes.io/name", "deer-flow", "app.kubernetes.io/component", "gateway"), 8080, true},
		{"the gateway does not on another port", "", gateway, 22, false},
		{"somebody with the gateway's labels elsewhere does not", "", pod("other", "app.kubernetes.io/name", "deer-flow", "app.kubernetes.io/component", "gateway"), 8080, false},
		{"another sandbox does not", "", pod("deer-flow", "app", "deer-flow-sandbox", "app.kubernetes.io/name", "deer-flow", "app.kubernetes.io/component", "sandbox"), 8080, false},
		{"another Pod beside the release does not", "", pod("agents", "app", "any"), 8080, false},
		{"the internet does not", "", address("203.0.113.9"), 8080, false},
		{"a node does not", "", address("192.0.2.1"), 8080, false},
		{"a node that was named does", "networkPolicy: {sandbox: {probesFrom: [192.0.2.0/24]}}", address("192.0.2.1"), 8080, true},
		{"the internet does in NodePort mode", "sandboxServiceType: NodePort", address("203.0.113.9"), 8080, true},
		{"the internet does in NodePort mode by IPv6", "sandboxServiceType: NodePort", address("2001:db8::1"), 8080, true},
		{"a part of the internet does not in NodePort mode", "sandboxServiceType: NodePort\nnetworkPolicy: {sandbox: {nodePortFrom: [198.51.100.0/24]}}", address("203.0.113.9"), 8080, false},
		{"the gateway of other labels does", "networkPolicy: {sandbox: {gatewayPodLabels: {app.kubernetes.io/name: gw, app.kubernetes.io/component: web}}}", pod("agents", "app.kubernetes.io/name", "gw", "app.kubernetes.io/component", "web"), 8080, true},
		{"the gateway of another namespace does", "networkPolicy: {sandbox: {gatewayNamespaces: [front]}}", pod("front", "app.kubernetes.io/name", "deer-flow", "app.kubernetes.io/component", "gateway"), 8080, true},
		{"a gateway where it was not expected does not", "networkPolicy: {sandbox: {gatewayNamespaces: [front]}}", gateway, 8080, false},
		{"an extra source does", "networkPolicy: {sandbox: {extraFrom: [{ipBlock: {cidr: 198.51.100.0/24}}]}}", address("198.51.100.1"), 8080, true},
		{"the port of sandboxes is the open one", "sandbox: {port: 9000}", gateway, 9000, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			policy := sandboxPolicy(t, test.values)
			require.Equal(t, test.want, accepts(t, policy, policy.Namespace, test.from, test.port))
		})
	}
}

func TestWhatSandboxesReach(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, values string
		to           party
		port         int
		want         bool
	}{
		{"the public internet", "", address("93.184.215.14"), 443, true},
		{"the public internet by IPv6", "", address("2606:4700::1111"), 443, true},
		{"cluster DNS", "", dns, 53, true},
		{"nothing else of cluster DNS", "", dns, 9153, false},
		{"not a DNS that is none", "", pod("kube-system", "app", "any"), 53, false},
		{"not private networks, 10", "", address("10.0.0.1"), 443, false},
		{"not private networks, 172", "", address("172.31.255.254"), 443, false},
		{"not private networks, 192", "", address("192.168.1.1"), 443, false},
		{"not private networks, carrier", "", address("100.64.0.1"), 443, false},
		{"not private networks, IPv6", "", address("fd12::1"), 443, false},
		{"not the API server's Service", "", address("10.96.0.1"), 443, false},
		{"not the metadata address", "", address("169.254.169.254"), 80, false},
		{"not the metadata address of AWS by IPv6", "", address("fd00:ec2::254"), 80, false},
		{"not the metadata address of Alibaba", "", address("100.100.100.200"), 80, false},
		{"not the metadata address of Azure", "", address("168.63.129.16"), 80, false},
		{"not the metadata address of Oracle", "", address("192.0.0.192"), 80, false},
		{"not a private address inside NAT64", "", address("64:ff9b::a00:1"), 443, false},
		{"not a private address inside 6to4", "", address("2002:a00:1::1"), 443, false},
		{"not itself", "", address("127.0.0.1"), 8080, false},
		{"not another sandbox", "", pod("deer-flow", "app", "deer-flow-sandbox"), 8080, false},
		{"not the provisioner", "", pod("agents", "app.kubernetes.io/component", "api"), 8002, false},
		{"not NATS", "", pod("agents", "app.kubernetes.io/component", "nats"), 4222, false},
		{"not a public API server that was named", "networkPolicy: {sandbox: {internetExceptExtra: [203.0.113.7/32]}}", address("203.0.113.7"), 6443, false},
		{"not a public API server that was named by IPv6", "networkPolicy: {sandbox: {internetExceptExtra: ['2600::/32']}}", address("2600::1"), 6443, false},
		{"no internet when it is off", "networkPolicy: {sandbox: {internet: false}}", address("93.184.215.14"), 443, false},
		{"DNS when the internet is off", "networkPolicy: {sandbox: {internet: false}}", dns, 53, true},
		{"no DNS when it is off", "networkPolicy: {sandbox: {dns: false}}", dns, 53, false},
		{"a node-local DNS cache that was named", "networkPolicy: {sandbox: {dnsAddresses: [169.254.20.10/32]}}", address("169.254.20.10"), 53, true},
		{"an extra destination", "networkPolicy: {sandbox: {extraTo: [{ipBlock: {cidr: 10.1.2.3/32}}]}}", address("10.1.2.3"), 443, true},
		{"nothing when all is off", "networkPolicy: {sandbox: {internet: false, dns: false}}", address("93.184.215.14"), 443, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			policy := sandboxPolicy(t, test.values)
			require.Equal(t, test.want, reaches(t, policy, policy.Namespace, test.to, test.port))
		})
	}
}

func sandboxPolicy(t *testing.T, values string) *networkingv1.NetworkPolicy {
	t.Helper()
	policy := get[networkingv1.NetworkPolicy](t, render(t, values), "NetworkPolicy", "-sandbox")
	require.Equal(t, "deer-flow", policy.Namespace)
	require.ElementsMatch(t, []networkingv1.PolicyType{"Ingress", "Egress"}, policy.Spec.PolicyTypes)
	require.Equal(t, map[string]string{"app": "deer-flow-sandbox"}, policy.Spec.PodSelector.MatchLabels)
	return policy
}

func TestWhoReachesNATS(t *testing.T) {
	t.Parallel()
	own := func(component string) party {
		name := "sandbox-provisioner"
		if component == "nats" {
			name = "nats"
		}
		return pod("agents", "app.kubernetes.io/name", name, "app.kubernetes.io/instance", "dev", "app.kubernetes.io/component", component)
	}
	for _, test := range []struct {
		name, values string
		from         party
		port         int
		want         bool
	}{
		{"the api does", "", own("api"), 4222, true},
		{"the worker does", "", own("worker"), 4222, true},
		{"the api does not pretend to be a server", "", own("api"), 6222, false},
		{"its servers reach each other", "", own("nats"), 6222, true},
		{"a sandbox does not", "", pod("deer-flow", "app", "deer-flow-sandbox"), 4222, false},
		{"a neighbour does not", "", pod("agents", "app", "any"), 4222, false},
		{"an api elsewhere does not", "", party{namespace: "x", labels: own("api").labels, address: "10.0.0.1"}, 4222, false},
		{"nobody sees its monitoring", "", own("api"), 8222, false},
		{"KEDA sees its monitoring where it was named", "networkPolicy: {nats: {monitoringNamespaces: [keda]}}", pod("keda"), 8222, true},
		{"KEDA sees no more", "networkPolicy: {nats: {monitoringNamespaces: [keda]}}", pod("keda"), 4222, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			policy := get[networkingv1.NetworkPolicy](t, render(t, test.values), "NetworkPolicy", "-nats")
			require.Equal(t, test.want, accepts(t, policy, releaseNamespace, test.from, test.port))
		})
	}
}
