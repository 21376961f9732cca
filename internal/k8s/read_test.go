package k8s

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sandbox-provisioner/internal/sandbox"
)

func dyingPod(p *corev1.Pod)           { dying(p) }
func dyingService(s *corev1.Service)   { dying(s) }
func foreignPod(p *corev1.Pod)         { foreign(p) }
func foreignService(s *corev1.Service) { foreign(s) }

func TestGetCountsWhatExistsIsOursAndStays(t *testing.T) {
	t.Parallel()
	type halves struct{ pod, service bool }
	for name, test := range map[string]struct {
		put    func(*fixture)
		want   halves
		status sandbox.Status
	}{
		"nothing":               {func(*fixture) {}, halves{}, sandbox.NotFound},
		"both":                  {func(f *fixture) { f.putPod(3); f.putService(3) }, halves{true, true}, sandbox.Running},
		"a Pod alone":           {func(f *fixture) { f.putPod(3) }, halves{pod: true}, sandbox.Running},
		"a Service alone":       {func(f *fixture) { f.putService(3) }, halves{service: true}, sandbox.NotFound},
		"a Pod on its way out":  {func(f *fixture) { f.putPod(3, dyingPod); f.putService(3) }, halves{service: true}, sandbox.NotFound},
		"a Service on its way":  {func(f *fixture) { f.putPod(3); f.putService(3, dyingService) }, halves{pod: true}, sandbox.Running},
		"a Pod of others":       {func(f *fixture) { f.putPod(3, foreignPod); f.putService(3) }, halves{service: true}, sandbox.NotFound},
		"a Service of others":   {func(f *fixture) { f.putPod(3); f.putService(3, foreignService) }, halves{pod: true}, sandbox.Running},
		"both of others":        {func(f *fixture) { f.putPod(3, foreignPod); f.putService(3, foreignService) }, halves{}, sandbox.NotFound},
		"a Pod without a stamp": {func(f *fixture) { f.putPod(3, func(p *corev1.Pod) { unstamped(p) }) }, halves{pod: true}, sandbox.Running},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				test.put(f)
				seen, err := f.Get(t.Context(), "a1")
				require.NoError(t, err)
				require.Equal(t, test.want, halves{seen.Pod, seen.Service})
				require.Equal(t, test.status, seen.State.Status)
				require.Equal(t, test.want.pod, seen.State.PodUID != "")
				require.Equal(t, test.want.service, seen.State.URL != "")

				uid, err := f.PodUID(t.Context(), "a1")
				require.NoError(t, err)
				require.Equal(t, seen.State.PodUID, uid)
			})
		})
	}
}

// Only a 404 of Kubernetes means that something does not exist. The gateway deletes what it is told does not.
func TestAReadErrorIsNeverAbsence(t *testing.T) {
	t.Parallel()
	l := sandbox.Lineage{Generation: by(9)}
	reads := map[string]struct {
		verb string
		do   func(context.Context, *fixture) error
		// podOnly is for a read that does not look at the Service.
		podOnly bool
	}{
		"get":      {"get", func(ctx context.Context, f *fixture) error { _, err := f.Get(ctx, "a1"); return err }, false},
		"check":    {"get", func(ctx context.Context, f *fixture) error { _, err := f.Check(ctx, "a1", ask(), l); return err }, false},
		"gone":     {"get", func(ctx context.Context, f *fixture) error { _, err := f.Gone(ctx, "a1", l); return err }, false},
		"presence": {"get", func(ctx context.Context, f *fixture) error { _, err := f.PodUID(ctx, "a1"); return err }, true},
		"list":     {"list", func(ctx context.Context, f *fixture) error { _, err := f.List(ctx); return err }, false},
		"ping":     {"list", func(ctx context.Context, f *fixture) error { return f.Ping(ctx) }, true},
	}
	for name, fault := range map[string]error{
		"not allowed":     errNoRight,
		"not known":       apierrors.NewUnauthorized("expired"),
		"to wait":         errSlowDown,
		"an error":        errInternal,
		"not served":      apierrors.NewServiceUnavailable("starting"),
		"refused":         errors.New("connect: connection refused"),
		"a late answer":   context.DeadlineExceeded,
		"a wrong version": apierrors.NewGenericServerResponse(410, "get", corev1.Resource("pods"), "sandbox-a1", "gone", 0, true),
	} {
		for read, test := range reads {
			t.Run(read+" is "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					for _, exists := range []bool{false, true} {
						for _, ofPod := range []bool{true, false} {
							if test.podOnly && !ofPod {
								continue
							}
							f := newFixture()
							if exists {
								f.putPod(3)
								f.putService(3)
							}
							if ofPod {
								f.pods.fault = failing(test.verb, fault)
							} else {
								f.services.fault = failing(test.verb, fault)
							}
							require.Error(t, test.do(t.Context(), f), "exists %t, of the Pod %t", exists, ofPod)
						}
					}
				})
			})
		}
	}
}

