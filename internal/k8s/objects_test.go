package k8s

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"sandbox-provisioner/internal/sandbox"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

const (
	stateDir   = "/.deer-flow"
	threadView = stateDir + "/users/alice/threads/thread-1/skills_view"
	larkState  = stateDir + "/users/alice/integrations/lark-cli"
)

var goldenGeneration = sandbox.Generation{Stream: 1785542400000000000, Seq: 42}

// stock are the settings of somebody who sets nothing.
func stock() Settings {
	return Settings{
		Namespace:                "deer-flow",
		Image:                    "enterprise-public-cn-beijing.cr.volces.com/vefaas-public/all-in-one-sandbox:latest",
		Port:                     8080,
		ServiceType:              NodePort,
		NodeHost:                 "host.docker.internal",
		ClusterDomain:            "cluster.local",
		BaseDir:                  stateDir,
		ThreadsPath:              stateDir + "/threads",
		AllowPrivilegeEscalation: true,
		SeccompProfile:           "RuntimeDefault",
		TerminationGracePeriod:   5 * time.Second,
	}
}

// ask is a request that asks for nothing in particular.
func ask() sandbox.Spec {
	return sandbox.Spec{ThreadID: "thread-1", UserID: "alice", SkillsPath: sandbox.DefaultSkillsPath}
}

func readOnly(host, at string) sandbox.Mount {
	return sandbox.Mount{HostPath: host, ContainerPath: at, ReadOnly: true}
}

func writable(host, at string) sandbox.Mount {
	return sandbox.Mount{HostPath: host, ContainerPath: at}
}

func threadSkills(root string) []sandbox.Mount {
	return []sandbox.Mount{
		readOnly(threadView+"/public", root+"/public"),
		readOnly(threadView+"/custom", root+"/custom"),
		readOnly(threadView+"/legacy", root+"/legacy"),
		readOnly(threadView+"/integrations", root+"/integrations"),
	}
}

func larkMounts() []sandbox.Mount {
	return []sandbox.Mount{
		readOnly(larkState+"/config", sandbox.LarkConfigPath),
		writable(larkState+"/config/locks", sandbox.LarkLocksPath),
		writable(larkState+"/data", sandbox.LarkDataPath),
		readOnly(stateDir+"/integrations/lark-cli/runtime", sandbox.LarkRuntimePath),
	}
}

func workspace() sandbox.Mount {
	return readOnly(stateDir+"/users/alice/threads/thread-1/acp-workspace", sandbox.WorkspacePath)
}

// gateway are the nine mounts of a gateway that uses everything.
func gateway() []sandbox.Mount {
	return append(append(threadSkills(sandbox.DefaultSkillsPath), workspace()), larkMounts()...)
}

