package helm

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sandbox-provisioner/internal/testenv"
)

// natsOptions are what a nats-server makes of the configuration, environment and arguments that the chart gives to Pod number n.
// Directories and ports are the test's. It sets environment variables: no parallel test may use it.
func natsOptions(t *testing.T, r rendering, n int, token string) *server.Options {
	t.Helper()
	name := fmt.Sprintf("%s-nats-%d", fullname, n)
	container := r.workload(t, "nats").container()
	known := map[string]string{}
	expand := strings.NewReplacer
	for _, e := range container.Env {
		value := e.Value
		switch {
		case e.ValueFrom == nil:
			value = expand("$(NATS_TOKEN)", known["NATS_TOKEN"]).Replace(value)
		case e.ValueFrom.SecretKeyRef != nil:
			value = token
		default:
			require.Equal(t, "metadata.name", e.ValueFrom.FieldRef.FieldPath)
			value = name
		}
		known[e.Name] = value
		t.Setenv(e.Name, value)
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(file, []byte(get[corev1.ConfigMap](t, r, "ConfigMap", "-nats").Data["nats.conf"]), 0o600))
	opts, err := server.ProcessConfigFile(file)
	require.NoError(t, err)
	require.Equal(t, "--config=/etc/nats/nats.conf", container.Args[0])
	for _, arg := range container.Args[1:] {
		routes, ok := strings.CutPrefix(arg, "--routes=")
		require.True(t, ok, arg)
		opts.Routes = server.RoutesFromStr(expand("$(NATS_TOKEN)", known["NATS_TOKEN"]).Replace(routes))
	}

	require.Equal(t, name, opts.ServerName)
	require.Equal(t, 4222, opts.Port)
	require.Equal(t, 8222, opts.HTTPPort)
	require.True(t, opts.JetStream)
	require.True(t, opts.SyncAlways, "a job must be on the disk before it is acknowledged")
	require.Equal(t, "/data", opts.StoreDir)
	opts.Host, opts.Port, opts.HTTPPort = "127.0.0.1", server.RANDOM_PORT, 0
	opts.StoreDir, opts.NoLog, opts.NoSigs = t.TempDir(), true, true
	return opts
}

func startNATS(t *testing.T, opts *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(opts)
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	require.True(t, s.ReadyForConnections(10*time.Second))
	return s
}

func connectNATS(t *testing.T, s *server.Server, token string) (*nats.Conn, error) {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), nats.Token(token))
	if err == nil {
		t.Cleanup(nc.Close)
	}
	return nc, err
}

func TestNATSKeepsJobsForThoseWhoHaveTheToken(t *testing.T) {
	for _, token := range []string{"golden-token-0123", "1234567890123456", "true-true-true-true", "1e5_1e5_1e5_1e5_1"} {
		t.Run(token, func(t *testing.T) {
			s := startNATS(t, natsOptions(t, render(t, ""), 0, token))
			_, err := connectNATS(t, s, "wrong-token-wrong")
			require.ErrorIs(t, err, nats.ErrAuthorization)
			nc, err := connectNATS(t, s, token)
			require.NoError(t, err)
			js, err := jetstream.New(nc)
			require.NoError(t, err)
			_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Storage: jetstream.FileStorage})
			require.NoError(t, err)
		})
	}
}

func TestThreeNATSServersMakeACluster(t *testing.T) {
	const token = "golden-token-0123"
	r := render(t, scenarios["three-servers"])
	var all []*server.Options
	ports := map[string]int{} // of each host's name
	for n := range 3 {
		opts := natsOptions(t, r, n, token)
		ports[opts.ServerName+"."+fullname+"-nats-headless"] = freePort(t)
		all = append(all, opts)
	}
	var servers []*server.Server
	for n, opts := range all {
		require.Equal(t, 6222, opts.Cluster.Port)
		require.Len(t, opts.Routes, 3)
		opts.Cluster.Host, opts.Cluster.Port = "127.0.0.1", ports[fmt.Sprintf("%s-nats-%d.%s-nats-headless", fullname, n, fullname)]
		for i, route := range opts.Routes {
			port, known := ports[route.Hostname()]
			require.True(t, known, "no Pod is called %s", route.Hostname())
			local := *route
			local.Host = fmt.Sprintf("127.0.0.1:%d", port)
			opts.Routes[i] = &local
		}
		s, err := server.NewServer(opts)
		require.NoError(t, err)
		s.Start()
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
		servers = append(servers, s)
	}
	testenv.Until(t, 20*time.Second, func() error {
		if !slices.ContainsFunc(servers, (*server.Server).JetStreamIsLeader) {
			return fmt.Errorf("no leader yet")
		}
		for _, s := range servers {
			if s.NumRoutes() == 0 || !s.JetStreamIsCurrent() {
				return fmt.Errorf("%s is not in the cluster yet", s.Name())
			}
		}
		return nil
	})

	t.Run("that keeps three copies", func(t *testing.T) {
		nc, err := connectNATS(t, servers[0], token)
		require.NoError(t, err)
		js, err := jetstream.New(nc)
		require.NoError(t, err)
		stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3})
		require.NoError(t, err)
		require.Len(t, stream.CachedInfo().Cluster.Replicas, 2)
	})
	t.Run("that nobody joins without the token", func(t *testing.T) {
		rogue := &server.Options{
			ServerName: "rogue", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
			Cluster: server.ClusterOpts{Name: all[0].Cluster.Name, Host: "127.0.0.1", Port: server.RANDOM_PORT},
			Routes:  []*url.URL{{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", all[0].Cluster.Port)}},
		}
		before := servers[0].NumRoutes()
		s := startNATS(t, rogue)
		// It has been turned away when it tries again.
		testenv.Until(t, 10*time.Second, func() error {
			varz, err := servers[0].Varz(nil)
			if err == nil && varz.TotalConnections == 0 {
				err = fmt.Errorf("nobody tried")
			}
			return err
		})
		require.Zero(t, s.NumRoutes())
		require.Equal(t, before, servers[0].NumRoutes())
	})
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

// The image is pinned to the version that all other tests run on.
func TestNATSIsTheVersionThatTheProgramsAreTestedOn(t *testing.T) {
	require.Equal(t, "nats:"+server.VERSION, render(t, "").workload(t, "nats").container().Image)
}

func TestNATSKeepsItsStoreOnAVolume(t *testing.T) {
	for _, test := range []struct {
		name, values string
		claims       int
	}{
		{"of its own", "", 1},
		{"unless told not to", "nats: {storage: {enabled: false}}", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := render(t, test.values)
			claims, _, err := unstructured.NestedSlice(r.find("StatefulSet", "-nats").Object, "spec", "volumeClaimTemplates")
			require.NoError(t, err)
			require.Len(t, claims, test.claims)
			var mounted []string
			for _, m := range r.workload(t, "nats").container().VolumeMounts {
				mounted = append(mounted, m.MountPath)
			}
			require.Contains(t, mounted, "/data")
		})
	}
}
