package faults_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/testenv"
)

// ackWait is short, so that what a dead worker had in hand soon goes to others.
const ackWait = 3 * time.Second

func TestTheJobsOfAKilledWorkerAreCarriedOutByOthers(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Processes(t, testenv.ClusterIP(), testenv.Workers(3), testenv.WorkerThrough(0, proxy), testenv.Env("ACK_WAIT", ackWait.String()))
	c := d.Client()
	// The victim gets a Pod made without hearing of it, and then hangs with everything else that it has taken.
	proxy.On(testenv.Match{Verb: "create", Resource: "pods"}, testenv.LoseResponse).Times(1)
	services := proxy.On(testenv.Match{Verb: "create", Resource: "services"}, testenv.Hang)
	ids := names("job", 100)
	for i, id := range ids {
		c.Create(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
		if i == len(ids)/2 {
			waitUntilHit(t, services, 1)
			d.Workers[0].Kill()
		}
	}
	killed := time.Now()
	waitUntilBoth(t, d, ids, ackWait+5*time.Second)
	t.Logf("all were there %s after the kill", time.Since(killed))
	d.NATS.WaitUntilQuiet(20 * time.Second)
	pods, services2 := living(d)
	require.Len(t, pods, len(ids))
	require.Len(t, services2, len(ids))
}

// A frozen worker whose jobs went to others must not write when it goes on.
func TestAFrozenWorkerDoesNotWriteWhenItGoesOn(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Processes(t, testenv.Workers(2), testenv.WorkerThrough(0, proxy), testenv.Env("ACK_WAIT", ackWait.String()))
	c, id, victim := d.Client(), "frozen", d.Workers[0]
	d.Workers[1].Stop()
	creates := proxy.On(testenv.Match{Verb: "create"}, testenv.Hang)
	c.Create(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	waitUntilHit(t, creates, 2)
	victim.Freeze()
	creates.Remove()

	d.Workers[1].Start()
	c.Create(t.Context(), id).Want(t, http.StatusOK)
	c.Delete(t.Context(), id).Want(t, http.StatusOK)
	d.WaitUntilGone(id, 10*time.Second)
	proxy.ResetCounts()
	victim.Thaw()
	d.NATS.WaitUntilQuiet(20 * time.Second)
	require.NotContains(t, proxy.Counts(), "create pods")
	require.NotContains(t, proxy.Counts(), "create services")
	d.WaitUntilGone(id, time.Second)
}

// A delete that a dead worker has sent may arrive when its job has long been done by another one.
func TestADeleteThatArrivesLateDoesNotHitTheSuccessor(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Processes(t, testenv.Workers(2), testenv.WorkerThrough(0, proxy), testenv.Env("ACK_WAIT", ackWait.String()))
	c, id := d.Client(), "late"
	c.Create(t.Context(), id).Want(t, http.StatusOK)
	old := d.WaitUntilRunning(id)
	d.Workers[1].Stop()
	deletes := proxy.On(testenv.Match{Verb: "delete"}, testenv.Hold)
	c.Delete(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	waitUntilHit(t, deletes, 2)
	d.Workers[0].Kill()

	d.Workers[1].Start()
	c.Delete(t.Context(), id).Want(t, http.StatusOK)
	c.Create(t.Context(), id).Want(t, http.StatusOK)
	uid, service := d.WaitUntilRunning(id), d.Service(id).UID
	require.NotEqual(t, old, uid)
	deletes.Remove()
	require.Equal(t, uid, d.WaitUntilRunning(id))
	require.Nil(t, d.Pod(id).DeletionTimestamp)
	require.Equal(t, service, d.Service(id).UID)
}

// A create that is under way when its sandbox is deleted is undone by whoever sent it.
func TestACreateThatArrivesLateIsUndone(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Stack(t, testenv.Workers(2), testenv.WorkerThrough(0, proxy))
	c, id := d.Client(), "late"
	d.Workers[1].Stop()
	creates := proxy.On(testenv.Match{Verb: "create"}, testenv.Hold)
	c.Create(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	waitUntilHit(t, creates, 2)
	d.Workers[1].Start()
	deleted := make(chan testenv.Response, 1)
	go func() { deleted <- c.Delete(t.Context(), id) }()
	select {
	case r := <-deleted:
		deleted <- r
	case <-time.After(time.Second):
	}
	creates.Remove()
	(<-deleted).Want(t, http.StatusOK)
	d.NATS.WaitUntilQuiet(10 * time.Second)
	d.WaitUntilGone(id, 5*time.Second)
}

// A worker that NATS cannot hear must stop before its job may be somebody else's.
func TestAWorkerThatIsCutOffStopsInTime(t *testing.T) {
	t.Parallel()
	proxy := testenv.Proxy(t, testenv.Cluster(t))
	d := testenv.Stack(t, testenv.Through(proxy), testenv.Env("ACK_WAIT", ackWait.String()), testenv.Env("K8S_REQUEST_TIMEOUT", "30s"))
	creates := proxy.On(testenv.Match{Verb: "create"}, testenv.Hang)
	d.Client().Create(t.Context(), "late", testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
	waitUntilHit(t, creates, 2)
	nc, _ := d.NATS.Connect()
	heartbeats, err := nc.SubscribeSync("$JS.ACK.SANDBOX_JOBS.>")
	require.NoError(t, err)
	for range 3 { // a third of ackWait apart: by then the first lease is over
		beat, err := heartbeats.NextMsg(ackWait)
		require.NoError(t, err)
		require.Equal(t, "+WPI", string(beat.Data))
	}
	require.Zero(t, creates.Over(), "heartbeats were ignored")
	d.NATS.Stop()
	testenv.Until(t, ackWait, func() error {
		if over := creates.Over(); over < 2 {
			return fmt.Errorf("%d of 2 requests have been given up", over)
		}
		return nil
	})
	require.Equal(t, 2, creates.Hits(), "it wrote again")
	creates.Remove()
	d.NATS.Start()
	d.WaitUntilRunning("late")
}

func TestAWorkerThatIsToldToEndFinishesWhatItHas(t *testing.T) {
	t.Parallel()
	d := testenv.Processes(t, testenv.ClusterIP(), testenv.Workers(2))
	c := d.Client()
	ids, ended := names("job", 100), make(chan struct{})
	for i, id := range ids {
		c.Create(t.Context(), id, testenv.Prefer("respond-async")).Want(t, http.StatusAccepted)
		if i == len(ids)/2 {
			go func() {
				defer close(ended)
				d.Workers[0].Stop()
			}()
		}
	}
	// Nothing may be left to wait for AckWait, which is 15 s.
	waitUntilBoth(t, d, ids, 10*time.Second)
	d.NATS.WaitUntilQuiet(10 * time.Second)
	<-ended
}

// What a request for jobs waited for must not count against the job that comes at its end. On a busy machine a few may be
// given up for good reasons.
func TestAJobIsNotGivenUpBecauseItCameLate(t *testing.T) {
	t.Parallel()
	d := testenv.Stack(t, testenv.ClusterIP(), testenv.Env("ACK_WAIT", "2s"))
	ids, again := names("late", 30), 0
	for _, id := range ids {
		d.Client().Create(t.Context(), id, testenv.Prefer("wait=25")).Want(t, http.StatusOK)
		d.WaitUntilRunning(id) // lets some time pass
		if d.Client().Job(t.Context(), id).Want(t, http.StatusOK).Body.Attempts > 1 {
			again++
		}
	}
	require.Less(t, again, len(ids)/6, "jobs that took more than one attempt")
}
