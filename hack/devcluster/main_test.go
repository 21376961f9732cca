package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// asProgram makes this test binary behave as devcluster itself.
const asProgram = "DEVCLUSTER_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command runs devcluster with a temporary directory of its own, so that what it leaves behind can be seen.
func command(t *testing.T, temp string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+temp)
	return cmd
}

// cluster is a started devcluster.
type cluster struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	exited         chan struct{}
	temp           string
	statePath      string
	state          state
	config         *rest.Config
	client         kubernetes.Interface
}

// start starts devcluster and waits until it is ready. wrap, if any, is a program that starts devcluster in turn.
func start(t *testing.T, temp string, wrap []string, args ...string) *cluster {
	t.Helper()
	dir := t.TempDir()
	c := &cluster{temp: temp, statePath: filepath.Join(dir, "state.json"), exited: make(chan struct{})}
	args = append([]string{"start", "--unsafe-no-fsync", "--state", c.statePath,
		"--kubeconfig", filepath.Join(dir, "kubeconfig")}, args...)
	c.cmd = command(t, temp, args...)
	if len(wrap) > 0 {
		env := c.cmd.Env
		c.cmd = exec.Command(wrap[0], append(wrap[1:], c.cmd.Args...)...)
		c.cmd.Env = env
	}
	c.cmd.Stdout, c.cmd.Stderr = &c.stdout, &c.stderr
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		defer close(c.exited)
		_ = c.cmd.Wait()
	})
	t.Cleanup(func() {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		waiting.Wait()
	})
	eventually(t, "the state file", func() (bool, any) {
		select {
		case <-c.exited:
			t.Fatalf("devcluster ended before it was ready:\n%s", &c.stderr)
		default:
		}
		content, err := os.ReadFile(c.statePath)
		return err == nil && json.Unmarshal(content, &c.state) == nil, err
	})
	var err error
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.state.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	c.config.QPS = -1
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		t.Fatal(err)
	}
	return c
}

// stop signals devcluster and waits for its end.
func (c *cluster) stop(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.exited:
	case <-time.After(30 * time.Second):
		t.Fatalf("wanted an end within 30 s of %s", signal)
	}
}

func (c *cluster) wantNothingLeft(t *testing.T) {
	t.Helper()
	eventually(t, "both servers gone", func() (bool, any) {
		return !alive(c.state.APIServerPID) && !alive(c.state.EtcdPID), c.state
	})
	eventually(t, "no file left", func() (bool, any) {
		left, _ := os.ReadDir(c.temp)
		published, _ := os.ReadDir(filepath.Dir(c.statePath))
		return len(left) == 0 && len(published) == 0, append(left, published...)
	})
}

// alive reports whether a process runs; one that only waits to be reaped does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !os.IsNotExist(err)
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(after, []byte("Z"))
}

func eventually(t *testing.T, wanted string, condition func() (ok bool, seen any)) {
	t.Helper()
	var last any
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true,
		func(context.Context) (ok bool, _ error) {
			ok, last = condition()
			return ok, nil
		})
	if err != nil {
		t.Fatalf("wanted %s within a minute, last seen: %+v", wanted, last)
	}
}

func TestAStartedClusterIsPublishedAndWorksAndLeavesNothingBehind(t *testing.T) {
	c := start(t, t.TempDir(), nil)
	t.Run("the kubeconfig is for its owner only", func(t *testing.T) {
		info, err := os.Stat(c.state.Kubeconfig)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("wanted mode 0600, got %v, error %v", info, err)
		}
	})
	t.Run("the state file names both servers' processes", func(t *testing.T) {
		for pid, name := range map[int]string{c.state.APIServerPID: "kube-apiserver", c.state.EtcdPID: "etcd"} {
			command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err != nil || !bytes.Contains(command, []byte(name)) {
				t.Errorf("wanted pid %d to be %s, got %q, error %v", pid, name, command, err)
			}
		}
		if c.config.Host != c.state.Server {
			t.Errorf("wanted server %s, got %s", c.config.Host, c.state.Server)
		}
	})
	t.Run("the server reports a real version", func(t *testing.T) {
		version, err := c.client.Discovery().ServerVersion()
		if err != nil || !strings.HasPrefix(version.GitVersion, "v1.36.") || version.Minor != "36" {
			t.Errorf("wanted v1.36.x, got %v, error %v", version, err)
		}
	})
	t.Run("a user without rights is refused", func(t *testing.T) {
		config := rest.CopyConfig(c.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: "nobody"}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("wanted Forbidden, got %v", err)
		}
	})
	t.Run("more Services than a /24 holds get node ports of the default range", func(t *testing.T) {
		c.createServices(t, 300)
	})
	t.Run("a pod runs though it has no service account", func(t *testing.T) {
		pod := c.runPod(t, "default", "a")
		if pod.Spec.ServiceAccountName != "" {
			t.Errorf("wanted no service account, got %q", pod.Spec.ServiceAccountName)
		}
	})
	t.Run("the control API is up", func(t *testing.T) {
		response, err := http.Get(c.state.ControlURL + "/healthz")
		if err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("wanted 200, got %v, error %v", response, err)
		}
		if err == nil {
			_ = response.Body.Close()
		}
	})
	c.stop(t, syscall.SIGTERM)
	if code := c.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("wanted exit code 0, got %d:\n%s", code, &c.stderr)
	}
	t.Run("one line on stdout says where everything is", func(t *testing.T) {
		line := regexp.MustCompile(`^devcluster: ready in \d+\.\ds kubeconfig=\S+ control=http://127\.0\.0\.1:\d+\n$`)
		if got := c.stdout.String(); !line.MatchString(got) {
			t.Errorf("wanted %s, got %q", line, got)
		}
	})
	c.wantNothingLeft(t)
}

