package containers_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"

	"sandbox-provisioner/internal/testenv"
)

// natsHost is the last byte of the address of the first NATS server in its network. Below are the addresses that Docker gives.
const natsHost = 100

// natsServer starts a NATS server at an address that it keeps, with its store on a volume.
func natsServer(t *testing.T, on *bridge, addr netip.Addr, volume, config string) *box {
	t.Helper()
	return run(t, "NATS "+addr.String(), testcontainers.ContainerRequest{
		Image:  natsImage,
		Cmd:    []string{"--config", "/nats.conf"},
		Files:  []testcontainers.ContainerFile{{Reader: strings.NewReader(config), ContainerFilePath: "/nats.conf", FileMode: 0o644}},
		Mounts: testcontainers.ContainerMounts{testcontainers.VolumeMount(volume, "/data")},
	}, map[*bridge]netip.Addr{on: addr}, on)
}

// jetStream is the configuration of a server whose promises survive a power cut.
const jetStream = `jetstream { store_dir: /data, sync_interval: always }
`

func natsURL(addr netip.Addr) string { return fmt.Sprintf("nats://%s:4222", addr) }

// newVolume is a volume that ends with the test.
func newVolume(t *testing.T) string {
	t.Helper()
	name := volumeName()
	t.Cleanup(func() { removeVolume(t, name) }) // after the containers that use it
	return name
}

