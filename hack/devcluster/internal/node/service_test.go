package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/hack/devcluster/internal/control"
	"sandbox-provisioner/hack/devcluster/internal/fault"
)

// get returns the status code and the pod named in the answer; 0 when nobody listens.
func get(t *testing.T, url string) (code int, pod string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = response.Body.Close() }()
	var body struct{ Status, Pod string }
	_ = json.NewDecoder(response.Body).Decode(&body)
	return response.StatusCode, body.Pod
}

func eventuallyAnswers(t *testing.T, url string, code int, pod string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s to answer %d from %q", url, code, pod), func() (bool, any) {
		gotCode, gotPod := get(t, url)
		return gotCode == code && gotPod == pod, fmt.Sprint(gotCode, " ", gotPod)
	})
}

func nodePortURL(service *corev1.Service) string {
	return fmt.Sprintf("http://127.0.0.1:%d/v1/sandbox", service.Spec.Ports[0].NodePort)
}

func TestANodePortAnswersExactlyWhileAReadyPodIsBehindIt(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	service := createService(t, sandboxService(ns, "a", corev1.ServiceTypeNodePort))
	url := nodePortURL(service)
	eventuallyAnswers(t, url, http.StatusServiceUnavailable, "")

	pod := createPod(t, sandboxPod(ns, "a"))
	eventuallyAnswers(t, url, http.StatusOK, "a")
	faults.Put(ns, "a", fault.Fault{Kind: fault.NotReady})
	eventuallyAnswers(t, url, http.StatusServiceUnavailable, "")
	faults.Put(ns, "a", fault.Fault{Kind: fault.HangInTermination})
	eventuallyAnswers(t, url, http.StatusOK, "a")
	deletePod(t, pod) // it stays, terminating
	eventuallyAnswers(t, url, http.StatusServiceUnavailable, "")

	if err := client.CoreV1().Services(ns).Delete(t.Context(), service.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventuallyAnswers(t, url, 0, "")
}

func TestANodePortThatMovesToAnotherServiceAnswersForThatOne(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	createPod(t, sandboxPod(ns, "a"))
	createPod(t, sandboxPod(ns, "b"))
	first := createService(t, sandboxService(ns, "a", corev1.ServiceTypeNodePort))
	url := nodePortURL(first)
	eventuallyAnswers(t, url, http.StatusOK, "a")
	if err := client.CoreV1().Services(ns).Delete(t.Context(), first.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second := sandboxService(ns, "b", corev1.ServiceTypeNodePort)
	second.Spec.Ports[0].NodePort = first.Spec.Ports[0].NodePort
	createService(t, second)
	eventuallyAnswers(t, url, http.StatusOK, "b")
}

func TestATakenNodePortIsAWarningAndNothingElseSuffers(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	service := sandboxService(ns, "a", corev1.ServiceTypeNodePort)
	createPod(t, sandboxPod(ns, "a"))
	for port := int32(32767); ; port-- { // the first that is free both here and in the cluster
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
		if err != nil {
			continue
		}
		defer func() { _ = listener.Close() }()
		service.Spec.Ports[0].NodePort = port
		_, err = client.CoreV1().Services(ns).Create(t.Context(), service, metav1.CreateOptions{})
		if err == nil {
			break
		}
		if !apierrors.IsInvalid(err) {
			t.Fatalf("create a service with a taken node port: %v", err)
		}
	}
	eventually(t, "a warning about the port", func() (bool, any) {
		return logs.contains("level=WARN", "node port is taken", service.Namespace+"/"+service.Name), nil
	})
	eventuallyEndpoints(t, service, 1)
}

func TestTheControlAPIAnswersForAClusterIPService(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(control.Handler(faults, simulated))
	defer server.Close()
	ns := newNamespace(t)
	url := server.URL + "/stub/" + ns + "/a-svc/v1/sandbox"
	eventuallyAnswers(t, url, http.StatusServiceUnavailable, "")
	createService(t, sandboxService(ns, "a", corev1.ServiceTypeClusterIP))
	createPod(t, sandboxPod(ns, "a"))
	eventuallyAnswers(t, url, http.StatusOK, "a")
	eventuallyAnswers(t, server.URL+"/stub/"+ns+"/a-svc/other", http.StatusNotFound, "")
}

func TestAnEndpointSliceIsReadyExactlyWhileItsPodIs(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	service := createService(t, sandboxService(ns, "a", corev1.ServiceTypeClusterIP))
	pod := createPod(t, sandboxPod(ns, "a"))
	slice := eventuallyEndpoints(t, service, 1)
	current := eventuallyPod(t, pod, "running", running)
	if got := slice.Endpoints[0]; got.Addresses[0] != current.Status.PodIP || got.TargetRef.UID != pod.UID {
		t.Errorf("wanted an endpoint of the pod, got %+v", got)
	}
	if *slice.Ports[0].Port != 8080 || *slice.Ports[0].Name != "http" {
		t.Errorf("wanted port http 8080, got %+v", slice.Ports)
	}
	faults.Put(ns, "a", fault.Fault{Kind: fault.NotReady})
	eventuallyEndpoints(t, service, 0)
	faults.Clear(ns, "a")
	eventuallyEndpoints(t, service, 1)
	deletePod(t, pod)
	eventuallyEndpoints(t, service, 0)
	if err := client.CoreV1().Services(ns).Delete(t.Context(), service.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no slice without its service", func() (bool, any) {
		slices, err := client.DiscoveryV1().EndpointSlices(ns).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(slices.Items) == 0, err
	})
}

func eventuallyEndpoints(t *testing.T, service *corev1.Service, count int) (slice discoveryv1.EndpointSlice) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d ready endpoints of %s", count, service.Name), func() (bool, any) {
		list, err := client.DiscoveryV1().EndpointSlices(service.Namespace).List(t.Context(), metav1.ListOptions{
			LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name,
		})
		if err != nil {
			return false, err
		}
		ready := 0
		for _, slice = range list.Items {
			for _, endpoint := range slice.Endpoints {
				if *endpoint.Conditions.Ready {
					ready++
				}
			}
		}
		return ready == count, list.Items
	})
	return slice
}