func (c *cluster) createServices(t *testing.T, count int) {
	t.Helper()
	var creating sync.WaitGroup
	for range 8 {
		creating.Go(func() {
			for range count / 8 {
				service, err := c.client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"},
					Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
				}, metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
				} else if port := service.Spec.Ports[0].NodePort; port < 30000 || port > 32767 {
					t.Errorf("wanted a node port of 30000-32767, got %d", port)
				}
			}
		})
	}
	creating.Wait()
}

// runPod creates a Pod and waits until it runs. Its namespace may be too young to have a service account.
func (c *cluster) runPod(t *testing.T, namespace, name string) (pod *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+name+" running", func() (bool, any) {
		_, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "sandbox", Image: "registry.example/sandbox:1"}}},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return false, err
		}
		pod, err = c.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning, err
	})
	return pod
}

func TestAKilledDevclusterTakesItsServersAlongAndTheNextRunKeepsTheDataAndCleansUp(t *testing.T) {
	temp, data := t.TempDir(), t.TempDir()
	first := start(t, temp, nil, "--data-dir", data, "--service-account-admission")
	_, err := first.client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := first.runPod(t, "kept", "a")
	if before.Spec.ServiceAccountName != "default" {
		t.Errorf("wanted the default service account, got %q", before.Spec.ServiceAccountName)
	}
	first.stop(t, syscall.SIGKILL)
	eventually(t, "both servers gone", func() (bool, any) {
		return !alive(first.state.APIServerPID) && !alive(first.state.EtcdPID), first.state
	})

	// The second one is started by a shell that then dies.
	second := start(t, temp, []string{"/bin/sh", "-c", `"$0" "$@"; exit $?`}, "--data-dir", data, "--die-with-parent")
	if after := second.runPod(t, "kept", "a"); after.UID != before.UID || after.Status.PodIP != before.Status.PodIP {
		t.Errorf("wanted the same pod %s %s, got %s %s", before.UID, before.Status.PodIP, after.UID, after.Status.PodIP)
	}
	if b := second.runPod(t, "kept", "b"); b.Status.PodIP == before.Status.PodIP {
		t.Errorf("wanted an address of its own for the new pod, got %s twice", b.Status.PodIP)
	}
	if err := second.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	second.wantNothingLeft(t) // of the first one neither
}

func TestAnEarlySignalStopsTheStartAndLeavesNothingBehind(t *testing.T) {
	temp, dir := t.TempDir(), t.TempDir()
	cmd := command(t, temp, "start", "--kubeconfig", filepath.Join(dir, "kubeconfig"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "servers about to start", func() (bool, any) {
		pids, _ := filepath.Glob(filepath.Join(temp, "*", "shim", "*.pid"))
		return len(pids) > 0, pids
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("wanted exit code 0, got %v", err)
	}
	for _, where := range []string{temp, dir} {
		if left, _ := os.ReadDir(where); len(left) != 0 {
			t.Errorf("wanted nothing left behind, got %v", left)
		}
	}
}

func TestAMistakeOnTheCommandLineIsExitCode2(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{}, {"coffee"}, {"start", "--coffee"}, {"start", "extra"}, {"start", "--ready-delay", "-1s"}, {"assets", "extra"},
	} {
		cmd := command(t, t.TempDir(), args...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 2 || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%v: wanted exit code 2 and one line, got %d and %q", args, code, out)
		}
	}
}

func TestHelpIsPrintedOnStdout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"--help", "devcluster start"}, {"start --help", "-ready-delay"}, {"assets --help", "-bin-dir"},
	} {
		out, err := command(t, t.TempDir(), strings.Fields(c.args)...).Output()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: wanted help with %q, got %q, error %v", c.args, c.want, out, err)
		}
	}
}

func TestAssetsPrintsTheirDirectoryLast(t *testing.T) {
	out, err := command(t, t.TempDir(), "assets").Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if _, err := os.Stat(filepath.Join(lines[len(lines)-1], name)); err != nil {
			t.Error(err)
		}
	}
}
