package node

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// sandboxPath is what the real sandbox answers when it is up.
const sandboxPath = "/v1/sandbox"

// ServeService answers in place of the sandbox behind a Service.
func (n *Node) ServeService(w http.ResponseWriter, r *http.Request, namespace, name, path string) {
	if path != sandboxPath {
		http.NotFound(w, r)
		return
	}
	service, err := n.services.Services(namespace).Get(name)
	if err != nil {
		answer(w, http.StatusServiceUnavailable, map[string]string{"status": "no such service"})
		return
	}
	for _, pod := range n.podsOf(service) {
		if serving(pod) {
			answer(w, http.StatusOK, map[string]string{
				"status": "ok", "pod": pod.Name, "uid": string(pod.UID), "namespace": namespace, "service": name,
			})
			return
		}
	}
	answer(w, http.StatusServiceUnavailable, map[string]string{"status": "no ready pod"})
}

// serveNodePort answers on a port that a Service had when the connection was accepted, and may have lost since.
func (n *Node) serveNodePort(w http.ResponseWriter, r *http.Request, owner cache.ObjectName, port int32) {
	service, err := n.services.Services(owner.Namespace).Get(owner.Name)
	if err != nil || !slices.Contains(nodePorts(service), port) {
		answer(w, http.StatusServiceUnavailable, map[string]string{"status": "no such service"})
		return
	}
	n.ServeService(w, r, owner.Namespace, owner.Name, r.URL.Path)
}

func answer(w http.ResponseWriter, code int, body map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// ports are the node ports that are open, each with the Service that owns it.
type ports struct {
	handle func(w http.ResponseWriter, r *http.Request, owner cache.ObjectName, port int32)
	log    *slog.Logger

	mu      sync.Mutex
	open    map[int32]*openPort
	closed  bool
	serving sync.WaitGroup
}

type openPort struct {
	owner  cache.ObjectName
	server *http.Server
}

func newPorts(handle func(http.ResponseWriter, *http.Request, cache.ObjectName, int32), log *slog.Logger) *ports {
	return &ports{handle: handle, log: log, open: map[int32]*openPort{}}
}

// assign makes exactly these ports the owner's. The API server never gives a port to two Services, so a port that
// still belongs to another one has been taken from it, and our cache has yet to say so.
func (p *ports) assign(owner cache.ObjectName, numbers []int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	for number, port := range p.open {
		if port.owner == owner && !slices.Contains(numbers, number) {
			_ = port.server.Close()
			delete(p.open, number)
		}
	}
	for _, number := range numbers {
		if port, ok := p.open[number]; ok {
			port.owner = owner
			continue
		}
		p.listen(owner, number)
	}
}

func (p *ports) listen(owner cache.ObjectName, number int32) {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(int(number))))
	if err != nil {
		p.log.Warn("node port is taken on this host, the stub sandbox cannot be reached there",
			slog.Int("port", int(number)), slog.String("service", owner.String()), slog.Any("error", err))
		return
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { p.handle(w, r, p.ownerOf(number), number) })}
	// A client that kept its connection would keep talking to a Service that has lost the port.
	server.SetKeepAlivesEnabled(false)
	p.open[number] = &openPort{owner: owner, server: server}
	p.serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			p.log.Warn("node port stopped serving", slog.Int("port", int(number)), slog.Any("error", err))
		}
	})
}

func (p *ports) ownerOf(number int32) cache.ObjectName {
	p.mu.Lock()
	defer p.mu.Unlock()
	if port, ok := p.open[number]; ok {
		return port.owner
	}
	return cache.ObjectName{}
}

// close closes all ports, for good, and waits for their goroutines.
func (p *ports) close() {
	p.mu.Lock()
	p.closed = true
	for _, port := range p.open {
		_ = port.server.Close()
	}
	clear(p.open)
	p.mu.Unlock()
	p.serving.Wait()
}
