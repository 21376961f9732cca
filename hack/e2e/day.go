package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/client"
)

// day is everything, one after the other. An error is what makes the rest pointless.
func (s *suite) day() error {
	say("preparing: a volume, DeerFlow's state, a gateway")
	if err := s.prepare(); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	for _, part := range []struct {
		what string
		do   func() error
	}{
		{"installing the chart", s.installed},
		{"one sandbox, reached by cluster DNS", s.byDNS},
		{"time to the first answer", s.firstAnswer},
		{"deleting", s.deleted},
		{"deleting and creating at once", s.recreated},
		{"killing a worker in the middle of a burst", s.burst},
		{"upgrading under load", s.upgraded},
		{"sandboxes on ports of the node", s.byNodePort},
		{"an old values file, which does not say how sandboxes are reached", s.oldValues},
		{"uninstalling", s.uninstalled},
	} {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		say("%s", part.what)
		if err := part.do(); err != nil {
			return fmt.Errorf("%s: %w", part.what, err)
		}
	}
	return nil
}

func (s *suite) installed() error {
	if err := s.install(s.ctx); err != nil {
		return err
	}
	s.succeeds("the chart is installed, and all its Pods become ready", nil)
	for _, program := range []struct {
		name     string
		replicas int
	}{{"nats", 1}, {"api", apiReplicas}, {"worker", workerReplicas}} {
		pods, err := s.podsOf(program.name)
		if err != nil {
			return err
		}
		s.that(fmt.Sprintf("%s has %d Pods, all ready", program.name, program.replicas),
			len(pods) == program.replicas && all(pods, func(p corev1.Pod) bool { return ready(&p) }), len(pods))
		if program.name == "nats" {
			continue
		}
		account := release + "-sandbox-provisioner-" + program.name
		s.that(program.name+" runs under a ServiceAccount of its own",
			all(pods, func(p corev1.Pod) bool { return p.Spec.ServiceAccountName == account }), pods[0].Spec.ServiceAccountName)
		s.that(program.name+" may read Pods among the sandboxes", s.may(account, "list", sandboxSpace))
		writes := program.name == "worker"
		s.that(fmt.Sprintf("%s may create Pods among the sandboxes: %t", program.name, writes), s.may(account, "create", sandboxSpace) == writes)
		s.that(program.name+" may not create Pods elsewhere", !s.may(account, "create", releaseSpace))
	}
	s.succeeds("the api answers at its Service's name, and reaches NATS and Kubernetes", s.provisioner.Ready(s.ctx))
	return s.policies()
}

func all(pods []corev1.Pod, holds func(corev1.Pod) bool) bool {
	return !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !holds(p) })
}

// policies looks at the NetworkPolicies. What they do is not to be seen here.
func (s *suite) policies() error {
	sandboxes, err := s.kube.NetworkingV1().NetworkPolicies(sandboxSpace).List(s.ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	s.that("there is one NetworkPolicy for all sandboxes, both ways", len(sandboxes.Items) == 1 &&
		len(sandboxes.Items[0].Spec.PolicyTypes) == 2 &&
		sandboxes.Items[0].Spec.PodSelector.MatchLabels["app"] == "deer-flow-sandbox", sandboxes.Items)
	own, err := s.kube.NetworkingV1().NetworkPolicies(releaseSpace).List(s.ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	s.that("NATS has a NetworkPolicy", len(own.Items) == 1, own.Items)
	say("note: this node's network plugin enforces no NetworkPolicy; that they exist is all that is checked")
	return nil
}

// may asks the API server what a ServiceAccount of the release may do with Pods.
func (s *suite) may(account, verb, space string) bool {
	review, err := s.kube.AuthorizationV1().SubjectAccessReviews().Create(s.ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + releaseSpace + ":" + account,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: space, Verb: verb, Resource: "pods"},
		},
	}, metav1.CreateOptions{})
	return err == nil && review.Status.Allowed
}

