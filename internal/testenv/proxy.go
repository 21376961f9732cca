package testenv

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A FaultProxy stands between a client and the API server, and does what the latter cannot be made to do. It speaks plain
// HTTP and lends everybody the credentials of the admin.
type FaultProxy struct {
	URL string
	// Kubeconfig is the path of a file that leads here.
	Kubeconfig string

	t       testing.TB
	addr    string
	forward http.Handler

	mu     sync.Mutex
	server *http.Server
	served chan struct{}
	rules  []*Rule
	counts map[string]int
}

// Proxy starts a proxy that ends with the test.
func Proxy(t testing.TB, target *Kubernetes) *FaultProxy {
	t.Helper()
	cfg := rest.CopyConfig(target.Config)
	// A transport of its own: client-go shares them between equal configurations, but not those with functions.
	cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	transport, err := rest.TransportFor(cfg)
	require.NoError(t, err)
	host, err := url.Parse(cfg.Host)
	require.NoError(t, err)

	p := &FaultProxy{t: t, addr: FreeAddr(t), counts: map[string]int{}}
	p.URL = "http://" + p.addr
	p.forward = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(host) },
		Transport:     transport,
		FlushInterval: -1, // a watch must not wait for a full buffer
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"proxy": {Server: p.URL}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"nobody": {}},
		Contexts:       map[string]*clientcmdapi.Context{"proxy": {Cluster: "proxy", AuthInfo: "nobody"}},
		CurrentContext: "proxy",
	}, p.Kubeconfig))
	p.Heal()
	t.Cleanup(func() {
		p.Cut()
		closeIdle(transport)
	})
	return p
}

// Cut closes all connections and refuses new ones.
func (p *FaultProxy) Cut() {
	p.mu.Lock()
	server := p.server
	p.server = nil
	p.mu.Unlock()
	if server != nil {
		_ = server.Close()
		<-p.served
	}
}

// Heal takes connections again, and forgets all rules.
func (p *FaultProxy) Heal() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		r.release()
	}
	p.rules = nil
	if p.server != nil {
		return
	}
	listener, err := net.Listen("tcp", p.addr)
	require.NoError(p.t, err)
	server, served := &http.Server{Handler: p, ErrorLog: log.New(io.Discard, "", 0)}, make(chan struct{})
	p.server, p.served = server, served
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
}

// On lets action happen to the requests that match, in place of forwarding them, until the Rule is removed. Of several rules
// that match, the last one made holds.
func (p *FaultProxy) On(m Match, action Action) *Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &Rule{proxy: p, match: m, action: action, left: -1, removed: make(chan struct{})}
	p.rules = append(p.rules, r)
	return r
}

// Counts is how many requests there were since ResetCounts, by verb and resource: "create pods". Those that programs make by the
// clock are not among them.
func (p *FaultProxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// ResetCounts starts counting anew.
func (p *FaultProxy) ResetCounts() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.counts)
}

// ServeHTTP implements http.Handler.
func (p *FaultProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A body that has been read lets the server notice when the client goes away.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	request := describe(r, body)
	if !unasked(r) {
		p.count(request)
	}
	if rule := p.ruleFor(request); rule != nil {
		defer rule.finish()
		rule.action(w, r, rule, p.forward)
		return
	}
	p.forward.ServeHTTP(w, r)
}

// unasked tells the requests that programs make by the clock and for nobody: those of the census, and pings.
func unasked(r *http.Request) bool {
	query := r.URL.Query()
	return strings.HasPrefix(query.Get("fieldSelector"), "status.phase") || query.Get("limit") == "1"
}

func (p *FaultProxy) count(request Match) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[request.Verb+" "+request.Resource]++
}

// ruleFor returns the rule that holds for the request, if any.
func (p *FaultProxy) ruleFor(request Match) *Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range slices.Backward(p.rules) {
		if r.left != 0 && r.match.fits(request) {
			r.left--
			r.hits++
			r.running.Add(1)
			return r
		}
	}
	return nil
}

// A Match describes requests; an empty field fits all.
type Match struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection.
	Verb string
	// Resource is in the plural, with a subresource after a slash: "pods", "pods/status".
	Resource string
	Name     string
}

func (m Match) fits(request Match) bool {
	return (m.Verb == "" || m.Verb == request.Verb) &&
		(m.Resource == "" || m.Resource == request.Resource) &&
		(m.Name == "" || m.Name == request.Name)
}

