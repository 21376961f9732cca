package census

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/telemetry/telemetrytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A cluster has Pods, of which those that run can be watched and the others listed, unless it is down.
type cluster struct {
	mu      sync.Mutex
	pods    map[types.UID]*corev1.Pod
	down    error
	deaf    error // of the list of those that do not run
	watches map[*watch.RaceFreeFakeWatcher]bool
	asked   int
	// lists is for a server that cannot send the first answer as a watch.
	lists bool
}

func newCluster() *cluster {
	return &cluster{pods: map[types.UID]*corev1.Pod{}, watches: map[*watch.RaceFreeFakeWatcher]bool{}}
}

func runs(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodRunning }

// list is all Pods that run, or all others.
func (c *cluster) list(running bool) (*corev1.PodList, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for _, pod := range c.pods {
		if runs(pod) == running {
			list.Items = append(list.Items, *pod)
		}
	}
	c.asked++
	return list, c.down
}

// errSilent is that of a server that takes the question and never answers it.
var errSilent = errors.New("no answer")

func (c *cluster) source() *k8s.PodSource {
	return &k8s.PodSource{Running: c.watched(), Others: func(ctx context.Context) ([]corev1.Pod, error) {
		list, err := c.list(false)
		if err == nil {
			err = c.isDeaf()
		}
		if errors.Is(err, errSilent) {
			<-ctx.Done()
		}
		return list.Items, err
	}}
}

func (c *cluster) watched() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return c.list(true) },
		WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			first := opts.SendInitialEvents != nil && *opts.SendInitialEvents
			switch {
			case c.down != nil:
				c.asked++
				return nil, c.down
			case first && c.lists:
				return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
			}
			w := watch.NewRaceFreeFake()
			if first {
				for _, pod := range c.pods {
					if runs(pod) {
						w.Add(pod.DeepCopy())
					}
				}
				w.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
					ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
				}})
			}
			c.watches[w] = true
			return w, nil
		},
	}
}

// put makes a Pod what it is, and tells those who watch.
func (c *cluster) put(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.pods[pod.UID]
	c.pods[pod.UID] = pod
	for w := range c.watches {
		switch {
		case w.Stopped:
		case runs(pod):
			w.Modify(pod.DeepCopy())
		case runs(before):
			w.Delete(pod.DeepCopy())
		}
	}
}

func (c *cluster) remove(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod := c.pods[types.UID(uid)]
	delete(c.pods, pod.UID)
	for w := range c.watches {
		if !w.Stopped && runs(pod) {
			w.Delete(pod.DeepCopy())
		}
	}
}

// breakDown ends all watches; nil lets the cluster answer again.
func (c *cluster) breakDown(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = err
	for w := range c.watches {
		w.Stop()
		delete(c.watches, w)
	}
}

func pod(uid string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "sandbox-" + uid, Namespace: "ns", UID: types.UID(uid), ResourceVersion: "1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "sandbox"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func ready(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
	}}
}

func running(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }

func failed(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }

func going(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }

func waiting(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	}
}

// A desk is a Census at work, on a clock of its own.
type desk struct {
	*Census
	*cluster
	registry *prometheus.Registry
	log      *bytes.Buffer
}

func atWork(t *testing.T, c *cluster, test func(*testing.T, *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := &desk{cluster: c, registry: prometheus.NewRegistry(), log: &bytes.Buffer{}}
		d.Census = New(c.source(), d.registry, slog.New(slog.NewTextHandler(d.log, nil)))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			d.Run(ctx)
		}()
		synctest.Wait()
		test(t, d)
		stop()
		<-done
		c.breakDown(nil) // closes what is left of the double
	})
}

// waiting is how many Pods are waited for.
func (d *desk) waiting() int {
	synctest.Wait()
	d.Census.mu.Lock()
	defer d.Census.mu.Unlock()
	return len(d.awaited)
}

// read is what is told when those that do not run have been asked for again.
func (d *desk) read(t *testing.T) map[string]float64 {
	t.Helper()
	time.Sleep(othersInterval)
	return d.readNow(t)
}

func (d *desk) readNow(t *testing.T) map[string]float64 {
	t.Helper()
	synctest.Wait()
	return telemetrytest.Read(t, d.registry)
}

const (
	pendingPods = `sandboxes{phase="Pending"}`
	runningPods = `sandboxes{phase="Running"}`
	readiness   = `accepted_to_ready_seconds`
)

