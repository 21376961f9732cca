package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestALinkIsToldOfOnceAChange(t *testing.T) {
	t.Parallel()
	const up, down = "level=INFO msg=\"part answers\" part=NATS\n", "level=WARN msg=\"part does not answer\" part=NATS error=EOF\n"
	eof := errors.New("EOF")
	for name, tc := range map[string]struct {
		notes []error
		want  string
	}{
		"up at the start":              {[]error{nil, nil}, up},
		"down at the start":            {[]error{eof, eof}, down},
		"down and up again":            {[]error{nil, eof, eof, nil, nil}, up + down + up},
		"a question that is given up":  {[]error{nil, fmt.Errorf("ping: %w", context.Canceled), nil}, up},
		"an answer that came too late": {[]error{fmt.Errorf("%w", context.DeadlineExceeded)}, "level=WARN msg=\"part does not answer\" part=NATS error=\"context deadline exceeded\"\n"},
		"a secret in the error":        {[]error{errors.New("dial https://bob:s3cret@host")}, "level=WARN msg=\"part does not answer\" part=NATS error=\"dial https://******@host\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			l := NewLink("NATS", slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
				ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key == slog.TimeKey {
						return slog.Attr{}
					}
					return a
				},
			})))
			for _, err := range tc.notes {
				l.Note(err)
			}
			require.Equal(t, tc.want, log.String())
		})
	}
}
