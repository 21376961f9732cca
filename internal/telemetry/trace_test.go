package telemetry

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"sandbox-provisioner/internal/telemetry/telemetrytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestThereAreTracesWhereThereIsACollector(t *testing.T) {
	t.Parallel()
	const url = "http://127.0.0.1:4318"
	for name, tc := range map[string]struct {
		cfg  TraceConfig
		want bool
	}{
		"nothing is set":                {TraceConfig{}, false},
		"a collector":                   {TraceConfig{Endpoint: url}, true},
		"a collector of traces":         {TraceConfig{TracesEndpoint: url + "/v1/traces"}, true},
		"otlp, to the usual address":    {TraceConfig{Exporter: "otlp"}, true},
		"none, whatever the collector":  {TraceConfig{Exporter: "none", Endpoint: url}, false},
		"disabled altogether":           {TraceConfig{Endpoint: url, Disabled: "TRUE"}, false},
		"disabled, but not":             {TraceConfig{Endpoint: url, Disabled: "false"}, true},
		"the protocol alone is nothing": {TraceConfig{Protocol: "http/protobuf"}, false},
	} {
		tc.cfg.Timeout = 1
		require.NoError(t, tc.cfg.Validate(), name)
		require.Equal(t, tc.want, tc.cfg.enabled(), name)
	}
}

// No provider, no exporter, no goroutine: TestMain would find one.
func TestWithoutACollectorNothingIsStarted(t *testing.T) {
	t.Parallel()
	log := &telemetrytest.Log{}
	tracing, stop, err := StartTracing(t.Context(), "test", TraceConfig{}, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	require.Nil(t, tracing)
	stop()
	require.Empty(t, log.String())
}

func TestAnExporterThatFailsIsToldOnce(t *testing.T) {
	t.Parallel()
	log := &telemetrytest.Log{}
	report := reportOnce(slog.New(slog.NewTextHandler(log, nil)))
	for _, text := range []string{"dial http://bob:s3cret@collector: refused", "dial http://bob:s3cret@collector: refused", "401"} {
		report(errors.New(text))
	}
	require.Equal(t, 2, strings.Count(log.String(), "traces cannot be exported"))
	require.NotContains(t, log.String(), "s3cret")
}