func TestSandboxesAreCountedAsTheyChange(t *testing.T) {
	t.Parallel()
	for name, lists := range map[string]bool{"where the watch begins with all of them": false, "where they are listed first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			c.lists = lists
			c.put(pod("a"))
			c.put(pod("b", ready))
			atWork(t, c, func(t *testing.T, d *desk) {
				require.Equal(t, map[string]float64{
					pendingPods: 1, runningPods: 1, `sandboxes_not_ready{reason="ContainerCreating"}`: 1,
				}, d.readNow(t))
				d.put(pod("c", waiting("ImagePullBackOff")))
				d.put(pod("a", ready))
				require.Equal(t, map[string]float64{runningPods: 2}, d.readNow(t), "nobody is counted twice")
				require.Equal(t, map[string]float64{
					pendingPods: 1, runningPods: 2, `sandboxes_not_ready{reason="ImagePullBackOff"}`: 1,
				}, d.read(t))
				d.put(pod("b", going))
				d.remove("c")
				require.Equal(t, map[string]float64{runningPods: 1, `sandboxes{phase="Terminating"}`: 1}, d.read(t))
			})
		})
	}
}

func TestAPodThatRanAndIsGoneIsCountedNowhere(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.put(pod("a"))
	atWork(t, c, func(t *testing.T, d *desk) {
		require.Equal(t, 1., d.readNow(t)[pendingPods])
		d.put(pod("a", ready))
		synctest.Wait()
		d.remove("a")
		require.Empty(t, d.readNow(t))
	})
}

func TestAPodThatNoLongerRunsIsCountedAsWhatItIs(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.put(pod("a", ready))
	atWork(t, c, func(t *testing.T, d *desk) {
		d.put(pod("a", failed))
		require.Equal(t, map[string]float64{`sandboxes{phase="Failed"}`: 1, `sandboxes_not_ready{reason="Other"}`: 1}, d.read(t))
	})
}

// beDeaf lets the list of those that do not run fail from now on; nil lets it be answered again.
func (c *cluster) beDeaf(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = err
}

func (c *cluster) isDeaf() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deaf
}

func TestWhatCannotBeListedIsNotCountedAsNone(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.put(pod("a"))
	c.put(pod("b", ready))
	c.deaf = errors.New("not now")
	atWork(t, c, func(t *testing.T, d *desk) {
		d.read(t)
		require.False(t, telemetrytest.Has(t, d.registry, runningPods))
		require.Equal(t, 1, strings.Count(d.log.String(), "\n"), "it is said once:\n%s", d.log)
		d.beDeaf(nil)
		require.Equal(t, 1., d.read(t)[pendingPods])
		d.beDeaf(errors.New("not now"))
		for range 5 {
			d.read(t)
		}
		require.Equal(t, 2, strings.Count(d.log.String(), "\n"), "and again the next time:\n%s", d.log)
	})
}

// An alert waits for minutes; a gap would make it begin anew. A server that is silent is no better than one that refuses.
func TestAListThatFailsNowAndThenLeavesNoGap(t *testing.T) {
	t.Parallel()
	for name, why := range map[string]error{"refused": errors.New("not now"), "not answered": errSilent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			c.put(pod("a"))
			atWork(t, c, func(t *testing.T, d *desk) {
				require.Equal(t, 1., d.read(t)[pendingPods])
				d.beDeaf(why)
				for range 3 {
					require.Equal(t, 1., d.read(t)[pendingPods])
				}
				time.Sleep(othersAge - 3*othersInterval)
				require.Equal(t, 1., d.readNow(t)[pendingPods], "it is just young enough")
				time.Sleep(4*othersInterval - othersAge)
				require.False(t, telemetrytest.Has(t, d.registry, pendingPods), "an old number would be wrong")
				d.beDeaf(nil)
				d.read(t) // the question that was asked before may still be open
				require.Equal(t, 1., d.read(t)[pendingPods])
			})
		})
	}
}

func TestReasonsThatNobodyKnowsAreCountedTogether(t *testing.T) {
	t.Parallel()
	c := newCluster()
	for _, reason := range []string{"Unheard", "Of", "ErrImagePull", "PodInitializing"} {
		c.put(pod(strings.ToLower(reason), waiting(reason)))
	}
	atWork(t, c, func(t *testing.T, d *desk) {
		require.Equal(t, map[string]float64{
			pendingPods: 4, `sandboxes_not_ready{reason="Other"}`: 2, `sandboxes_not_ready{reason="ErrImagePull"}`: 1,
			`sandboxes_not_ready{reason="ContainerCreating"}`: 1,
		}, d.read(t))
	})
}

func TestReadinessIsTimedOfWhatThisWorkerMade(t *testing.T) {
	t.Parallel()
	atWork(t, newCluster(), func(t *testing.T, d *desk) {
		accepted := time.Now()
		d.put(pod("ours"))
		d.put(pod("others"))
		d.Made("ours", accepted)
		time.Sleep(3 * time.Second)
		d.put(pod("others", ready))
		require.Zero(t, d.readNow(t)[readiness])
		d.put(pod("ours", ready))
		require.Equal(t, 1., d.readNow(t)[readiness])
		require.InDelta(t, 3, telemetrytest.Sum(t, d.registry, readiness), .001)
		d.put(pod("ours"))
		d.put(pod("ours", ready))
		require.Equal(t, 1., d.read(t)[readiness], "once")
	})
}

