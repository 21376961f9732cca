package containers_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
)

// engineTimeout bounds one operation of the Docker engine.
const engineTimeout = 60 * time.Second

// A bridge is a network of containers and of this machine, which is its first address.
type bridge struct {
	name   string
	prefix netip.Prefix
}

// newBridge makes a network that ends with the test. From an isolated one nothing leads to other networks, but for this machine.
func newBridge(t *testing.T, isolated bool) *bridge {
	t.Helper()
	var err error
	for range 20 { // Docker refuses a network that overlaps with one it has
		b := &bridge{prefix: randomSubnet()}
		opts := []tcnetwork.NetworkCustomizer{
			tcnetwork.WithIPAM(&network.IPAM{Config: []network.IPAMConfig{{Subnet: b.prefix, Gateway: b.addr(1)}}}),
		}
		if isolated {
			opts = append(opts, tcnetwork.WithInternal())
		}
		var made *testcontainers.DockerNetwork
		if made, err = tcnetwork.New(t.Context(), opts...); err != nil {
			continue
		}
		b.name = made.Name
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
			defer cancel()
			require.NoError(t, made.Remove(ctx))
		})
		return b
	}
	require.NoError(t, err, "no subnet is free")
	return nil
}

// randomSubnet is one of 512 that RFC 2544 sets aside for tests of networks.
func randomSubnet() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, byte(18 + rand.IntN(2)), byte(rand.IntN(256)), 0}), 24)
}

// addr is the nth address.
func (b *bridge) addr(n byte) netip.Addr {
	bytes := b.prefix.Addr().As4()
	bytes[3] = n
	return netip.AddrFrom4(bytes)
}

// A box is a container. It ends with the test.
type box struct {
	t      *testing.T
	docker *testcontainers.DockerClient
	id     string
	// fixed are its addresses in those networks where it keeps one.
	fixed map[*bridge]netip.Addr
}

// run starts a container on networks.
func run(t *testing.T, name string, req testcontainers.ContainerRequest, fixed map[*bridge]netip.Addr, on ...*bridge) *box {
	t.Helper()
	for _, b := range on {
		req.Networks = append(req.Networks, b.name)
	}
	limit := req.HostConfigModifier
	req.HostConfigModifier = func(c *container.HostConfig) {
		c.NetworkMode = container.NetworkMode(on[0].name)
		if limit != nil {
			limit(c)
		}
	}
	req.EndpointSettingsModifier = func(settings map[string]*network.EndpointSettings) {
		settings[on[0].name] = endpoint(fixed[on[0]])
	}
	started, err := testcontainers.GenericContainer(t.Context(), testcontainers.GenericContainerRequest{ContainerRequest: req, Started: true})
	if started != nil {
		t.Cleanup(func() { end(t, name, started) })
	}
	require.NoError(t, err)
	docker, err := testcontainers.NewDockerClientWithOpts(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = docker.Close() })
	return &box{t: t, docker: docker, id: started.GetContainerID(), fixed: fixed}
}

func endpoint(addr netip.Addr) *network.EndpointSettings {
	if !addr.IsValid() {
		return &network.EndpointSettings{}
	}
	return &network.EndpointSettings{IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: addr}}
}

// end removes a container, and shows its log when the test has failed.
func end(t *testing.T, name string, c testcontainers.Container) {
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	if t.Failed() {
		if log, err := c.Logs(ctx); err == nil {
			text, _ := io.ReadAll(log)
			_ = log.Close()
			lines := strings.Split(string(text), "\n")
			t.Logf("log of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-100):], "\n"))
		}
	}
	require.NoError(t, testcontainers.TerminateContainer(c, testcontainers.StopContext(ctx), testcontainers.StopTimeout(0)))
}

// pause freezes all processes of the container.
func (b *box) pause() {
	b.t.Helper()
	b.do(func(ctx context.Context) error {
		_, err := b.docker.ContainerPause(ctx, b.id, client.ContainerPauseOptions{})
		return err
	})
}

// unpause is the end of pause.
func (b *box) unpause() {
	b.t.Helper()
	b.do(func(ctx context.Context) error {
		_, err := b.docker.ContainerUnpause(ctx, b.id, client.ContainerUnpauseOptions{})
		return err
	})
}

// kill ends it with SIGKILL.
func (b *box) kill() {
	b.t.Helper()
	b.do(func(ctx context.Context) error {
		_, err := b.docker.ContainerKill(ctx, b.id, client.ContainerKillOptions{})
		return err
	})
}

// start starts it again.
func (b *box) start() {
	b.t.Helper()
	b.do(func(ctx context.Context) error {
		_, err := b.docker.ContainerStart(ctx, b.id, client.ContainerStartOptions{})
		return err
	})
}

// remove removes it.
func (b *box) remove() {
	b.t.Helper()
	b.do(func(ctx context.Context) error {
		_, err := b.docker.ContainerRemove(ctx, b.id, client.ContainerRemoveOptions{Force: true})
		return err
	})
}

// cutOff takes it off a network: packets get lost, connections stay open.
func (b *box) cutOff(from *bridge) {
	b.t.Helper()
	b.do(func(ctx context.Context) error {
		_, err := b.docker.NetworkDisconnect(ctx, from.name, client.NetworkDisconnectOptions{Container: b.id})
		return err
	})
}

// connect is the end of cutOff.
func (b *box) connect(to *bridge) {
	b.t.Helper()
	b.do(func(ctx context.Context) error {
		_, err := b.docker.NetworkConnect(ctx, to.name, client.NetworkConnectOptions{Container: b.id, EndpointConfig: endpoint(b.fixed[to])})
		return err
	})
}

func (b *box) do(what func(ctx context.Context) error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), engineTimeout)
	defer cancel()
	require.NoError(b.t, what(ctx))
}

// volumeName is a name that no other test has.
func volumeName() string { return fmt.Sprintf("sandbox-provisioner-test-%016x", rand.Uint64()) }

// removeVolume removes a volume that no container uses.
func removeVolume(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	docker, err := testcontainers.NewDockerClientWithOpts(ctx)
	require.NoError(t, err)
	defer func() { _ = docker.Close() }()
	_, err = docker.VolumeRemove(ctx, name, client.VolumeRemoveOptions{Force: true})
	require.NoError(t, err)
}