func (s *suite) podsOf(component string) ([]corev1.Pod, error) {
	pods, err := s.kube.CoreV1().Pods(releaseSpace).List(s.ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/instance=" + release + ",app.kubernetes.io/component=" + component,
	})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

const first = "e2e-first"

func (s *suite) byDNS() error {
	created, err := s.provisioner.Create(s.ctx, client.CreateRequest{SandboxID: first})
	if err != nil {
		return err
	}
	s.that("the URL of a sandbox is a name of cluster DNS",
		created.URL == "http://sandbox-"+first+"-svc."+sandboxSpace+".svc.cluster.local:8080", created)
	body, err := s.answers(s.fromInside, created.URL)
	s.that("a Pod of the cluster gets 200 there, from the sandbox", err == nil && strings.Contains(body, `"sandbox-`+first+`"`), body, err)
	status, err := s.provisioner.WaitReady(s.ctx, first)
	s.that("its status is Running, and ready", err == nil && status.Status == client.Running && status.Ready, status, err)

	service, err := s.kube.CoreV1().Services(sandboxSpace).Get(s.ctx, "sandbox-"+first+"-svc", metav1.GetOptions{})
	if err != nil {
		return err
	}
	s.that("its Service is of the type ClusterIP and has no port of the node",
		service.Spec.Type == corev1.ServiceTypeClusterIP && service.Spec.Ports[0].NodePort == 0, service.Spec)
	open := s.openPorts()
	s.that("all 2,768 ports from 30000 to 32767 of the node are closed", len(open) == 0, open)
	return nil
}

// openPorts tries every port of the node that a Service may get, from outside of it.
func (s *suite) openPorts() []int {
	var mu sync.Mutex
	var open []int
	var trying sync.WaitGroup
	slots := make(chan struct{}, 64)
	for port := 30000; port <= 32767; port++ {
		slots <- struct{}{}
		trying.Go(func() {
			defer func() { <-slots }()
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(s.node.Address, fmt.Sprint(port)), time.Second)
			if err != nil {
				return
			}
			_ = conn.Close()
			mu.Lock()
			defer mu.Unlock()
			open = append(open, port)
		})
	}
	trying.Wait()
	return open
}

func (s *suite) deleted() error {
	created, err := s.provisioner.Get(s.ctx, first)
	if err != nil {
		return err
	}
	s.succeeds("a sandbox is deleted", s.provisioner.Delete(s.ctx, first))
	_, err = s.provisioner.Get(s.ctx, first)
	s.that("it is not found from then on", errors.Is(err, client.ErrNotFound), err)
	s.succeeds("its URL stops answering", s.eventually(func() error {
		if body, err := s.answer(s.fromInside, created.URL); err == nil {
			return fmt.Errorf("it still answers %s", body)
		}
		return nil
	}))
	s.succeeds("its Pod and its Service are gone from the cluster", s.eventually(func() error {
		return s.only(nil)
	}))
	return nil
}

// only wants the Pods and Services of exactly these sandboxes in the cluster.
func (s *suite) only(ids []string) error {
	want := slices.Sorted(slices.Values(ids))
	selector := metav1.ListOptions{LabelSelector: "app=deer-flow-sandbox"}
	pods, err := s.kube.CoreV1().Pods(sandboxSpace).List(s.ctx, selector)
	if err != nil {
		return err
	}
	services, err := s.kube.CoreV1().Services(sandboxSpace).List(s.ctx, selector)
	if err != nil {
		return err
	}
	var ofPods, ofServices []string
	for _, p := range pods.Items {
		ofPods = append(ofPods, p.Labels["sandbox-id"])
	}
	for _, s := range services.Items {
		ofServices = append(ofServices, s.Labels["sandbox-id"])
	}
	slices.Sort(ofPods)
	slices.Sort(ofServices)
	if !slices.Equal(ofPods, want) || !slices.Equal(ofServices, want) {
		return fmt.Errorf("wanted %v, found the Pods %v and the Services %v", want, ofPods, ofServices)
	}
	return nil
}

