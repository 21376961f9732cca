package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/sandbox"
)

// A contestant makes sandboxes and makes them go. Each has a namespace of its own.
type contestant interface {
	name() string
	namespace() string
	// parts are its processes, by what they are.
	parts() map[string][]int
	// create returns when Pod and Service exist.
	create(ctx context.Context, id string) error
	// repeat asks for one that exists.
	repeat(ctx context.Context, id string) error
	// remove returns when Kubernetes has accepted both deletions.
	remove(ctx context.Context, id string) error
	// recreate deletes one and makes it anew at once.
	recreate(ctx context.Context, id string) error
	get(ctx context.Context, id string) error
	// list reads all, of which there have to be so many.
	list(ctx context.Context, want int) error
}

// raw is plain client-go: protobuf, no throttle, as many connections as the product opens, Pod and Service at the same time.
type raw struct {
	cores []corev1client.CoreV1Interface // one a connection
	turn  atomic.Uint64
	set   k8s.Settings
}

func (r *raw) name() string            { return "client-go" }
func (r *raw) namespace() string       { return r.set.Namespace }
func (r *raw) parts() map[string][]int { return nil }

// core takes the connections in turn.
func (r *raw) core() corev1client.CoreV1Interface { return r.cores[r.turn.Add(1)%uint64(len(r.cores))] }

func (r *raw) pods() corev1client.PodInterface         { return r.core().Pods(r.set.Namespace) }
func (r *raw) services() corev1client.ServiceInterface { return r.core().Services(r.set.Namespace) }

// generation is as long as those that the product stamps its objects with.
var generation = sandbox.Generation{Stream: time.Now().UnixNano(), Seq: 1}

// spec is what the product makes of the body that it is sent.
func spec(id string) sandbox.Spec {
	return sandbox.Spec{ThreadID: id, UserID: user, SkillsPath: sandbox.DefaultSkillsPath}
}

func (r *raw) create(ctx context.Context, id string) error {
	return both(func() error { return r.createPod(ctx, id) }, func() error { return r.createService(ctx, id) })
}

func (r *raw) createPod(ctx context.Context, id string) error {
	_, err := r.pods().Create(ctx, r.set.Pod(id, spec(id), generation), metav1.CreateOptions{})
	return err
}

func (r *raw) createService(ctx context.Context, id string) error {
	_, err := r.services().Create(ctx, r.set.Service(id, generation), metav1.CreateOptions{})
	return err
}

func (r *raw) repeat(ctx context.Context, id string) error { return r.get(ctx, id) }

func (r *raw) remove(ctx context.Context, id string) error {
	return both(
		func() error { return r.pods().Delete(ctx, sandbox.PodName(id), metav1.DeleteOptions{}) },
		func() error { return r.services().Delete(ctx, sandbox.ServiceName(id), metav1.DeleteOptions{}) })
}

// recreatePause is how often a name is tried that its predecessor still holds.
const recreatePause = 20 * time.Millisecond

func (r *raw) recreate(ctx context.Context, id string) error {
	if err := r.remove(ctx, id); err != nil {
		return err
	}
	return both(
		func() error {
			for {
				if err := r.createPod(ctx, id); !apierrors.IsAlreadyExists(err) {
					return err
				}
				if err := pause(ctx, recreatePause); err != nil {
					return err
				}
			}
		},
		func() error { return r.createService(ctx, id) })
}

func (r *raw) get(ctx context.Context, id string) error {
	return both(
		func() error {
			_, err := r.pods().Get(ctx, sandbox.PodName(id), metav1.GetOptions{})
			return err
		},
		func() error {
			_, err := r.services().Get(ctx, sandbox.ServiceName(id), metav1.GetOptions{})
			return err
		})
}

const selector = sandbox.LabelApp + "=" + sandbox.App

