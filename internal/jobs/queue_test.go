package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/sandbox"
)

// ask publishes a create of id after its last intent.
func ask(t *testing.T, q *Queue, id string) View {
	t.Helper()
	v := look(t, q, id)
	v, err := q.Publish(t.Context(), v, v.Create(smallSpec(), nextRequest(), noon, time.Minute))
	require.NoError(t, err)
	return v
}

// revoke publishes a delete of id after its last intent.
func revoke(t *testing.T, q *Queue, id string) View {
	t.Helper()
	v := look(t, q, id)
	v, err := q.Publish(t.Context(), v, v.Delete(nextRequest(), noon))
	require.NoError(t, err)
	return v
}

func look(t *testing.T, q *Queue, id string) View {
	t.Helper()
	v, err := q.Look(t.Context(), id)
	require.NoError(t, err)
	return v
}

// blank is a view of a1 in the streams of v of which nothing is known.
func blank(v View) View { return View{ID: "a1", Stream: v.Stream, OutcomeStream: v.OutcomeStream} }

func record(t *testing.T, q *Queue, v View, o Outcome) View {
	t.Helper()
	v, err := q.Record(t.Context(), v, o)
	require.NoError(t, err)
	return v
}

var (
	requestMu sync.Mutex
	requests  int
)

func nextRequest() string {
	requestMu.Lock()
	defer requestMu.Unlock()
	requests++
	return fmt.Sprintf("request-%d", requests)
}

func TestNothingIsKnownOfANewID(t *testing.T) {
	t.Parallel()
	v := look(t, newBroker(t).queue(), "a1")
	require.NotZero(t, v.Stream)
	require.NotZero(t, v.OutcomeStream)
	require.Equal(t, blank(v), v)
}

// An intent whose outcome has been forgotten would be carried out again.
func TestOutcomesOutliveIntentsAlsoInStreamsOfOldInstallations(t *testing.T) {
	t.Parallel()
	const short, long = 20 * time.Minute, 2 * time.Hour
	retains := func(d time.Duration) func(*Config) { return func(c *Config) { c.Retention = d } }
	for name, tc := range map[string]struct {
		before, configured, intents time.Duration // before is 0 where there are no streams
	}{
		"new":               {configured: short, intents: short},
		"as it was":         {before: short, configured: short, intents: short},
		"longer now":        {before: short, configured: long, intents: long},
		"shorter elsewhere": {before: long, configured: short, intents: long},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			js := b.jetstream()
			q := b.queue(retains(tc.configured))
			if tc.before > 0 {
				for _, cfg := range []jetstream.StreamConfig{q.intentConfig(), q.outcomeConfig()} {
					cfg.MaxAge = tc.before
					_, err := js.CreateStream(t.Context(), cfg)
					require.NoError(t, err)
				}
			}
			require.NoError(t, q.Ping(t.Context()))
			info := func(stream string) *jetstream.StreamInfo {
				s, err := js.Stream(t.Context(), stream)
				require.NoError(t, err)
				return s.CachedInfo()
			}
			require.Equal(t, tc.intents, info(intentStream).Config.MaxAge)
			require.GreaterOrEqual(t, info(outcomeStream).Config.MaxAge, tc.intents+outlives)
			require.Equal(t, info(outcomeStream).Created.UnixNano(), look(t, q, "a1").OutcomeStream, "it is still the same one")
		})
	}
	require.GreaterOrEqual(t, outlives, 10*time.Second, "streams forget when they find the time")
}

// restricted is a NATS with a user "operator", who may do everything, and one "us", who may not; connect returns a connection of one.
func restricted(t *testing.T, us *server.Permissions) (connect func(user string) *nats.Conn) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true,
		Users: []*server.User{{Username: "operator"}, {Username: "us", Permissions: us}},
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	require.True(t, s.ReadyForConnections(soon))
	return func(user string) *nats.Conn {
		nc, err := nats.Connect(s.ClientURL(), append(ConnectOptions("test", quiet()), nats.UserInfo(user, ""))...)
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
}

