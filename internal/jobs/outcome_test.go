package jobs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/sandbox"
)

func TestOutcomesCarryOnWhatLaterJobsMustKnow(t *testing.T) {
	t.Parallel()
	type bounds struct{ finished, settled, failed uint64 }
	failure := &sandbox.Failure{Reason: sandbox.ReasonQuota, Object: sandbox.Pod, Message: "exceeded quota"}
	retry := &sandbox.Retry{Reason: sandbox.ReasonServer, Object: sandbox.Pod, Err: errors.New("internal error")}
	before := &Outcome{FinishedSeq: 6, SettledSeq: 4, FailedSeq: 6}
	for name, test := range map[string]struct {
		got  Outcome
		want bounds
	}{
		"the first success settles":                      {present(3, nil).Success(nil, 1, noon), bounds{3, 3, 0}},
		"the first failure condemns all that was made":   {present(3, nil).Failure(failure, 1, noon), bounds{3, 0, 3}},
		"the first progress says nothing":                {present(3, nil).Progress(Running, nil, 1, noon), bounds{0, 0, 0}},
		"a success takes back what was condemned":        {present(9, before).Success(nil, 1, noon), bounds{9, 9, 0}},
		"a delete settles as well":                       {absent(9, before).Success(nil, 1, noon), bounds{9, 9, 0}},
		"a failure leaves what was settled before":       {present(9, before).Failure(failure, 1, noon), bounds{9, 4, 9}},
		"a message that cannot be read condemns as well": {malformed(9, before).Failure(failure, 1, noon), bounds{9, 4, 9}},
		"running changes no bound":                       {present(9, before).Progress(Running, nil, 1, noon), bounds{6, 4, 6}},
		"retrying changes no bound":                      {present(9, before).Progress(Retrying, retry, 1, noon), bounds{6, 4, 6}},
		"undone changes no bound":                        {present(6, before).Undone(noon), bounds{6, 4, 6}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, bounds{test.got.FinishedSeq, test.got.SettledSeq, test.got.FailedSeq})
		})
	}
}

func TestASuccessNamesWhatWasFound(t *testing.T) {
	t.Parallel()
	found := &sandbox.State{ID: "a1", Status: sandbox.Running, PodUID: "u1"}
	require.Equal(t, Outcome{
		Generation: sandbox.Generation{Stream: 100, Seq: 3}, Op: Present, State: Succeeded, Sandbox: found, Attempts: 2,
		AcceptedAt: noon, UpdatedAt: noon.Add(time.Second), FinishedSeq: 3, SettledSeq: 3,
	}, present(3, &Outcome{State: Retrying, Reason: sandbox.ReasonServer, Message: "earlier trouble"}).Success(found, 2, noon.Add(time.Second)),
		"nothing is left of the trouble before")
}

func TestAFailureSaysWhyAndThatItIsBeingUndone(t *testing.T) {
	t.Parallel()
	o := present(3, &Outcome{Sandbox: &sandbox.State{ID: "a1"}}).Failure(
		&sandbox.Failure{Reason: sandbox.ReasonRefused, Object: sandbox.Service, Message: "denied"}, 4, noon.Add(time.Second))
	require.Equal(t, Outcome{
		Generation: sandbox.Generation{Stream: 100, Seq: 3}, Op: Present, State: Failed, Undoing: true,
		Reason: sandbox.ReasonRefused, Object: sandbox.Service, Message: "denied", Attempts: 4,
		AcceptedAt: noon, UpdatedAt: noon.Add(time.Second), FinishedSeq: 3, FailedSeq: 3,
	}, o)
}

func TestUndoneKeepsTheFailure(t *testing.T) {
	t.Parallel()
	failed := present(3, nil).Failure(&sandbox.Failure{Reason: sandbox.ReasonQuota, Message: "exceeded quota"}, 4, noon)
	want := failed
	want.Undoing, want.UpdatedAt = false, noon.Add(time.Minute)
	require.Equal(t, want, present(3, &failed).Undone(noon.Add(time.Minute)))
	require.True(t, failed.Undoing, "the record before is not changed")
}

func TestProgressSaysWhyItTakesLong(t *testing.T) {
	t.Parallel()
	retry := &sandbox.Retry{Reason: sandbox.ReasonThrottled, Object: sandbox.Pod, Err: errors.New("slow down")}
	o := absent(3, nil).Progress(Retrying, retry, 7, noon)
	require.Equal(t, Outcome{
		Generation: sandbox.Generation{Stream: 100, Seq: 3}, Op: Absent, State: Retrying, Attempts: 7,
		Reason: sandbox.ReasonThrottled, Object: sandbox.Pod, Message: "slow down", AcceptedAt: noon, UpdatedAt: noon,
	}, o)
}

func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", sandbox.MaxPlain+1)
	require.Len(t, present(3, nil).Failure(&sandbox.Failure{Message: long}, 1, noon).Message, sandbox.MaxPlain)
	require.Len(t, present(3, nil).Progress(Retrying, &sandbox.Retry{Err: errors.New(long)}, 1, noon).Message, sandbox.MaxPlain)
	require.Equal(t, long[1:], present(3, nil).Failure(&sandbox.Failure{Message: long[1:]}, 1, noon).Message)
}
