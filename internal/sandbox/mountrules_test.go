package sandbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const base = "/.deer-flow"

// acp is a mount that is always allowed.
var acp = Mount{HostPath: base + "/users/u/acp", ContainerPath: WorkspacePath}

func many(n int, m Mount) []Mount {
	mounts := make([]Mount, n)
	for i := range mounts {
		mounts[i] = m
	}
	return mounts
}

func TestStateDir(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, base, threads, want string }{
		{"the base directory comes first", "/data/", "/other/threads", "/data"},
		{"it is normalised", "/data/../state", "", "/state"},
		{"without it, the parent of threads", "", "/data/threads/", "/data"},
		{"on Windows too", "", `C:\data\threads`, `C:\data`},
		{"but only of that name", "", "/data/conversations", "."},
		{"and never the root directory", "", "/threads", "."},
		{"nothing at all", "", "", "."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, StateDir(tt.base, tt.threads).String())
		})
	}
}

func TestMountRulesRefuseInTheWordsOfTheContract(t *testing.T) {
	t.Parallel()
	inside := MountRules{Base: StateDir(base, "")}
	claim := MountRules{Base: StateDir(base, ""), Claim: true}
	mount := func(host, at string) []Mount { return []Mount{{HostPath: host, ContainerPath: at}} }
	for _, tt := range []struct {
		name   string
		rules  MountRules
		mounts []Mount
		want   string
	}{
		{"eleven mounts", inside, many(11, acp), "Too many extra mounts; max is 10"},
		{"the number comes before everything else", inside, many(11, Mount{}), "Too many extra mounts; max is 10"},
		{"a relative host path", inside, mount("users/x", WorkspacePath), "Extra mount host path must be absolute: users/x"},
		{"an empty host path", inside, mount("", WorkspacePath), "Extra mount host path must be absolute: "},
		{"another directory", inside, mount("/etc", WorkspacePath), "Extra mount host path is outside DeerFlow state: /etc"},
		{"dot dot", inside, mount(base+"/../etc", WorkspacePath),
			"Extra mount host path is outside DeerFlow state: /.deer-flow/../etc"},
		{"a longer name", inside, mount(base+"ful/x", WorkspacePath),
			"Extra mount host path is outside DeerFlow state: /.deer-flowful/x"},
		{"nothing is inside no base", MountRules{Base: StateDir("", "/data")}, mount("/data/x", WorkspacePath),
			"Extra mount host path is outside DeerFlow state: /data/x"},
		{"Windows separators that lead out", MountRules{Base: StateDir(`C:\deer`, "")}, mount(`C:\deer/..\Windows`, WorkspacePath),
			`Extra mount host path is outside DeerFlow state: C:\deer/..\Windows`},
		{"a Windows path without a drive", MountRules{Base: StateDir(`C:\deer`, "")}, mount(`\deer\x`, WorkspacePath),
			`Extra mount host path must be absolute: \deer\x`},
		{"the host path comes before the container path", inside, mount("/etc", "x"),
			"Extra mount host path is outside DeerFlow state: /etc"},
		{"a relative container path", inside, mount(base+"/x", "mnt/acp-workspace"), "Extra mount path must be absolute: mnt/acp-workspace"},
		{"an empty container path", inside, mount(base+"/x", ""), "Extra mount path must be absolute: "},
		{"a container path that is not on the list", inside, mount(base+"/x", "/etc/"), "Unsupported extra mount path: /etc/"},
		{"user data", inside, mount(base+"/x", "/mnt/user-data"), "Unsupported extra mount path: /mnt/user-data"},
		{"the skills root itself", inside, mount(base+"/x", "/mnt/skills"), "Unsupported extra mount path: /mnt/skills"},
		{"something below a category", inside, mount(base+"/x", "/mnt/skills/custom/x"), "Unsupported extra mount path: /mnt/skills/custom/x"},
		{"a container path that leads out", inside, mount(base+"/x", "/mnt/skills/custom/../../../etc"),
			"Unsupported extra mount path: /mnt/skills/custom/../../../etc"},
		{"a duplicate with a trailing slash", inside, []Mount{acp, {HostPath: base + "/y", ContainerPath: WorkspacePath + "/"}},
			"Duplicate extra mount path: /mnt/acp-workspace"},
		{"the whole state out of a claim", claim, mount(base+"/users/..", WorkspacePath),
			"Invalid extra mount host path: /.deer-flow"},
		{"a duplicate comes before the claim's rule", claim, []Mount{acp, {HostPath: base, ContainerPath: WorkspacePath}},
			"Duplicate extra mount path: /mnt/acp-workspace"},
		{"the first wrong mount counts", inside, []Mount{acp, {HostPath: "/a", ContainerPath: "x"}, {HostPath: "b"}},
			"Extra mount host path is outside DeerFlow state: /a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := tt.rules.Check(Spec{SkillsPath: DefaultSkillsPath, ExtraMounts: tt.mounts})
			var refused *MountError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, tt.want, refused.Detail)
		})
	}
}

