package observe_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"sandbox-provisioner/internal/testenv"
)

// The whole way of 10,000 creates, reads and deletes leaves as many series as that of the first few. The API server is a double,
// which is faster than the real one.
func TestTenThousandSandboxesAddNoSeries(t *testing.T) {
	const first, all, atOnce = 100, 10_000, 32
	api := newMemoryAPI(t)
	d := testenv.Processes(t, testenv.ClusterIP(), testenv.Env("KUBECONFIG_PATH", api.kubeconfig), testenv.Env("LOG_LEVEL", "error"),
		testenv.Env("SWEEP_INTERVAL", "0s"), testenv.Env("CREATE_WAIT", "25s"))
	use := func(from, to int) {
		next := make(chan int)
		failures := make(chan testenv.Response, to-from)
		var clients sync.WaitGroup
		for range atOnce {
			clients.Go(func() {
				for i := range next {
					id := fmt.Sprint("sandbox-", i)
					if r := d.Client().Create(t.Context(), id); r.Code != http.StatusOK {
						failures <- r
					}
					if i%10 == 0 {
						d.Client().Get(t.Context(), id)
						d.Client().Get(t.Context(), id+"-not")
						d.Client().Delete(t.Context(), id)
					}
				}
			})
		}
		for i := from; i < to; i++ {
			next <- i
		}
		close(next)
		clients.Wait()
		close(failures)
		for r := range failures {
			require.Fail(t, "a create failed", "%v", r)
		}
	}
	running := func(want float64) func() error {
		return func() error {
			families, err := testenv.Scrape(t.Context(), d.Workers[0])
			if err != nil {
				return err
			}
			for _, m := range families[prefix+"sandboxes"].GetMetric() {
				if _, key := labelsOf(m); key == "{phase=Running}" && m.GetGauge().GetValue() == want {
					return nil
				}
			}
			return fmt.Errorf("the worker does not see %v sandboxes: %v", want, families[prefix+"sandboxes"])
		}
	}
	series := func() map[string]int {
		counts := map[string]int{}
		for _, p := range []testenv.Program{d.APIs[0], d.Workers[0]} {
			families, err := testenv.Scrape(t.Context(), p)
			require.NoError(t, err)
			for name, family := range families {
				counts[name] += len(family.GetMetric())
			}
		}
		return counts
	}

	use(0, first)
	testenv.Until(t, 10*time.Second, running(first-first/10))
	before := series()
	use(first, all)
	testenv.Until(t, 10*time.Second, running(all-all/10))
	require.Equal(t, before, series())
	for name, n := range before {
		require.Less(t, n, 100, name)
	}
}

// A memoryAPI is as much of an API server as sandboxes need. Its Pods are ready at once.
type memoryAPI struct {
	kubeconfig string

	mu      sync.Mutex
	changed *sync.Cond
	objects map[string]runtime.Object
	events  []watch.Event // of Pods
	closed  bool
}

func newMemoryAPI(t *testing.T) *memoryAPI {
	t.Helper()
	a := &memoryAPI{objects: map[string]runtime.Object{}, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	a.changed = sync.NewCond(&a.mu)
	server := httptest.NewServer(a)
	t.Cleanup(func() {
		a.mu.Lock()
		a.closed = true
		a.mu.Unlock()
		a.changed.Broadcast()
		server.CloseClientConnections()
		server.Close()
	})
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"memory": {Server: server.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"memory": {Cluster: "memory"}},
		CurrentContext: "memory",
	}, a.kubeconfig))
	return a
}

// ServeHTTP implements http.Handler.
func (a *memoryAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // api, v1, namespaces, ns, resource, name
	switch {
	case len(parts) == 4:
		answer(w, http.StatusOK, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: parts[3]}})
	case r.Method == http.MethodPost:
		a.create(w, r)
	case len(parts) == 6:
		a.find(w, r)
	case r.URL.Query().Get("watch") == "true":
		a.watch(w, r)
	case parts[4] == "pods":
		answer(w, http.StatusOK, &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}})
	default:
		answer(w, http.StatusOK, &corev1.ServiceList{})
	}
}

func (a *memoryAPI) create(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	meta := obj.(metav1.Object)
	path := r.URL.Path + "/" + meta.GetName()
	meta.SetUID(types.UID(path))
	meta.SetResourceVersion("1")
	meta.SetCreationTimestamp(metav1.Now())
	if pod, ok := obj.(*corev1.Pod); ok {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	}
	a.mu.Lock()
	a.objects[path] = obj
	a.tell(watch.Added, obj)
	a.mu.Unlock()
	answer(w, http.StatusCreated, obj)
}

func (a *memoryAPI) find(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	obj, found := a.objects[r.URL.Path]
	if !found {
		answer(w, http.StatusNotFound, &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
		return
	}
	if r.Method == http.MethodDelete {
		delete(a.objects, r.URL.Path)
		a.tell(watch.Deleted, obj)
	}
	answer(w, http.StatusOK, obj)
}

// tell tells those who watch of a Pod.
func (a *memoryAPI) tell(kind watch.EventType, obj runtime.Object) {
	if _, ok := obj.(*corev1.Pod); ok {
		a.events = append(a.events, watch.Event{Type: kind, Object: obj})
		a.changed.Broadcast()
	}
}

// watch sends all events from the first one, after the word that there was nothing before it.
func (a *memoryAPI) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	send := func(e watch.Event) {
		_, _ = fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", e.Type, encode(runtime.ContentTypeJSON, e.Object))
	}
	send(watch.Event{Type: watch.Bookmark, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}})
	for sent := 0; ; {
		w.(http.Flusher).Flush()
		a.mu.Lock()
		for sent == len(a.events) && !a.closed {
			a.changed.Wait()
		}
		events, closed := a.events[sent:], a.closed
		a.mu.Unlock()
		if closed || r.Context().Err() != nil {
			return
		}
		for _, e := range events {
			send(e)
		}
		sent += len(events)
	}
}

func answer(w http.ResponseWriter, code int, obj runtime.Object) {
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	w.WriteHeader(code)
	_, _ = w.Write(encode(runtime.ContentTypeProtobuf, obj))
}

// encode is obj as an API server sends it, with its kind.
func encode(mediaType string, obj runtime.Object) []byte {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	content, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), obj.DeepCopyObject())
	if err != nil {
		panic(err)
	}
	return content
}
