package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"
)

// natsFreeze is the longest that NATS is frozen.
const natsFreeze = 3 * time.Second

// A fault is one bad thing. It lasts until it returns, and has been undone by then; when ctx ends it is cut short.
type fault struct {
	weight int
	do     func(ctx context.Context, d dice)
}

// dice are drawn before a fault begins, so that the schedule depends on the seed alone.
type dice struct {
	victim int
	// long is between 0 and 1.
	long   float64
	storms [5]int
}

func (d dice) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.long*float64(most-least))
}

// A lane is faults one after the other, beside those of the other lanes.
type lane struct {
	least, most time.Duration // between two faults
	faults      []fault
}

// lanes of the plant. Together they leave it whole for about half of the time: a product that answers nothing promises nothing.
func (p *plant) lanes() []lane {
	return []lane{
		{500 * time.Millisecond, 3 * time.Second, []fault{{3, p.killProcess}, {1, p.replaceProcess}}},
		{500 * time.Millisecond, 3 * time.Second, []fault{{3, p.freezeProcess}, {2, p.hiccupProcess}}},
		{4 * time.Second, 10 * time.Second, []fault{{3, p.killNATS}, {1, p.replaceNATS}, {2, p.freezeNATS}}},
		{3 * time.Second, 8 * time.Second, []fault{{4, p.storm}, {4, p.lag}, {2, p.cutKubernetes}, {2, p.freezeKubernetes}, {1, p.killKubernetes}}},
	}
}

// run lets bad things happen until ctx ends.
func (l lane) run(ctx context.Context, r *rand.Rand) {
	total := 0
	for _, f := range l.faults {
		total += f.weight
	}
	for ctx.Err() == nil {
		gap, at := l.least+time.Duration(r.Int64N(int64(l.most-l.least))), r.IntN(total)
		d := dice{victim: r.IntN(1 << 20), long: r.Float64()}
		for i := range d.storms {
			d.storms[i] = r.IntN(15)
		}
		pause(ctx, gap)
		if ctx.Err() != nil {
			return
		}
		for _, f := range l.faults {
			if at -= f.weight; at < 0 {
				f.do(ctx, d)
				break
			}
		}
	}
}

// note writes a fault down, and returns what writes down its end.
func (p *plant) note(format string, args ...any) func() {
	what := fmt.Sprintf(format, args...)
	p.faults.Add(1)
	p.diary.write(time.Now(), what)
	return func() { p.diary.write(time.Now(), "end of: "+what) }
}

// victim is a process that suffers nothing else yet, nil when the chosen one does. Those that are kept are only frozen.
func (p *plant) victim(d dice, deadly bool) *process {
	var choice []*process
	for _, v := range p.victims {
		if !deadly || !v.kept {
			choice = append(choice, v)
		}
	}
	v := choice[d.victim%len(choice)]
	if !v.torment.TryLock() {
		return nil
	}
	return v
}

func (p *plant) killProcess(ctx context.Context, d dice)    { p.bringDown(ctx, d, syscall.SIGKILL) }
func (p *plant) replaceProcess(ctx context.Context, d dice) { p.bringDown(ctx, d, syscall.SIGTERM) }

func (p *plant) bringDown(ctx context.Context, d dice, s syscall.Signal) {
	v := p.victim(d, true)
	if v == nil {
		return
	}
	defer v.torment.Unlock()
	p.restart(ctx, v, s, d.between(0, time.Second))
}

// restart ends a process, and starts it again after some time.
func (p *plant) restart(ctx context.Context, v *process, s syscall.Signal, down time.Duration) {
	defer p.note("%s gets %s, and is down for %s", v.name, s, down.Round(time.Millisecond))()
	p.kills.Add(1)
	v.kill(s)
	pause(ctx, down)
	if err := v.start(); err != nil {
		p.problem(err)
	}
}

// freezeProcess stops a process for so long that NATS hands its jobs to others.
func (p *plant) freezeProcess(ctx context.Context, d dice) {
	p.freezeVictim(ctx, d, d.between(ackWait+500*time.Millisecond, ackWait+3*time.Second))
}

// hiccupProcess stops it for less.
func (p *plant) hiccupProcess(ctx context.Context, d dice) {
	p.freezeVictim(ctx, d, d.between(100*time.Millisecond, ackWait))
}

func (p *plant) freezeVictim(ctx context.Context, d dice, long time.Duration) {
	v := p.victim(d, false)
	if v == nil {
		return
	}
	defer v.torment.Unlock()
	p.freeze(ctx, v, long)
	// It may be about to write what is no longer its job, and must live to look again: see docs/guarantees.md.
	pause(ctx, time.Second)
}

func (p *plant) freeze(ctx context.Context, v *process, long time.Duration) {
	defer p.note("%s is frozen for %s", v.name, long.Round(time.Millisecond))()
	v.signal(syscall.SIGSTOP)
	pause(ctx, long)
	v.signal(syscall.SIGCONT)
}

func (p *plant) killNATS(ctx context.Context, d dice) {
	p.restart(ctx, p.nats, syscall.SIGKILL, d.between(0, 2*time.Second))
}

func (p *plant) replaceNATS(ctx context.Context, d dice) {
	p.restart(ctx, p.nats, syscall.SIGTERM, d.between(0, 2*time.Second))
}

func (p *plant) freezeNATS(ctx context.Context, d dice) {
	p.freeze(ctx, p.nats, d.between(200*time.Millisecond, natsFreeze))
}

// storm makes the proxy misbehave for some seconds.
func (p *plant) storm(ctx context.Context, d dice) {
	s := d.storms
	w := weather{throttled: s[0], broken: s[1], dropped: s[2], deaf: s[3], slow: 3 * s[4]}
	defer p.note("the API server answers 429 to %d %%, 500 to %d %%, drops %d %%, loses the answers of %d %%, is late for %d %%",
		w.throttled, w.broken, w.dropped, w.deaf, w.slow)()
	p.bad(ctx, w, d.between(time.Second, 7*time.Second))
}

// lag makes requests overtake each other.
func (p *plant) lag(ctx context.Context, d dice) {
	w := weather{slow: 30 + 4*d.storms[0]}
	defer p.note("the API server is late for %d %%", w.slow)()
	p.bad(ctx, w, d.between(2*time.Second, 8*time.Second))
}

func (p *plant) cutKubernetes(ctx context.Context, d dice) {
	defer p.note("the API server is cut off")()
	p.bad(ctx, weather{cut: true}, d.between(500*time.Millisecond, 5*time.Second))
}

func (p *plant) bad(ctx context.Context, w weather, long time.Duration) {
	p.proxy.set(w)
	pause(ctx, long)
	p.proxy.set(weather{})
}

func (p *plant) freezeKubernetes(ctx context.Context, d dice) {
	p.freeze(ctx, p.apiserver, d.between(200*time.Millisecond, 3*time.Second))
}

func (p *plant) killKubernetes(ctx context.Context, d dice) {
	p.restart(ctx, p.apiserver, syscall.SIGKILL, d.between(0, 2*time.Second))
	_ = until(ctx, time.Minute, "kube-apiserver", func() bool { return p.answers(ctx) })
}
