package compose_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

// composeTimeout bounds one command of compose: some wait for containers to be healthy.
const composeTimeout = 3 * time.Minute

// A project is what compose runs under a name of its own. It ends with the test, and leaves nothing.
type project struct {
	t         *testing.T
	name      string
	env       map[string]string
	dir       string
	cluster   *testenv.Kubernetes
	namespace string
}

// newProject has the settings that lead to the development cluster. It starts nothing.
func newProject(t *testing.T) *project {
	t.Helper()
	needEngine(t)
	p := &project{t: t, name: fmt.Sprintf("test-%08x", rand.Uint32()), dir: t.TempDir(), cluster: testenv.Cluster(t)}
	p.namespace = p.cluster.Namespace(t)
	p.env = map[string]string{
		"PROVISIONER_API_KEY": testenv.Key,
		"PROVISIONER_BIND":    testenv.FreeAddr(t),
		"KUBECONFIG":          p.kubeconfig(),
		"K8S_API_SERVER":      p.apiServer(),
		"K8S_NAMESPACE":       p.namespace,
		"NODE_HOST":           "127.0.0.1", // the simulated node listens there
		"SANDBOX_IMAGE":       "sandbox.example/image:1",
	}
	t.Cleanup(p.end)
	return p
}

// kubeconfig is a copy of the cluster's that the user of the images may read, and nobody else.
func (p *project) kubeconfig() string {
	content, err := os.ReadFile(p.cluster.Kubeconfig)
	require.NoError(p.t, err)
	path := filepath.Join(p.t.TempDir(), "kubeconfig")
	require.NoError(p.t, os.WriteFile(path, content, 0o600))
	require.NoError(p.t, os.Chown(path, 1000, 1000))
	return path
}

// apiServer leads from the containers to the API server of the cluster, which listens on loopback addresses alone.
func (p *project) apiServer() string {
	server, err := url.Parse(p.cluster.Config.Host)
	require.NoError(p.t, err)
	// All that Docker takes for its networks is private; which of it, is not known before they are there.
	relay := testenv.Relay(p.t, p.gateway(), server.Host,
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"))
	return "https://host.docker.internal:" + strconv.Itoa(int(netip.MustParseAddrPort(relay).Port()))
}

// gateway is what host.docker.internal stands for in the containers: the engine's own address on its default bridge. The interface is
// asked, since an engine that has made the bridge itself does not say the address before it is started again.
func (p *project) gateway() netip.Addr {
	name, err := command(p.t.Context(), 10*time.Second,
		"docker", "network", "inspect", "bridge", "--format", `{{index .Options "com.docker.network.bridge.name"}}`)
	require.NoError(p.t, err)
	bridge, err := net.InterfaceByName(name)
	require.NoError(p.t, err)
	addrs, err := bridge.Addrs()
	require.NoError(p.t, err)
	require.NotEmpty(p.t, addrs, "%s has no address", name)
	return netip.MustParsePrefix(addrs[0].String()).Addr()
}

// try runs a command of compose and returns what it has printed. What env says goes before the project's own settings.
func (p *project) try(env map[string]string, args ...string) (string, error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.Context()), composeTimeout)
	defer cancel()
	program := composeProgram().args
	args = append([]string{"--project-name", p.name, "--env-file", p.envFile()}, args...)
	cmd := exec.CommandContext(ctx, program[0], append(program[1:len(program):len(program)], args...)...)
	cmd.Dir = root
	// Of the settings of whoever runs the test only those that lead to his engine have a say.
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); name == "PATH" || name == "HOME" || strings.HasPrefix(name, "DOCKER_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return output(cmd)
}

// envFile is what an operator has in .env.
func (p *project) envFile() string {
	p.t.Helper()
	var lines strings.Builder
	for name, value := range p.env {
		fmt.Fprintf(&lines, "%s=%s\n", name, value)
	}
	path := filepath.Join(p.dir, ".env")
	require.NoError(p.t, os.WriteFile(path, []byte(lines.String()), 0o600))
	return path
}

// run is try for what must not fail.
func (p *project) run(args ...string) string {
	p.t.Helper()
	out, err := p.try(nil, args...)
	require.NoError(p.t, err)
	return out
}

// client talks to the API on the port of this machine.
func (p *project) client() testenv.Client {
	return testenv.Client{URL: "http://" + p.env["PROVISIONER_BIND"], Key: testenv.Key}
}

// end removes all, and wants all to be gone.
func (p *project) end() {
	if p.t.Failed() {
		if log, err := p.try(nil, "--profile", "standalone", "logs", "--no-color", "--tail", "60"); err == nil {
			p.t.Log(log)
		}
	}
	_, err := p.try(nil, "--profile", "standalone", "down", "--volumes", "--timeout", "5")
	require.NoError(p.t, err)
	for kind, list := range map[string][]string{
		"container": {"ps", "--all"}, "volume": {"volume", "ls"}, "network": {"network", "ls"},
	} {
		left, err := command(context.WithoutCancel(p.t.Context()), 10*time.Second, "docker",
			append(list, "--quiet", "--filter", "label=com.docker.compose.project="+p.name)...)
		require.NoError(p.t, err)
		require.Empty(p.t, left, "down leaves a %s behind", kind)
	}
}

// containers are the ids of a service's containers.
func (p *project) containers(service string) []string {
	p.t.Helper()
	return strings.Fields(p.run("ps", "--quiet", service))
}

// inspect is a property of a container, in the format of docker inspect.
func (p *project) inspect(container, format string) string {
	p.t.Helper()
	out, err := command(p.t.Context(), 10*time.Second, "docker", "inspect", "--format", format, container)
	require.NoError(p.t, err)
	return out
}

// waitUntilHealthy waits until the containers' own checks say so.
func (p *project) waitUntilHealthy(containers ...string) {
	p.t.Helper()
	testenv.Until(p.t, time.Minute, func() error {
		for _, id := range containers {
			if health := p.inspect(id, "{{.State.Health.Status}}"); health != "healthy" {
				return fmt.Errorf("%s is %s: %s", p.inspect(id, "{{.Name}}"), health, p.inspect(id, "{{json .State.Health.Log}}"))
			}
		}
		return nil
	})
}

// crash kills the process of a container behind the back of Docker, as a lack of memory would: what Docker itself kills is not
// restarted. It returns when Docker has started another one.
func (p *project) crash(container, program string) {
	p.t.Helper()
	pid := p.inspect(container, "{{.State.Pid}}")
	comm, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
	require.NoError(p.t, err)
	require.Equal(p.t, program, strings.TrimSpace(string(comm)), "process %s is somebody else's", pid)
	number, err := strconv.Atoi(pid)
	require.NoError(p.t, err)
	require.NoError(p.t, syscall.Kill(number, syscall.SIGKILL))
	testenv.Until(p.t, time.Minute, func() error {
		if state := p.inspect(container, "{{.RestartCount}} {{.State.Running}}"); state != "1 true" {
			return fmt.Errorf("restarted, running: %s", state)
		}
		return nil
	})
}
