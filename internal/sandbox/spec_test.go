package sandbox

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

func fullSpec() Spec {
	return Spec{
		ThreadID: "thread-1", UserID: "alice", SkillsPath: "/mnt/skills",
		ExtraMounts: []Mount{
			{HostPath: "/state/a", ContainerPath: "/mnt/a"},
			{HostPath: "/state/b", ContainerPath: "/mnt/b", ReadOnly: true},
		},
		MaxShellSessions: 5, LarkRuntime: true, LarkBroker: true,
	}
}

func TestEveryDifferenceChangesTheHash(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*Spec){
		"ThreadID":         func(s *Spec) { s.ThreadID = "thread-2" },
		"UserID":           func(s *Spec) { s.UserID = "bob" },
		"SkillsPath":       func(s *Spec) { s.SkillsPath = "/mnt/other" },
		"MaxShellSessions": func(s *Spec) { s.MaxShellSessions = 6 },
		"LarkRuntime":      func(s *Spec) { s.LarkRuntime = false },
		"LarkBroker":       func(s *Spec) { s.LarkBroker = false },
		"ExtraMounts":      func(s *Spec) { s.ExtraMounts = s.ExtraMounts[:1] },
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Spec]()) {
		require.Contains(t, changes, field.Name, "a new field must take part in the hash, and in this test")
	}
	for name, change := range map[string]func(*Spec){
		"a mount's host path":      func(s *Spec) { s.ExtraMounts[0].HostPath = "/state/c" },
		"a mount's container path": func(s *Spec) { s.ExtraMounts[0].ContainerPath = "/mnt/c" },
		"a mount's mode":           func(s *Spec) { s.ExtraMounts[0].ReadOnly = true },
		"the order of mounts":      func(s *Spec) { s.ExtraMounts[0], s.ExtraMounts[1] = s.ExtraMounts[1], s.ExtraMounts[0] },
	} {
		changes[name] = change
	}
	seen := map[string]string{fullSpec().Hash(): "no change"}
	for name, change := range changes {
		s := fullSpec()
		change(&s)
		other, taken := seen[s.Hash()]
		require.False(t, taken, "%s and %s have the same hash", name, other)
		seen[s.Hash()] = name
	}
}

func TestTheSameContentHasTheSameHash(t *testing.T) {
	t.Parallel()
	require.Equal(t, fullSpec().Hash(), fullSpec().Hash())

	empty, none := Spec{ExtraMounts: []Mount{}}, Spec{}
	require.Equal(t, none.Hash(), empty.Hash(), "no mounts are no mounts")
}

// Two replicas, one of them older, must agree whether two requests are the same.
func TestTheHashSurvivesTheWayThroughTheQueue(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(fullSpec())
	require.NoError(t, err)
	var read Spec
	require.NoError(t, json.Unmarshal(data, &read))
	require.Equal(t, fullSpec(), read)
	require.Equal(t, fullSpec().Hash(), read.Hash())
}
