package k8s

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"sandbox-provisioner/internal/sandbox"
)

func at(pod *corev1.Pod, containerName string) map[string]corev1.VolumeMount {
	mounts := map[string]corev1.VolumeMount{}
	if c := container(pod, containerName); c != nil {
		for _, m := range c.VolumeMounts {
			mounts[m.MountPath] = m
		}
	}
	return mounts
}

func volume(pod *corev1.Pod, name string) *corev1.Volume {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &pod.Spec.Volumes[i]
}

func TestAGatewayThatSendsItsCustomSkillsGetsThemOnce(t *testing.T) {
	t.Parallel()
	spec := ask()
	spec.ThreadID = "a1b2" // as when thread_id is null
	spec.ExtraMounts = []sandbox.Mount{readOnly(stateDir+"/users/alice/skills_view/custom", "/mnt/skills/custom")}
	pod, _ := build(t, stock(), spec)

	mounts := at(pod, "sandbox")
	require.Len(t, mounts, len(pod.Spec.Containers[0].VolumeMounts), "a mount path is used twice")
	require.Equal(t, "extra-0", mounts["/mnt/skills/custom"].Name)
	require.Equal(t, "skills-public", mounts["/mnt/skills/public"].Name)
	require.Nil(t, volume(pod, "skills-custom"), "a volume that nobody mounts")
}

func TestTheNineMountsOfAGatewayWithTheBroker(t *testing.T) {
	t.Parallel()
	s, spec := stock(), ask()
	larkImages(&s)
	spec.LarkBroker, spec.ExtraMounts = true, gateway()
	require.Len(t, spec.ExtraMounts, 9)
	pod, _ := build(t, s, spec)

	inSandbox := at(pod, "sandbox")
	for _, path := range []string{
		"/mnt/skills/public", "/mnt/skills/custom", "/mnt/skills/legacy", "/mnt/skills/integrations",
		"/mnt/user-data", "/mnt/acp-workspace", "/mnt/integrations/lark-cli/runtime",
	} {
		require.Contains(t, inSandbox, path)
	}
	require.Len(t, inSandbox, 7)
	require.NotNil(t, volume(pod, inSandbox["/mnt/integrations/lark-cli/runtime"].Name).EmptyDir)
	require.Contains(t, container(pod, "sandbox").Env, corev1.EnvVar{Name: "DEERFLOW_LARK_BROKER_URL", Value: "http://127.0.0.1:8788"})

	inBroker := at(pod, "lark-cli-broker")
	require.Len(t, inBroker, 3)
	require.True(t, inBroker["/var/lark/config"].ReadOnly)
	require.False(t, inBroker["/var/lark/config/locks"].ReadOnly)
	require.Equal(t, larkState+"/data", volume(pod, inBroker["/var/lark/data"].Name).HostPath.Path)
}

func TestAnIntentFromElsewhereMountsNothingOutside(t *testing.T) {
	t.Parallel()
	spec := ask()
	spec.ExtraMounts = []sandbox.Mount{
		writable("/etc", sandbox.WorkspacePath),
		writable(stateDir+"/../root", sandbox.LarkDataPath),
		writable("users/x", sandbox.LarkConfigPath),
	}
	for _, set := range []func(*Settings){func(*Settings) {}, userDataClaim} {
		s := stock()
		set(&s)
		pod := s.Pod("a1", spec, goldenGeneration)
		require.Len(t, at(pod, "sandbox"), 4)
		require.Len(t, pod.Spec.Volumes, 4)
	}
}

func TestABrokenTemplateShowsNobodysSkills(t *testing.T) {
	t.Parallel()
	s := stock()
	skillsClaim(&s)
	s.SkillsSubPathTemplate = "users/{user}/skills"
	require.Error(t, s.Validate())
	require.Equal(t, "users/{user}/skills", at(s.Pod("a1", ask(), goldenGeneration), "sandbox")["/mnt/skills"].SubPath)
}

// anySettings are valid ones, of all modes.
func anySettings(t *rapid.T) Settings {
	s := stock()
	yes := rapid.Bool()
	s.BaseDir = rapid.SampledFrom([]string{stateDir, "/data/x/", `C:\deer`, "D:/deer/flow", `\\nas\deer\state`, ""}).Draw(t, "base")
	s.ThreadsPath = rapid.SampledFrom([]string{"/data/deer/threads", `E:\deer\threads`}).Draw(t, "threads")
	if yes.Draw(t, "cluster IP") {
		s.ServiceType = ClusterIP
	}
	if yes.Draw(t, "skills claim") {
		s.SkillsPVC = "skills-pvc"
		s.SkillsSubPathTemplate = rapid.SampledFrom([]string{"", "a/{user_id}", "{{x}}/{thread_id}"}).Draw(t, "template")
	}
	if yes.Draw(t, "user data claim") {
		userDataClaim(&s)
	}
	if yes.Draw(t, "init image") {
		s.LarkInitImage = "init"
	}
	if yes.Draw(t, "broker image") {
		s.LarkBrokerImage = "broker"
	}
	return s
}

