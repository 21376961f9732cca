package k8s

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sandbox-provisioner/internal/sandbox"
)

var (
	errInternal = apierrors.NewInternalError(errors.New("etcd is slow"))
	errSlowDown = apierrors.NewTooManyRequests("slow down", 7)
	errDenied   = apierrors.NewForbidden(corev1.Resource("pods"), "sandbox-a1", errors.New("violates PodSecurity"))
	errNoRight  = apierrors.NewForbidden(corev1.Resource("pods"), "sandbox-a1", errors.New(`User "me" cannot do this`))
)

func TestOnAFreeNameEnsureTakesTwoWritesAndNoRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		state, err := f.Ensure(t.Context(), "a1", ask(), sandbox.Lineage{Generation: by(7), Fence: 5})
		require.NoError(t, err)
		pod, service := f.uids()
		require.NotEmpty(t, service)
		require.Equal(t, sandbox.State{
			ID: "a1", URL: "http://host.docker.internal:30000", Status: sandbox.Pending, Capacity: 10, PodUID: string(pod),
			CreatedAt: time.Now().UTC(), Generation: 7,
		}, state, "as the API server returned it")
		require.Equal(t, []string{"create sandbox-a1"}, f.pods.requests())
		require.Equal(t, []string{"create sandbox-a1-svc"}, f.services.requests())
	})
}

func TestPodAndServiceAreWrittenAtTheSameTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		var arrived sync.WaitGroup
		arrived.Add(2)
		together := func(ctx context.Context, verb string) error {
			require.Equal(t, "create", verb)
			arrived.Done()
			arrived.Wait() // one after the other would wait for ever
			return nil
		}
		f.pods.fault, f.services.fault = together, together
		_, err := f.Ensure(t.Context(), "a1", ask(), sandbox.Lineage{Generation: by(7)})
		require.NoError(t, err)
	})
}

// What is to become of an object that holds the name of a wanted one.
type fate int

const (
	served   fate = iota // it is returned
	awaited              // it is left alone, and looked at again soon
	replaced             // exactly it is deleted, and looked at again soon
	refused              // it is left alone, and the intent fails
)

