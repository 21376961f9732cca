package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"sandbox-provisioner/hack/node/internal/box"
)

// validity is longer than any run.
const validity = 7 * 24 * time.Hour

// An authority signs every certificate of the cluster. Its key also signs the tokens of ServiceAccounts.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// pair is a certificate and its key, encoded.
type pair struct{ cert, key []byte }

func newAuthority() (*authority, pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, pair{}, err
	}
	template := certificate(pkix.Name{CommonName: "node"})
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
	a := &authority{cert: template, key: key}
	own, err := a.sign(template, key)
	if err != nil {
		return nil, pair{}, err
	}
	a.pem = own.cert
	return a, own, nil
}

func certificate(subject pkix.Name) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // never fails
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) (pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	return pair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}),
	}, err
}

// issue signs a certificate for a new key.
func (a *authority) issue(template *x509.Certificate, use x509.ExtKeyUsage) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{use}
	return a.sign(template, key)
}

func (a *authority) client(user, group string) (pair, error) {
	subject := pkix.Name{CommonName: user}
	if group != "" {
		subject.Organization = []string{group}
	}
	return a.issue(certificate(subject), x509.ExtKeyUsageClientAuth)
}

// issue writes everybody's credentials.
func (n *node) issue() (err error) {
	var own pair
	if n.ca, own, err = newAuthority(); err != nil {
		return err
	}
	server := certificate(pkix.Name{CommonName: "kube-apiserver"})
	server.DNSNames = []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + domain,
	}
	server.IPAddresses = []net.IP{net.ParseIP("127.0.0.1"), net.ParseIP(apiAddress), net.ParseIP(n.Address)}
	serving, err := n.ca.issue(server, x509.ExtKeyUsageServerAuth)
	if err != nil {
		return err
	}
	kubeletClient, err := n.ca.client("kube-apiserver", "system:masters")
	if err != nil {
		return err
	}
	for name, p := range map[string]pair{"ca": own, "server": serving, "kubelet-client": kubeletClient} {
		if err := os.WriteFile(n.path("pki", name+".crt"), p.cert, 0o600); err != nil {
			return err
		}
		if err := os.WriteFile(n.path("pki", name+".key"), p.key, 0o600); err != nil {
			return err
		}
	}
	for file, who := range map[string][2]string{
		"controller-manager": {"system:kube-controller-manager", ""},
		"scheduler":          {"system:kube-scheduler", ""},
		"kubelet":            {"system:node:" + box.Hostname, "system:nodes"},
		"proxy":              {"system:kube-proxy", ""},
	} {
		config, err := n.kubeconfigFor("127.0.0.1", who[0], who[1])
		if err != nil {
			return err
		}
		if err := os.WriteFile(n.path("conf", file+".kubeconfig"), config, 0o600); err != nil {
			return err
		}
	}
	n.kubeconfig, err = n.kubeconfigFor(n.Address, "admin", "system:masters")
	return err
}

func (n *node) kubeconfigFor(host, user, group string) ([]byte, error) {
	credentials, err := n.ca.client(user, group)
	if err != nil {
		return nil, err
	}
	const name = "node"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: n.url(host), CertificateAuthorityData: n.ca.pem}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: credentials.cert, ClientKeyData: credentials.key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.Write(*config)
}
