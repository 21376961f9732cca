package testenv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// cleanupTimeout bounds the removal of a namespace, which is done as well as it goes.
const cleanupTimeout = 20 * time.Second

// Namespace makes a namespace for the test, and removes it with all that is in it at the end.
func (c *Kubernetes) Namespace(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test-%08x", rand.Uint32())
	_, err := c.Core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		c.empty(ctx, name)
		// There is no controller that would finish the deletion, so the finaliser is taken off by hand.
		if err := c.Core.Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err == nil {
			_, _ = c.Core.Namespaces().Finalize(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.UpdateOptions{})
		}
	})
	return name
}

// empty removes what would cost the simulated node something: Services, whose ports are few, and Pods.
func (c *Kubernetes) empty(ctx context.Context, namespace string) {
	c.clearFaults(ctx, namespace)
	_ = c.Core.RESTClient().Delete().Namespace(namespace).Resource("services").Do(ctx).Error() // has no typed form
	_ = c.Core.ResourceQuotas(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	pods, err := c.Core.Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, pod := range pods.Items {
		if len(pod.Finalizers) > 0 {
			_, _ = c.Core.Pods(namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
	}
	_ = c.Core.Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{})
}

// found is obj, or nil when Kubernetes says that it does not exist.
func found[Object any](t testing.TB, obj *Object, err error) *Object {
	t.Helper()
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return obj
}

// closeIdle closes the connections that a transport of client-go keeps, through all its wrappings.
func closeIdle(transport http.RoundTripper) {
	for {
		if closer, ok := transport.(interface{ CloseIdleConnections() }); ok {
			closer.CloseIdleConnections()
			return
		}
		wrapper, ok := transport.(interface{ WrappedRoundTripper() http.RoundTripper })
		if !ok {
			return
		}
		transport = wrapper.WrappedRoundTripper()
	}
}