// The word that a Pod was made comes after the outcome has been recorded, and may find it ready.
func TestAPodMayBeReadyBeforeItIsSaidToBeMade(t *testing.T) {
	t.Parallel()
	atWork(t, newCluster(), func(t *testing.T, d *desk) {
		accepted := time.Now()
		time.Sleep(time.Second)
		d.put(pod("a", ready))
		synctest.Wait()
		time.Sleep(5 * time.Second)
		d.Made("a", accepted)
		require.InDelta(t, 1, telemetrytest.Sum(t, d.registry, readiness), .001)
	})
}

func TestAnOutageIsSurvivedAndNothingIsCountedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]error{
		"nobody answers": errors.New("connection refused"),
		"not allowed":    apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no watch")),
		"too much asked": apierrors.NewTooManyRequests("wait", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster()
			c.put(pod("a", ready))
			atWork(t, c, func(t *testing.T, d *desk) {
				accepted := time.Now()
				d.put(pod("b"))
				d.put(pod("c"))
				d.Made("b", accepted)
				require.Equal(t, 2., d.read(t)[pendingPods])

				d.breakDown(cause)
				time.Sleep(10 * time.Minute)
				require.False(t, telemetrytest.Has(t, d.registry, pendingPods), "an old number would be wrong")
				require.Less(t, d.asked, 100, "it asks less and less often")
				require.Equal(t, 1, strings.Count(d.log.String(), "\n"), "it is said once:\n%s", d.log)

				d.put(pod("b", ready))
				time.Sleep(20 * time.Second)
				d.remove("c")
				d.breakDown(nil)
				time.Sleep(time.Minute)
				require.Equal(t, map[string]float64{runningPods: 2, readiness: 1}, d.read(t))
				require.InDelta(t, (10*time.Minute + othersInterval).Seconds(), telemetrytest.Sum(t, d.registry, readiness), 2, "when it was ready, and not when that was seen")
			})
		})
	}
}

// Nothing depends on the census: it stops at once, also while it cannot reach the cluster. atWork waits for that, on a clock
// that stands still.
func TestACensusThatCannotBeginStopsAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster()
	c.down = apierrors.NewTooManyRequests("wait", 1) // after which client-go by itself would wait, whatever the context says
	atWork(t, c, func(t *testing.T, d *desk) {
		start := time.Now()
		t.Cleanup(func() { require.Zero(t, time.Since(start)) })
		require.Empty(t, d.readNow(t))
	})
}

func TestWhatIsWaitedForIsBounded(t *testing.T) {
	t.Parallel()
	atWork(t, newCluster(), func(t *testing.T, d *desk) {
		accepted := time.Now()
		for i := range maxAwaited + 10 {
			d.Made(fmt.Sprint("pod-", i), accepted)
		}
		require.Equal(t, maxAwaited, d.waiting())
		d.put(pod("pod-0", running))
		synctest.Wait()
		d.remove("pod-0")
		synctest.Wait()
		require.Equal(t, maxAwaited-1, d.waiting(), "a Pod that is deleted is not waited for")
		time.Sleep(patience)
		d.Made("late", accepted)
		require.Equal(t, 1, d.waiting(), "nobody waits for ever")
	})
}

// A list may overtake the watch: then the Pod runs by the list, and is not known to run by the watch.
func TestAPodThatAListMissesOnceIsWaitedFor(t *testing.T) {
	t.Parallel()
	atWork(t, newCluster(), func(t *testing.T, d *desk) {
		d.put(pod("a"))
		d.Made("a", time.Now())
		d.read(t)
		d.Census.seeOthers(nil)
		require.Equal(t, 1, d.waiting())
		d.read(t)
		d.Census.seeOthers(nil)
		require.Equal(t, 1, d.waiting(), "not twice in a row")
		d.put(pod("a", ready))
		require.Equal(t, 1., d.readNow(t)[readiness])
	})
}

func TestAPodThatIsDeletedBeforeItRunsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	atWork(t, newCluster(), func(t *testing.T, d *desk) {
		d.put(pod("a"))
		d.put(pod("b"))
		d.Made("a", time.Now())
		d.Made("b", time.Now())
		d.remove("a")
		time.Sleep(3 * othersInterval)
		synctest.Wait()
		require.Equal(t, 1, d.waiting())
	})
}

func TestTenThousandSandboxesAreNoMoreSeriesThanNone(t *testing.T) {
	t.Parallel()
	series := func(d *desk) (n int) {
		families, err := d.registry.Gather()
		require.NoError(t, err)
		for _, family := range families {
			n += len(family.GetMetric())
		}
		return n
	}
	atWork(t, newCluster(), func(t *testing.T, d *desk) {
		before := series(d)
		for i := range 10_000 {
			uid := fmt.Sprint("pod-", i)
			d.put(pod(uid, waiting(fmt.Sprint("Reason", i))))
			d.Made(uid, time.Now())
			if i%50 == 0 {
				synctest.Wait() // the double holds a hundred events
			}
		}
		require.Equal(t, 10_000., d.read(t)[pendingPods])
		require.Equal(t, before, series(d))
	})
}
