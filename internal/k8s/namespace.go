package k8s

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/internal/sandbox"
)

// EnsureNamespace creates the namespace of the sandboxes when it does not exist. Somebody else who is faster is welcome. It
// makes one request of each kind and does not try again; its errors are one line.
func EnsureNamespace(ctx context.Context, core *Core, name string) error {
	_, err := core.Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return namespaceError("read", name, err)
	}
	_, err = core.Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: sandbox.NamespaceLabels()},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return namespaceError("create", name, err)
	}
	return nil
}

func namespaceError(verb, name string, err error) error {
	way := "check KUBECONFIG_PATH and K8S_API_SERVER"
	if apierrors.IsForbidden(err) {
		way = "allow it to this user, or let K8S_NAMESPACE name a namespace that he may use"
	}
	return fmt.Errorf("cannot %s namespace %q: %w; %s", verb, name, err, way)
}