// anySpec has mounts that are mostly allowed.
func anySpec(t *rapid.T, s Settings) sandbox.Spec {
	yes := rapid.Bool()
	spec := sandbox.Spec{
		UserID:           rapid.StringMatching(`[A-Za-z0-9_-]{1,8}`).Draw(t, "user"),
		ThreadID:         rapid.StringMatching(`[A-Za-z0-9_-]{1,8}`).Draw(t, "thread"),
		SkillsPath:       rapid.SampledFrom([]string{"/mnt/skills", "/s", "/mnt/integrations/x"}).Draw(t, "skills path"),
		MaxShellSessions: rapid.IntRange(0, 20).Draw(t, "capacity"),
		LarkRuntime:      yes.Draw(t, "runtime"),
		LarkBroker:       yes.Draw(t, "broker"),
	}
	base := s.stateDir()
	places := []string{sandbox.WorkspacePath, sandbox.LarkConfigPath, sandbox.LarkLocksPath, sandbox.LarkDataPath, sandbox.LarkRuntimePath}
	for _, category := range []string{"public", "custom", "legacy", "integrations"} {
		places = append(places, spec.SkillsPath+"/"+category)
	}
	ofThread := yes.Draw(t, "thread skills")
	places = rapid.Permutation(places).Draw(t, "places")
	for i, place := range places[:rapid.IntRange(0, len(places)).Draw(t, "mounts")] {
		host := base.Join("u", rapid.SampledFrom([]string{"a", "b", "..", "../..", "../../etc"}).Draw(t, "host"), string(rune('k'+i)))
		raw := host.String()
		if category, ok := sandbox.SkillCategory(place, spec.SkillsPath); ok && ofThread {
			raw = base.Join("users", spec.UserID, "threads", spec.ThreadID, "skills_view", category).String()
		} else if yes.Draw(t, "as text") {
			// Not normalised, so that ".." leads somewhere.
			raw = base.String() + rapid.SampledFrom([]string{"/x/../y", "/x/..", "/../y", `\..\y`, "y", "/u//v/"}).Draw(t, "text")
		}
		spec.ExtraMounts = append(spec.ExtraMounts, sandbox.Mount{HostPath: raw, ContainerPath: place, ReadOnly: yes.Draw(t, "ro")})
	}
	return spec
}

func TestEveryPodCanBeMounted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := anySettings(t)
		require.NoError(t, s.Validate())
		spec := anySpec(t, s)
		mounts, err := s.MountRules().Check(spec)
		if err == nil {
			spec.ExtraMounts = mounts // else as from a worker with other settings: the Pod has to be sound all the same
		}
		pod := s.Pod("a1", spec, goldenGeneration)

		volumes := map[string]corev1.Volume{}
		for _, v := range pod.Spec.Volumes {
			require.NotContains(t, volumes, v.Name, "two volumes of one name")
			volumes[v.Name] = v
		}
		mounted := map[string]bool{}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			paths := map[string]bool{}
			for _, m := range c.VolumeMounts {
				require.False(t, paths[m.MountPath], "%s mounts %s twice", c.Name, m.MountPath)
				require.Contains(t, volumes, m.Name, "%s mounts a volume that does not exist", c.Name)
				require.False(t, strings.HasPrefix(m.SubPath, "/"), "absolute subPath %s", m.SubPath)
				require.NotContains(t, strings.Split(m.SubPath, "/"), "..")
				if v := volumes[m.Name].PersistentVolumeClaim; v != nil && v.ClaimName == s.UserDataPVC {
					require.Greater(t, m.SubPath, claimRoot+"/", "the whole claim is mounted")
				}
				paths[m.MountPath], mounted[m.Name] = true, true
			}
		}
		for _, v := range pod.Spec.Volumes {
			require.True(t, mounted[v.Name], "nobody mounts %s", v.Name)
			if v.HostPath == nil {
				continue
			}
			host := sandbox.ParseHostPath(v.HostPath.Path)
			_, inState := host.Within(s.stateDir())
			_, inThreads := host.Within(sandbox.ParseHostPath(s.ThreadsPath))
			require.True(t, inState || v.Name == "user-data" && inThreads, "%s is outside", v.HostPath.Path)
		}
		if spec.LarkBroker {
			for path := range at(pod, "sandbox") {
				require.False(t, isCredential(path), "the sandbox sees the credentials at %s", path)
			}
		}
		require.Equal(t, spec.LarkBroker && s.LarkBrokerImage != "", HasBroker(pod))
	})
}

func TestPodsShareNoMemory(t *testing.T) {
	t.Parallel()
	s, spec := stock(), ask()
	larkImages(&s)
	spec.LarkBroker, spec.MaxShellSessions, spec.ExtraMounts = true, 3, gateway()
	marshal := func(pod *corev1.Pod, service *corev1.Service) string {
		b, err := json.Marshal([]any{pod, service})
		require.NoError(t, err)
		return string(b)
	}
	want := marshal(build(t, s, spec))
	pod, service := build(t, s, spec)
	for _, labels := range []map[string]string{pod.Labels, pod.Annotations, service.Labels, service.Annotations, service.Spec.Selector} {
		clear(labels)
	}
	*pod.Spec.EnableServiceLinks = true
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		*c.SecurityContext.AllowPrivilegeEscalation = true
		*c.SecurityContext.Privileged = true
		clear(c.Resources.Limits)
		clear(c.Resources.Requests)
		clear(c.Env)
		clear(c.VolumeMounts)
		clear(c.Args)
	}
	clear(pod.Spec.Volumes)
	clear(service.Spec.Ports)
	require.Equal(t, want, marshal(build(t, s, spec)))
}
