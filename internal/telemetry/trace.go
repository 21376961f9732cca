package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/version"
)

// TraceConfig says where traces go, in OpenTelemetry's own variables. Those about sampling, batches, limits and the resource are read
// by its SDK.
type TraceConfig struct {
	Endpoint       string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" secret:"userinfo" help:"OTLP collector such as http://collector:4318; without one there are no traces"`
	TracesEndpoint string `env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" secret:"userinfo" help:"the same with the path, such as /v1/traces; goes before the one above"`
	Headers        string `env:"OTEL_EXPORTER_OTLP_HEADERS" secret:"true" help:"headers for the collector, as name=value separated by commas, escaped as in URLs"`
	Certificate    string `env:"OTEL_EXPORTER_OTLP_CERTIFICATE" help:"file with the certificate authorities of the collector"`
	// Timeout is in milliseconds, as the standard wants it.
	Timeout  int    `env:"OTEL_EXPORTER_OTLP_TIMEOUT, default=10000" help:"limit of one export, in milliseconds"`
	Protocol string `env:"OTEL_EXPORTER_OTLP_PROTOCOL, default=http/protobuf" help:"http/protobuf is the only one"`
	Exporter string `env:"OTEL_TRACES_EXPORTER" help:"otlp or none; empty is otlp where there is a collector"`
	Disabled string `env:"OTEL_SDK_DISABLED" help:"true turns traces off whatever else is set"`
}

// onlyProtocol is the one that we speak.
const onlyProtocol = "http/protobuf"

// Validate refuses what would quietly lead to no traces.
func (c TraceConfig) Validate() error {
	var problems []error
	for _, setting := range [][2]string{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", c.Endpoint}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", c.TracesEndpoint},
	} {
		if setting[1] != "" && !isURL(setting[1]) {
			problems = append(problems, fmt.Errorf("%s: must be a URL such as http://collector:4318", setting[0]))
		}
	}
	if _, err := parseHeaders(c.Headers); err != nil {
		problems = append(problems, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: %w", err))
	}
	if c.Timeout <= 0 {
		problems = append(problems, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT=%d: must be above 0", c.Timeout))
	}
	if c.Protocol != "" && c.Protocol != onlyProtocol {
		problems = append(problems, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%q: must be %s", c.Protocol, onlyProtocol))
	}
	if c.Exporter != "" && c.Exporter != "otlp" && c.Exporter != "none" {
		problems = append(problems, fmt.Errorf("OTEL_TRACES_EXPORTER=%q: must be otlp or none", c.Exporter))
	}
	return errors.Join(problems...)
}

func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

func (c TraceConfig) enabled() bool {
	switch {
	case strings.EqualFold(c.Disabled, "true"), c.Exporter == "none":
		return false
	}
	return c.Exporter == "otlp" || c.Endpoint != "" || c.TracesEndpoint != ""
}

// flushTimeout bounds the export of the last spans at the end of the process.
const flushTimeout = 2 * time.Second

// StartTracing returns where spans are made, nil when there are no traces, and a function that sends the last ones. program becomes
// part of the service's name.
func StartTracing(ctx context.Context, program string, c TraceConfig, log *slog.Logger) (trace.TracerProvider, func(), error) {
	if !c.enabled() {
		return nil, func() {}, nil
	}
	client, err := newCollector(c)
	if err != nil {
		return nil, nil, err
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", "sandbox-provisioner-"+program),
			attribute.String("service.version", version.Get().Version),
		),
		resource.WithTelemetrySDK(),
		resource.WithFromEnv(), // the last one wins: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES
	)
	if err != nil {
		return nil, nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	// The SDK has one handler for the whole process, which would write to standard error by itself.
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(reportOnce(log)))
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	log.Info("exporting traces")
	return provider, func() {
		flushCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(flushCtx); err != nil {
			log.Debug("the last spans were not exported", slog.String(keyError, sandbox.Plain(err.Error())))
		}
	}, nil
}

// reportOnce tells of an error of the exporter, unless it is the same as the one before.
func reportOnce(log *slog.Logger) func(error) {
	return Once(func(text string) { log.Warn("traces cannot be exported", slog.String(keyError, text)) })
}