// goldens are combinations of settings and requests, by the name of their golden file.
var goldens = []struct {
	name string
	set  func(*Settings)
	ask  func(*sandbox.Spec)
}{
	{name: "stock"},
	{name: "cluster-ip", set: func(s *Settings) { s.ServiceType = ClusterIP }},
	{name: "capacity", ask: func(a *sandbox.Spec) { a.MaxShellSessions = 13 }},
	{name: "other-names", set: func(s *Settings) {
		s.Namespace, s.Image, s.Port = "sandboxes", "registry.example/sandbox:1.2.3", 9090
		s.ServiceType, s.ClusterDomain = ClusterIP, "k8s.example"
	}},
	{name: "hardened", set: func(s *Settings) { s.AllowPrivilegeEscalation = false }},
	{name: "softened", set: func(s *Settings) {
		s.AutomountServiceAccountToken, s.EnableServiceLinks = true, true
		s.SeccompProfile, s.TerminationGracePeriod = "Unconfined", 30*time.Second
	}},
	{name: "no-grace", set: func(s *Settings) { s.TerminationGracePeriod = 0 }},

	{name: "skills-elsewhere", ask: func(a *sandbox.Spec) { a.SkillsPath = "/custom-skills" }},
	{name: "skills-custom-replaced", ask: func(a *sandbox.Spec) {
		a.ExtraMounts = []sandbox.Mount{readOnly(stateDir+"/users/alice/skills_view/custom", "/mnt/skills/custom")}
	}},
	{name: "skills-of-thread", ask: func(a *sandbox.Spec) { a.ExtraMounts = threadSkills(a.SkillsPath) }},
	{name: "skills-of-thread-elsewhere", ask: func(a *sandbox.Spec) {
		a.SkillsPath = "/custom-skills"
		a.ExtraMounts = threadSkills(a.SkillsPath)
	}},
	{name: "skills-of-thread-in-part", ask: func(a *sandbox.Spec) { a.ExtraMounts = threadSkills(a.SkillsPath)[:2] }},

	{name: "skills-claim", set: skillsClaim},
	{name: "skills-claim-template", set: func(s *Settings) {
		skillsClaim(s)
		s.SkillsSubPathTemplate = "deer-flow/users/{user_id}/threads/{thread_id}/skills"
	}},
	{name: "skills-claim-braces", set: func(s *Settings) {
		skillsClaim(s)
		s.SkillsSubPathTemplate = "{{all}}/{user_id}"
	}},
	{name: "skills-claim-elsewhere", set: skillsClaim, ask: func(a *sandbox.Spec) { a.SkillsPath = "/custom-skills" }},
	{name: "skills-claim-thread", set: skillsClaim, ask: func(a *sandbox.Spec) { a.ExtraMounts = threadSkills(a.SkillsPath) }},
	{name: "skills-claim-thread-of-another-id", set: skillsClaim, ask: func(a *sandbox.Spec) {
		a.ThreadID, a.UserID = "19fa7291c0de4b1f", "default"
		a.ExtraMounts = threadSkills(a.SkillsPath)
	}},
	{name: "skills-claim-shadows", set: skillsClaim, ask: func(a *sandbox.Spec) {
		a.ExtraMounts = []sandbox.Mount{
			readOnly(stateDir+"/users/alice/skills_view/custom", "/mnt/skills/custom"),
			workspace(),
			writable(stateDir+"/users/alice/skills_view/integrations", "/mnt/skills/integrations"),
		}
	}},

	{name: "user-data-claim", set: userDataClaim},
	{name: "user-data-claim-gateway", set: userDataClaim, ask: func(a *sandbox.Spec) { a.ExtraMounts = gateway() }},
	{name: "user-data-claim-skills-custom-replaced", set: userDataClaim, ask: func(a *sandbox.Spec) {
		a.ExtraMounts = []sandbox.Mount{readOnly(stateDir+"/users/alice/skills_view/custom", "/mnt/skills/custom")}
	}},
	{name: "both-claims", set: bothClaims},
	{name: "both-claims-thread", set: bothClaims, ask: func(a *sandbox.Spec) { a.ExtraMounts = threadSkills(a.SkillsPath) }},
	{name: "both-claims-gateway", set: bothClaims, ask: func(a *sandbox.Spec) { a.ExtraMounts = gateway() }},

	{name: "extra-workspace", ask: func(a *sandbox.Spec) {
		a.ExtraMounts = []sandbox.Mount{writable(stateDir+"/users/alice/acp", sandbox.WorkspacePath)}
	}},
	{name: "extra-lark", ask: func(a *sandbox.Spec) { a.ExtraMounts = larkMounts() }},
	{name: "extra-gateway", ask: func(a *sandbox.Spec) { a.ExtraMounts = gateway() }},

	{name: "runtime", set: larkImages, ask: func(a *sandbox.Spec) { a.LarkRuntime = true }},
	{name: "runtime-gateway", set: larkImages, ask: func(a *sandbox.Spec) {
		a.LarkRuntime, a.ExtraMounts = true, gateway()
	}},
	{name: "runtime-without-image", ask: func(a *sandbox.Spec) { a.LarkRuntime, a.ExtraMounts = true, larkMounts() }},
	{name: "runtime-both-claims", set: all(larkImages, bothClaims), ask: func(a *sandbox.Spec) {
		a.LarkRuntime, a.ExtraMounts = true, gateway()
	}},

	{name: "broker", set: larkImages, ask: func(a *sandbox.Spec) { a.LarkBroker = true }},
	{name: "broker-gateway", set: larkImages, ask: func(a *sandbox.Spec) { a.LarkBroker, a.ExtraMounts = true, gateway() }},
	{name: "broker-over-runtime", set: larkImages, ask: func(a *sandbox.Spec) {
		a.LarkBroker, a.LarkRuntime, a.MaxShellSessions, a.ExtraMounts = true, true, 4, larkMounts()
	}},
	{name: "broker-config-only", set: larkImages, ask: func(a *sandbox.Spec) {
		a.LarkBroker, a.ExtraMounts = true, larkMounts()[:1]
	}},
	{name: "broker-locks-before-config", set: larkImages, ask: func(a *sandbox.Spec) {
		m := larkMounts()
		a.LarkBroker, a.ExtraMounts = true, []sandbox.Mount{m[2], m[1], m[0]}
	}},
	{name: "broker-deny", set: all(larkImages, func(s *Settings) { s.LarkDenySubcommands = "auth token,config show" }),
		ask: func(a *sandbox.Spec) { a.LarkBroker = true }},
	{name: "broker-without-image", ask: func(a *sandbox.Spec) { a.LarkBroker, a.ExtraMounts = true, larkMounts()[:3] }},
	{name: "broker-user-data-claim", set: all(larkImages, userDataClaim), ask: func(a *sandbox.Spec) {
		a.LarkBroker, a.ExtraMounts = true, gateway()
	}},
	{name: "broker-both-claims-cluster-ip", set: all(larkImages, bothClaims, func(s *Settings) { s.ServiceType = ClusterIP }),
		ask: func(a *sandbox.Spec) { a.LarkBroker, a.MaxShellSessions, a.ExtraMounts = true, 13, gateway() }},

	{name: "windows", set: windows, ask: func(a *sandbox.Spec) {
		a.ExtraMounts = []sandbox.Mount{writable("c:/Deer-Flow/users/alice/acp", sandbox.WorkspacePath)}
	}},
	{name: "windows-user-data-claim", set: all(windows, userDataClaim), ask: func(a *sandbox.Spec) {
		a.ExtraMounts = []sandbox.Mount{writable(`C:\deer-flow\users\alice\acp`, sandbox.WorkspacePath)}
	}},
	{name: "windows-share", set: func(s *Settings) { s.BaseDir, s.ThreadsPath = `\\nas\deer-flow`, `\\nas\deer-flow\threads` }},
	{name: "state-beside-threads", set: func(s *Settings) { s.BaseDir, s.ThreadsPath = "", "/data/deer/threads" },
		ask: func(a *sandbox.Spec) {
			a.ExtraMounts = []sandbox.Mount{writable("/data/deer/users/alice/acp", sandbox.WorkspacePath)}
		}},
}