func TestStreamsThatCannotBeChangedAreUsedAsTheyAre(t *testing.T) {
	t.Parallel()
	connect := restricted(t, &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.UPDATE.>"}}})
	var log bytes.Buffer
	q, err := New(connect("us"), testConfig(), slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	js, err := jetstream.New(connect("operator"))
	require.NoError(t, err)
	for _, cfg := range []jetstream.StreamConfig{q.intentConfig(), q.outcomeConfig()} {
		cfg.MaxAge = minRetention
		_, err := js.CreateStream(t.Context(), cfg)
		require.NoError(t, err)
	}

	require.NoError(t, q.Ping(t.Context()))
	ask(t, q, "a1")
	require.NoError(t, q.Ping(t.Context()))
	require.Equal(t, 2, strings.Count(log.String(), "\n"), "each stream is told of once:\n%s", &log)
	require.Equal(t, 2, strings.Count(log.String(), "right=$JS.API.STREAM.UPDATE."), &log)
	require.NotContains(t, log.String(), "from now on")
}

func TestTheRightsThatTheDocumentationNamesAreEnough(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/security.md")
	require.NoError(t, err)
	named := func(what string) *server.SubjectPermission {
		row := regexp.MustCompile(`(?m)^\| ` + what + ` \| (.+) \|$`).FindSubmatch(document)
		require.NotNil(t, row, what)
		var subjects []string
		for _, subject := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(string(row[1]), -1) {
			subjects = append(subjects, subject[1])
		}
		return &server.SubjectPermission{Allow: subjects}
	}
	connect := restricted(t, &server.Permissions{Publish: named("publish"), Subscribe: named("subscribe")})
	q, err := New(connect("us"), testConfig(), quiet())
	require.NoError(t, err)

	announce(t, q)
	f := follow(t, q, "a1")
	v := ask(t, q, "a1")
	fetched, err := q.Consumer().Fetch(t.Context(), 1)
	require.NoError(t, err)
	job := <-fetched
	require.NotNil(t, job)
	_, err = job.Extend(t.Context())
	require.NoError(t, err)
	asked := time.Now()
	record(t, q, v, v.Success(&sandbox.State{ID: "a1", PodUID: "u1"}, 1, noon))
	require.NotNil(t, next(t, f, v.Stream))
	require.Less(t, time.Since(asked), pollInterval, "it was told, and did not have to ask")
	require.NoError(t, job.Ack())
	require.Eventually(t, func() bool {
		depth, err := q.Depth(t.Context())
		return err == nil && depth.Unacknowledged == 0
	}, soon, 10*time.Millisecond, "NATS has taken the acknowledgement")
}

func TestOutcomesAreKeptForEverWhereIntentsAre(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q, js := b.queue(), b.jetstream()
	intents := q.intentConfig()
	intents.MaxAge = 0
	for _, cfg := range []jetstream.StreamConfig{intents, q.outcomeConfig()} {
		_, err := js.CreateStream(t.Context(), cfg)
		require.NoError(t, err)
	}
	require.NoError(t, q.Ping(t.Context()))
	for _, name := range []string{intentStream, outcomeStream} {
		s, err := js.Stream(t.Context(), name)
		require.NoError(t, err)
		require.Zero(t, s.CachedInfo().Config.MaxAge, name)
	}
}

// Most ids are new, so that nobody looks first.
func TestAGuessThatAnIDIsNewIsProvenOrRefused(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	_, ok := q.Unseen("a1")
	require.False(t, ok, "NATS has not been heard of")
	guess := unseen(t, q, "a1")
	require.Equal(t, look(t, q, "a1"), guess)
	in := guess.Create(smallSpec(), nextRequest(), noon, time.Minute)
	v, err := q.Publish(t.Context(), guess, in)
	require.NoError(t, err)
	_, err = q.Publish(t.Context(), guess, in)
	require.ErrorIs(t, err, ErrConflict)
	require.Equal(t, v.Seq, look(t, q, "a1").Seq)
}

// What is sent to a server that is paused may be stored long after its sender has given up.
func TestNothingIsGuessedOnceNATSHasBeenSilent(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	unseen(t, q, "a1")
	q.heard.Store(new(time.Now().Add(-heardAge)))
	_, ok := q.Unseen("a1")
	require.False(t, ok)
	require.LessOrEqual(t, heardAge, 100*time.Millisecond, "a server may be paused at any moment")
}

// unseen is the guess that id is new, made when NATS has just been heard of.
func unseen(t *testing.T, q *Queue, id string) (v View) {
	t.Helper()
	require.Eventually(t, func() (ok bool) {
		look(t, q, "another")
		v, ok = q.Unseen(id)
		return ok
	}, soon, time.Millisecond)
	return v
}

func TestTheNewestIntentIsReadAlone(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	none, err := q.Newest(t.Context(), "a1")
	require.NoError(t, err)
	require.Equal(t, look(t, q, "a1").Generation(), none)
	ask(t, q, "a1")
	v := revoke(t, q, "a1")
	ask(t, q, "b2")
	newest, err := q.Newest(t.Context(), "a1")
	require.NoError(t, err)
	require.Equal(t, v.Generation(), newest)
}

// A publish to a stream that is not there has surely not been stored, so that it may be tried again at once.
func TestAPublishWithoutAStreamIsTriedAgainOnANewOne(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	guess := unseen(t, q, "a1")
	require.NoError(t, b.jetstream().DeleteStream(t.Context(), intentStream))
	_, err := q.Publish(t.Context(), guess, guess.Create(smallSpec(), nextRequest(), noon, time.Minute))
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorIs(t, err, ErrUnavailable)
	v := ask(t, q, "a1")
	require.NotEqual(t, guess.Stream, v.Stream)
}
func TestWhatIsPublishedIsTheLastIntent(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	v := look(t, q, "a1")
	in := v.Create(bigSpec(), "r1", noon, time.Minute)
	published, err := q.Publish(t.Context(), v, in)
	require.NoError(t, err)
	want := blank(v)
	want.Seq, want.Intent = 1, &in
	require.Equal(t, want, published)
	require.Equal(t, published, look(t, b.queue(), "a1"), "other processes see the same")
	require.Zero(t, look(t, q, "b2").Seq, "another id has none")
}

func TestOfTwoPublishersExactlyOneWins(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	queues := []*Queue{b.queue(), b.queue(), b.queue(), b.queue()}
	for _, when := range []string{"the first intent", "the second", "the third"} {
		views := make([]View, len(queues))
		for i, q := range queues {
			views[i] = look(t, q, "a1")
		}
		errs := make([]error, len(queues))
		var all sync.WaitGroup
		for i, q := range queues {
			all.Go(func() {
				_, errs[i] = q.Publish(t.Context(), views[i], views[i].Create(smallSpec(), fmt.Sprint(when, i), noon, time.Minute))
			})
		}
		all.Wait()
		winner := -1
		for i, err := range errs {
			if err == nil {
				require.Equal(t, -1, winner, "%s was published twice", when)
				winner = i
				continue
			}
			require.ErrorIs(t, err, ErrConflict)
			require.NotErrorIs(t, err, ErrUnavailable)
		}
		require.NotEqual(t, -1, winner, "%s was not published at all", when)
		require.Equal(t, fmt.Sprint(when, winner), look(t, queues[0], "a1").Intent.RequestID)
	}
}

func TestPublishersOfDifferentIDsDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	a, b := look(t, q, "a1"), look(t, q, "b2")
	_, err := q.Publish(t.Context(), a, a.Create(smallSpec(), "r1", noon, time.Minute))
	require.NoError(t, err)
	_, err = q.Publish(t.Context(), b, b.Create(smallSpec(), "r2", noon, time.Minute))
	require.NoError(t, err)
}

func TestAnIntentWhoseAcknowledgementWasLostIsFoundByItsRequestID(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue(func(c *Config) { c.Timeout = 300 * time.Millisecond })
	v := look(t, q, "a1")
	in := v.Create(smallSpec(), "mine", noon, time.Minute)

	b.silence()
	_, err := q.Publish(t.Context(), v, in)
	require.ErrorIs(t, err, ErrUnavailable)
	b.restore()
	awaitConnection(t, q)

	found := look(t, q, "a1")
	require.EqualValues(t, 1, found.Seq)
	require.True(t, found.Serves(in, noon.Add(time.Hour), time.Second))
	_, err = q.Publish(t.Context(), v, in)
	require.ErrorIs(t, err, ErrConflict, "it cannot be appended a second time")
}

func TestTheFenceIsCarriedForward(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	for step, test := range []struct {
		op   func(*testing.T, *Queue, string) View
		want uint64
	}{
		{ask, 0}, {ask, 0}, // 1, 2
		{revoke, 0},        // 3
		{ask, 3}, {ask, 3}, // 4, 5
		{revoke, 0}, {revoke, 0}, // 6, 7
		{ask, 7}, {ask, 7}, // 8, 9
	} {
		test.op(t, q, "a1")
		v := look(t, q, "a1")
		require.EqualValues(t, step+1, v.Seq)
		require.Equal(t, test.want, v.Lineage().Fence, "step %d", step+1)
	}
}

func TestAMessageThatIsNoIntentIsSeenAsSuch(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	ask(t, q, "a1")
	_, err := b.jetstream().Publish(t.Context(), "sandbox.jobs.test.a1", []byte("hello"))
	require.NoError(t, err)

	v := look(t, q, "a1")
	require.EqualValues(t, 2, v.Seq)
	require.Nil(t, v.Intent)
	require.ErrorContains(t, v.Malformed, "not an intent")

	v = ask(t, q, "a1")
	require.EqualValues(t, 3, v.Seq, "life goes on after it")
	require.NoError(t, v.Malformed)
}

func TestAnOutcomeIsReadBackWithItsIntent(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	v := ask(t, q, "a1")
	o := v.Success(&sandbox.State{ID: "a1", URL: "http://x", Status: sandbox.Running, PodUID: "u1"}, 1, noon)
	recorded := record(t, q, v, o)
	require.Equal(t, &o, recorded.Outcome)
	require.Equal(t, recorded, look(t, b.queue(), "a1"))
}

func TestOfTwoRecordersOfOneViewExactlyOneWins(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	first, second := b.queue(), b.queue()
	v := ask(t, first, "a1")
	for _, when := range []string{"the first outcome", "the second", "the third"} {
		v = look(t, first, "a1")
		errs := make([]error, 2)
		var all sync.WaitGroup
		for i, q := range []*Queue{first, second} {
			all.Go(func() { _, errs[i] = q.Record(t.Context(), v, v.Progress(Running, nil, i, noon)) })
		}
		all.Wait()
		if errs[0] != nil {
			errs[0], errs[1] = errs[1], errs[0]
		}
		require.NoError(t, errs[0], when)
		require.ErrorIs(t, errs[1], ErrConflict, when)
	}
}

func TestAnOutcomeNeverGoesBack(t *testing.T) {
	t.Parallel()
	q := newBroker(t).queue()
	old := ask(t, q, "a1")
	next := revoke(t, q, "a1")
	done := record(t, q, next, next.Success(nil, 1, noon))

	_, err := q.Record(t.Context(), old, old.Success(&sandbox.State{ID: "a1"}, 1, noon))
	require.ErrorIs(t, err, ErrConflict)
	require.Equal(t, done, look(t, q, "a1"))
}

// A lagging stream answers a read with what held before everything that happens in meanwhile.
type lagging struct {
	jetstream.Stream
	once      *sync.Once
	meanwhile func()
	caughtUp  chan struct{}
}

func (l lagging) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	msg, err := l.Stream.GetLastMsgForSubject(ctx, subject)
	l.once.Do(func() {
		l.meanwhile()
		close(l.caughtUp)
	})
	return msg, err
}

