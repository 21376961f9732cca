// Package faults_test breaks what the programs stand on, and looks whether they keep their promises.
package faults_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"sandbox-provisioner/internal/sandbox"
	"sandbox-provisioner/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// inParallel calls do for 0 to n-1, up to limit at once, and returns when all calls have.
func inParallel(n, limit int, do func(i int)) {
	slots := make(chan struct{}, limit)
	var running sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	running.Wait()
}

// living is the ids of the Pods and of the Services in a namespace, with their UIDs. Those that are being deleted do not
// count, but for a Service, which goes at once.
func living[P testenv.Program](d *testenv.Deployment[P]) (pods, services map[string]string) {
	pods, services = map[string]string{}, map[string]string{}
	for _, pod := range d.Pods() {
		if pod.DeletionTimestamp == nil {
			pods[pod.Labels[sandbox.LabelID]] = string(pod.UID)
		}
	}
	for _, service := range d.Services() {
		services[service.Labels[sandbox.LabelID]] = string(service.UID)
	}
	return pods, services
}

// waitUntilBoth waits until each of ids has a Pod and a Service.
func waitUntilBoth[P testenv.Program](t *testing.T, d *testenv.Deployment[P], ids []string, within time.Duration) {
	t.Helper()
	testenv.Until(t, within, func() error {
		pods, services := living(d)
		for _, id := range ids {
			if pods[id] == "" || services[id] == "" {
				return fmt.Errorf("%s is not there; %d Pods and %d Services of %d are", id, len(pods), len(services), len(ids))
			}
		}
		return nil
	})
}

// waitUntilHit waits until a rule has met n requests.
func waitUntilHit(t *testing.T, rule *testenv.Rule, n int) {
	t.Helper()
	testenv.Until(t, 10*time.Second, func() error {
		if hits := rule.Hits(); hits < n {
			return fmt.Errorf("%d requests of %d have come", hits, n)
		}
		return nil
	})
}

// waitUntilAnswered repeats a request until it gets one of the codes.
func waitUntilAnswered(t *testing.T, within time.Duration, ask func() testenv.Response, code int) testenv.Response {
	t.Helper()
	var r testenv.Response
	testenv.Until(t, within, func() error {
		if r = ask(); r.Code != code {
			return errors.New(r.String())
		}
		return nil
	})
	return r
}

func names(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(prefix, "-", i)
	}
	return ids
}
