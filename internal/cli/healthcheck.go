package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"sandbox-provisioner/internal/config"
)

// healthcheckCommand is the subcommand that asks the running program whether it is well: an image without a shell has no curl.
const healthcheckCommand = "healthcheck"

const (
	// healthcheckTimeout is longer than /readyz takes, and shorter than whoever runs the command waits.
	healthcheckTimeout = 4 * time.Second
	// maxReason bounds what is shown of an answer, in bytes.
	maxReason = 1 << 10
)

var errNoProbes = errors.New("METRICS_ADDR is empty: the program serves no probes")

// healthcheck asks the program that runs with the same settings, and says in one line what it answers. Docker knows no exit codes
// but 0 and 1 here, so that wrong settings are a failure too.
func (p Program[C]) healthcheck(process Process, args []string) int {
	flags := flag.NewFlagSet(healthcheckCommand, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	ready := flags.Bool("ready", false, "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return p.show(process, p.help)
	case err != nil:
		return p.refuse(process, err)
	case flags.NArg() > 0:
		return p.refuse(process, fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	}

	path := "/livez"
	if *ready {
		path = "/readyz"
	}
	cfg, err := config.Load[C](process.Lookup)
	if err == nil {
		if err = errNoProbes; cfg.ProbeAddr() != "" {
			err = probe(cfg.ProbeAddr(), path)
		}
	}
	if err != nil {
		fmt.Fprintf(process.Stderr, "%s: %s\n", p.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
		return ExitFailure
	}
	return p.show(process, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s: %s at %s is ok\n", p.Name, path, cfg.ProbeAddr())
		return err
	})
}

// probe asks for path at the address on which a program of this machine listens, and returns what is wrong.
func probe(addr, path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), healthcheckTimeout)
	defer cancel()
	transport := &http.Transport{ // without a proxy, whatever the environment says
		DisableKeepAlives: true,
		// Whoever listens on 0.0.0.0, or on no host, is reached by dialling just that.
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s at %s does not answer within %s", path, addr, healthcheckTimeout)
	}
	if err != nil {
		return fmt.Errorf("%s at %s does not answer: %w", path, addr, err)
	}
	defer func() { _ = resp.Body.Close() }()
	// A body that breaks off still is what there is to say.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxReason))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s at %s answers %d: %s", path, addr, resp.StatusCode, reason(body))
	}
	return nil
}

// reason is the detail of an error of the REST API, or the text itself.
func reason(body []byte) string {
	var answer struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(body, &answer) == nil && answer.Detail != "" {
		return answer.Detail
	}
	return strings.TrimSpace(string(body))
}