// A waiting stream is read after the lagging one has caught up.
type waiting struct {
	jetstream.Stream
	caughtUp chan struct{}
}

func (w waiting) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	<-w.caughtUp
	return w.Stream.GetLastMsgForSubject(ctx, subject)
}

// An older intent beside the outcome of a newer one would let a worker put a record about the older in its place.
func TestAViewNeverHoldsAnOutcomeThatIsAheadOfItsIntent(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q, other := b.queue(), b.queue()
	ask(t, q, "a1")
	caughtUp := make(chan struct{})
	q.mu.Lock()
	torn := *q.streams
	torn.intents = lagging{torn.intents, new(sync.Once), func() {
		v := revoke(t, other, "a1")
		record(t, other, v, v.Progress(Running, nil, 1, noon))
	}, caughtUp}
	torn.outcomes = waiting{torn.outcomes, caughtUp}
	q.streams = &torn
	q.mu.Unlock()

	v := look(t, q, "a1")
	require.EqualValues(t, 2, v.Outcome.Generation.Seq)
	require.EqualValues(t, 2, v.Seq)
	require.Equal(t, Absent, v.Intent.Op)
}

func TestIntentsAndOutcomesSurviveARestartOfTheServer(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	v := ask(t, q, "a1")
	v = record(t, q, v, v.Success(nil, 1, noon))
	next := ask(t, q, "a1")

	b.stop()
	b.start()
	awaitConnection(t, q)
	got := look(t, q, "a1")
	require.Equal(t, next, got)
	require.Equal(t, v.Outcome, got.Outcome)
	ask(t, q, "a1")
}