func TestNATSMayFailAndComeBackInAnyWay(t *testing.T) {
	t.Parallel()
	needEngine(t)
	for name, fault := range map[string]struct {
		begin, end func(*box, *bridge)
	}{
		"paused":  {func(n *box, _ *bridge) { n.pause() }, func(n *box, _ *bridge) { n.unpause() }},
		"killed":  {func(n *box, _ *bridge) { n.kill() }, func(n *box, _ *bridge) { n.start() }},
		"cut off": {func(n *box, on *bridge) { n.cutOff(on) }, func(n *box, on *bridge) { n.connect(on) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := newBridge(t, false)
			addr := on.addr(natsHost)
			server, url := natsServer(t, on, addr, newVolume(t), jetStream), natsURL(addr)
			proxy := testenv.Proxy(t, testenv.Cluster(t))
			d := testenv.Stack(t, testenv.NATSAt(url), testenv.ClusterIP(), testenv.APIs(2), testenv.Workers(2),
				testenv.WorkerThrough(0, proxy), testenv.WorkerThrough(1, proxy),
				testenv.Env("ACK_WAIT", ackWait.String()), testenv.Env("SWEEP_INTERVAL", "0s"))
			c := d.Client()
			kept, deleted := names("kept", 5), names("deleted", 5)
			created(t, d, slices.Concat(kept, deleted))
			waitUntilQuiet(t, url, 10*time.Second)

			// All that was accepted is in hand when the fault comes, and nothing is done.
			writes := []*testenv.Rule{
				proxy.On(testenv.Match{Verb: "create"}, testenv.Hang), proxy.On(testenv.Match{Verb: "delete"}, testenv.Hang),
			}
			queued := names("queued", 20)
			for _, id := range queued {
				c.Create(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
			}
			for _, id := range deleted {
				c.Delete(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
			}
			fault.begin(server, on)

			for _, api := range d.APIs {
				for _, ask := range []func(testenv.Client) testenv.Response{
					func(c testenv.Client) testenv.Response { return c.Create(t.Context(), "refused") },
					func(c testenv.Client) testenv.Response {
						return c.Create(t.Context(), "refused", testenv.Prefer("respond-async"))
					},
					func(c testenv.Client) testenv.Response { return c.Delete(t.Context(), kept[0]) },
				} {
					r := ask(api.Client()).Want(t, http.StatusServiceUnavailable)
					require.Less(t, r.Took, natsBudget, "%v", r)
					require.NotEmpty(t, r.Header.Get("Retry-After"))
				}
				api.Client().Get(t.Context(), kept[0]).Want(t, http.StatusOK)
			}
			// Longer than the leases of all jobs that were under way.
			holdFor(t, ackWait)
			for _, rule := range writes {
				rule.Remove()
			}
			fault.end(server, on)

			requireExactly(t, d, url, 40*time.Second, slices.Concat(queued, kept)...)
			r := untilCode(t, 20*time.Second, http.StatusOK, func() testenv.Response { return c.Create(t.Context(), "after") })
			require.Equal(t, "after", r.Body.ID)
			c.Delete(t.Context(), "after").Want(t, http.StatusOK)
			requireExactly(t, d, url, 20*time.Second, slices.Concat(queued, kept)...)
		})
	}
}

// holdFor lets a fault last. There is nothing to wait for but time.
func holdFor(t *testing.T, long time.Duration) {
	t.Helper()
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// What NATS alone knew is lost with its volume: what had been accepted, and not carried out. What exists stays, and is served and
// deleted as before; somebody who waits has his job queued again.
func TestNATSMayLoseItsVolume(t *testing.T) {
	t.Parallel()
	needEngine(t)
	on := newBridge(t, false)
	addr, volume := on.addr(natsHost), newVolume(t)
	server, url := natsServer(t, on, addr, volume, jetStream), natsURL(addr)
	d := testenv.Stack(t, testenv.NATSAt(url), testenv.ClusterIP(), testenv.Workers(2),
		testenv.Env("ACK_WAIT", ackWait.String()), testenv.Env("SWEEP_INTERVAL", "0s"))
	c := d.Client()
	kept, deleted := names("kept", 5), names("deleted", 5)
	created(t, d, slices.Concat(kept, deleted))
	uid := d.WaitUntilRunning(kept[0])
	waitUntilQuiet(t, url, 10*time.Second)
	d.StopWorkers()
	c.Create(t.Context(), "lost", testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	waiter := make(chan testenv.Response, 1)
	go func() { waiter <- c.Create(t.Context(), "waited-for", testenv.Prefer("wait=25")) }()
	testenv.Until(t, 5*time.Second, func() error {
		if r := c.Job(t.Context(), "waited-for"); r.Code != http.StatusOK {
			return fmt.Errorf("it is not queued: %v", r)
		}
		return nil
	})

	server.kill()
	server.remove()
	removeVolume(t, volume)
	natsServer(t, on, addr, volume, jetStream)
	d.StartWorkers()

	(<-waiter).Want(t, http.StatusOK)
	for _, id := range kept {
		untilCode(t, 10*time.Second, http.StatusOK, func() testenv.Response { return c.Create(t.Context(), id) })
	}
	require.Equal(t, uid, d.WaitUntilRunning(kept[0]), "it is another Pod now")
	for _, id := range deleted {
		c.Delete(t.Context(), id).Want(t, http.StatusOK)
	}
	c.Job(t.Context(), "lost").Want(t, http.StatusNotFound)
	c.Get(t.Context(), "lost").Want(t, http.StatusNotFound)
	requireExactly(t, d, url, 20*time.Second, append(kept, "waited-for")...)
	c.Create(t.Context(), "lost").Want(t, http.StatusOK)
}

func TestOneOfThreeNATSServersMayDieAtATime(t *testing.T) {
	t.Parallel()
	needEngine(t)
	on := newBridge(t, false)
	var servers []*box
	var urls, routes []string
	for i := range 3 {
		addr := on.addr(natsHost + byte(i))
		urls = append(urls, natsURL(addr))
		routes = append(routes, fmt.Sprintf("nats://%s:6222", addr))
	}
	for i := range 3 {
		config := fmt.Sprintf("server_name: n%d\n%scluster { name: test, listen: \"0.0.0.0:6222\", routes: [%s] }\n",
			i, jetStream, strings.Join(routes, ", "))
		servers = append(servers, natsServer(t, on, on.addr(natsHost+byte(i)), newVolume(t), config))
	}
	url := strings.Join(urls, ",")
	waitUntilLed(t, url)
	d := testenv.Stack(t, testenv.NATSAt(url), testenv.ClusterIP(), testenv.APIs(2), testenv.Workers(2), testenv.Env("NATS_STREAM_REPLICAS", "3"),
		testenv.Env("ACK_WAIT", ackWait.String()), testenv.Env("SWEEP_INTERVAL", "0s"))
	waitUntilCopied(t, url)

	wanted, deleted := names("kept", 5), names("deleted", 3)
	created(t, d, slices.Concat(wanted, deleted))
	for i, server := range servers {
		// Some is accepted just before, some in between, some while a new leader is looked for.
		wanted = append(wanted, accepted(t, d, fmt.Sprint("before-", i), 10)...)
		server.kill()
		wanted = append(wanted, accepted(t, d, fmt.Sprint("without-", i), 10)...)
		untilCode(t, 20*time.Second, http.StatusOK, func() testenv.Response { return d.APIs[1].Client().Delete(t.Context(), deleted[i]) })
		requireExactly(t, d, url, 40*time.Second, slices.Concat(wanted, deleted[i+1:])...)
		server.start()
		waitUntilCopied(t, url)
	}
}

// accepted queues n creates, each of which is repeated until it is accepted, and returns their ids.
func accepted(t *testing.T, d *site, prefix string, n int) []string {
	t.Helper()
	ids := names(prefix, n)
	for i, id := range ids {
		untilCode(t, 20*time.Second, http.StatusAccepted, func() testenv.Response {
			return d.APIs[i%len(d.APIs)].Client().Create(t.Context(), id, testenv.Prefer("respond-async"))
		})
	}
	return ids
}
