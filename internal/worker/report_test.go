package worker

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/telemetry/telemetrytest"
)

func TestEachJobThatEndsIsOneLine(t *testing.T) {
	t.Parallel()
	const soon = 100 * time.Millisecond
	type line = map[string]any
	finished := func(op string, seq int, more line) line {
		l := line{"level": "INFO", "msg": "job finished", "sandbox_id": "a1", "generation": float64(seq), "op": op, "attempt": 2.}
		for k, v := range more {
			l[k] = v
		}
		return l
	}
	retried := func(op, reason, text string) line {
		return finished(op, 1, line{"level": "DEBUG", "msg": "job not finished", "result": "retried", "reason": reason, "error": text})
	}
	for name, test := range map[string]struct {
		ask    func(*memory)
		script func(*fixture)
		want   []line
	}{
		"a create": {(*memory).create, func(*fixture) {}, []line{finished("present", 1, line{"result": "succeeded"})}},
		"a delete": {(*memory).delete, func(*fixture) {}, []line{finished("absent", 1, line{"result": "succeeded"})}},
		"a create that fails": {(*memory).create, func(f *fixture) { f.cluster.ensure = fails(failure(sandbox.ReasonQuota)) }, []line{
			finished("present", 1, line{"result": "failed", "reason": "QuotaExceeded", "error": "for good: QuotaExceeded"}),
		}},
		"a create that waits": {(*memory).create, func(f *fixture) { f.cluster.ensure = fails(retry(sandbox.ReasonTerminating, soon)) }, []line{
			retried("present", "Terminating", "for now: Terminating"),
		}},
		"a create whose trouble holds a secret": {(*memory).create, func(f *fixture) {
			f.cluster.ensure = fails(&sandbox.Retry{Reason: sandbox.ReasonServer, After: soon, Err: errors.New("https://bob:s3cret@host")})
		}, []line{retried("present", "ServerError", "https://******@host")}},
		"a queue that does not answer afterwards": {(*memory).create, func(f *fixture) {
			f.records.beforeRecord = func(jobs.Outcome) error { return jobs.ErrUnavailable }
		}, []line{retried("present", "NATS", "NATS is not available")}},
		"a create that a delete overtakes": {(*memory).create, func(f *fixture) { f.cluster.ensure = during(f.records.delete) }, []line{
			finished("present", 1, line{"level": "DEBUG", "msg": "job not finished", "result": "superseded"}),
			finished("absent", 2, line{"result": "succeeded"}),
		}},
		"a message that is no intent": {(*memory).garble, func(*fixture) {}, []line{
			finished("unknown", 1, line{"result": "failed", "reason": "MalformedIntent", "error": "not an intent"}),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				log := &telemetrytest.Log{}
				f.Telling(slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})), nil)
				test.ask(f.records)
				test.script(f)
				_ = f.Reconcile(t.Context(), "a1", 2)
				var lines []line
				for text := range strings.Lines(log.String()) {
					var l line
					require.NoError(t, json.Unmarshal([]byte(text), &l))
					require.Contains(t, l, "duration")
					delete(l, "time")
					delete(l, "duration")
					lines = append(lines, l)
				}
				require.Equal(t, test.want, lines)
			})
		})
	}
}