func (r *raw) list(ctx context.Context, want int) error {
	var pods *corev1.PodList
	var services *corev1.ServiceList
	err := both(
		func() (err error) {
			pods, err = r.pods().List(ctx, metav1.ListOptions{LabelSelector: selector})
			return err
		},
		func() (err error) {
			services, err = r.services().List(ctx, metav1.ListOptions{LabelSelector: selector})
			return err
		})
	if err == nil && (len(pods.Items) != want || len(services.Items) != want) {
		err = fmt.Errorf("%d Pods and %d Services in place of %d", len(pods.Items), len(services.Items), want)
	}
	return err
}

// both does two things at the same time.
func both(one, other func() error) error {
	var g errgroup.Group
	g.Go(one)
	err := other()
	if first := g.Wait(); first != nil {
		return first
	}
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// A product is asked over HTTP, by connections that are kept.
type product struct {
	label, ns, url string
	metrics        string
	processes      map[string][]int
	profiles       map[string]string // where each part serves its profiles; of several workers, one
	client         *http.Client
}

// key opens the API, and user is who asks.
const (
	key  = "bench"
	user = "bench"
)

// maxClients is above the most clients that any load has.
const maxClients = 512

func newProduct(label, namespace, url string) *product {
	return &product{
		label: label, ns: namespace, url: url + "/api/sandboxes", processes: map[string][]int{}, profiles: map[string]string{},
		client: &http.Client{
			Transport: &http.Transport{MaxIdleConns: maxClients, MaxIdleConnsPerHost: maxClients, DisableCompression: true},
			Timeout:   time.Minute,
		},
	}
}

func (p *product) add(part string, running program) {
	p.processes[part] = append(p.processes[part], running.pid)
	p.profiles[part] = running.profile
}

func (p *product) name() string            { return p.label }
func (p *product) namespace() string       { return p.ns }
func (p *product) parts() map[string][]int { return p.processes }

func (p *product) create(ctx context.Context, id string) error {
	_, err := p.call(ctx, http.MethodPost, "", body(id), http.StatusOK)
	return err
}

func (p *product) repeat(ctx context.Context, id string) error { return p.create(ctx, id) }

// accept returns when the request is safely queued.
func (p *product) accept(ctx context.Context, id string) error {
	_, err := p.call(ctx, http.MethodPost, "", body(id), http.StatusAccepted)
	return err
}

func (p *product) remove(ctx context.Context, id string) error {
	_, err := p.call(ctx, http.MethodDelete, "/"+id, "", http.StatusOK)
	return err
}

func (p *product) recreate(ctx context.Context, id string) error {
	if err := p.remove(ctx, id); err != nil {
		return err
	}
	return p.create(ctx, id)
}

func (p *product) get(ctx context.Context, id string) error {
	_, err := p.call(ctx, http.MethodGet, "/"+id, "", http.StatusOK)
	return err
}

func (p *product) list(ctx context.Context, want int) error {
	answer, err := p.call(ctx, http.MethodGet, "", "", http.StatusOK)
	// What the client makes of the answer is not the product's affair.
	if err == nil && !bytes.Contains(answer, fmt.Appendf(nil, `"count":%d`, want)) {
		err = fmt.Errorf("%s: not %d in the list", p.label, want)
	}
	return err
}

// body is what a gateway sends.
func body(id string) string {
	return fmt.Sprintf(`{"sandbox_id":%q,"thread_id":%q,"user_id":%q}`, id, id, user)
}

// call returns the body of the answer, which is an error unless it has the wanted status.
func (p *product) call(ctx context.Context, method, path, body string, want int) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-API-Key", key)
	if want == http.StatusAccepted {
		req.Header.Set("Prefer", "respond-async")
	} else {
		req.Header.Set("Prefer", "wait=25") // on a slow machine, too, a create is over when both objects exist
	}
	res, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != want {
		err = fmt.Errorf("%s: %s %s%s: %s: %s", p.label, method, p.url, path, res.Status, answer)
	}
	return answer, err
}