func skillsClaim(s *Settings)   { s.SkillsPVC = "skills-pvc" }
func userDataClaim(s *Settings) { s.UserDataPVC = "user-data-pvc" }

func bothClaims(s *Settings) {
	skillsClaim(s)
	userDataClaim(s)
}

func larkImages(s *Settings) {
	s.LarkInitImage, s.LarkBrokerImage = "registry.example/lark-cli-init:1", "registry.example/lark-cli-broker:1"
}

func windows(s *Settings) { s.BaseDir, s.ThreadsPath = `C:\deer-flow`, "C:/deer-flow/threads" }

func all(changes ...func(*Settings)) func(*Settings) {
	return func(s *Settings) {
		for _, change := range changes {
			change(s)
		}
	}
}

// build goes the way of a request: settings and mounts are checked first.
func build(t require.TestingT, s Settings, spec sandbox.Spec) (*corev1.Pod, *corev1.Service) {
	require.NoError(t, s.Validate())
	mounts, err := s.MountRules().Check(spec)
	require.NoError(t, err)
	spec.ExtraMounts = mounts
	return s.Pod("19fa7291c0de4b1f", spec, goldenGeneration), s.Service("19fa7291c0de4b1f", goldenGeneration)
}

func TestObjectsAreAsInTheGoldenFiles(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, tt := range goldens {
		known[tt.name+".yaml"] = true
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, spec := stock(), ask()
			if tt.set != nil {
				tt.set(&s)
			}
			if tt.ask != nil {
				tt.ask(&spec)
			}
			pod, service := build(t, s, spec)
			got := render(t, pod, service)
			file := filepath.Join("testdata", "objects", tt.name+".yaml")
			if *update {
				require.NoError(t, os.WriteFile(file, got, 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err, "run with -update to write it")
			require.Equal(t, string(want), string(got))

			wantPod, wantService := parse(t, want)
			require.True(t, equality.Semantic.DeepEqual(wantPod, pod), "the file does not say all of the Pod")
			require.True(t, equality.Semantic.DeepEqual(wantService, service), "the file does not say all of the Service")
			require.Equal(t, string(got), string(render(t, s.Pod("19fa7291c0de4b1f", checked(t, s, spec), goldenGeneration), service)),
				"the Pod is another one the second time")
		})
	}
	files, err := os.ReadDir(filepath.Join("testdata", "objects"))
	require.NoError(t, err)
	for _, f := range files {
		require.True(t, known[f.Name()], "%s belongs to no combination", f.Name())
	}
}

func checked(t *testing.T, s Settings, spec sandbox.Spec) sandbox.Spec {
	mounts, err := s.MountRules().Check(spec)
	require.NoError(t, err)
	spec.ExtraMounts = mounts
	return spec
}

// render is what kubectl apply takes.
func render(t *testing.T, pod *corev1.Pod, service *corev1.Service) []byte {
	a, err := yaml.Marshal(pod)
	require.NoError(t, err)
	b, err := yaml.Marshal(service)
	require.NoError(t, err)
	return bytes.Join([][]byte{a, b}, []byte("---\n"))
}

func parse(t *testing.T, file []byte) (*corev1.Pod, *corev1.Service) {
	a, b, found := strings.Cut(string(file), "---\n")
	require.True(t, found)
	pod, service := &corev1.Pod{}, &corev1.Service{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(a), pod))
	require.NoError(t, yaml.UnmarshalStrict([]byte(b), service))
	return pod, service
}
