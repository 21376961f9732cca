package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"sandbox-provisioner/hack/node/internal/box"
)

const (
	poll         = 50 * time.Millisecond
	dnsNamespace = metav1.NamespaceSystem
	dnsName      = "coredns"
)

// api is the admin's way to the API server.
type api struct {
	kubernetes.Interface
	dynamic dynamic.Interface
}

func (n *node) connect() (*api, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(n.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &api{Interface: typed, dynamic: untyped}, nil
}

// eventually asks until the answer is yes. Errors on the way are kept for the case that it never is.
func eventually(ctx context.Context, what string, ask func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		ok, err := ask(ctx)
		last = err
		return ok && err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, errors.Join(err, last))
	}
	return nil
}

func (a *api) waitForServer(ctx context.Context) error {
	return eventually(ctx, "the API server", func(ctx context.Context) (bool, error) {
		return true, a.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func (a *api) waitForNode(ctx context.Context) error {
	return eventually(ctx, "the node", func(ctx context.Context) (bool, error) {
		node, err := a.CoreV1().Nodes().Get(ctx, box.Hostname, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return len(node.Spec.Taints) == 0, nil
			}
		}
		return false, nil
	})
}

//go:embed dns.yaml
var dnsManifest string

var dnsTemplate = template.Must(template.New("dns").Parse(dnsManifest))

func (a *api) applyDNS(ctx context.Context) error {
	var text bytes.Buffer
	values := struct{ Domain, DNSAddress, DNSImage string }{domain, dnsAddress, DNSImage}
	if err := dnsTemplate.Execute(&text, values); err != nil {
		return err
	}
	for docs := yaml.NewYAMLOrJSONDecoder(&text, 4096); ; {
		var object unstructured.Unstructured
		err := docs.Decode(&object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		client := dynamic.ResourceInterface(a.dynamic.Resource(resource))
		if object.GetNamespace() != "" {
			client = a.dynamic.Resource(resource).Namespace(object.GetNamespace())
		}
		if _, err := client.Create(ctx, &object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

func (a *api) waitForDNS(ctx context.Context) error {
	return eventually(ctx, "cluster DNS", func(ctx context.Context) (bool, error) {
		d, err := a.AppsV1().Deployments(dnsNamespace).Get(ctx, dnsName, metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas > 0, err
	})
}
