package k8s

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSettingsThatWork(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*Settings){
		"stock":                       func(*Settings) {},
		"cluster IP needs no node":    func(s *Settings) { s.ServiceType, s.NodeHost = ClusterIP, "" },
		"node port needs no domain":   func(s *Settings) { s.ClusterDomain = "" },
		"claims need no host paths":   func(s *Settings) { bothClaims(s); s.BaseDir, s.ThreadsPath = "", "" },
		"the base follows threads":    func(s *Settings) { s.BaseDir = "" },
		"a share is a base":           func(s *Settings) { s.BaseDir = `\\nas\deer` },
		"the longest namespace":       func(s *Settings) { s.Namespace = "0" + strings.Repeat("-", 61) + "z" },
		"no time to end":              func(s *Settings) { s.TerminationGracePeriod = 0 },
		"a template without a claim":  func(s *Settings) { s.SkillsSubPathTemplate = "{user_id}" },
		"the first and the last port": func(s *Settings) { s.Port = 65535 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stock()
			set(&s)
			require.NoError(t, s.Validate())
		})
	}
}

func TestSettingsThatWouldFailEverySandboxAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		set  func(*Settings)
		want string
	}{
		{"no namespace", func(s *Settings) { s.Namespace = "" }, "K8S_NAMESPACE=: "},
		{"a namespace with a capital", func(s *Settings) { s.Namespace = "Foo" }, "K8S_NAMESPACE=Foo: must be 1 to 63 of"},
		{"a namespace with another sign", func(s *Settings) { s.Namespace = "foo_" }, "K8S_NAMESPACE=foo_: "},
		{"a namespace with a dot", func(s *Settings) { s.Namespace = "a.b" }, "K8S_NAMESPACE=a.b: "},
		{"a namespace that is too long", func(s *Settings) { s.Namespace = strings.Repeat("a", 64) }, "K8S_NAMESPACE=aaa"},
		{"no image", func(s *Settings) { s.Image = "" }, "SANDBOX_IMAGE=: "},
		{"port 0", func(s *Settings) { s.Port = 0 }, "SANDBOX_CONTAINER_PORT=0: "},
		{"port 65536", func(s *Settings) { s.Port = 65536 }, "SANDBOX_CONTAINER_PORT=65536: "},
		{"a load balancer", func(s *Settings) { s.ServiceType = "LoadBalancer" }, "SANDBOX_SERVICE_TYPE=LoadBalancer: "},
		{"no service type", func(s *Settings) { s.ServiceType = "" }, "SANDBOX_SERVICE_TYPE=: "},
		{"a node port without a node", func(s *Settings) { s.NodeHost = "" }, "NODE_HOST=: "},
		{"a DNS name without a domain", func(s *Settings) { s.ServiceType, s.ClusterDomain = ClusterIP, "" }, "CLUSTER_DOMAIN=: "},
		{"a relative base", func(s *Settings) { s.BaseDir = "state" }, "DEER_FLOW_HOST_BASE_DIR=state: "},
		{"the root as base", func(s *Settings) { s.BaseDir = "/x/.." }, "DEER_FLOW_HOST_BASE_DIR=/x/..: "},
		{"a drive as base", func(s *Settings) { s.BaseDir = `C:\` }, `DEER_FLOW_HOST_BASE_DIR=C:\: `},
		{"no base for the skills", func(s *Settings) { s.BaseDir, s.ThreadsPath = "", "/data/t" }, "DEER_FLOW_HOST_BASE_DIR=: "},
		{"no threads", func(s *Settings) { s.ThreadsPath = "" }, "THREADS_HOST_PATH=: "},
		{"an unknown placeholder", func(s *Settings) { s.SkillsSubPathTemplate = "{tenant}" },
			"SKILLS_PVC_SUBPATH_TEMPLATE={tenant}: unknown placeholder {tenant}"},
		{"a seccomp profile of one's own", func(s *Settings) { s.SeccompProfile = "Localhost" }, "SANDBOX_SECCOMP_PROFILE=Localhost: "},
		{"half a second", func(s *Settings) { s.TerminationGracePeriod = 1500 * time.Millisecond },
			"SANDBOX_TERMINATION_GRACE_PERIOD=1.5s: "},
		{"less than nothing", func(s *Settings) { s.TerminationGracePeriod = -time.Second }, "SANDBOX_TERMINATION_GRACE_PERIOD=-1s: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := stock()
			tt.set(&s)
			err := s.Validate()
			require.ErrorContains(t, err, tt.want)
			require.NotContains(t, err.Error(), "\n", "one mistake, one line")
		})
	}
}

func TestEveryWrongSettingIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	err := Settings{}.Validate()
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 7)
	for i, name := range []string{"K8S_NAMESPACE", "SANDBOX_IMAGE", "SANDBOX_CONTAINER_PORT", "SANDBOX_SERVICE_TYPE",
		"DEER_FLOW_HOST_BASE_DIR", "THREADS_HOST_PATH", "SANDBOX_SECCOMP_PROFILE"} {
		require.True(t, strings.HasPrefix(lines[i], name+"="), "line %d is %q", i, lines[i])
	}
}