func TestAPodThatExists(t *testing.T) {
	t.Parallel()
	const fence, settled, failed = 5, 8, 9
	big, broker := ask(), ask()
	big.MaxShellSessions = 11
	broker.LarkBroker = true
	capacity := func(value string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "MAX_SHELL_SESSIONS", Value: value}}
		}
	}
	in := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.Phase = phase }
	}
	for name, test := range map[string]struct {
		made   uint64
		change func(*corev1.Pod)
		spec   sandbox.Spec
		fate   fate
		reason sandbox.Reason
	}{
		"alive":                                   {made: 7, fate: served},
		"not started yet":                         {made: 7, change: in(corev1.PodPending), fate: served},
		"on a node that does not answer":          {made: 7, change: in(corev1.PodUnknown), fate: served},
		"made by a later intent":                  {made: 11, fate: served},
		"terminating":                             {made: 7, change: func(p *corev1.Pod) { dying(p) }, fate: awaited, reason: sandbox.ReasonTerminating},
		"terminating, and a leftover":             {made: 3, change: func(p *corev1.Pod) { dying(p) }, fate: awaited, reason: sandbox.ReasonTerminating},
		"terminating, and not ours":               {made: 7, change: func(p *corev1.Pod) { foreign(p); dying(p) }, fate: awaited, reason: sandbox.ReasonTerminating},
		"failed":                                  {made: 7, change: in(corev1.PodFailed), fate: replaced, reason: sandbox.ReasonLeftover},
		"ended well":                              {made: 7, change: in(corev1.PodSucceeded), fate: replaced, reason: sandbox.ReasonLeftover},
		"at the fence":                            {made: fence, fate: replaced, reason: sandbox.ReasonLeftover},
		"below the fence":                         {made: 1, fate: replaced, reason: sandbox.ReasonLeftover},
		"below the fence, with too little":        {made: 1, spec: big, fate: replaced, reason: sandbox.ReasonLeftover},
		"not stamped, behind a fence":             {change: func(p *corev1.Pod) { unstamped(p) }, fate: replaced, reason: sandbox.ReasonLeftover},
		"condemned":                               {made: failed, fate: replaced, reason: sandbox.ReasonLeftover},
		"of less capacity":                        {made: 7, spec: big, fate: refused, reason: sandbox.ReasonCapacity},
		"of as much capacity":                     {made: 7, spec: big, change: capacity("11"), fate: served},
		"of more capacity":                        {made: 7, spec: big, change: capacity("100"), fate: served},
		"of a capacity that cannot be read":       {made: 7, change: capacity("many"), fate: refused, reason: sandbox.ReasonRefused},
		"without the broker":                      {made: 7, spec: broker, fate: refused, reason: sandbox.ReasonBroker},
		"not ours":                                {made: 7, change: func(p *corev1.Pod) { foreign(p) }, fate: refused, reason: sandbox.ReasonNameTaken},
		"not ours, and older than the fence":      {made: 1, change: func(p *corev1.Pod) { foreign(p) }, fate: refused, reason: sandbox.ReasonNameTaken},
		"labelled with another id":                {made: 7, change: func(p *corev1.Pod) { p.Labels["sandbox-id"] = "b2" }, fate: refused, reason: sandbox.ReasonNameTaken},
		"not ours, and failed, is left all alone": {made: 7, change: func(p *corev1.Pod) { foreign(p); in(corev1.PodFailed)(p) }, fate: refused, reason: sandbox.ReasonNameTaken},
	} {
		// At full quota an existing object is answered for with 403 and not 409.
		for quota, full := range map[string]bool{"": false, ", at full quota": true} {
			t.Run(name+quota, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newFixture()
					f.pods.full = full
					if test.change == nil {
						test.change = func(*corev1.Pod) {}
					}
					if test.spec.UserID == "" {
						test.spec = ask()
					}
					uid := f.putPod(test.made, test.change)
					before, _ := f.pods.peek("sandbox-a1")
					l := sandbox.Lineage{Generation: by(10), Fence: fence, Settled: settled, Failed: failed}
					state, err := f.Ensure(t.Context(), "a1", test.spec, l)
					requireFate(t, test.fate, test.reason, sandbox.Pod, err)
					after, _ := f.pods.peek("sandbox-a1")
					require.Equal(t, uid, after.UID)
					if test.fate == replaced {
						require.NotNil(t, after.DeletionTimestamp)
						return
					}
					require.Equal(t, before, after, "it is not touched")
					if test.fate == served {
						require.Equal(t, string(uid), state.PodUID)
						require.Equal(t, test.made, state.Generation)
					}
				})
			})
		}
	}
}

func requireFate(t *testing.T, fate fate, reason sandbox.Reason, object string, err error) {
	t.Helper()
	switch fate {
	case served:
		require.NoError(t, err)
	case awaited, replaced:
		retry := requireRetry(t, err, reason)
		require.Equal(t, object, retry.Object)
		require.Equal(t, comeBack, retry.After, "soon, and not in place: no slot is to be blocked")
	case refused:
		require.Equal(t, object, requireFailure(t, err, reason).Object)
	}
}