func TestAtMostSixteenIntentsOfAnIDAreKept(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	for range 20 {
		ask(t, q, "a1")
	}
	ask(t, q, "b2")
	s, err := b.jetstream().Stream(t.Context(), intentStream)
	require.NoError(t, err)
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter("sandbox.jobs.>"))
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{"sandbox.jobs.test.a1": 16, "sandbox.jobs.test.b2": 1}, info.State.Subjects)
	require.EqualValues(t, 20, look(t, q, "a1").Seq, "the newest ones")
}

func TestClustersOnOneNATSDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	east := b.queue(func(c *Config) { c.Cluster = "east" })
	west := b.queue(func(c *Config) { c.Cluster = "west" })
	v := ask(t, east, "a1")
	record(t, east, v, v.Success(nil, 1, noon))

	require.Equal(t, blank(v), look(t, west, "a1"))
	ask(t, west, "a1")
	require.EqualValues(t, 1, look(t, east, "a1").Seq)

	for _, q := range []*Queue{east, west} {
		c := q.Consumer()
		first := receive(t, c, 2)
		require.Equal(t, "sandbox.jobs."+q.cfg.Cluster+".a1", first.msg.Subject())
		require.NoError(t, first.Ack())
		requireNothing(t, c)
	}
}

func TestSeveralProcessesMayMakeTheStreamsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	queues := []*Queue{b.queue(), b.queue(), b.queue(), b.queue()}
	identities := make([]int64, len(queues))
	errs := make([]error, len(queues))
	var all sync.WaitGroup
	for i, q := range queues {
		all.Go(func() {
			var v View
			v, errs[i] = q.Look(t.Context(), "a1")
			identities[i] = v.Stream
		})
	}
	all.Wait()
	for i := range queues {
		require.NoError(t, errs[i])
		require.Equal(t, identities[0], identities[i])
	}
}

