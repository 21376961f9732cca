package node

import (
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"sandbox-provisioner/hack/devcluster/internal/fault"
)

// memory is what the node remembers of a Pod beyond its status, whose times are whole seconds. Only the worker that
// holds the Pod's key touches it.
type memory struct {
	uid        types.UID
	boundAt    time.Time
	startedAt  time.Time
	stoppingAt time.Time
	removedAt  time.Time

	fault   fault.Fault
	faultAt time.Time
	// restarts is what the misbehaving container had when the fault came.
	restarts int32
}

type memories struct {
	mu   sync.Mutex
	pods map[cache.ObjectName]*memory
}

func newMemories() memories { return memories{pods: map[cache.ObjectName]*memory{}} }

// of returns the memory of this very Pod; a new Pod of an old name starts with an empty one.
func (m *memories) of(key cache.ObjectName, uid types.UID) *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.pods[key]
	if known == nil || known.uid != uid {
		known = &memory{uid: uid}
		m.pods[key] = known
	}
	return known
}

func (m *memories) forget(key cache.ObjectName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, key)
}

// addresses gives every Pod an IP of its own out of 10.128.0.0/9, which touches no Service's.
type addresses struct {
	mu     sync.Mutex
	last   netip.Addr
	owners map[netip.Addr]types.UID
	given  map[types.UID]netip.Addr
}

var podNetwork = netip.MustParsePrefix("10.128.0.0/9")

func newAddresses() addresses {
	return addresses{
		last: podNetwork.Addr(), owners: map[netip.Addr]types.UID{}, given: map[types.UID]netip.Addr{},
	}
}

func (a *addresses) of(uid types.UID) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ip, ok := a.given[uid]; ok {
		return ip.String()
	}
	ip := a.last
	for {
		if ip = ip.Next(); !podNetwork.Contains(ip) {
			ip = podNetwork.Addr().Next()
		}
		if _, taken := a.owners[ip]; !taken {
			break
		}
	}
	a.last = ip
	a.owners[ip], a.given[uid] = uid, ip
	return ip.String()
}

// adopt keeps an address that a Pod got from an earlier run.
func (a *addresses) adopt(uid types.UID, text string) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.owners[ip], a.given[uid] = uid, ip
}

func (a *addresses) release(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.owners, a.given[uid])
	delete(a.given, uid)
}