func TestMountRulesNormaliseWhatTheyAllow(t *testing.T) {
	t.Parallel()
	got, err := MountRules{Base: StateDir(base, "")}.Check(Spec{SkillsPath: "/skills", ExtraMounts: []Mount{
		{HostPath: base + "/users//x/./acp/", ContainerPath: "/mnt/./acp-workspace/"},
		{HostPath: base, ContainerPath: "/skills/integrations", ReadOnly: true},
		{HostPath: base + "/a", ContainerPath: LarkLocksPath},
	}})
	require.NoError(t, err)
	require.Equal(t, []Mount{
		{HostPath: "/.deer-flow/users/x/acp", ContainerPath: "/mnt/acp-workspace"},
		{HostPath: "/.deer-flow", ContainerPath: "/skills/integrations", ReadOnly: true},
		{HostPath: "/.deer-flow/a", ContainerPath: LarkLocksPath},
	}, got)

	got, err = MountRules{Base: StateDir(`C:\Deer`, "")}.Check(Spec{SkillsPath: "/skills", ExtraMounts: []Mount{
		{HostPath: `c:/deer/users\x`, ContainerPath: WorkspacePath},
	}})
	require.NoError(t, err)
	require.Equal(t, []Mount{{HostPath: `c:\deer\users\x`, ContainerPath: WorkspacePath}}, got)

	got, err = MountRules{}.Check(Spec{})
	require.NoError(t, err)
	require.Nil(t, got)
}

func TestMountRulesAllowTheSkillsOnlyBelowTheirOwnRoot(t *testing.T) {
	t.Parallel()
	rules := MountRules{Base: StateDir(base, "")}
	for _, category := range []string{"public", "custom", "legacy", "integrations"} {
		mounts := []Mount{{HostPath: base + "/x", ContainerPath: "/mnt/skills/" + category}}
		_, err := rules.Check(Spec{SkillsPath: "/mnt/skills", ExtraMounts: mounts})
		require.NoError(t, err)
		_, err = rules.Check(Spec{SkillsPath: "/elsewhere", ExtraMounts: mounts})
		require.EqualError(t, err, "Unsupported extra mount path: /mnt/skills/"+category)
	}
}

func TestPatternASupersedesAMountAtTheRuntimePath(t *testing.T) {
	t.Parallel()
	runtime := Mount{HostPath: "/outside", ContainerPath: LarkRuntimePath + "/"}
	nine := []Mount{acp}
	for _, at := range []string{LarkConfigPath, LarkLocksPath, LarkDataPath} {
		nine = append(nine, Mount{HostPath: base + "/lark", ContainerPath: at})
	}
	for _, category := range []string{"public", "custom", "legacy", "integrations"} {
		nine = append(nine, Mount{HostPath: base + "/skills", ContainerPath: "/mnt/skills/" + category})
	}
	spec := Spec{SkillsPath: DefaultSkillsPath, LarkRuntime: true, ExtraMounts: append(many(8, runtime), nine...)}
	for _, tt := range []struct {
		name   string
		rules  MountRules
		broker bool
		want   string
	}{
		{"with pattern A it is neither counted nor checked nor returned", MountRules{LarkInit: true}, false, ""},
		{"also when the broker is there but was not asked for", MountRules{LarkInit: true, LarkBroker: true}, false, ""},
		{"without an image for pattern A it counts", MountRules{}, false, "Too many extra mounts; max is 10"},
		{"with pattern B it counts", MountRules{LarkInit: true, LarkBroker: true}, true, "Too many extra mounts; max is 10"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.rules.Base = StateDir(base, "")
			spec := spec
			spec.LarkBroker = tt.broker
			got, err := tt.rules.Check(spec)
			if tt.want != "" {
				require.EqualError(t, err, tt.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, nine, got)
		})
	}
}

func FuzzMountRulesAllowNothingOutside(f *testing.F) {
	for _, host := range []string{base + "/x", base + "/../etc", `C:\deer\x`, "/etc", `\\a\b`, "C:x", "\x00"} {
		f.Add(host, base)
		f.Add(host, `C:\deer`)
	}
	f.Fuzz(func(t *testing.T, host, dir string) {
		rules := MountRules{Base: StateDir(dir, "")}
		got, err := rules.Check(Spec{ExtraMounts: []Mount{{HostPath: host, ContainerPath: WorkspacePath}}})
		if err != nil {
			return
		}
		// What is allowed stays allowed and the same when it is looked at again, as the worker does.
		below, inside := ParseHostPath(got[0].HostPath).Within(rules.Base)
		require.True(t, inside, "%q in %q", got[0].HostPath, dir)
		require.NotContains(t, "/"+below+"/", "/../")
		require.Equal(t, got[0].HostPath, ParseHostPath(got[0].HostPath).String())
	})
}