func TestAServiceThatExists(t *testing.T) {
	t.Parallel()
	const fence, settled, failed = 5, 8, 9
	as := func(kind corev1.ServiceType) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.Type = kind }
	}
	for name, test := range map[string]struct {
		made   uint64
		change func(*corev1.Service)
		fate   fate
		reason sandbox.Reason
	}{
		"of the right type":            {made: 7, fate: served},
		"made by a later intent":       {made: 11, fate: served},
		"of the wrong type":            {made: 7, change: as(corev1.ServiceTypeClusterIP), fate: replaced, reason: sandbox.ReasonLeftover},
		"of a type that nobody asks":   {made: 7, change: as(corev1.ServiceTypeLoadBalancer), fate: replaced, reason: sandbox.ReasonLeftover},
		"at the fence":                 {made: fence, fate: replaced, reason: sandbox.ReasonLeftover},
		"below the fence":              {made: 1, fate: replaced, reason: sandbox.ReasonLeftover},
		"not stamped, behind a fence":  {change: func(s *corev1.Service) { unstamped(s) }, fate: replaced, reason: sandbox.ReasonLeftover},
		"condemned":                    {made: failed, fate: replaced, reason: sandbox.ReasonLeftover},
		"terminating":                  {made: 7, change: func(s *corev1.Service) { dying(s) }, fate: awaited, reason: sandbox.ReasonTerminating},
		"not ours":                     {made: 7, change: func(s *corev1.Service) { foreign(s) }, fate: refused, reason: sandbox.ReasonNameTaken},
		"not ours, of the wrong type":  {made: 7, change: func(s *corev1.Service) { foreign(s); as("ClusterIP")(s) }, fate: refused, reason: sandbox.ReasonNameTaken},
		"not ours, older than a fence": {made: 1, change: func(s *corev1.Service) { foreign(s) }, fate: refused, reason: sandbox.ReasonNameTaken},
	} {
		for quota, full := range map[string]bool{"": false, ", at full quota": true} {
			t.Run(name+quota, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newFixture()
					f.services.full = full
					if test.change == nil {
						test.change = func(*corev1.Service) {}
					}
					uid := f.putService(test.made, test.change)
					l := sandbox.Lineage{Generation: by(10), Fence: fence, Settled: settled, Failed: failed}
					state, err := f.Ensure(t.Context(), "a1", ask(), l)
					requireFate(t, test.fate, test.reason, sandbox.Service, err)
					after, there := f.services.peek("sandbox-a1-svc")
					require.Equal(t, test.fate != replaced, there)
					if there {
						require.Equal(t, uid, after.UID)
					}
					if test.fate == served {
						require.Equal(t, "http://host.docker.internal:30000", state.URL)
					}
				})
			})
		}
	}
}

func TestWithoutADeletionObjectsOfAnotherProvisionerServe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		pod := f.putPod(0, func(p *corev1.Pod) { unstamped(p) })
		service := f.putService(0, func(s *corev1.Service) { unstamped(s) })
		state, err := f.Ensure(t.Context(), "a1", ask(), sandbox.Lineage{Generation: by(1)})
		require.NoError(t, err)
		require.Equal(t, string(pod), state.PodUID)
		gotPod, gotService := f.uids()
		require.Equal(t, []types.UID{pod, service}, []types.UID{gotPod, gotService})
	})
}

func TestALeftoverIsReplacedInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.putPod(3)
		f.putService(3)
		l := sandbox.Lineage{Generation: by(6), Fence: 5}
		_, err := f.Ensure(t.Context(), "a1", ask(), l)
		requireRetry(t, err, sandbox.ReasonLeftover)

		_, err = f.Ensure(t.Context(), "a1", ask(), l)
		require.Equal(t, sandbox.Pod, requireRetry(t, err, sandbox.ReasonTerminating).Object)

		f.pods.vanish("sandbox-a1")
		state, err := f.Ensure(t.Context(), "a1", ask(), l)
		require.NoError(t, err)
		require.EqualValues(t, 6, state.Generation)
	})
}

// A Service would lead to the Pod that is on its way out.
func TestWhileAPodOfAnEarlierLifeIsThereThereIsNoService(t *testing.T) {
	t.Parallel()
	const fence = 5
	l := sandbox.Lineage{Generation: by(6), Fence: fence}
	for name, test := range map[string]struct {
		put  func(*fixture)
		want sandbox.Reason
	}{
		"none, and the Pod is terminating": {func(f *fixture) { f.putPod(3, func(p *corev1.Pod) { dying(p) }) }, sandbox.ReasonTerminating},
		"one of that life": {func(f *fixture) {
			f.putPod(3, func(p *corev1.Pod) { dying(p) })
			f.putService(3)
		}, sandbox.ReasonTerminating},
		"one of that life, and the Pod is to go": {func(f *fixture) {
			f.putPod(3)
			f.putService(3)
		}, sandbox.ReasonLeftover},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				test.put(f)
				_, err := f.Ensure(t.Context(), "a1", ask(), l)
				requireRetry(t, err, test.want)
				_, service := f.uids()
				require.Empty(t, service)
			})
		})
	}
}

