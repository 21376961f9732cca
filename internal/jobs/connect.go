package jobs

import (
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"sandbox-provisioner/internal/telemetry"
)

// Keys of log fields.
const (
	keyError     = "error"
	keyMaxAge    = "max_age"
	keyOp        = "op"
	keyResult    = "result"
	keySandboxID = "sandbox_id"
	keyServer    = "server"
	keyStream    = "stream"
	keyRight     = "right"
)

// ConnectOptions are the options that the protocol needs of a connection: it never gives up, and it keeps nothing to
// send later. A publish that was reported as failed must not be sent when the connection is back. The log is told when the
// connection comes and goes, once each, and at the start.
func ConnectOptions(name string, log *slog.Logger) []nats.Option {
	link := telemetry.NewLink("NATS", log)
	up := func(nc *nats.Conn) { link.Up(slog.String(keyServer, nc.ConnectedUrlRedacted())) }
	down := func(_ *nats.Conn, err error) {
		if err != nil { // nil: it was closed by us
			link.Down(err)
		}
	}
	return []nats.Option{
		nats.Name(name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(200 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond),
		nats.ReconnectBufSize(-1),
		nats.Timeout(2 * time.Second),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.ConnectHandler(up),
		nats.ReconnectHandler(up),
		nats.DisconnectErrHandler(down),
		nats.ReconnectErrHandler(down),
		nats.ErrorHandler(reportErrors(log)),
	}
}

// reportErrors tells of errors that concern no request, such as a right that is missing.
func reportErrors(log *slog.Logger) nats.ErrHandler {
	report := telemetry.Once(func(text string) { log.Warn("NATS reports an error", slog.String(keyError, text)) })
	return func(_ *nats.Conn, _ *nats.Subscription, err error) { report(err) }
}
