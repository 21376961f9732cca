package faults_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/testenv"
)

// A worker that is late writes an outcome which the stream refuses. A waiter that listened to the subject of the outcomes
// would see it all the same.
func TestARefusedOutcomeIsNeverSeenByAWaiter(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Stack(t, testenv.Through(proxy))
	c, id := d.Client(), "waited-for"
	creates := proxy.On(testenv.Match{Verb: "create"}, testenv.Hold)
	answer := make(chan testenv.Response, 1)
	go func() { answer <- c.Create(t.Context(), id) }()
	waitUntilHit(t, creates, 2)

	nc, js := d.NATS.Connect()
	stream, err := js.Stream(t.Context(), "SANDBOX_JOBS")
	require.NoError(t, err)
	announced, err := nc.SubscribeSync("sandbox.announced.>")
	require.NoError(t, err)
	generation := sandbox.Generation{Stream: stream.CachedInfo().Created.UnixNano(), Seq: 1}
	lie, err := json.Marshal(jobs.Outcome{
		Generation: generation, Op: jobs.Present, State: jobs.Succeeded, FinishedSeq: 1,
		Sandbox: &sandbox.State{ID: id, URL: "http://nowhere.example", Status: sandbox.Running},
	})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "sandbox.outcomes.default."+id, lie, jetstream.WithExpectLastSequencePerSubject(4711))
	var refused *jetstream.APIError
	require.ErrorAs(t, err, &refused)

	creates.Remove()
	r := (<-answer).Want(t, http.StatusOK)
	require.NotEqual(t, "http://nowhere.example", *r.Body.URL)
	require.Equal(t, generation.Seq, r.Body.Generation)
	msg, err := announced.NextMsg(5 * time.Second)
	require.NoError(t, err, "outcomes that count are announced")
	require.NotContains(t, string(msg.Data), "nowhere.example")
}

// A create that finds its sandbox in the cluster must not promise what was deleted while it looked.
func TestACreateDoesNotPromiseWhatWasDeletedWhileItLooked(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Stack(t, testenv.APIs(2), testenv.APIThrough(0, proxy))
	c, id := d.APIs[1].Client(), "looked-at"
	c.Create(t.Context(), id).Want(t, http.StatusOK)
	old := d.WaitUntilRunning(id)
	d.NATS.WaitUntilQuiet(5 * time.Second)

	reads := proxy.On(testenv.Match{Verb: "get"}, testenv.HoldResponse)
	answer := make(chan testenv.Response, 1)
	go func() { answer <- d.APIs[0].Client().Create(t.Context(), id) }()
	waitUntilLooked(t, reads)
	c.Delete(t.Context(), id).Want(t, http.StatusOK)
	reads.Remove()
	(<-answer).Want(t, http.StatusOK)
	there := c.Presence(t.Context(), id).Want(t, http.StatusOK)
	require.NotNil(t, there.Body.UID, "it was promised: %v", there)
	require.NotEqual(t, old, *there.Body.UID)
	require.Equal(t, *there.Body.UID, d.WaitUntilRunning(id))
}

// A create that was decided on before a delete, and queued after it, must not take over what the delete is about.
func TestACreateThatADeleteOvertookIsDecidedOnAgain(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Stack(t, testenv.APIs(2), testenv.APIThrough(0, proxy))
	c, id := d.APIs[1].Client(), "overtaken"
	c.Create(t.Context(), id).Want(t, http.StatusOK)
	old := d.WaitUntilRunning(id)
	d.NATS.WaitUntilQuiet(5 * time.Second)
	d.StopWorkers()

	reads := proxy.On(testenv.Match{Verb: "get"}, testenv.HoldResponse)
	answer := make(chan testenv.Response, 1)
	go func() { answer <- d.APIs[0].Client().Create(t.Context(), id, testenv.Prefer("wait=25")) }()
	waitUntilLooked(t, reads)
	c.Delete(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	reads.Remove()
	testenv.Until(t, 5*time.Second, func() error {
		if r := c.Job(t.Context(), id); r.Body.Op != "present" {
			return errors.New(r.String())
		}
		return nil
	})
	d.StartWorkers()
	(<-answer).Want(t, http.StatusOK)
	require.NotEqual(t, old, d.WaitUntilRunning(id))
}

// waitUntilLooked waits until Kubernetes has answered the reads of both halves, which the rule holds back.
func waitUntilLooked(t *testing.T, reads *testenv.Rule) {
	t.Helper()
	testenv.Until(t, 5*time.Second, func() error {
		if n := reads.Answered(); n < 2 {
			return fmt.Errorf("%d reads of 2 have been answered", n)
		}
		return nil
	})
}
