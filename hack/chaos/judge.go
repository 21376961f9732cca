package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A verdict counts the promises that were broken.
type verdict struct{ lost, resurrected, duplicated, orphaned int }

// judge waits until every job has ended, and holds the cluster against the history.
func judge(ctx context.Context, p *plant, h *history) (verdict, error) {
	jobs, err := quiet(ctx, p, h)
	if err != nil {
		return verdict{}, err
	}
	pods, err := p.core.Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return verdict{}, err
	}
	services, err := p.core.Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return verdict{}, err
	}
	uids, servicesOf := map[string][]string{}, map[string]int{}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.DeletionTimestamp == nil {
			uids[pod.Labels["sandbox-id"]] = append(uids[pod.Labels["sandbox-id"]], string(pod.UID))
		}
	}
	for i := range services.Items {
		servicesOf[services.Items[i].Labels["sandbox-id"]]++
	}
	var v verdict
	for _, r := range h.ids {
		violated := func(count *int, format string, args ...any) {
			*count++
			fmt.Printf("VIOLATION %s: %s; job %s\n%s\n", r.id, fmt.Sprintf(format, args...), jobs[r.id], r.history())
		}
		pod, service := len(uids[r.id]), servicesOf[r.id]
		switch {
		case pod > 1 || service > 1:
			violated(&v.duplicated, "%d Pods and %d Services", pod, service)
		case pod != service:
			violated(&v.orphaned, "%d Pods and %d Services", pod, service)
		case r.state == absent && pod > 0:
			violated(&v.resurrected, "it was deleted, and is there")
		case r.state == present && pod == 0 && !strings.HasPrefix(jobs[r.id], "failed"):
			violated(&v.lost, "it was created, and is not there")
		case r.uid != "" && pod > 0 && uids[r.id][0] != r.uid:
			h.friendly.Add(1)
			fmt.Printf("VIOLATION %s: %s was promised, %s is there\n%s\n", r.id, r.uid, uids[r.id][0], r.history())
		}
	}
	return v, nil
}

// quiet waits until no job is left, and returns how each ended.
func quiet(ctx context.Context, p *plant, h *history) (map[string]string, error) {
	ended := map[string]string{}
	c := &http.Client{Timeout: 10 * time.Second}
	deadline := time.Now().Add(3 * time.Minute)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		for _, r := range h.ids {
			if ended[r.id] != "" {
				continue
			}
			a := send(c, request{method: http.MethodGet, url: p.urls[0] + "/api/sandboxes/" + r.id + "/job"})
			if a.code == http.StatusNotFound || a.body.State == "succeeded" || a.body.State == "failed" {
				ended[r.id] = a.body.State + " (asked for the last time)"
			}
		}
		if len(ended) == len(h.ids) {
			// A worker that has been overtaken may still be taking back what it wrote.
			pause(ctx, 2*ackWait)
			return ended, nil
		}
		pause(ctx, 500*time.Millisecond)
	}
	return nil, errors.New("jobs are left after three quiet minutes")
}