func TestWhatKubernetesAnswersToACreation(t *testing.T) {
	t.Parallel()
	pods, services := corev1.Resource("pods"), corev1.Resource("services")
	noAccount := apierrors.NewForbidden(pods, "sandbox-a1",
		errors.New(`error looking up service account deer-flow/default: serviceaccount "default" not found`))
	for name, test := range map[string]struct {
		err   error
		final bool
		want  sandbox.Reason
		after time.Duration
	}{
		"the quota is exceeded":              {err: quotaError(pods, "sandbox-a1"), final: true, want: sandbox.ReasonQuota},
		"the ServiceAccount is not there":    {err: noAccount, want: sandbox.ReasonNotReady},
		"an admission refuses":               {err: errDenied, final: true, want: sandbox.ReasonRefused},
		"it is invalid":                      {err: apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "sandbox-a1", nil), final: true, want: sandbox.ReasonRefused},
		"it is no request":                   {err: apierrors.NewBadRequest("bad"), final: true, want: sandbox.ReasonRefused},
		"it is too large":                    {err: apierrors.NewRequestEntityTooLargeError("too large"), final: true, want: sandbox.ReasonRefused},
		"we are to wait":                     {err: errSlowDown, want: sandbox.ReasonThrottled, after: 7 * time.Second},
		"the quota changed meanwhile":        {err: apierrors.NewConflict(services, "sandboxes", errors.New("modified")), want: sandbox.ReasonConflict},
		"the server has an error":            {err: errInternal, want: sandbox.ReasonServer},
		"the server is overtaxed":            {err: apierrors.NewServerTimeout(pods, "create", 2), want: sandbox.ReasonServer, after: 2 * time.Second},
		"the server starts":                  {err: apierrors.NewServiceUnavailable("starting"), want: sandbox.ReasonServer},
		"a webhook does not answer":          {err: apierrors.NewTimeoutError("webhook", 0), want: sandbox.ReasonServer},
		"the credentials are being replaced": {err: apierrors.NewUnauthorized("expired"), want: sandbox.ReasonNotReady},
		"the namespace is not there":         {err: apierrors.NewNotFound(corev1.Resource("namespaces"), "deer-flow"), want: sandbox.ReasonNotReady},
		"the connection is refused":          {err: errors.New("dial tcp 127.0.0.1:6443: connect: connection refused"), want: sandbox.ReasonUnavailable},
	} {
		for object, of := range map[string]func(*fixture, func(context.Context, string) error){
			sandbox.Pod:     func(f *fixture, fault func(context.Context, string) error) { f.pods.fault = fault },
			sandbox.Service: func(f *fixture, fault func(context.Context, string) error) { f.services.fault = fault },
		} {
			t.Run(name+" for the "+object, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newFixture()
					of(f, failing("create", test.err))
					_, err := f.Ensure(t.Context(), "a1", ask(), sandbox.Lineage{Generation: by(7)})
					if test.final {
						failure := requireFailure(t, err, test.want)
						require.Equal(t, object, failure.Object)
						require.Equal(t, test.err.Error(), failure.Message, "Kubernetes' own words")
						return
					}
					retry := requireRetry(t, err, test.want)
					require.Equal(t, object, retry.Object)
					require.Equal(t, test.after, retry.After)
				})
			})
		}
	}
}

func TestARequestThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(context.Context, *fixture) error{
		"a creation": func(ctx context.Context, f *fixture) error {
			f.pods.fault = hanging("create")
			_, err := f.Ensure(ctx, "a1", ask(), sandbox.Lineage{Generation: by(7)})
			return err
		},
		"a read": func(ctx context.Context, f *fixture) error {
			f.services.fault = hanging("get")
			_, err := f.Get(ctx, "a1")
			return err
		},
		"a list": func(ctx context.Context, f *fixture) error {
			f.pods.fault = hanging("list")
			_, err := f.List(ctx)
			return err
		},
		"a deletion": func(ctx context.Context, f *fixture) error {
			f.putPod(3)
			f.pods.fault = hanging("delete")
			return f.Remove(ctx, "a1", sandbox.Lineage{Generation: by(7)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				asked := time.Now()
				requireRetry(t, do(t.Context(), newFixture()), sandbox.ReasonUnavailable)
				require.Equal(t, requestTimeout, time.Since(asked))
			})
		})
	}
}