func (s *suite) recreated() error {
	const id = "e2e-again"
	created, err := s.provisioner.Create(s.ctx, client.CreateRequest{SandboxID: id})
	if err != nil {
		return err
	}
	if _, err := s.answers(s.fromInside, created.URL); err != nil {
		return err
	}
	old, err := s.provisioner.Presence(s.ctx, id)
	if err != nil {
		return err
	}
	if err := s.provisioner.Delete(s.ctx, id); err != nil {
		return err
	}
	again, err := s.provisioner.Create(s.ctx, client.CreateRequest{SandboxID: id})
	s.that("a create right after the delete succeeds", err == nil && again.URL == created.URL, again, err)
	status, err := s.provisioner.WaitReady(s.ctx, id)
	s.that("the new sandbox becomes ready", err == nil && status.Status == client.Running, status, err)
	present, err := s.provisioner.Presence(s.ctx, id)
	s.that("it is a new Pod", err == nil && present.Exists && present.PodUID != old.PodUID, present, err)
	_, err = s.answers(s.fromInside, created.URL)
	s.succeeds("it answers at the same URL", err)
	s.succeeds("nothing of the old one comes in its way", s.eventually(func() error { return s.only([]string{id}) }))
	return s.clear(id)
}

// clear deletes sandboxes and waits until they are gone.
func (s *suite) clear(ids ...string) error {
	for _, id := range ids {
		if err := s.provisioner.Delete(s.ctx, id); err != nil {
			return err
		}
	}
	return s.eventually(func() error { return s.only(nil) })
}

const (
	burstSize = 40
	// kept is what the node has room for.
	kept = 8
)

func (s *suite) burst() error {
	workers, err := s.podsOf("worker")
	if err != nil {
		return err
	}
	var ids []string
	for i := range burstSize {
		ids = append(ids, fmt.Sprintf("e2e-burst-%02d", i))
	}
	var answered atomic.Int32
	half, kill := context.WithCancel(s.ctx)
	defer kill()
	refused := make([]error, burstSize)
	var creating sync.WaitGroup
	for i, id := range ids {
		creating.Go(func() {
			_, refused[i] = s.provisioner.Create(s.ctx, client.CreateRequest{SandboxID: id}, client.Wait(25*time.Second))
			if answered.Add(1) == burstSize/4 {
				kill()
			}
		})
	}
	<-half.Done()
	victim := workers[0].Name
	err = s.kill(&workers[0], "worker")
	atKill := answered.Load()
	s.succeeds("a worker's Pod is killed", err)
	creating.Wait()
	s.succeeds(fmt.Sprintf("all %d creates are answered well, %d of them after the kill", burstSize, burstSize-atKill), errors.Join(refused...))
	s.succeeds("every one has its Pod and its Service", s.eventually(func() error { return s.only(ids) }))
	for _, id := range ids[kept:] {
		if err := s.provisioner.Delete(s.ctx, id); err != nil {
			return err
		}
	}
	s.succeeds("those that are deleted go, and no others", s.eventually(func() error { return s.only(ids[:kept]) }))
	var silent error
	for _, id := range ids[:kept] {
		sandbox, err := s.provisioner.Get(s.ctx, id)
		if err == nil {
			_, err = s.answers(s.fromInside, sandbox.URL)
		}
		silent = errors.Join(silent, err)
	}
	s.succeeds(fmt.Sprintf("the %d that are kept answer at their URLs", kept), silent)
	s.succeeds("another worker has taken the killed one's place", s.eventually(func() error {
		pods, err := s.podsOf("worker")
		if err != nil {
			return err
		}
		if len(pods) != workerReplicas || !all(pods, func(p corev1.Pod) bool { return p.Name != victim && ready(&p) }) {
			return fmt.Errorf("there are %d, or not all are ready", len(pods))
		}
		return nil
	}))
	return s.clear(ids[:kept]...)
}

