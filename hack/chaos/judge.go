package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sandbox-provisioner/internal/jobs"
	"sandbox-provisioner/internal/sandbox"
)

// A holding is what the cluster has of one id.
type holding struct {
	uids     []string // of living Pods
	services int
}

// A job is how the newest one of an id has ended; empty when none is known.
type job struct {
	op     jobs.Op
	state  jobs.State
	reason sandbox.Reason
}

// settleWait is how long a worker that was overtaken may take to take back what it wrote, when every job has ended.
const settleWait = 5 * ackWait

// judge waits until every job has ended, and holds the cluster against the history.
func judge(ctx context.Context, p *plant, b *book) error {
	ended, err := quiet(ctx, p, b)
	if err != nil {
		return err
	}
	var found map[string]*holding
	settled := func() bool {
		if found, err = survey(ctx, p, b); err != nil {
			return false
		}
		for _, r := range b.records {
			if kind, _ := verdict(r, found[r.id], ended[r.id]); kind != none {
				return false
			}
		}
		return true
	}
	_ = until(ctx, settleWait, "the cluster settles", settled) // what has not settled is a breach
	if err != nil {
		return fmt.Errorf("look at the cluster: %w", err)
	}
	certain, failed := 0, map[sandbox.Reason]int{}
	for _, r := range b.records {
		h, j := found[r.id], ended[r.id]
		r.log.write(time.Now(), fmt.Sprintf("in the end: Pods %v, %d Services, job %v", h.uids, h.services, j))
		kind, text := verdict(r, h, j)
		if promised := r.held(); promised != nil && len(h.uids) < 2 {
			if k, t := r.sighted(promised, strings.Join(h.uids, ""), time.Now()); k != none {
				kind, text = k, t
			}
		}
		b.report(p, r, kind, text)
		if _, ok := r.expected(); ok {
			certain++
		}
		if j.state == jobs.Failed {
			failed[j.reason]++
		}
	}
	fmt.Printf("chaos: %d ids looked at, what %d of them must be is certain from the answers alone; jobs failed: %v\n", ids, certain, failed)
	return nil
}

// verdict holds what the cluster has of an id against the answers, and against its newest job.
func verdict(r *record, h *holding, j job) (breach, string) {
	pods := len(h.uids)
	present, certain := r.expected()
	carriedOut := j.state == jobs.Succeeded
	switch {
	case pods > 1 || h.services > 1:
		return duplicated, fmt.Sprintf("%d Pods and %d Services", pods, h.services)
	case pods != h.services:
		return orphaned, fmt.Sprintf("%d Pods and %d Services", pods, h.services)
	case pods > 0 && r.isDoomed(h.uids[0]):
		return lost, "a delete was accepted, and its Pod is there: " + h.uids[0]
	case pods > 0 && certain && !present:
		return resurrected, "it was deleted last, and is there"
	case pods == 0 && certain && present && j.state != jobs.Failed:
		return lost, "it was created last, and is not there"
	case pods > 0 && carriedOut && j.op == jobs.Absent:
		return resurrected, "its newest job, a delete, has succeeded, and it is there"
	case pods == 0 && carriedOut && j.op == jobs.Present:
		return lost, "its newest job, a create, has succeeded, and it is not there"
	}
	return none, ""
}

// survey reads what the cluster has, past the product.
func survey(ctx context.Context, p *plant, b *book) (map[string]*holding, error) {
	found := map[string]*holding{}
	for _, r := range b.records {
		found[r.id] = &holding{}
	}
	pods, err := p.core.Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	services, err := p.core.Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if h := found[pods.Items[i].Labels[sandbox.LabelID]]; h != nil && alive(&pods.Items[i]) {
			h.uids = append(h.uids, string(pods.Items[i].UID))
		}
	}
	for i := range services.Items {
		if h := found[services.Items[i].Labels[sandbox.LabelID]]; h != nil && services.Items[i].DeletionTimestamp == nil {
			h.services++
		}
	}
	return found, nil
}

// quietWait is how long all jobs may take to end once all faults have. A retry may be RETRY_MAX away.
const quietWait = 3 * time.Minute

// quiet waits until no job is left, and returns how each ended.
func quiet(ctx context.Context, p *plant, b *book) (map[string]job, error) {
	ended := map[string]job{}
	c := &http.Client{Timeout: 10 * time.Second}
	err := until(ctx, quietWait, "all jobs have ended", func() bool {
		for i, r := range b.records {
			if _, ok := ended[r.id]; ok {
				continue
			}
			a := send(c, http.MethodGet, p.urls[i%apis]+"/api/sandboxes/"+r.id+"/job", "", "")
			state := jobs.State(a.body.State)
			if a.code == http.StatusNotFound || state == jobs.Succeeded || state == jobs.Failed {
				ended[r.id] = job{jobs.Op(a.body.Op), state, sandbox.Reason(a.body.Reason)}
			}
		}
		return len(ended) == len(b.records)
	})
	if err == nil || ctx.Err() != nil {
		return ended, err
	}
	for _, r := range b.records {
		if _, ok := ended[r.id]; !ok {
			b.report(p, r, lost, "its job has not ended "+quietWait.String()+" after the last fault")
		}
	}
	return ended, nil
}