// A stream that was lost with its server and made anew counts from 1 again: nothing of the old one may count in it.
func TestAfterTheStoreWasLostNothingOldCounts(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	unknown := look(t, q, "b2")
	asked := ask(t, q, "a1")
	done := record(t, q, asked, asked.Success(nil, 1, noon))

	b.replace()
	awaitConnection(t, q)
	v := look(t, q, "a1")
	require.NotEqual(t, asked.Stream, v.Stream, "the new stream has another identity")
	require.Equal(t, blank(v), v)
	require.Zero(t, asked.Generation().In(v.Stream), "a generation of the old stream is older than all")

	for name, old := range map[string]View{"of an intent": done, "of nothing": unknown} {
		_, err := q.Publish(t.Context(), old, old.Create(smallSpec(), nextRequest(), noon, time.Minute))
		require.ErrorIs(t, err, ErrConflict, "a view %s", name)
	}
	for name, old := range map[string]View{"an outcome": done, "none": asked} {
		_, err := q.Record(t.Context(), old, old.Success(nil, 1, noon))
		require.ErrorIs(t, err, ErrConflict, "a view with %s", name)
	}
	require.Equal(t, blank(v), look(t, q, "a1"), "and nothing was written")
	require.EqualValues(t, 1, ask(t, q, "a1").Seq)
}

func TestAnOutcomeAboutALostStreamIsIgnoredAndReplaced(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	old := ask(t, q, "a1")
	record(t, q, old, old.Success(nil, 1, noon))
	require.NoError(t, b.jetstream().DeleteStream(t.Context(), intentStream))

	v := look(t, q, "a1")
	require.NotEqual(t, old.Stream, v.Stream)
	require.Zero(t, v.Seq)
	require.Nil(t, v.Outcome)

	v = ask(t, q, "a1")
	require.False(t, v.Finished(), "it has the same sequence number as the one that was finished")
	o := v.Success(nil, 1, noon)
	record(t, q, v, o)
	require.Equal(t, &o, look(t, q, "a1").Outcome)
}

