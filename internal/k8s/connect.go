package k8s

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/version"
)

// kubeconfigPoll is how often a missing kubeconfig is looked for.
const kubeconfigPoll = 500 * time.Millisecond

// Keys of log records.
const (
	keyPath    = "path"
	keyServer  = "server"
	keyWait    = "wait"
	keyWarning = "warning"
)

// Validate finds what would make every request fail. Each wrong variable is one line of the error.
func (c Connection) Validate() error {
	var problems []error
	if c.KubeconfigWait < 0 {
		problems = append(problems, fmt.Errorf("KUBECONFIG_WAIT=%v: must be 0s or more", c.KubeconfigWait))
	}
	if c.RequestTimeout <= 0 {
		problems = append(problems, fmt.Errorf("K8S_REQUEST_TIMEOUT=%v: must be more than 0s", c.RequestTimeout))
	}
	if c.APIServer != "" {
		if !isServer(c.APIServer) {
			problems = append(problems, errors.New("K8S_API_SERVER: must be a URL such as https://host.docker.internal:6443"))
		}
	}
	return errors.Join(problems...)
}

// isServer tells whether client-go can find a server by that name, and somebody has meant one: it takes any word for a host.
func isServer(server string) bool {
	if _, _, err := rest.DefaultServerURL(server, "", schema.GroupVersion{}, true); err != nil {
		return false
	}
	_, port, _ := net.SplitHostPort(server)
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil || strings.HasPrefix(server, "https://") || strings.HasPrefix(server, "http://")
}

// Connect finds the cluster: by the kubeconfig, or, where that is missing, by the service account of the Pod that we run in.
// It blocks while it waits for a missing kubeconfig, up to KubeconfigWait, and sends nothing. Its errors are one line that
// names the variable to change.
func Connect(ctx context.Context, c Connection, log *slog.Logger) (*rest.Config, error) {
	return surroundings{inCluster: rest.InClusterConfig, inContainer: inContainer}.connect(ctx, c, log)
}

// surroundings are what Connect sees besides its arguments.
type surroundings struct {
	inCluster   func() (*rest.Config, error)
	inContainer func() bool
}

func (s surroundings) connect(ctx context.Context, c Connection, log *slog.Logger) (*rest.Config, error) {
	cfg, err := s.find(ctx, c, log)
	if err != nil {
		return nil, err
	}
	if c.APIServer != "" {
		replaceServer(cfg, c, log)
	}
	if isLoopback(cfg.Host) && s.inContainer() {
		log.Warn("the API server's address is a loopback address, which inside a container is the container itself;"+
			" set K8S_API_SERVER to an address of the host, such as https://host.docker.internal:6443", slog.String(keyServer, sandbox.Plain(cfg.Host)))
	}
	cfg.UserAgent = "sandbox-provisioner/" + strings.Trim(version.Get().Version, "()")
	cfg.Timeout = c.RequestTimeout
	cfg.QPS = -1 // 0 would be client-go's default of 5
	if c.QPS > 0 {
		cfg.QPS, cfg.Burst = c.QPS, max(1, int(2*c.QPS))
	}
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.WarningHandler = warnings{log}
	cfg.Wrap(withoutHiddenRetries)
	noticeDeadConnections()
	return cfg, nil
}

// noticeDeadConnections makes client-go ping a silent connection after 5 s, and give it up after 5 s more, in place of its 30
// and 15: until then every request on it hangs. Its only knobs are these variables; whoever has set them knows better.
func noticeDeadConnections() {
	for _, name := range [...]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"} {
		if _, set := os.LookupEnv(name); !set {
			_ = os.Setenv(name, "5")
		}
	}
}

