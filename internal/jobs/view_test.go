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

// old is the view of an id that somebody asked for before, of whose outcome nothing is known yet.
func old() View {
	return View{ID: "a1", Stream: 100, Seq: 1, Intent: &Intent{Op: Present, SandboxID: "a1", Outcomes: 200}, OutcomeStream: 200}
}

// present is the view of an id whose last intent is a Present at seq.
func present(seq uint64, o *Outcome) View {
	v := old()
	in := v.Create(smallSpec(), "r1", noon, time.Minute)
	v.Seq, v.Intent, v.Outcome = seq, &in, o
	return v
}

func absent(seq uint64, o *Outcome) View {
	v := old()
	in := v.Delete("r1", noon)
	v.Seq, v.Intent, v.Outcome = seq, &in, o
	return v
}

func malformed(seq uint64, o *Outcome) View {
	v := old()
	v.Seq, v.Intent, v.Malformed, v.Outcome = seq, nil, errors.New("not an intent"), o
	return v
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
	spec := smallSpec()
	require.Equal(t, Intent{
		Op: Present, SandboxID: "a1", Spec: &spec, SpecHash: spec.Hash(), RequestID: "r", Outcomes: 200,
		AcceptedAt: noon, Deadline: noon.Add(time.Minute),
	}, old().Create(spec, "r", noon, time.Minute))
	require.Equal(t, Intent{Op: Absent, SandboxID: "a1", RequestID: "r", AcceptedAt: noon, Outcomes: 200}, old().Delete("r", noon),
		"a deletion is never given up, so it has no deadline")
}

func TestLineageOfAView(t *testing.T) {
	t.Parallel()
	v := present(7, &Outcome{SettledSeq: 3, FailedSeq: 5})
	v.Intent.Fence = 2
	require.Equal(t, sandbox.Lineage{
		Generation: sandbox.Generation{Stream: 100, Seq: 7}, Fence: 2, Settled: 3, Failed: 5,
	}, v.Lineage())
	require.Equal(t, sandbox.Lineage{Generation: sandbox.Generation{Stream: 100, Seq: 7}}, present(7, nil).Lineage())
}

// follows is the view after the successor of the last intent of v was published at seq.
func follows(v View, seq uint64) View {
	in := v.Create(smallSpec(), "r2", noon, time.Minute)
	v.Seq, v.Intent, v.Malformed = seq, &in, nil
	return v
}

// What may have been promised must not be condemned with the intents that fail.
func TestWhatMayHaveBeenPromisedStaysSettled(t *testing.T) {
	t.Parallel()
	forgotten := View{ID: "a1", Stream: 100, OutcomeStream: 200}
	lost := func(v View) View { v.OutcomeStream++; return v }
	for name, test := range map[string]struct {
		view View
		want uint64
	}{
		"all before the first intent that is remembered":     {follows(forgotten, 7), 6},
		"and that is handed on":                              {follows(follows(forgotten, 7), 9), 6},
		"nothing after an intent without an outcome":         {present(7, nil), 0},
		"what an outcome says":                               {present(7, &Outcome{SettledSeq: 3}), 3},
		"nothing, if an outcome says so":                     {with(follows(forgotten, 7), &Outcome{}), 0},
		"what the outcome said, after it has been forgotten": {with(follows(present(7, &Outcome{SettledSeq: 3}), 9), nil), 3},
		"all before, when the outcomes were lost":            {lost(present(7, nil)), 6},
		"the last one too, for whoever comes after the loss": {follows(lost(present(7, nil)), 9), 7},
		"all before a message that cannot be read":           {malformed(7, nil), 6},
		"and that message too, for whoever comes after it":   {follows(malformed(7, nil), 9), 7},
		"what the outcome says, whatever cannot be read":     {malformed(7, &Outcome{SettledSeq: 3}), 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, test.view.Lineage().Settled)
			require.Equal(t, test.want, test.view.Progress(Running, nil, 1, noon).SettledSeq, "a record hands it on")
		})
	}
}

// with is v with another outcome.
func with(v View, o *Outcome) View {
	v.Outcome = o
	return v
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
