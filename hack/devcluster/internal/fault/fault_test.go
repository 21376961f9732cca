package fault_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/hack/devcluster/internal/fault"
)

func pod(image string, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", Annotations: annotations},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "broker", Image: "simulated-fault-oom"}, {Name: "sandbox", Image: image},
		}},
	}
}

func TestTheStrongestSourceDecides(t *testing.T) {
	t.Parallel()
	const image = "registry.example/team/simulated-fault-crash-loop@sha256:0"
	annotated := map[string]string{fault.AnnotationFault: "evicted", fault.AnnotationDelay: "2s"}
	for name, c := range map[string]struct {
		one, every fault.Kind
		pod        *corev1.Pod
		want       fault.Kind
	}{
		"nothing asked for":                        {pod: pod("sandbox:1", nil), want: ""},
		"an image":                                 {pod: pod(image, nil), want: fault.CrashLoop},
		"an annotation goes before an image":       {pod: pod(image, annotated), want: fault.Evicted},
		"the namespace goes before an annotation":  {every: fault.OOM, pod: pod(image, annotated), want: fault.OOM},
		"an order for the pod goes before all":     {one: fault.None, every: fault.OOM, pod: pod(image, annotated), want: fault.None},
		"other containers' images do not count":    {pod: pod("simulated", nil), want: ""},
		"an unknown annotation leaves pod healthy": {pod: pod(image, map[string]string{fault.AnnotationFault: "coffee"}), want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := fault.NewRegistry()
			if c.one != "" {
				registry.Put("ns", "a", fault.Fault{Kind: c.one})
			}
			if c.every != "" {
				registry.Put("ns", fault.Every, fault.Fault{Kind: c.every})
			}
			registry.Put("other", fault.Every, fault.Fault{Kind: fault.NotReady})
			if got, _ := registry.Of(c.pod); got.Kind != c.want {
				t.Errorf("wanted %q, got %q", c.want, got.Kind)
			}
		})
	}
}

func TestTheSameOrderGivenTwiceIsTwoOrders(t *testing.T) {
	t.Parallel()
	registry := fault.NewRegistry()
	registry.Put("ns", "a", fault.Fault{Kind: fault.OOM})
	first, _ := registry.Of(pod("x", nil))
	registry.Put("ns", "a", fault.Fault{Kind: fault.OOM})
	if second, _ := registry.Of(pod("x", nil)); first == second {
		t.Errorf("wanted two different orders, got %+v twice", first)
	}
}

func TestAFaultSurvivesJSON(t *testing.T) {
	t.Parallel()
	want := fault.Fault{Kind: fault.SlowStart, Message: "m", Delay: 2 * time.Second, Duration: time.Minute}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got fault.Fault
	if err := json.Unmarshal(text, &got); err != nil || got != want {
		t.Errorf("wanted %+v, got %+v, error %v from %s", want, got, err, text)
	}
}

func TestAMistakeInAnOrderIsNamed(t *testing.T) {
	t.Parallel()
	for text, names := range map[string]string{
		`{"fault":"coffee"}`:                   `unknown fault "coffee"`,
		`{}`:                                   `unknown fault ""`,
		`{"fault":"oom","delay":"soon"}`:       `delay "soon"`,
		`{"fault":"oom","duration":"-1s"}`:     `duration "-1s"`,
		`{"fault":"coffee","delay":"tomorow"}`: `delay "tomorow"`,
	} {
		var got fault.Fault
		if err := json.Unmarshal([]byte(text), &got); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: wanted an error about %s, got %v", text, names, err)
		}
	}
}