// find is the kubeconfig, else the in-cluster configuration, else both again until the wait is over.
func (s surroundings) find(ctx context.Context, c Connection, log *slog.Logger) (*rest.Config, error) {
	over := time.Now().Add(c.KubeconfigWait)
	for waiting := false; ; waiting = true {
		cfg, err := loadKubeconfig(c.KubeconfigPath)
		if err != nil {
			return nil, err
		}
		if cfg != nil {
			log.Info("using KUBECONFIG_PATH", slog.String(keyServer, sandbox.Plain(cfg.Host)))
			return cfg, nil
		}
		cfg, err = s.inCluster()
		if err == nil {
			log.Info("no file at KUBECONFIG_PATH, using the in-cluster configuration", slog.String(keyServer, cfg.Host))
			return cfg, nil
		}
		// Without a path there is nothing to wait for.
		if c.KubeconfigPath == "" || !time.Now().Before(over) {
			return nil, fmt.Errorf("KUBECONFIG_PATH=%s: no such file, and no in-cluster configuration (%s);"+
				" mount a kubeconfig there, or run in a cluster with a service account", c.KubeconfigPath, oneLine(err))
		}
		if !waiting {
			log.Warn("waiting for the kubeconfig", slog.String(keyPath, c.KubeconfigPath), slog.Duration(keyWait, c.KubeconfigWait))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for KUBECONFIG_PATH=%s: %w", c.KubeconfigPath, context.Cause(ctx))
		case <-time.After(min(kubeconfigPoll, time.Until(over))):
		}
	}
}

// loadKubeconfig returns nil without an error when there is no such file.
func loadKubeconfig(path string) (*rest.Config, error) {
	refuse := func(why, way string) error { return fmt.Errorf("KUBECONFIG_PATH=%s: %s; %s", path, why, way) }

	info, err := os.Stat(path)
	switch {
	case path == "" || errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, refuse("cannot be read: "+cause(err), "make it readable for this user")
	case info.IsDir():
		return nil, refuse("is a directory", "mount a file there (Docker makes a directory when the file to mount does not exist)")
	case !info.Mode().IsRegular():
		return nil, refuse("is not a regular file", "mount a kubeconfig file there")
	}
	file, err := clientcmd.LoadFromFile(path)
	if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
		return nil, refuse("cannot be read: "+cause(err), "make it readable for this user")
	}
	if err == nil && len(file.Clusters) == 0 {
		return nil, refuse("names no cluster", "mount a kubeconfig with a current context there")
	}
	if err == nil {
		// Files that it refers to lie beside it, wherever we were started.
		err = clientcmd.ResolveLocalPaths(file)
	}
	if err != nil {
		return nil, refuse("is no kubeconfig: "+oneLine(err), "mount a valid one there")
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err != nil {
		return nil, refuse("cannot be used: "+oneLine(err),
			"mount one with a current context that refers to no other files, as kubectl config view --raw --flatten writes it")
	}
	return cfg, nil
}

// replaceServer keeps the credentials. The certificate of the new address usually names another host, so it is not
// verified unless that is asked for; client-go refuses authorities beside Insecure.
func replaceServer(cfg *rest.Config, c Connection, log *slog.Logger) {
	cfg.Host = c.APIServer
	if c.TLSVerify {
		log.Info("K8S_API_SERVER replaces the server; TLS is verified", slog.String(keyServer, sandbox.Plain(cfg.Host)))
		return
	}
	cfg.Insecure = true
	cfg.CAData, cfg.CAFile = nil, ""
	log.Warn("K8S_API_SERVER replaces the server; TLS verification is off although credentials are sent;"+
		" K8S_TLS_VERIFY=true keeps it on", slog.String(keyServer, sandbox.Plain(cfg.Host)))
}

func isLoopback(server string) bool {
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return u.Hostname() == "localhost" || strings.HasSuffix(u.Hostname(), ".localhost")
	}
	return ip.IsLoopback() || ip.IsUnspecified()
}

// inContainer goes by the files that Docker and Podman leave in every container.
func inContainer() bool {
	for _, mark := range [...]string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(mark); err == nil {
			return true
		}
	}
	return false
}

// warnings of the API server, such as those of Pod Security Admission, come with every single Pod.
type warnings struct{ log *slog.Logger }

func (w warnings) HandleWarningHeader(_ int, _ string, text string) {
	if text != "" {
		w.log.Debug("the API server warns", slog.String(keyWarning, text))
	}
}

// cause is err without the path that it repeats.
func cause(err error) string {
	if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
		return pathError.Err.Error()
	}
	return oneLine(err)
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