func TestPodAndServiceAreReadAtTheSameTime(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(context.Context, *fixture) error{
		"get":    func(ctx context.Context, f *fixture) error { _, err := f.Get(ctx, "a1"); return err },
		"list":   func(ctx context.Context, f *fixture) error { _, err := f.List(ctx); return err },
		"remove": func(ctx context.Context, f *fixture) error { return f.Remove(ctx, "a1", sandbox.Lineage{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				one, other := make(chan struct{}), make(chan struct{})
				f.pods.fault = func(context.Context, string) error { close(one); <-other; return nil }
				f.services.fault = func(context.Context, string) error { close(other); <-one; return nil }
				require.NoError(t, do(t.Context(), f))
			})
		})
	}
}

func TestCheckTellsWhetherWhatExistsServes(t *testing.T) {
	t.Parallel()
	big, broker := ask(), ask()
	big.MaxShellSessions = 11
	broker.LarkBroker = true
	const fence = 2
	wrongType := func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }
	unreadable := func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "MAX_SHELL_SESSIONS", Value: "many"}}
	}
	for name, test := range map[string]struct {
		put     func(*fixture)
		spec    sandbox.Spec
		serves  bool
		failure sandbox.Reason
	}{
		"both":                 {put: func(f *fixture) { f.putPod(3); f.putService(3) }, serves: true},
		"nothing":              {put: func(*fixture) {}},
		"a Pod alone":          {put: func(f *fixture) { f.putPod(3) }},
		"a Service alone":      {put: func(f *fixture) { f.putService(3) }},
		"a Pod on its way out": {put: func(f *fixture) { f.putPod(3, dyingPod); f.putService(3) }},
		"a Pod that ended": {put: func(f *fixture) {
			f.putPod(3, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
			f.putService(3)
		}},
		"a Pod behind the fence":        {put: func(f *fixture) { f.putPod(fence); f.putService(3) }},
		"a Service behind the fence":    {put: func(f *fixture) { f.putPod(3); f.putService(fence) }},
		"a Service of the wrong type":   {put: func(f *fixture) { f.putPod(3); f.putService(3, wrongType) }},
		"a Pod of less capacity":        {put: func(f *fixture) { f.putPod(3); f.putService(3) }, spec: big, failure: sandbox.ReasonCapacity},
		"a Pod without the broker":      {put: func(f *fixture) { f.putPod(3); f.putService(3) }, spec: broker, failure: sandbox.ReasonBroker},
		"a Pod of an unreadable size":   {put: func(f *fixture) { f.putPod(3, unreadable); f.putService(3) }, failure: sandbox.ReasonRefused},
		"a Pod of others":               {put: func(f *fixture) { f.putPod(3, foreignPod); f.putService(3) }},
		"too small, and on its way out": {put: func(f *fixture) { f.putPod(3, dyingPod); f.putService(3) }, spec: big},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				test.put(f)
				spec := test.spec
				if spec.UserID == "" {
					spec = ask()
				}
				state, err := f.Check(t.Context(), "a1", spec, sandbox.Lineage{Generation: by(5), Fence: fence})
				require.Equal(t, test.serves, state != nil)
				if test.failure != "" {
					requireFailure(t, err, test.failure)
				} else {
					require.NoError(t, err)
				}
				if test.serves {
					seen, err := f.Get(t.Context(), "a1")
					require.NoError(t, err)
					require.Equal(t, seen.State, *state)
				}
				require.NotContains(t, f.pods.requests(), "delete sandbox-a1", "it changes nothing")
				require.NotContains(t, f.services.requests(), "delete sandbox-a1-svc", "it changes nothing")
			})
		})
	}
}