// An object that answered 409, and whose read fails, may be anything.
func TestAReadThatFailsDecidesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want sandbox.Reason
	}{
		"the server has an error":   {errInternal, sandbox.ReasonServer},
		"we are to wait":            {errSlowDown, sandbox.ReasonThrottled},
		"the connection is refused": {errors.New("connection refused"), sandbox.ReasonUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, full := range []bool{false, true} {
					f := newFixture()
					pod, service := f.putPod(3), f.putService(3)
					f.pods.full, f.services.full = full, full
					f.pods.fault, f.services.fault = failing("get", test.err), failing("get", test.err)
					_, err := f.Ensure(t.Context(), "a1", ask(), sandbox.Lineage{Generation: by(7), Fence: 5})
					requireRetry(t, err, test.want)
					gotPod, gotService := f.uids()
					require.Equal(t, []types.UID{pod, service}, []types.UID{gotPod, gotService}, "nothing was deleted")
				}
			})
		})
	}
}

func TestAnObjectThatGoesAwayWhileItIsLookedAtIsMadeNextTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.putPod(7)
		f.pods.fault = func(_ context.Context, verb string) error {
			if verb == "get" {
				f.pods.vanish("sandbox-a1")
			}
			return nil
		}
		l := sandbox.Lineage{Generation: by(8)}
		_, err := f.Ensure(t.Context(), "a1", ask(), l)
		require.Equal(t, comeBack, requireRetry(t, err, sandbox.ReasonConflict).After)
		_, err = f.Ensure(t.Context(), "a1", ask(), l)
		require.NoError(t, err)
	})
}

// Between the read and the deletion somebody may put another object under the name.
func TestADeletionNeverHitsASuccessor(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(context.Context, *fixture) error{
		"of a leftover": func(ctx context.Context, f *fixture) error {
			_, err := f.Ensure(ctx, "a1", ask(), sandbox.Lineage{Generation: by(6), Fence: 5})
			return err
		},
		"by a delete": func(ctx context.Context, f *fixture) error {
			return f.Remove(ctx, "a1", sandbox.Lineage{Generation: by(5)})
		},
		"after a failure": func(ctx context.Context, f *fixture) error {
			return f.Undo(ctx, "a1", sandbox.Lineage{Generation: by(5), Settled: 2, Failed: 5})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				f.putPod(3)
				f.putService(3)
				var pod, service types.UID
				f.pods.fault = func(_ context.Context, verb string) error {
					if verb == "delete" {
						pod = f.putPod(6)
					}
					return nil
				}
				f.services.fault = func(_ context.Context, verb string) error {
					if verb == "delete" {
						service = f.putService(6)
					}
					return nil
				}
				retry := requireRetry(t, do(t.Context(), f), sandbox.ReasonConflict)
				require.Zero(t, retry.After, "it is worth another look at once")
				require.NotEmpty(t, pod)
				require.NotEmpty(t, service)
				gotPod, gotService := f.uids()
				require.Equal(t, []types.UID{pod, service}, []types.UID{gotPod, gotService})
			})
		})
	}
}

func TestADeletionOfWhatIsGoneIsASuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.putPod(3)
		f.putService(3)
		f.pods.fault = func(_ context.Context, verb string) error {
			if verb == "delete" {
				f.pods.vanish("sandbox-a1")
			}
			return nil
		}
		require.NoError(t, f.Remove(t.Context(), "a1", sandbox.Lineage{Generation: by(5)}))
		require.NoError(t, f.Remove(t.Context(), "a1", sandbox.Lineage{Generation: by(5)}), "and so is a second one")
	})
}

