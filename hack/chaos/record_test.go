package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
)

// A story is told in steps, a second apart.
type story struct {
	r   *record
	now time.Time
}

func newStory() *story { return &story{r: newRecord("a"), now: time.Unix(1000, 0)} }

func (s *story) tick() time.Time {
	s.now = s.now.Add(time.Second)
	return s.now
}

func (s *story) begin(k kind) *request { return s.r.begin(k, s.tick()) }

func (s *story) end(q *request, c class) { s.r.end(q, c, s.tick()) }

// ask is a request that overlaps with no other.
func (s *story) ask(k kind, c class) { s.end(s.begin(k), c) }

func (s *story) look(uid string) breach {
	kind, _ := s.r.sighted(s.r.held(), uid, s.tick())
	return kind
}

func TestWhatALookAtTheClusterBreaks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tell func(s *story)
		uid  string
		want breach
	}{
		"a promised Pod that is there":                {func(s *story) { s.ask(create, fulfilled) }, "1", none},
		"a promised Pod that is not there":            {func(s *story) { s.ask(create, fulfilled) }, "", killedByFriend},
		"a Pod that is only accepted may come later":  {func(s *story) { s.ask(create, accepted) }, "", none},
		"nothing is promised after a delete":          {func(s *story) { s.ask(create, fulfilled); s.ask(remove, fulfilled) }, "", none},
		"nothing is promised while a delete is open":  {func(s *story) { s.ask(create, fulfilled); s.begin(remove) }, "", none},
		"a delete that nobody got takes no promise":   {func(s *story) { s.ask(remove, refused); s.ask(create, fulfilled) }, "", killedByFriend},
		"a delete before the create takes no promise": {func(s *story) { s.ask(remove, fulfilled); s.ask(create, fulfilled) }, "", killedByFriend},
		"a delete that was open when the create began may come after it": {func(s *story) {
			q := s.begin(remove)
			p := s.begin(create)
			s.end(q, fulfilled)
			s.end(p, fulfilled)
		}, "", none},
		"an unsure delete may still come": {func(s *story) { s.ask(remove, unsure); s.ask(create, fulfilled) }, "", none},
		"an unsure delete does not come after its grace": {func(s *story) {
			s.ask(remove, unsure)
			s.now = s.now.Add(grace)
			s.ask(create, fulfilled)
		}, "", killedByFriend},
		"another Pod than the promised one": {func(s *story) { s.ask(create, fulfilled); s.look("1") }, "2", killedByFriend},
		"another Pod after a delete": {func(s *story) {
			s.ask(create, fulfilled)
			s.look("1")
			s.ask(remove, accepted)
			s.ask(create, fulfilled)
		}, "2", none},
		"the Pod of before a delete": {func(s *story) {
			s.ask(create, fulfilled)
			s.look("1")
			s.ask(remove, accepted)
			s.ask(create, fulfilled)
		}, "1", lost},
		"the Pod of before a delete that was not accepted": {func(s *story) {
			s.ask(create, fulfilled)
			s.look("1")
			s.ask(remove, unsure)
			s.now = s.now.Add(grace)
			s.ask(create, fulfilled)
		}, "1", none},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			tc.tell(s)
			require.Equal(t, tc.want, s.look(tc.uid))
		})
	}
}

func TestAReadMissesOnlyWhatWasPromisedAllTheTime(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.ask(create, fulfilled)
	p := s.r.held()
	kind, _ := s.r.missed(p)
	require.Equal(t, untrue, kind)
	s.ask(remove, refused)
	s.ask(create, fulfilled)
	p = s.r.held()
	s.begin(remove)
	kind, _ = s.r.missed(p)
	require.Equal(t, none, kind, "a delete began before the read ended")
}

func TestTheVerdict(t *testing.T) {
	t.Parallel()
	one, nothing := &holding{uids: []string{"1"}, services: 1}, &holding{}
	for name, tc := range map[string]struct {
		tell func(s *story)
		has  *holding
		job  job
		want breach
	}{
		"created last and there":           {func(s *story) { s.ask(create, accepted) }, one, job{jobs.Present, jobs.Succeeded, ""}, none},
		"created last and not there":       {func(s *story) { s.ask(create, accepted) }, nothing, job{}, lost},
		"created last and reported failed": {func(s *story) { s.ask(create, accepted) }, nothing, job{jobs.Present, jobs.Failed, sandbox.ReasonCapacity}, none},
		"deleted last and there":           {func(s *story) { s.ask(create, accepted); s.ask(remove, accepted) }, one, job{}, resurrected},
		"deleted last and not there":       {func(s *story) { s.ask(create, accepted); s.ask(remove, accepted) }, nothing, job{jobs.Absent, jobs.Succeeded, ""}, none},
		"two that overlap leave it open": {func(s *story) {
			q, p := s.begin(create), s.begin(remove)
			s.end(q, accepted)
			s.end(p, accepted)
		}, one, job{}, none},
		"an unsure one leaves it open":                {func(s *story) { s.ask(remove, fulfilled); s.ask(create, unsure) }, one, job{}, none},
		"an unsure one of the same kind does not":     {func(s *story) { s.ask(remove, unsure); s.ask(remove, fulfilled) }, one, job{}, resurrected},
		"a refused one is as if it had not been":      {func(s *story) { s.ask(remove, fulfilled); s.ask(create, refused) }, one, job{}, resurrected},
		"a Service alone":                             {func(*story) {}, &holding{services: 1}, job{}, orphaned},
		"a Pod alone":                                 {func(*story) {}, &holding{uids: []string{"1"}}, job{}, orphaned},
		"two Pods":                                    {func(*story) {}, &holding{uids: []string{"1", "2"}, services: 1}, job{}, duplicated},
		"its job is a delete that has succeeded":      {func(*story) {}, one, job{jobs.Absent, jobs.Succeeded, ""}, resurrected},
		"its job is a create that has succeeded":      {func(*story) {}, nothing, job{jobs.Present, jobs.Succeeded, ""}, lost},
		"the Pod that a delete was accepted for":      {func(s *story) { s.look("1"); s.ask(remove, accepted); s.ask(create, accepted) }, one, job{}, lost},
		"the Pod that came after the delete was sent": {func(s *story) { q := s.begin(remove); s.look("1"); s.end(q, accepted); s.ask(create, accepted) }, one, job{}, none},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			tc.tell(s)
			kind, _ := verdict(s.r, tc.has, tc.job)
			require.Equal(t, tc.want, kind)
		})
	}
}

func TestTheMemoryOfARecordIsBounded(t *testing.T) {
	t.Parallel()
	s := newStory()
	for range 10_000 {
		s.ask(create, fulfilled)
		s.look(s.now.String())
		s.ask(remove, unsure)
		s.ask(remove, fulfilled)
		s.r.log.write(s.now, "line")
	}
	require.Len(t, s.r.log.read(), diaryLines)
	require.Less(t, len(s.r.candidates)+len(s.r.seen)+len(s.r.doomed), 100)
}