func TestGoneMeansThatNothingOlderIsLeft(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		put  func(*fixture)
		want bool
	}{
		"nothing":                        {func(*fixture) {}, true},
		"an older Pod":                   {func(f *fixture) { f.putPod(4) }, false},
		"an older Service":               {func(f *fixture) { f.putService(4) }, false},
		"an older Pod on its way out":    {func(f *fixture) { f.putPod(4, dyingPod) }, true},
		"a successor":                    {func(f *fixture) { f.putPod(6); f.putService(6) }, true},
		"a successor's Pod, old Service": {func(f *fixture) { f.putPod(6); f.putService(4) }, false},
		"another provisioner's":          {func(f *fixture) { f.putPod(4, func(p *corev1.Pod) { unstamped(p) }) }, false},
		"what is not ours":               {func(f *fixture) { f.putPod(4, foreignPod); f.putService(4, foreignService) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				test.put(f)
				gone, err := f.Gone(t.Context(), "a1", sandbox.Lineage{Generation: by(5)})
				require.NoError(t, err)
				require.Equal(t, test.want, gone)
			})
		})
	}
}

func TestListIsTheUnionOfPodsAndServices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		put := func(id string, change func(*corev1.Pod), pod, service bool) {
			p := f.set.Pod(id, ask(), by(3))
			p.Status.Phase = corev1.PodRunning
			change(p)
			if pod {
				f.pods.put(p)
			}
			if service {
				f.services.put(f.set.Service(id, by(3)))
			}
		}
		same := func(*corev1.Pod) {}
		put("both", same, true, true)
		put("a-pod-alone", same, true, false)
		put("service-alone", same, false, true)
		put("dying", dyingPod, true, false)
		put("half-dying", dyingPod, true, true)
		put("foreign", foreignPod, true, false)
		put("misnamed", func(p *corev1.Pod) { p.Name = "by-hand" }, true, false)
		service := f.set.Service("leaving", by(3))
		dying(service)
		f.services.put(service)
		service = f.set.Service("by-hand", by(3))
		service.Name = "by-hand"
		f.services.put(service)

		list, err := f.List(t.Context())
		require.NoError(t, err)
		type row struct {
			id           string
			pod, service bool
			status       sandbox.Status
		}
		var got []row
		for _, s := range list {
			got = append(got, row{s.State.ID, s.Pod, s.Service, s.State.Status})
			require.Equal(t, s.Service, s.State.URL != "", s.State.ID)
		}
		require.Equal(t, []row{
			{"a-pod-alone", true, false, sandbox.Running},
			{"both", true, true, sandbox.Running},
			{"half-dying", false, true, sandbox.NotFound},
			{"service-alone", false, true, sandbox.NotFound},
		}, got)
		require.Equal(t, []string{"list app=deer-flow-sandbox"}, f.pods.requests(), "one request, and not one per sandbox")
		require.Equal(t, []string{"list app=deer-flow-sandbox"}, f.services.requests())
	})
}

func TestListsAndReadsTellTheSame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(clusterIP)
		f.putPod(3)
		f.putService(4)
		list, err := f.List(t.Context())
		require.NoError(t, err)
		one, err := f.Get(t.Context(), "a1")
		require.NoError(t, err)
		require.Equal(t, []Sighting{one}, list)
		require.Equal(t, "http://sandbox-a1-svc.deer-flow.svc.cluster.local:8080", one.State.URL)
	})
}

func TestAnEmptyListIsNoError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		list, err := newFixture().List(t.Context())
		require.NoError(t, err)
		require.Empty(t, list)
	})
}
