package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The product's stream of intents, and its subjects "<root>.<queue>.<id>".
const (
	intentStream = "SANDBOX_JOBS"
	intentRoot   = "sandbox.jobs."
)

// publishers is how many clients have requests accepted at once.
const publishers = 64

// An acceptor promises that a request will be carried out.
type acceptor struct {
	name, queue string
	accept      func(ctx context.Context, id string) error
}

// unworked is an api whose jobs no worker takes, and the stream that they lie in.
func (b *bench) unworked(ctx context.Context, queue string) (*product, jetstream.Stream, error) {
	api, err := b.plant.split(ctx, queue, "api", 0)
	if err != nil {
		return nil, nil, err
	}
	stream, err := b.plant.js.Stream(ctx, intentStream)
	return api, stream, err
}

const acceptTitle = "accept, 64 at once, synced to disk"

// accept measures asynchronous creates against bare publishes of as many bytes to the same stream, which expect, as the product
// does, that nobody was faster. No worker takes the jobs, since its writes to Kubernetes would take the processors from one of
// the two only.
func (b *bench) accept(ctx context.Context) error {
	const productQueue, bareQueue = "bench-accept", "bench-bare0"
	api, stream, err := b.unworked(ctx, productQueue)
	if err != nil {
		return err
	}
	if err := api.accept(ctx, b.ids(1)[0]); err != nil {
		return err
	}
	message, err := stream.GetLastMsgForSubject(ctx, intentRoot+productQueue+".*")
	if err != nil {
		return err
	}
	bare := func(ctx context.Context, id string) error {
		_, err := b.plant.js.Publish(ctx, intentRoot+bareQueue+"."+id, message.Data,
			jetstream.WithExpectLastSequencePerSubject(0), jetstream.WithRetryAttempts(0))
		return err
	}
	n := b.few(6000, 2000)
	acceptors := []acceptor{{"bare publish", bareQueue, bare}, {"api", productQueue, api.accept}}
	return turns(ctx, b, acceptors, func(ctx context.Context, a acceptor) error {
		ids := b.ids(warm(publishers, n) + n)
		accept := func(ctx context.Context, i int) error { return a.accept(ctx, ids[i]) }
		if _, err := closedLoop(ctx, publishers, warm(publishers, n), accept); err != nil {
			return err
		}
		ids = ids[warm(publishers, n):]
		load, err := closedLoop(ctx, publishers, n, accept)
		if err != nil {
			return err
		}
		b.record(acceptTitle, a.name, load)
		return stream.Purge(ctx, jetstream.WithPurgeSubject(intentRoot+a.queue+".*"))
	})
}

const (
	backlog    = 5000
	drainTitle = "draining 5,000 queued creates"
)

// drain measures how fast one worker, started on a full queue, works it off, against client-go with as many at once as a worker
// has by default.
func (b *bench) drain(ctx context.Context) error {
	const queue = "bench-drain"
	api, err := b.plant.split(ctx, queue, "1 worker", 0)
	if err != nil {
		return err
	}
	raw, err := b.plant.raw(ctx, "bench-raw")
	if err != nil {
		return err
	}
	n := b.few(backlog, 500)
	return turnsIn(ctx, b.drainRounds(), []contestant{raw, api}, func(ctx context.Context, c contestant) error {
		ids := b.ids(n)
		if c == contestant(raw) {
			load, err := closedLoop(ctx, publishers, n, func(ctx context.Context, i int) error { return raw.create(ctx, ids[i]) })
			if err != nil {
				return err
			}
			b.drained(raw.name(), n, load.took)
			return b.plant.clear(ctx, raw.namespace())
		}
		if _, err := closedLoop(ctx, publishers, n, func(ctx context.Context, i int) error { return api.accept(ctx, ids[i]) }); err != nil {
			return err
		}
		start := time.Now()
		worker, err := b.plant.start(ctx, "worker", queue)
		if err != nil {
			return err
		}
		if err := b.workedOff(ctx, queue); err != nil {
			return err
		}
		b.drained(api.name(), n, time.Since(start))
		return errors.Join(worker.end(), b.plant.clear(ctx, api.namespace()))
	})
}

func (b *bench) drained(contestant string, n int, took time.Duration) {
	rate := float64(n) / took.Seconds()
	b.results.add(drainTitle, contestant, perSecond, rate)
	b.say("drain: %s: %.0f per second", contestant, rate)
}

// workedOff returns when the workers of a queue have acknowledged all there was.
func (b *bench) workedOff(ctx context.Context, queue string) error {
	said := time.Now()
	for {
		consumer, err := b.plant.js.Consumer(ctx, intentStream, queue)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound): // no worker has come so far
		case err != nil:
			return fmt.Errorf("consumer of %s: %w", queue, err)
		default:
			info := consumer.CachedInfo()
			left := info.NumPending + uint64(info.NumAckPending)
			if left == 0 {
				return nil
			}
			if time.Since(said) > 10*time.Second {
				b.say("drain: %d left", left)
				said = time.Now()
			}
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

const depthTitle = "accepting into a long queue, 64 at once"

// depth measures what queued jobs cost NATS, and whether accepting becomes slower with their number.
func (b *bench) depth(ctx context.Context) error {
	const queue = "bench-depth"
	api, stream, err := b.unworked(ctx, queue)
	if err != nil {
		return err
	}
	step := b.few(25_000, 1000)
	for queued := 0; ; queued += step {
		label := thousands(queued) + " queued"
		resident, err := resident(b.plant.common[partNATS][0])
		if err != nil {
			return err
		}
		stored, err := sizeOf(filepath.Join(b.plant.dir(), "nats"))
		if err != nil {
			return err
		}
		b.results.add(depthTitle, label, "NATS, resident, MB", resident)
		b.results.add(depthTitle, label, "NATS, on disk, MB", stored)
		b.say("depth: %s: NATS has %.0f MB of memory, %.0f MB on disk", label, resident, stored)
		if queued == 4*step {
			return stream.Purge(ctx, jetstream.WithPurgeSubject(intentRoot+queue+".*"))
		}
		ids := b.ids(step)
		load, err := closedLoop(ctx, publishers, step, func(ctx context.Context, i int) error { return api.accept(ctx, ids[i]) })
		if err != nil {
			return err
		}
		b.results.add(depthTitle, label, "then accepts, "+perSecond, load.perSecond())
	}
}

// sizeOf is what the files of a directory take, in MB.
func sizeOf(dir string) (mb float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				mb += float64(info.Size()) / 1e6
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // NATS goes on meanwhile
		}
		return err
	})
	return mb, err
}