func TestAnUnreadableOutcomeIsIgnoredAndReplaced(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	ask(t, q, "a1")
	_, err := b.jetstream().Publish(t.Context(), "sandbox.outcomes.test.a1", []byte("hello"))
	require.NoError(t, err)

	v := look(t, q, "a1")
	require.Nil(t, v.Outcome)
	record(t, q, v, v.Success(nil, 1, noon))
	require.True(t, look(t, q, "a1").Finished())
}

// operations are all that can be done with a Queue, on an id that it has looked at before.
func operations(q *Queue, v View, c *Consumer) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"look": func(ctx context.Context) error { _, err := q.Look(ctx, "a1"); return err },
		"look at another": func(ctx context.Context) error {
			_, err := q.Look(ctx, "b2")
			return err
		},
		"look for the newest": func(ctx context.Context) error { _, err := q.Newest(ctx, "a1"); return err },
		"publish": func(ctx context.Context) error {
			_, err := q.Publish(ctx, v, v.Delete("never", noon))
			return err
		},
		"record": func(ctx context.Context) error {
			_, err := q.Record(ctx, v, v.Progress(Running, nil, 1, noon))
			return err
		},
		"ping":  q.Ping,
		"fetch": func(ctx context.Context) error { _, err := c.Fetch(ctx, 1); return err },
	}
}

func TestWithoutNATSEveryOperationSaysSoAndNothingIsSentLater(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	v := ask(t, q, "a1")
	c := q.Consumer()
	_, err := c.consumer(t.Context())
	require.NoError(t, err)

	b.stop()
	require.Eventually(t, func() bool { return !q.nc.IsConnected() }, soon, time.Millisecond)
	for name, operate := range operations(q, v, c) {
		asked := time.Now()
		require.ErrorIs(t, operate(t.Context()), ErrUnavailable, name)
		require.Less(t, time.Since(asked), 2*time.Second, name)
	}

	b.start()
	awaitConnection(t, q)
	require.Equal(t, v, look(t, q, "a1"), "what was reported as failed must not happen afterwards")
}

func TestANATSThatIsNotThereAtTheStartIsNoReasonToFail(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.stop()
	q := b.queue()
	_, err := q.Look(t.Context(), "a1")
	require.ErrorIs(t, err, ErrUnavailable)

	b.start()
	awaitConnection(t, q)
	ask(t, q, "a1")
}

func TestANATSThatDoesNotAnswerIsNotWaitedForLong(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	v := ask(t, q, "a1")
	b.silence()
	ops := operations(q, v, q.Consumer())
	errs := map[string]error{}
	took := map[string]time.Duration{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for name, operate := range ops {
		all.Go(func() {
			asked := time.Now()
			err := operate(t.Context())
			mu.Lock()
			defer mu.Unlock()
			errs[name], took[name] = err, time.Since(asked)
		})
	}
	all.Wait()
	for name := range ops {
		require.ErrorIs(t, errs[name], ErrUnavailable, name)
		require.Less(t, took[name], 2*time.Second, name)
	}
}

func TestACallerWhoGoesAwayIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	q := b.queue()
	v := ask(t, q, "a1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := q.Look(ctx, "a1")
	require.ErrorIs(t, err, context.Canceled)
	_, err = q.Publish(ctx, v, v.Delete("r", noon))
	require.ErrorIs(t, err, context.Canceled)
	_, err = q.Record(ctx, v, v.Success(nil, 1, noon))
	require.ErrorIs(t, err, context.Canceled)
}

func TestOnlyAWrongExpectationIsAConflict(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want error
	}{
		"a wrong last sequence":            {&jetstream.APIError{ErrorCode: 10071}, ErrConflict},
		"a wrong last sequence, clustered": {&jetstream.APIError{ErrorCode: 10164}, ErrConflict},
		"a full store":                     {&jetstream.APIError{ErrorCode: 10077}, ErrUnavailable},
		"no answer":                        {context.DeadlineExceeded, ErrUnavailable},
		"no stream":                        {nats.ErrNoResponders, ErrUnavailable},
		"no connection":                    {nats.ErrConnectionClosed, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := writeError(test.err)
			require.ErrorIs(t, err, test.want)
			require.Equal(t, test.want == ErrUnavailable, errors.Is(err, ErrUnavailable))
			if test.want == ErrUnavailable {
				require.ErrorIs(t, err, test.err, "the cause is kept")
			}
		})
	}
}
