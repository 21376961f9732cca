package node_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"sandbox-provisioner/hack/devcluster/asset"
	"sandbox-provisioner/hack/devcluster/internal/controlplane"
	"sandbox-provisioner/hack/devcluster/internal/fault"
	"sandbox-provisioner/hack/devcluster/internal/node"
)

// The control plane and the node that all tests of this package share; each test has a namespace of its own.
var (
	client    kubernetes.Interface
	faults    = fault.NewRegistry()
	simulated *node.Node
	logs      = &logBuffer{}
)

const (
	readyDelay = 200 * time.Millisecond
	patience   = 15 * time.Second
)

func TestMain(m *testing.M) {
	controlplane.Shim()
	// These tests wait far more than they compute.
	flag.Parse()
	_ = flag.Set("test.parallel", "16")
	code, err := runTests(m)
	if err == nil && code == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	log := slog.New(slog.NewTextHandler(logs, nil))
	assets, err := asset.Finder{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}.Dir(ctx)
	if err != nil {
		return 0, err
	}
	plane, err := controlplane.Start(ctx, controlplane.Config{Assets: assets, UnsafeNoFsync: true, Log: log})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	if client, err = kubernetes.NewForConfig(plane.REST); err != nil {
		return 0, err
	}
	simulated, err = node.New(plane.REST, node.Config{
		ReadyDelay: readyDelay, StopDelay: 50 * time.Millisecond, Faults: faults, Log: log,
	})
	if err != nil {
		return 0, err
	}
	var running sync.WaitGroup
	var runErr error
	running.Go(func() { runErr = simulated.Run(ctx) })
	<-simulated.Synced()
	code = m.Run()
	cancel()
	running.Wait()
	return code, runErr
}

// logBuffer keeps what the node logs for tests that promise a line.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) contains(parts ...string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.buf.String()) {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			return true
		}
	}
	return false
}

// newNamespace makes a namespace named after the test.
func newNamespace(t *testing.T) string {
	t.Helper()
	created, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	return created.Name
}

// sandboxPod is a Pod as small as the API server takes it.
func sandboxPod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"sandbox-id": name}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(5)),
			Containers:                    []corev1.Container{{Name: "sandbox", Image: "registry.example/sandbox:1"}},
		},
	}
}

func sandboxService(namespace, name string, kind corev1.ServiceType) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-svc"},
		Spec: corev1.ServiceSpec{
			Type: kind, Selector: map[string]string{"sandbox-id": name},
			Ports: []corev1.ServicePort{{Name: "http", Port: 8080}},
		},
	}
}

func createPod(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create pod %s: %v", pod.Name, err)
	}
	return created
}

func createService(t *testing.T, service *corev1.Service) *corev1.Service {
	t.Helper()
	created, err := client.CoreV1().Services(service.Namespace).Create(t.Context(), service, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create service %s: %v", service.Name, err)
	}
	return created
}

func deletePod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete pod %s: %v", pod.Name, err)
	}
}

// eventually polls until the condition holds; it fails the test with what was wanted and what was seen last.
func eventually(t *testing.T, wanted string, condition func() (ok bool, seen any)) {
	t.Helper()
	var last any
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true,
		func(context.Context) (ok bool, _ error) {
			ok, last = condition()
			return ok, nil
		})
	if err != nil {
		t.Fatalf("wanted %s within %s, last seen: %+v", wanted, patience, last)
	}
}

// eventuallyPod waits until the Pod looks as wanted and returns it.
func eventuallyPod(t *testing.T, pod *corev1.Pod, wanted string, condition func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var current *corev1.Pod
	eventually(t, fmt.Sprintf("pod %s %s", pod.Name, wanted), func() (bool, any) {
		var err error
		current, err = client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return condition(current), current.Status
	})
	return current
}

func eventuallyGone(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+pod.Name+" gone", func() (bool, any) {
		current, err := client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID, err
	})
}

func running(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning && isReady(pod) }

func isReady(pod *corev1.Pod) bool {
	return condition(pod, corev1.PodReady).Status == corev1.ConditionTrue
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

// container returns the status of the container named sandbox.
func container(pod *corev1.Pod) corev1.ContainerStatus {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == "sandbox" {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

func waitingReason(pod *corev1.Pod) string {
	if waiting := container(pod).State.Waiting; waiting != nil {
		return waiting.Reason
	}
	return ""
}
