package jobs

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/sandbox"
)

var noon = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func smallSpec() sandbox.Spec {
	return sandbox.Spec{ThreadID: "t", UserID: "u", SkillsPath: "/mnt/skills"}
}

func bigSpec() sandbox.Spec {
	s := smallSpec()
	s.MaxShellSessions = 50
	return s
}

// present is the view of an id whose last intent is a Present at seq.
func present(seq uint64, o *Outcome) View {
	in := View{ID: "a1"}.Create(smallSpec(), "r1", noon, time.Minute)
	return View{ID: "a1", Stream: 100, Seq: seq, Intent: &in, Outcome: o}
}

func absent(seq uint64, o *Outcome) View {
	in := View{ID: "a1"}.Delete("r1", noon)
	return View{ID: "a1", Stream: 100, Seq: seq, Intent: &in, Outcome: o}
}

func malformed(seq uint64, o *Outcome) View {
	return View{ID: "a1", Stream: 100, Seq: seq, Malformed: errors.New("not an intent"), Outcome: o}
}

func TestWhatAViewSays(t *testing.T) {
	t.Parallel()
	nothing := View{ID: "a1", Stream: 100}
	type answers struct{ finished, living, pending bool }
	for name, test := range map[string]struct {
		view View
		want answers
	}{
		"nothing is known":               {nothing, answers{}},
		"a create is queued":             {present(3, nil), answers{pending: true}},
		"a create runs":                  {present(3, &Outcome{State: Running}), answers{pending: true}},
		"a create is tried again":        {present(3, &Outcome{State: Retrying, FinishedSeq: 2}), answers{pending: true}},
		"a create succeeded":             {present(3, &Outcome{State: Succeeded, FinishedSeq: 3}), answers{finished: true, living: true}},
		"a create failed":                {present(3, &Outcome{State: Failed, FinishedSeq: 3}), answers{finished: true}},
		"a create failed and is undone":  {present(3, &Outcome{State: Failed, FinishedSeq: 3, Undoing: true}), answers{finished: true}},
		"a create follows one that made": {present(4, &Outcome{State: Succeeded, FinishedSeq: 3}), answers{pending: true}},
		"a delete is queued":             {absent(3, nil), answers{}},
		"a delete follows a create":      {absent(4, &Outcome{State: Succeeded, FinishedSeq: 3}), answers{}},
		"a delete succeeded":             {absent(3, &Outcome{State: Succeeded, FinishedSeq: 3}), answers{finished: true}},
		"an outcome outlived its intent": {View{ID: "a1", Stream: 100, Outcome: &Outcome{State: Succeeded, FinishedSeq: 3}}, answers{}},
		"a message cannot be read":       {malformed(3, nil), answers{}},
		"and that has been recorded":     {malformed(3, &Outcome{State: Failed, FinishedSeq: 3}), answers{finished: true}},
		"a later one ended already":      {present(3, &Outcome{State: Running, FinishedSeq: 5}), answers{finished: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, answers{test.view.Finished(), test.view.Living(), test.view.Pending()})
		})
	}
}

func TestTheFenceOfACreateIsTheNewestDeletion(t *testing.T) {
	t.Parallel()
	behind := func(fence uint64) View {
		v := present(7, nil)
		v.Intent.Fence = fence
		return v
	}
	for name, test := range map[string]struct {
		last View
		want uint64
	}{
		"none before the first intent":   {View{ID: "a1", Stream: 100}, 0},
		"none after creates alone":       {present(7, nil), 0},
		"the deletion just before":       {absent(7, nil), 7},
		"the deletion before a create":   {behind(5), 5},
		"a finished deletion counts too": {absent(7, &Outcome{State: Succeeded, FinishedSeq: 7}), 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, test.last.Create(smallSpec(), "r2", noon, time.Minute).Fence)
		})
	}
}

func TestIntentsCarryWhatTheyNeed(t *testing.T) {
	t.Parallel()
	v := View{ID: "a1", Stream: 100}
	spec := smallSpec()
	require.Equal(t, Intent{
		Op: Present, SandboxID: "a1", Spec: &spec, SpecHash: spec.Hash(), RequestID: "r",
		AcceptedAt: noon, Deadline: noon.Add(time.Minute),
	}, v.Create(spec, "r", noon, time.Minute))
	require.Equal(t, Intent{Op: Absent, SandboxID: "a1", RequestID: "r", AcceptedAt: noon}, v.Delete("r", noon),
		"a deletion is never given up, so it has no deadline")
}

func TestLineageOfAView(t *testing.T) {
	t.Parallel()
	v := present(7, &Outcome{SettledSeq: 3, FailedSeq: 5})
	v.Intent.Fence = 2
	require.Equal(t, sandbox.Lineage{
		Generation: sandbox.Generation{Stream: 100, Seq: 7}, Fence: 2, Settled: 3, Failed: 5,
	}, v.Lineage())
	require.Equal(t, sandbox.Lineage{Generation: sandbox.Generation{Stream: 100, Seq: 7}}, malformed(7, nil).Lineage())
}

func TestServes(t *testing.T) {
	t.Parallel()
	const patience = 30 * time.Second
	create := func(spec sandbox.Spec, id string) Intent { return View{ID: "a1"}.Create(spec, id, noon, time.Minute) }
	remove := View{ID: "a1"}.Delete("mine", noon)
	for name, test := range map[string]struct {
		view View
		in   Intent
		age  time.Duration
		want bool
	}{
		"nothing was asked for":                        {View{ID: "a1"}, create(smallSpec(), "mine"), 0, false},
		"the same is queued":                           {present(3, nil), create(smallSpec(), "mine"), 0, true},
		"the same is under way":                        {present(3, &Outcome{State: Running}), create(smallSpec(), "mine"), 0, true},
		"the same is being tried again":                {present(3, &Outcome{State: Retrying}), create(smallSpec(), "mine"), 0, true},
		"the same is queued for as long as one waits":  {present(3, nil), create(smallSpec(), "mine"), patience, true},
		"the same has been queued for too long":        {present(3, nil), create(smallSpec(), "mine"), patience + 1, false},
		"another spec is queued":                       {present(3, nil), create(bigSpec(), "mine"), 0, false},
		"the same has succeeded":                       {present(3, &Outcome{State: Succeeded, FinishedSeq: 3}), create(smallSpec(), "mine"), 0, false},
		"the same has failed":                          {present(3, &Outcome{State: Failed, FinishedSeq: 3}), create(smallSpec(), "mine"), 0, false},
		"a delete is queued":                           {absent(3, nil), create(smallSpec(), "mine"), 0, false},
		"a delete is queued and one is asked for":      {absent(3, nil), remove, 0, true},
		"a delete succeeded and one is asked for":      {absent(3, &Outcome{State: Succeeded, FinishedSeq: 3}), remove, 0, false},
		"a create is queued and a delete is asked for": {present(3, nil), remove, 0, false},
		"the last message cannot be read":              {malformed(3, nil), create(smallSpec(), "mine"), 0, false},
		"it is this very intent":                       {present(3, nil), create(bigSpec(), "r1"), 0, true},
		"it is this very intent and has ended":         {present(3, &Outcome{State: Failed, FinishedSeq: 3}), create(smallSpec(), "r1"), 0, true},
		"it is this very intent after a long time":     {present(3, nil), create(smallSpec(), "r1"), time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, test.view.Serves(test.in, noon.Add(test.age), patience))
		})
	}
}
