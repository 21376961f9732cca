package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"sandbox-provisioner/client"
)

const (
	sandboxImage = "e2e-sandbox:1"
	gatewayImage = "e2e-gateway:1"
	gatewayName  = "gateway"

	// stateDir is DeerFlow's state on the node, volumeDir a volume for NATS. Both are gone with the node.
	stateDir  = "/var/lib/deer-flow"
	volumeDir = "/var/lib/volumes/nats"

	// patience is how long anything may take that is not answered at once.
	patience = 60 * time.Second
	poll     = 20 * time.Millisecond
)

// A suite is one run.
type suite struct {
	*report
	ctx  context.Context
	node *node
	kube kubernetes.Interface
	key  string
	// fromInside sends requests from a Pod, provisioner is the product's client there. It repeats nothing.
	fromInside  *http.Client
	provisioner *client.Client
}

func newSuite(ctx context.Context, n *node, r *report) (*suite, error) {
	config, err := clientcmd.BuildConfigFromFlags("", n.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	s := &suite{report: r, ctx: ctx, node: n, kube: kube, key: rand.Text()}
	return s, s.connect(config)
}

func (s *suite) connect(config *rest.Config) error {
	transport, err := newInside(config)
	if err != nil {
		return err
	}
	s.fromInside = &http.Client{Transport: transport, Timeout: 40 * time.Second}
	s.provisioner = client.New(apiURL, s.key, client.WithHTTPClient(s.fromInside), client.WithTries(1),
		client.WithPollInterval(poll))
	return nil
}

// eventually tries until it succeeds or patience ends, and returns the last error.
func (s *suite) eventually(try func() error) error {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", patience, err)
		}
	}
}

// answer is one look at a sandbox.
func (s *suite) answer(from *http.Client, sandbox string) (body string, err error) {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, sandbox+"/v1/sandbox", nil)
	if err != nil {
		return "", err
	}
	res, err := from.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, content)
	}
	return string(content), err
}

// answers waits for the first 200.
func (s *suite) answers(from *http.Client, sandbox string) (body string, err error) {
	err = s.eventually(func() (err error) {
		body, err = s.answer(from, sandbox)
		return err
	})
	return body, err
}

// prepare makes what an operator has before he installs: a volume, DeerFlow's state, a gateway.
func (s *suite) prepare() error {
	dirs := []string{volumeDir, stateDir + "/threads", stateDir + "/skills_view/public"}
	for _, category := range []string{"custom", "legacy"} {
		dirs = append(dirs, stateDir+"/users/default/skills_view/"+category)
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(s.node.Root, dir), 0o755); err != nil {
			return err
		}
	}
	for _, create := range []func() error{s.createVolume, s.createNamespace, s.createGateway} {
		if err := create(); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return s.eventually(func() error {
		pod, err := s.kube.CoreV1().Pods(releaseSpace).Get(s.ctx, gatewayName, metav1.GetOptions{})
		if err == nil && !ready(pod) {
			err = fmt.Errorf("the gateway's Pod is %s", pod.Status.Phase)
		}
		return err
	})
}

func (s *suite) createVolume() error {
	_, err := s.kube.CoreV1().PersistentVolumes().Create(s.ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "nats"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: volumeDir}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpExists}},
			}}}},
		},
	}, metav1.CreateOptions{})
	return err
}

func (s *suite) createNamespace() error {
	_, err := s.kube.CoreV1().Namespaces().Create(s.ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: releaseSpace}}, metav1.CreateOptions{})
	return err
}

func (s *suite) createGateway() error {
	// The namespace's ServiceAccount comes a moment after the namespace.
	err := s.eventually(func() error {
		_, err := s.kube.CoreV1().ServiceAccounts(releaseSpace).Get(s.ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return err
	}
	_, err = s.kube.CoreV1().Pods(releaseSpace).Create(s.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: gatewayName, Labels: map[string]string{
			// Whom the chart's NetworkPolicy lets in.
			"app.kubernetes.io/name": "deer-flow", "app.kubernetes.io/component": "gateway",
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: gatewayName, Image: gatewayImage, ImagePullPolicy: corev1.PullNever,
		}}},
	}, metav1.CreateOptions{})
	return err
}

// showLogs prints what the programs said last, for whoever has to find out why something failed.
func (s *suite) showLogs() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 20*time.Second)
	defer cancel()
	for _, space := range []string{releaseSpace, sandboxSpace} {
		pods, err := s.kube.CoreV1().Pods(space).List(ctx, metav1.ListOptions{})
		if err != nil {
			fmt.Fprintln(os.Stderr, "e2e: cannot list Pods:", err)
			return
		}
		for _, pod := range pods.Items {
			lines := int64(15)
			log, err := s.kube.CoreV1().Pods(space).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: &lines}).DoRaw(ctx)
			fmt.Fprintf(os.Stderr, "--- %s/%s: %s %v\n%s", space, pod.Name, pod.Status.Phase, errors.Join(err, waiting(&pod)), log)
		}
	}
}

// waiting is why containers do not run.
func waiting(pod *corev1.Pod) error {
	var why error
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			why = errors.Join(why, fmt.Errorf("%s: %s %s", c.Name, c.State.Waiting.Reason, c.State.Waiting.Message))
		}
	}
	return why
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}
