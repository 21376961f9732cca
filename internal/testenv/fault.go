package testenv

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A Fault is a way in which the simulated node lets a Pod misbehave; hack/devcluster/README.md has the list.
type Fault struct {
	Kind string `json:"fault"`
	// Message replaces the realistic one.
	Message string `json:"message,omitempty"`
	// Duration is how long it lasts, such as "2s"; empty is until it is cleared.
	Duration string `json:"duration,omitempty"`
}

// Kinds of Fault.
const (
	ImagePullError    = "image-pull-error"
	Unschedulable     = "unschedulable"
	HangInTermination = "hang-in-termination"
	Evicted           = "evicted"
	NotReady          = "not-ready"
)

var controlClient = &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}

// Misbehave gives a fault to a Pod, which need not exist yet.
func (c *Kubernetes) Misbehave(t testing.TB, namespace, pod string, f Fault) {
	t.Helper()
	require.NoError(t, c.tell(t.Context(), http.MethodPut, "/faults/"+namespace+"/"+pod, f))
}

// Behave takes the fault of a Pod back.
func (c *Kubernetes) Behave(t testing.TB, namespace, pod string) {
	t.Helper()
	require.NoError(t, c.tell(t.Context(), http.MethodDelete, "/faults/"+namespace+"/"+pod, nil))
}

// clearFaults takes back all faults of a namespace.
func (c *Kubernetes) clearFaults(ctx context.Context, namespace string) {
	var all struct {
		Faults []struct {
			Namespace string `json:"namespace"`
			Pod       string `json:"pod"`
		} `json:"faults"`
	}
	body, err := c.ask(ctx, http.MethodGet, "/faults", nil)
	if err != nil || json.Unmarshal(body, &all) != nil {
		return
	}
	for _, f := range all.Faults {
		if f.Namespace == namespace {
			_ = c.tell(ctx, http.MethodDelete, "/faults/"+namespace+"/"+f.Pod, nil)
		}
	}
}

func (c *Kubernetes) healthy(ctx context.Context) error {
	return c.tell(ctx, http.MethodGet, "/healthz", nil)
}

func (c *Kubernetes) tell(ctx context.Context, method, path string, body any) error {
	_, err := c.ask(ctx, method, path, body)
	return err
}

// ask sends a request to the control API.
func (c *Kubernetes) ask(ctx context.Context, method, path string, body any) ([]byte, error) {
	var sent io.Reader
	if body != nil {
		content, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		sent = bytes.NewReader(content)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.control+path, sent)
	if err != nil {
		return nil, err
	}
	resp, err := controlClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("control API of the devcluster: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("control API of the devcluster: %s %s: %s: %s", method, path, resp.Status, content)
	}
	return content, err
}

// reach asks for the sandbox behind a Service, as the gateway does, and returns the UID of the Pod that answers.
func (c *Kubernetes) reach(ctx context.Context, namespace, service string) (string, error) {
	body, err := c.ask(ctx, http.MethodGet, "/stub/"+namespace+"/"+service+"/v1/sandbox", nil)
	if err != nil {
		return "", err
	}
	var answer struct {
		UID string `json:"uid"`
	}
	return answer.UID, json.Unmarshal(body, &answer)
}
