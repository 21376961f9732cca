package census

import (
	"github.com/prometheus/client_golang/prometheus"

	"sandbox-provisioner/internal/k8s"
	"sandbox-provisioner/internal/sandbox"
)

var (
	sandboxes = prometheus.NewDesc("sandbox_provisioner_sandboxes",
		"Pods of sandboxes by phase. Every worker sees all of them. Absent while the cluster cannot be watched.", []string{"phase"}, nil)
	notReady = prometheus.NewDesc("sandbox_provisioner_sandboxes_not_ready",
		"Pods of sandboxes that are not ready and not being deleted, by reason. Absent while the cluster cannot be watched.",
		[]string{"reason"}, nil)
)

const terminating = "Terminating"

// phases are all values of the label.
var phases = []string{
	string(sandbox.Pending), string(sandbox.Running), string(sandbox.Succeeded), string(sandbox.Failed), string(sandbox.Unknown),
	terminating,
}

// Reasons that are not a word of Kubernetes.
const (
	creating = "ContainerCreating" // nothing is wrong yet
	other    = "Other"
)

// reasons are all values of the label: Kubernetes, and whoever writes a Pod's status, may use any word.
var reasons = []string{
	creating, "ContainersNotReady", "Unschedulable", "ImagePullBackOff", "ErrImagePull", "InvalidImageName",
	"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff", "OOMKilled", "Error", "Evicted",
	other,
}

// counts are the metrics of what exists. They are counted when somebody asks.
type counts struct{ *Census }

// Describe implements prometheus.Collector.
func (counts) Describe(out chan<- *prometheus.Desc) {
	out <- sandboxes
	out <- notReady
}

// Collect implements prometheus.Collector.
func (c counts) Collect(out chan<- prometheus.Metric) {
	byPhase, byReason, known := c.count()
	if !known {
		return
	}
	for phase, n := range byPhase {
		out <- prometheus.MustNewConstMetric(sandboxes, prometheus.GaugeValue, float64(n), phase)
	}
	for reason, n := range byReason {
		out <- prometheus.MustNewConstMetric(notReady, prometheus.GaugeValue, float64(n), reason)
	}
}

func (c counts) count() (byPhase, byReason map[string]int, known bool) {
	byPhase, byReason = zeros(phases), zeros(reasons)
	c.mu.Lock()
	defer c.mu.Unlock()
	count := func(s k8s.Standing) {
		if s.Terminating {
			byPhase[terminating]++
			return
		}
		byPhase[among(byPhase, string(s.Phase), string(sandbox.Unknown))]++
		if !s.Ready {
			byReason[among(byReason, word(s), other)]++
		}
	}
	for _, r := range c.pods {
		count(r.Standing)
	}
	for _, s := range c.others {
		count(s)
	}
	return byPhase, byReason, c.known && c.others != nil && c.now().Sub(c.othersAt) <= othersAge
}

func zeros(keys []string) map[string]int {
	counts := make(map[string]int, len(keys))
	for _, key := range keys {
		counts[key] = 0
	}
	return counts
}

// among is value if it is one of those that are counted, else otherwise.
func among(counted map[string]int, value, otherwise string) string {
	if _, known := counted[value]; known {
		return value
	}
	return otherwise
}

// word is the reason that is counted in place of one that says the same.
func word(s k8s.Standing) string {
	switch {
	case s.Reason == "" && (s.Phase == sandbox.Failed || s.Phase == sandbox.Succeeded):
		return other
	case s.Reason == "", s.Reason == "PodInitializing", s.Reason == "ContainersNotInitialized":
		return creating
	}
	return s.Reason
}