func (s *suite) upgraded() error {
	const live = "e2e-live"
	before, err := s.podNames()
	if err != nil {
		return err
	}
	created, err := s.provisioner.Create(s.ctx, client.CreateRequest{SandboxID: live})
	if err != nil {
		return err
	}
	if _, err := s.answers(s.fromInside, created.URL); err != nil {
		return err
	}
	load := s.startLoad(live)
	err = s.install(s.ctx, "api.podAnnotations.e2e=upgraded", "worker.podAnnotations.e2e=upgraded")
	gone := s.eventually(func() error {
		now, err := s.podNames()
		if err == nil && slices.ContainsFunc(now, func(name string) bool { return slices.Contains(before, name) }) {
			err = errors.New("old Pods are still there")
		}
		return err
	})
	requests, failures := load.stop()
	s.succeeds("an upgrade that replaces every Pod of api and worker succeeds", errors.Join(err, gone))
	s.that(fmt.Sprintf("none of %d requests fails meanwhile", requests), len(failures) == 0 && requests > 0, len(failures), errors.Join(failures...))
	_, err = s.answer(s.fromInside, created.URL)
	s.succeeds("a sandbox that was there answers as before", err)
	return s.clear(live)
}

func (s *suite) podNames() (names []string, err error) {
	for _, component := range []string{"api", "worker"} {
		pods, err := s.podsOf(component)
		if err != nil {
			return nil, err
		}
		for _, p := range pods {
			names = append(names, p.Name)
		}
	}
	return names, nil
}

func (s *suite) byNodePort() error {
	const id = "e2e-port"
	if err := s.install(s.ctx, "sandboxServiceType=NodePort"); err != nil {
		return err
	}
	s.succeeds("the chart is upgraded to NodePort", nil)
	created, err := s.provisioner.Create(s.ctx, client.CreateRequest{SandboxID: id})
	if err != nil {
		return err
	}
	service, err := s.kube.CoreV1().Services(sandboxSpace).Get(s.ctx, "sandbox-"+id+"-svc", metav1.GetOptions{})
	if err != nil {
		return err
	}
	port := int(service.Spec.Ports[0].NodePort)
	s.that("the URL of a sandbox is the node's address and the port of its Service",
		port >= 30000 && created.URL == fmt.Sprintf("http://%s:%d", s.node.Address, port), created, service.Spec.Ports)
	body, err := s.answers(http.DefaultClient, created.URL)
	s.that("it answers there to somebody outside of the cluster", err == nil && strings.Contains(body, `"sandbox-`+id+`"`), body, err)
	_, err = s.answer(s.fromInside, created.URL)
	s.succeeds("and to a Pod", err)
	open := s.openPorts()
	s.that("no other port of the node is open", slices.Equal(open, []int{port}), open)
	if err := s.clear(id); err != nil {
		return err
	}
	s.succeeds("when it is deleted, the port closes", s.eventually(func() error {
		if open := s.openPorts(); len(open) > 0 {
			return fmt.Errorf("open: %v", open)
		}
		return nil
	}))
	return nil
}

func (s *suite) oldValues() error {
	const id = "e2e-old"
	if err := s.install(s.ctx, "sandboxServiceType="); err != nil {
		return err
	}
	created, err := s.provisioner.Create(s.ctx, client.CreateRequest{SandboxID: id})
	if err != nil {
		return err
	}
	s.that("sandboxes are reached by cluster DNS again", strings.Contains(created.URL, ".svc.cluster.local:"), created)
	_, err = s.answers(s.fromInside, created.URL)
	s.succeeds("there they answer", err)
	return s.clear(id)
}

func (s *suite) uninstalled() error {
	if err := s.helm(s.ctx, "uninstall", release, "--wait", "--timeout", "2m"); err != nil {
		return err
	}
	s.succeeds("the chart is uninstalled, and its Pods are gone", s.eventually(func() error {
		pods, err := s.kube.CoreV1().Pods(releaseSpace).List(s.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + release})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d Pods are left", len(pods.Items))
		}
		return err
	}))
	_, err := s.kube.CoreV1().Namespaces().Get(s.ctx, sandboxSpace, metav1.GetOptions{})
	s.that("the namespace of the sandboxes stays", !apierrors.IsNotFound(err), err)
	return nil
}
