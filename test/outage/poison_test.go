package outage_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

// A message that no program of ours has sent neither blocks the others nor comes again, and is known as failed.
func TestAPoisonMessageIsDroppedOnceAndSaidToHaveFailed(t *testing.T) {
	t.Parallel()
	const subject = "sandbox.jobs.default."
	poisons := map[string]string{
		"nothing":        "",
		"not-json":       "\x00\xff{",
		"not-an-object":  "[1,2,3]",
		"another-id":     `{"op":"absent","sandbox_id":"innocent"}`,
		"without-a-spec": `{"op":"present","sandbox_id":"without-a-spec"}`,
		"unknown-op":     `{"op":"explode","sandbox_id":"unknown-op"}`,
		"wrong-types":    `{"op":1,"sandbox_id":{}}`,
		"large":          `{"op":"` + strings.Repeat("x", 500_000) + `"}`,
		"Not_an_id":      `{"op":"absent","sandbox_id":"Not_an_id"}`,
	}
	d := testenv.Stack(t, testenv.ClusterIP(), testenv.Workers(2))
	c := d.Client()
	c.Create(t.Context(), "innocent").Want(t, http.StatusOK)
	d.NATS.WaitUntilQuiet(5 * time.Second)

	nc, js := d.NATS.Connect()
	replies, err := nc.SubscribeSync("$JS.ACK.SANDBOX_JOBS.>")
	require.NoError(t, err)
	for id, body := range poisons {
		_, err := js.Publish(t.Context(), subject+id, []byte(body))
		require.NoError(t, err)
	}
	queue(t, c, names("queued", 50))
	d.NATS.WaitUntilQuiet(10 * time.Second)
	requireExactly(t, d, time.Second, append(names("queued", 50), "innocent")...)
	require.NoError(t, nc.Flush())
	dropped, came := 0, map[string]int{}
	for n, _, _ := replies.Pending(); n > 0; n, _, _ = replies.Pending() {
		msg, err := replies.NextMsg(time.Second)
		require.NoError(t, err)
		if strings.HasPrefix(string(msg.Data), "+TERM") {
			dropped++
		}
		came[strings.Split(string(msg.Data), " ")[0]]++
	}
	require.Equal(t, len(poisons), dropped, "replies to NATS: %v", came)

	delete(poisons, "Not_an_id") // the API knows no such id
	for id := range poisons {
		r := c.Job(t.Context(), id).Want(t, http.StatusOK)
		require.Equal(t, "failed", r.Body.State, "%v", r)
		require.Equal(t, "MalformedIntent", r.Body.Reason, "%v", r)
		require.Equal(t, 1, r.Body.Attempts, "%v", r)
		c.Get(t.Context(), id).Want(t, http.StatusNotFound)
		c.Create(t.Context(), id).Want(t, http.StatusOK)
		c.Delete(t.Context(), id).Want(t, http.StatusOK)
	}
	require.Contains(t, fmt.Sprint(c.List(t.Context()).Want(t, http.StatusOK).Body.Sandboxes), "innocent")
}
