package faults_test

import (
	"encoding/json"
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
