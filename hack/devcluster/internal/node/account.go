package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

const defaultServiceAccount = "default"

func (n *Node) namespaceChanged(before, after *corev1.Namespace) {
	if before == nil {
		n.accountQueue.add(cache.NewObjectName(after.Name, defaultServiceAccount))
	}
}

// createServiceAccount does what the controller manager does for a new namespace.
func (n *Node) createServiceAccount(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	_, err := n.client.CoreV1().ServiceAccounts(key.Namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return 0, nil
	}
	return 0, err
}
