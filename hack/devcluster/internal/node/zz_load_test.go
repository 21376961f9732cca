package node_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestZLoad(t *testing.T) {
	ns := newNamespace(t)
	const count = 5200
	began := time.Now()
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := w; i < count; i += 16 {
				name := fmt.Sprintf("p%d", i)
				createPod(t, sandboxPod(ns, name))
				kind := corev1.ServiceTypeClusterIP
				if i < 2500 {
					kind = corev1.ServiceTypeNodePort
				}
				createService(t, sandboxService(ns, name, kind))
			}
		})
	}
	wg.Wait()
	t.Logf("created %s", time.Since(began))
	n := 0
	for n < count {
		l, err := client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		n = 0
		for _, p := range l.Items {
			if running(&p) {
				n++
			}
		}
		t.Logf("%s running %d", time.Since(began), n)
		if time.Since(began) > 4*time.Minute {
			t.Fatal()
		}
		time.Sleep(time.Second)
	}
	sl, _ := client.DiscoveryV1().EndpointSlices(ns).List(t.Context(), metav1.ListOptions{})
	t.Logf("slices %d", len(sl.Items))
	began = time.Now()
	for w := range 16 {
		wg.Go(func() {
			for i := w; i < count; i += 16 {
				name := fmt.Sprintf("p%d", i)
				client.CoreV1().Pods(ns).Delete(t.Context(), name, metav1.DeleteOptions{})
				client.CoreV1().Services(ns).Delete(t.Context(), name+"-svc", metav1.DeleteOptions{})
			}
		})
	}
	wg.Wait()
	t.Logf("deletes issued %s", time.Since(began))
	eventually(t, "gone", func() (bool, any) {
		l, _ := client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		return len(l.Items) == 0, len(l.Items)
	})
	t.Logf("gone %s", time.Since(began))
}
