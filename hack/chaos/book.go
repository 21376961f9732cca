package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A book is the records of all ids, and how often each kind of promise was broken.
type book struct {
	records  []*record
	ops      atomic.Int64
	classes  [classes]atomic.Int64
	breaches [breaches]atomic.Int64

	mu      sync.Mutex
	reports int
	nc      *nats.Conn
}

func newBook(natsURL string) (*book, error) {
	nc, err := nats.Connect(natsURL, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
	if err != nil {
		return nil, err
	}
	b := &book{nc: nc}
	for i := range ids {
		b.records = append(b.records, newRecord(fmt.Sprintf("c%03d", i)))
	}
	return b, nil
}

func (b *book) count(c class) { b.classes[c].Add(1) }

func (b *book) broken() bool {
	for i := range b.breaches {
		if b.breaches[i].Load() > 0 {
			return true
		}
	}
	return false
}

// maxReports bounds what is printed; the logs tell the rest.
const maxReports = 10

// report counts a broken promise and prints all that is known of it.
func (b *book) report(p *plant, r *record, kind breach, text string) {
	if kind == none {
		return
	}
	b.breaches[kind].Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Printf("VIOLATION %s: %s: %s (%s)\n", kind, r.id, text, stamp(time.Now()))
	if b.reports++; b.reports > maxReports {
		return
	}
	lines := r.log.read()
	for _, f := range p.diary.read() {
		if len(lines) > 0 && f.at.After(lines[0].at) {
			lines = append(lines, entry{f.at, "    ✗ " + f.text})
		}
	}
	slices.SortStableFunc(lines, func(a, b entry) int { return a.at.Compare(b.at) })
	for _, l := range lines {
		fmt.Println("   ", stamp(l.at), l.text)
	}
	for _, l := range b.stored(r.id) {
		fmt.Println("   ", l)
	}
}

// stored is the intents and the outcome of id, as far as they can be read.
func (b *book) stored(id string) (lines []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	js, err := jetstream.New(b.nc)
	if err != nil {
		return []string{err.Error()}
	}
	for _, s := range []struct{ stream, subject string }{
		{"SANDBOX_JOBS", "sandbox.jobs.default." + id}, {"SANDBOX_OUTCOMES", "sandbox.outcomes.default." + id},
	} {
		stream, err := js.Stream(ctx, s.stream)
		if err != nil {
			return append(lines, err.Error())
		}
		for seq := uint64(1); ; seq++ {
			msg, err := stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(s.subject))
			if err != nil {
				break // there are no more
			}
			seq = msg.Sequence
			lines = append(lines, fmt.Sprintf("%s %d, stored %s: %s", s.stream, seq, stamp(msg.Time.Local()), brief(msg.Data)))
		}
	}
	return lines
}

// brief leaves out of an intent what is the same in all.
func brief(data []byte) string {
	var fields map[string]any
	if json.Unmarshal(data, &fields) != nil {
		return string(data)
	}
	for _, k := range []string{"spec_hash", "sandbox_id", "deadline"} {
		delete(fields, k)
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return string(data)
	}
	return string(out)
}

func stamp(t time.Time) string { return t.Format("15:04:05.000") }
