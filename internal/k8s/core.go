package k8s

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
)

// The kinds of the core API, and how they are written. client-go's typed client of the core API would do, but with it comes its
// scheme of all kinds of all APIs: 9 MB of every program.
var (
	scheme     = newScheme()
	codecs     = serializer.NewCodecFactory(scheme)
	parameters = runtime.NewParameterCodec(scheme)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	return s
}

// Core is the client of the kinds that are used here. It is safe for concurrent use.
type Core struct{ rest rest.Interface }

// NewCore connects to the core API. Make one per process: it owns the connections.
func NewCore(cfg *rest.Config) (*Core, error) {
	config := rest.CopyConfig(cfg)
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(scheme, codecs).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client: %w", err)
	}
	return &Core{client}, nil
}

// Pods is the client of the Pods of a namespace.
func (c *Core) Pods(namespace string) *gentype.ClientWithList[*corev1.Pod, *corev1.PodList] {
	return gentype.NewClientWithList("pods", c.rest, parameters, namespace,
		func() *corev1.Pod { return &corev1.Pod{} }, func() *corev1.PodList { return &corev1.PodList{} },
		gentype.PrefersProtobuf[*corev1.Pod]())
}

// listPodsOnce lists Pods in one request: by itself client-go repeats a GET whose connection broke, once a second.
func (c *Core) listPodsOnce(ctx context.Context, namespace string, opts metav1.ListOptions) (*corev1.PodList, error) {
	list := &corev1.PodList{}
	err := c.rest.Get().UseProtobufAsDefault().Namespace(namespace).Resource("pods").VersionedParams(&opts, parameters).MaxRetries(0).
		Do(ctx).Into(list)
	return list, err
}

// Services is the client of the Services of a namespace.
func (c *Core) Services(namespace string) *gentype.ClientWithList[*corev1.Service, *corev1.ServiceList] {
	return gentype.NewClientWithList("services", c.rest, parameters, namespace,
		func() *corev1.Service { return &corev1.Service{} }, func() *corev1.ServiceList { return &corev1.ServiceList{} },
		gentype.PrefersProtobuf[*corev1.Service]())
}

// Events is the client of the events of a namespace.
func (c *Core) Events(namespace string) *gentype.ClientWithList[*corev1.Event, *corev1.EventList] {
	return gentype.NewClientWithList("events", c.rest, parameters, namespace,
		func() *corev1.Event { return &corev1.Event{} }, func() *corev1.EventList { return &corev1.EventList{} },
		gentype.PrefersProtobuf[*corev1.Event]())
}

// Namespaces is the client of the namespaces.
func (c *Core) Namespaces() *gentype.Client[*corev1.Namespace] {
	return gentype.NewClient("namespaces", c.rest, parameters, "",
		func() *corev1.Namespace { return &corev1.Namespace{} }, gentype.PrefersProtobuf[*corev1.Namespace]())
}