// describe says what a request to the core API is about.
func describe(r *http.Request, body []byte) Match {
	var m Match
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	path = path[min(2, len(path)):] // api/v1
	if len(path) > 2 && path[0] == "namespaces" {
		path = path[2:]
	}
	if len(path) > 0 {
		m.Resource = path[0]
	}
	if len(path) > 1 {
		m.Name = path[1]
	}
	if len(path) > 2 {
		m.Resource += "/" + path[2]
	}
	switch r.Method {
	case http.MethodPost:
		m.Verb = "create"
		if obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil && m.Name == "" {
			if object, err := meta.Accessor(obj); err == nil {
				m.Name = object.GetName()
			}
		}
	case http.MethodDelete:
		m.Verb = "delete"
		if m.Name == "" {
			m.Verb = "deletecollection"
		}
	case http.MethodPut:
		m.Verb = "update"
	case http.MethodPatch:
		m.Verb = "patch"
	default:
		m.Verb = "get"
		if watch, _ := strconv.ParseBool(r.URL.Query().Get("watch")); watch {
			m.Verb = "watch"
		} else if m.Name == "" {
			m.Verb = "list"
		}
	}
	return m
}

// A Rule is one fault of a proxy.
type Rule struct {
	proxy   *FaultProxy
	match   Match
	action  Action
	removed chan struct{}
	once    sync.Once
	running sync.WaitGroup

	// Under the mutex of the proxy.
	left                 int // below 0: no limit
	hits, answered, over int
}

// Times limits the rule to the next n requests. It returns the rule.
func (r *Rule) Times(n int) *Rule {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	r.left = n
	return r
}

// Hits is how many requests it has met.
func (r *Rule) Hits() int { return r.count(&r.hits) }

// Answered is how many of them Kubernetes has answered to a HoldResponse.
func (r *Rule) Answered() int { return r.count(&r.answered) }

// Over is how many of them are over, whether they were answered or given up by the client.
func (r *Rule) Over() int { return r.count(&r.over) }

func (r *Rule) count(counter *int) int {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	return *counter
}

func (r *Rule) finish() {
	r.proxy.mu.Lock()
	r.over++
	r.proxy.mu.Unlock()
	r.running.Done()
}

// Remove ends the rule, lets go of the requests that it holds, and returns when they are over.
func (r *Rule) Remove() {
	r.proxy.mu.Lock()
	r.proxy.rules = slices.DeleteFunc(r.proxy.rules, func(other *Rule) bool { return other == r })
	r.proxy.mu.Unlock()
	r.release()
	r.running.Wait()
}

func (r *Rule) release() { r.once.Do(func() { close(r.removed) }) }

// An Action is what happens to a request.
type Action func(w http.ResponseWriter, r *http.Request, rule *Rule, forward http.Handler)

// Refuse answers in the way of Kubernetes.
func Refuse(code int, reason metav1.StatusReason, message string) Action {
	return func(w http.ResponseWriter, _ *http.Request, _ *Rule, _ http.Handler) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
		})
	}
}

// Hang never answers. The connection breaks when the rule ends.
func Hang(_ http.ResponseWriter, r *http.Request, rule *Rule, _ http.Handler) {
	select {
	case <-r.Context().Done():
	case <-rule.removed:
	}
	panic(http.ErrAbortHandler)
}

// Hold forwards the request when the rule ends, whether or not the client is still there: a frozen one has no say in what it
// has sent.
func Hold(w http.ResponseWriter, r *http.Request, rule *Rule, forward http.Handler) {
	<-rule.removed
	insist(forward, w, r)
}

// HoldResponse forwards the request at once, and its answer when the rule ends: the client learns of a state that is past.
func HoldResponse(w http.ResponseWriter, r *http.Request, rule *Rule, forward http.Handler) {
	answer := httptest.NewRecorder()
	insist(forward, answer, r)
	rule.proxy.mu.Lock()
	rule.answered++
	rule.proxy.mu.Unlock()
	<-rule.removed
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// Drop breaks the connection before Kubernetes sees the request.
func Drop(http.ResponseWriter, *http.Request, *Rule, http.Handler) {
	panic(http.ErrAbortHandler)
}

// LoseResponse breaks the connection after Kubernetes has carried the request out.
func LoseResponse(_ http.ResponseWriter, r *http.Request, _ *Rule, forward http.Handler) {
	insist(forward, lost{http.Header{}}, r)
	panic(http.ErrAbortHandler)
}

// insist forwards a request whose client may have gone. ReverseProxy asks in another way whether it has when the context has
// no end of its own.
func insist(forward http.Handler, w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	forward.ServeHTTP(w, r.WithContext(ctx))
}

// lost is a ResponseWriter that nobody reads.
type lost struct{ header http.Header }

func (l lost) Header() http.Header         { return l.header }
func (l lost) Write(p []byte) (int, error) { return len(p), nil }
func (l lost) WriteHeader(int)             {}