func TestWhatRemoveAndUndoTake(t *testing.T) {
	t.Parallel()
	remove := func(ctx context.Context, f *fixture, l sandbox.Lineage) error { return f.Remove(ctx, "a1", l) }
	undo := func(ctx context.Context, f *fixture, l sandbox.Lineage) error { return f.Undo(ctx, "a1", l) }
	deletion := sandbox.Lineage{Generation: by(5)}
	failed := sandbox.Lineage{Generation: by(9), Fence: 3, Settled: 6, Failed: 9}
	for name, test := range map[string]struct {
		do     func(context.Context, *fixture, sandbox.Lineage) error
		l      sandbox.Lineage
		made   uint64
		change func(metav1.Object)
		gone   bool
	}{
		"a delete takes what is older":                      {do: remove, l: deletion, made: 4, gone: true},
		"a delete takes what another provisioner made":      {do: remove, l: deletion, made: 4, change: unstamped, gone: true},
		"a delete leaves a successor":                       {do: remove, l: deletion, made: 6},
		"a delete leaves what is not ours":                  {do: remove, l: deletion, made: 4, change: foreign},
		"an undo takes what the failed intent made":         {do: undo, l: failed, made: 9, gone: true},
		"an undo takes what an overtaken intent made":       {do: undo, l: failed, made: 7, gone: true},
		"an undo takes what was to be deleted before":       {do: undo, l: failed, made: 3, gone: true},
		"an undo takes what is older than the deletion":     {do: undo, l: failed, made: 1, gone: true},
		"an undo leaves what was promised":                  {do: undo, l: failed, made: 6},
		"an undo leaves a successor":                        {do: undo, l: failed, made: 10},
		"an undo leaves what is not ours":                   {do: undo, l: failed, made: 9, change: foreign},
		"an undo takes another provisioner's, once deleted": {do: undo, l: failed, made: 9, change: unstamped, gone: true},
		"an undo leaves another provisioner's otherwise": {
			do: undo, l: sandbox.Lineage{Generation: by(9), Settled: 6, Failed: 9}, made: 9, change: unstamped,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				if test.change == nil {
					test.change = func(metav1.Object) {}
				}
				f.putPod(test.made, func(p *corev1.Pod) { test.change(p) })
				f.putService(test.made, func(s *corev1.Service) { test.change(s) })
				require.NoError(t, test.do(t.Context(), f, test.l))
				pod, service := f.uids()
				require.Equal(t, test.gone, pod == "", "the Pod")
				require.Equal(t, test.gone, service == "", "the Service")
			})
		})
	}
}

func TestATerminatingPodIsRemovedAlready(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.putPod(3, func(p *corev1.Pod) { dying(p) })
		require.NoError(t, f.Remove(t.Context(), "a1", sandbox.Lineage{Generation: by(5)}))
		require.Equal(t, []string{"get sandbox-a1"}, f.pods.requests())
	})
}

// A removal is never given up, whatever Kubernetes answers, and one half that is in trouble does not keep the other.
func TestARemovalThatIsNotCompletePassesAndNamesWhatIsLeft(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		verb string
		err  error
		want sandbox.Reason
	}{
		"a read fails":            {"get", errInternal, sandbox.ReasonServer},
		"a read is not allowed":   {"get", errNoRight, sandbox.ReasonRefused},
		"a delete fails":          {"delete", errInternal, sandbox.ReasonServer},
		"a delete is not allowed": {"delete", errNoRight, sandbox.ReasonRefused},
		"a delete is to wait":     {"delete", errSlowDown, sandbox.ReasonThrottled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := sandbox.Lineage{Generation: by(5), Failed: 5}
				for _, do := range []func(*fixture) error{
					func(f *fixture) error { return f.Remove(t.Context(), "a1", l) },
					func(f *fixture) error { return f.Undo(t.Context(), "a1", l) },
				} {
					f := newFixture()
					f.putPod(3)
					f.putService(3)
					f.pods.fault = failing(test.verb, test.err)
					err := do(f)
					retry := requireRetry(t, err, test.want)
					require.Equal(t, sandbox.Pod, retry.Object)
					require.Equal(t, "pod: "+classify(sandbox.Pod, test.err).Error(), err.Error())
					pod, service := f.uids()
					require.NotEmpty(t, pod)
					require.Empty(t, service, "the other half is gone")

					f.putService(3)
					f.services.fault = failing(test.verb, test.err)
					err = do(f)
					requireRetry(t, err, test.want)
					require.Equal(t, fmt.Sprintf("service: %[1]s, pod: %[1]s", classify("", test.err)), err.Error(), "both are told of")
				}
			})
		})
	}
}

func TestARemovalWaitsAsLongAsTheSlowerHalfAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.putPod(3)
		f.putService(3)
		f.pods.fault = failing("delete", errSlowDown)
		f.services.fault = failing("delete", apierrors.NewTooManyRequests("slow down", 20))
		err := f.Remove(t.Context(), "a1", sandbox.Lineage{Generation: by(5)})
		require.Equal(t, 20*time.Second, requireRetry(t, err, sandbox.ReasonThrottled).After)
	})
}

