package k8s

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: dev
contexts:
- {name: dev, context: {cluster: dev, user: me}}
clusters:
- {name: dev, cluster: {server: "%s", certificate-authority: ca.crt}}
users:
- {name: me, user: {token: secret-token}}
`

// outside is a process on a host that has nothing to do with a cluster.
var outside = surroundings{
	inCluster:   func() (*rest.Config, error) { return nil, rest.ErrNotInCluster },
	inContainer: func() bool { return false },
}

func inside() surroundings {
	s := outside
	s.inCluster = func() (*rest.Config, error) {
		return &rest.Config{Host: "https://10.96.0.1:443", BearerToken: "pod-token"}, nil
	}
	return s
}

func write(t *testing.T, content string) string {
	dir := t.TempDir()
	// client-go wants the file that kubeconfig refers to, and reads it when the client is made.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("no certificate"), 0o600))
	path := filepath.Join(dir, "config")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func connect(t *testing.T, s surroundings, c Connection) (*rest.Config, string, error) {
	var logged bytes.Buffer
	cfg, err := s.connect(t.Context(), c, slog.New(slog.NewTextHandler(&logged, nil)))
	return cfg, logged.String(), err
}

func TestAKubeconfigIsUsed(t *testing.T) {
	t.Parallel()
	path := write(t, fmt.Sprintf(kubeconfig, "https://10.0.0.7:6443"))
	cfg, logged, err := connect(t, inside(), Connection{KubeconfigPath: path, QPS: -1, RequestTimeout: 5 * time.Second})
	require.NoError(t, err)
	require.Equal(t, "https://10.0.0.7:6443", cfg.Host)
	require.Equal(t, "secret-token", cfg.BearerToken)
	require.Equal(t, filepath.Join(filepath.Dir(path), "ca.crt"), cfg.CAFile, "files are looked for beside the kubeconfig")
	require.False(t, cfg.Insecure)
	require.Equal(t, 5*time.Second, cfg.Timeout)
	require.EqualValues(t, -1, cfg.QPS)
	require.Equal(t, "application/vnd.kubernetes.protobuf", cfg.ContentType)
	require.NotContains(t, logged, "WARN")
	require.NotContains(t, logged, "secret-token")
}

func TestQPS(t *testing.T) {
	t.Parallel()
	for qps, want := range map[float32]float32{-1: -1, 0: -1, 0.1: 0.1, 50: 50} {
		cfg, _, err := connect(t, inside(), Connection{QPS: qps})
		require.NoError(t, err)
		require.Equal(t, want, cfg.QPS)
		require.True(t, qps <= 0 || cfg.Burst >= 1, "a throttle that lets nothing through")
	}
}

func TestAMissingKubeconfigInAClusterIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", filepath.Join(t.TempDir(), "config")} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			cfg, _, err := connect(t, inside(), Connection{KubeconfigPath: path, KubeconfigWait: 30 * time.Second})
			require.NoError(t, err)
			require.Equal(t, "https://10.96.0.1:443", cfg.Host)
			require.Zero(t, time.Since(start))
		})
	}
}

func TestAMissingKubeconfigIsWaitedFor(t *testing.T) {
	t.Parallel()
	later := write(t, fmt.Sprintf(kubeconfig, "https://10.0.0.7:6443"))
	path := filepath.Join(filepath.Dir(later), "kubeconfig")
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		time.AfterFunc(3*time.Second, func() { require.NoError(t, os.Rename(later, path)) })
		cfg, logged, err := connect(t, outside, Connection{KubeconfigPath: path, KubeconfigWait: 30 * time.Second})
		require.NoError(t, err)
		require.Equal(t, "https://10.0.0.7:6443", cfg.Host)
		require.Less(t, time.Since(start), 4*time.Second)
		require.Equal(t, 1, strings.Count(logged, "waiting"), "said once")
	})
}

func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "config")
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, _, err := connect(t, outside, Connection{KubeconfigPath: missing, KubeconfigWait: 30 * time.Second})
		require.ErrorContains(t, err, "KUBECONFIG_PATH="+missing+": no such file")
		require.Equal(t, 30*time.Second, time.Since(start))
	})
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, _, err := connect(t, outside, Connection{KubeconfigPath: "", KubeconfigWait: 30 * time.Second})
		require.ErrorContains(t, err, "KUBECONFIG_PATH=: no such file")
		require.Zero(t, time.Since(start), "there is nothing to wait for")
	})
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("told to stop")
		time.AfterFunc(time.Second, func() { cancel(stopped) })
		_, err := outside.connect(ctx, Connection{KubeconfigPath: missing, KubeconfigWait: 30 * time.Second}, slog.New(slog.DiscardHandler))
		require.ErrorIs(t, err, stopped)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestAKubeconfigThatCannotBeUsedIsOneClearLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	closed := write(t, fmt.Sprintf(kubeconfig, "https://10.0.0.7:6443")) // by another owner, when we are root
	require.NoError(t, os.Chmod(closed, 0))
	for _, tt := range []struct{ name, path, want string }{
		{"a directory", dir, "is a directory; mount a file there"},
		{"a pipe", pipe, "is not a regular file"},
		{"below a file", filepath.Join(write(t, ""), "config"), "cannot be read: not a directory"},
		{"without permission", closed, "cannot be read: permission denied"},
		{"not YAML", write(t, "\tnot: [yaml"), "is no kubeconfig"},
		{"another document", write(t, "hello"), "is no kubeconfig"},
		{"empty", write(t, ""), "names no cluster"},
		{"without a current context", write(t, strings.Replace(fmt.Sprintf(kubeconfig, "https://x"), "current-context: dev\n", "", 1)), "cannot be used"},
		{"with a context that is not there", write(t, strings.Replace(fmt.Sprintf(kubeconfig, "https://x"), "current-context: dev", "current-context: prod", 1)),
			"cannot be used"},
		{"with a file that is not there", write(t, strings.Replace(fmt.Sprintf(kubeconfig, "https://x"), "ca.crt", "gone.crt", 1)),
			"kubectl config view --raw --flatten"},
		{"without a server", write(t, fmt.Sprintf(kubeconfig, "")), "cannot be used"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.path == closed {
				asNobody(t)
			}
			// A wait would be for nothing, and the in-cluster configuration would be another cluster than the one meant.
			_, _, err := connect(t, inside(), Connection{KubeconfigPath: tt.path, KubeconfigWait: time.Hour})
			require.ErrorContains(t, err, tt.want)
			require.True(t, strings.HasPrefix(err.Error(), "KUBECONFIG_PATH="+tt.path+": "), err)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

// asNobody takes root's right to read everything from this test, until it ends.
func asNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	runtime.LockOSThread() // the identity is that of the thread, which ends with this goroutine
	require.NoError(t, syscall.Setfsuid(nobody))
}

func TestTheServerIsReplaced(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "Bearer secret-token", r.Header.Get("Authorization"), "the credentials are kept")
		answer(t, w, http.StatusOK, &corev1.Pod{})
	}))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	theirs := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	// The certificate of httptest is for 127.0.0.1 and example.com.
	otherName := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	withAuthority := func() string {
		config := fmt.Sprintf(kubeconfig, "https://10.0.0.7:6443")
		return write(t, strings.Replace(config, "certificate-authority: ca.crt",
			"certificate-authority-data: "+base64.StdEncoding.EncodeToString(theirs), 1))
	}
	for _, tt := range []struct {
		name    string
		server  string
		verify  bool
		works   bool
		message string
	}{
		{"without verification any certificate will do", otherName, false, true, "TLS verification is off"},
		{"with verification it must be the right one", otherName, true, false, "TLS is verified"},
		{"and then it is", server.URL, true, true, "TLS is verified"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg, logged, err := connect(t, outside, Connection{
				KubeconfigPath: withAuthority(), APIServer: tt.server, TLSVerify: tt.verify, RequestTimeout: 10 * time.Second,
			})
			require.NoError(t, err)
			require.Equal(t, tt.server, cfg.Host)
			require.Equal(t, 1, strings.Count(logged, tt.message), logged)
			core, err := NewCore(cfg)
			require.NoError(t, err)
			_, err = core.Pods("deer-flow").Get(t.Context(), "sandbox-a1", metav1.GetOptions{})
			if tt.works {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "x509")
			}
		})
	}
}

func TestAnAuthorityFileIsLeftOutWithoutVerification(t *testing.T) {
	t.Parallel()
	path := write(t, fmt.Sprintf(kubeconfig, "https://10.0.0.7:6443"))
	c := Connection{KubeconfigPath: path, APIServer: "https://host.docker.internal:6443"}
	cfg, _, err := connect(t, outside, c)
	require.NoError(t, err)
	_, err = NewCore(cfg)
	require.NoError(t, err)

	c.TLSVerify = true
	cfg, _, err = connect(t, outside, c)
	require.NoError(t, err)
	_, err = NewCore(cfg)
	require.ErrorContains(t, err, "root certificates", "the file is looked at after all")
}

func TestALoopbackServerInAContainerIsWarnedOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		server      string
		inContainer bool
		want        bool
	}{
		{"https://127.0.0.1:6443", true, true},
		{"https://localhost:6443", true, true},
		{"https://kubernetes.localhost:6443", true, true},
		{"https://[::1]:6443", true, true},
		{"https://0.0.0.0:6443", true, true},
		{"127.0.0.1:6443", true, true},
		{"https://127.0.0.1:6443", false, false},
		{"https://host.docker.internal:6443", true, false},
		{"https://localhost.example:6443", true, false},
		{"https://10.0.0.7:6443", true, false},
	} {
		s := outside
		s.inContainer = func() bool { return tt.inContainer }
		_, logged, err := connect(t, s, Connection{KubeconfigPath: write(t, fmt.Sprintf(kubeconfig, tt.server))})
		require.NoError(t, err)
		require.Equal(t, tt.want, strings.Contains(logged, "set K8S_API_SERVER"), "%s: %s", tt.server, logged)
	}
}

func TestConnectionsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	good := Connection{KubeconfigWait: 30 * time.Second, RequestTimeout: 5 * time.Second}
	for _, tt := range []struct {
		name string
		set  func(*Connection)
		want string
	}{
		{"stock", func(*Connection) {}, ""},
		{"no wait", func(c *Connection) { c.KubeconfigWait = 0 }, ""},
		{"a host and a port", func(c *Connection) { c.APIServer = "10.0.0.7:6443" }, ""},
		{"a wait before now", func(c *Connection) { c.KubeconfigWait = -1 }, "KUBECONFIG_WAIT"},
		{"no time for a request", func(c *Connection) { c.RequestTimeout = 0 }, "K8S_REQUEST_TIMEOUT"},
		{"an address and a port", func(c *Connection) { c.APIServer = "[::1]:6443" }, ""},
		{"a server that is no URL", func(c *Connection) { c.APIServer = "not a url" }, "K8S_API_SERVER"},
		{"a server that is a word", func(c *Connection) { c.APIServer = "notaurl" }, "K8S_API_SERVER"},
		{"a server of another scheme", func(c *Connection) { c.APIServer = "ftp://host" }, "K8S_API_SERVER"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := good
			tt.set(&c)
			if tt.want == "" {
				require.NoError(t, c.Validate())
			} else {
				require.ErrorContains(t, c.Validate(), tt.want)
			}
		})
	}
}