func TestAFailureOfOneHalfOutweighsARetryOfTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.pods.full = true
		f.services.fault = failing("create", errInternal)
		_, err := f.Ensure(t.Context(), "a1", ask(), sandbox.Lineage{Generation: by(7)})
		require.Equal(t, sandbox.Pod, requireFailure(t, err, sandbox.ReasonQuota).Object)
	})
}

func TestWhatIsHalfMadeIsFoundAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		f.services.fault = failing("create", errInternal)
		l := sandbox.Lineage{Generation: by(7)}
		_, err := f.Ensure(t.Context(), "a1", ask(), l)
		requireRetry(t, err, sandbox.ReasonServer)
		pod, _ := f.uids()
		require.NotEmpty(t, pod)

		f.services.fault = nil
		state, err := f.Ensure(t.Context(), "a1", ask(), l)
		require.NoError(t, err)
		require.Equal(t, string(pod), state.PodUID)
	})
}

// The doubles above do what Kubernetes does; here the errors are those that client-go makes of its answers.
func TestEnsureAgainstAnAPIServer(t *testing.T) {
	t.Parallel()
	status := func(code int32, reason metav1.StatusReason, message string) *metav1.Status {
		return &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
		}
	}
	for name, test := range map[string]struct {
		status *metav1.Status
		header string
		check  func(*testing.T, error)
	}{
		"the quota is exceeded": {
			status(403, metav1.StatusReasonForbidden, `pods "sandbox-a1" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1`), "",
			func(t *testing.T, err error) {
				require.Contains(t, requireFailure(t, err, sandbox.ReasonQuota).Message, "limited: pods=1")
			},
		},
		"the ServiceAccount is not there": {
			status(403, metav1.StatusReasonForbidden, `pods "sandbox-a1" is forbidden: error looking up service account deer-flow/default: serviceaccount "default" not found`), "",
			func(t *testing.T, err error) { requireRetry(t, err, sandbox.ReasonNotReady) },
		},
		"an admission refuses": {
			status(403, metav1.StatusReasonForbidden, `pods "sandbox-a1" is forbidden: violates PodSecurity "restricted:latest"`), "",
			func(t *testing.T, err error) {
				require.Contains(t, requireFailure(t, err, sandbox.ReasonRefused).Message, "PodSecurity")
			},
		},
		"a webhook refuses in its own way": {
			status(409, "Whatever", "webhook says no"), "",
			func(t *testing.T, err error) { requireRetry(t, err, sandbox.ReasonConflict) },
		},
		"it is invalid": {
			status(422, metav1.StatusReasonInvalid, "spec.volumes[0]: invalid"), "",
			func(t *testing.T, err error) { requireFailure(t, err, sandbox.ReasonRefused) },
		},
		"we are to wait": {
			status(429, metav1.StatusReasonTooManyRequests, "slow down"), "3",
			func(t *testing.T, err error) {
				require.Equal(t, 3*time.Second, requireRetry(t, err, sandbox.ReasonThrottled).After)
			},
		},
		"it is overtaxed": {
			status(503, metav1.StatusReasonServiceUnavailable, "overtaxed"), "",
			func(t *testing.T, err error) { requireRetry(t, err, sandbox.ReasonServer) },
		},
		"a proxy answers for it": {
			nil, "", func(t *testing.T, err error) { requireRetry(t, err, sandbox.ReasonServer) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			core := newTestCore(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodGet:
					answer(t, w, http.StatusNotFound, nil)
				case test.status == nil:
					http.Error(w, "<html>bad gateway", http.StatusBadGateway)
				default:
					if test.header != "" {
						w.Header().Set("Retry-After", test.header)
					}
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(int(test.status.Code))
					_, _ = w.Write([]byte(encode(t, "application/json", test.status)))
				}
			}))
			_, err := New(core, stock(), requestTimeout).Ensure(t.Context(), "a1", ask(), sandbox.Lineage{Generation: by(7)})
			test.check(t, err)
		})
	}
}

func TestAServerThatIsNotThereIsUnavailable(t *testing.T) {
	t.Parallel()
	c := New(newTestCore(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		panic(http.ErrAbortHandler) // the connection breaks
	})), stock(), requestTimeout)
	_, err := c.Ensure(t.Context(), "a1", ask(), sandbox.Lineage{Generation: by(7)})
	requireRetry(t, err, sandbox.ReasonUnavailable)
	require.True(t, Unreachable(c.Ping(t.Context())))
}
