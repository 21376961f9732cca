package node

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sandbox-provisioner/hack/devcluster/internal/fault"
)

// want is what a Pod should look like. The container concerned is the misbehaving one; the others follow from it.
type want struct {
	phase           corev1.PodPhase
	reason, message string
	container       containerWant
	// event is written when the container enters the state that the event is about.
	event *event
}

// containerWant holds exactly one of waiting, running and ended.
type containerWant struct {
	waiting *corev1.ContainerStateWaiting
	running bool
	ended   *exit

	ready bool
	// restarts overrides the count that follows from what the container did before.
	restarts *int32
	// last is how the run before this one ended; nil keeps what is known.
	last *exit
}

// exit is the end of a container.
type exit struct {
	reason string
	code   int32
}

const (
	slowStart = 5 * time.Second

	// Real back-offs start at 10 s. These are shorter, so that a test sees several rounds.
	pullAttempt     = 400 * time.Millisecond
	pullBackOff     = time.Second
	maxPullBackOff  = 20 * time.Second
	crashRun        = 200 * time.Millisecond
	crashBackOff    = time.Second
	maxCrashBackOff = 20 * time.Second
	oomRestart      = 500 * time.Millisecond
)

var healthy = want{phase: corev1.PodRunning, container: containerWant{running: true, ready: true}}

// plan says what a bound, living Pod should look like now (nil: as it is), and when to ask again (0: when something
// changes).
func (n *Node) plan(pod *corev1.Pod, known *memory, now time.Time) (*want, time.Duration) {
	f := known.fault
	begin := known.boundAt.Add(n.cfg.ReadyDelay)
	if f.Kind == fault.SlowStart {
		begin = begin.Add(max(f.Delay, 0))
		if f.Delay == 0 {
			begin = begin.Add(slowStart)
		}
	}
	started := hasStarted(misbehavingStatus(pod))
	anchor := later(begin, known.startedAt)
	if hindersStart(f.Kind) {
		anchor = known.boundAt
	}
	elapsed := now.Sub(later(anchor, known.faultAt)) - f.Delay
	if !started && !hindersStart(f.Kind) && f.Delay > 0 {
		elapsed = -f.Delay // it counts from when the Pod runs, and a busy machine may be late with that
	}

	switch {
	case !shapesStatus(f.Kind) || (f.Duration > 0 && elapsed >= f.Duration):
		if left := begin.Sub(now); !started && left > 0 {
			return nil, left
		}
		return &healthy, 0
	case hindersStart(f.Kind) && elapsed < 0 && !started:
		return nil, -elapsed
	case !hindersStart(f.Kind) && !started && now.Before(begin):
		return nil, begin.Sub(now)
	case elapsed < 0:
		return &healthy, -elapsed
	}
	result, again := misbehave(pod, known, elapsed, started)
	if left := f.Duration - elapsed; f.Duration > 0 && (again == 0 || left < again) {
		again = left
	}
	return &result, again
}

func misbehave(pod *corev1.Pod, known *memory, elapsed time.Duration, started bool) (want, time.Duration) {
	f, name := known.fault, misbehaving(pod).Name
	message := func(realistic string) string {
		if f.Message != "" {
			return f.Message
		}
		return realistic
	}
	crashed := func(restarts int32, why exit, c containerWant) want {
		restarts += known.restarts
		c.restarts, c.last = &restarts, &why
		return want{phase: corev1.PodRunning, container: c}
	}

	switch f.Kind {
	case fault.ImagePullError:
		return pullFails(misbehaving(pod).Image, message, elapsed, started)
	case fault.ConfigError:
		text := message(`configmap "` + name + `-config" not found`)
		return neverStarts("CreateContainerConfigError", text, started,
			event{reason: "Failed", message: "Error: " + text, from: kubelet}), 0
	case fault.CrashLoop:
		count, inBackOff, left := crashes(elapsed)
		if !inBackOff && count == 0 {
			return want{phase: corev1.PodRunning, container: containerWant{running: true}}, left
		}
		if !inBackOff {
			return crashed(count, exit{"Error", 1}, containerWant{running: true}), left
		}
		text := message(fmt.Sprintf("back-off restarting failed container=%s pod=%s_%s(%s)",
			name, pod.Name, pod.Namespace, pod.UID))
		result := crashed(count, exit{"Error", 1}, waits("CrashLoopBackOff", text))
		result.event = &event{reason: "BackOff", message: strings.ToUpper(text[:1]) + text[1:], from: kubelet}
		return result, left
	case fault.OOM:
		killed := exit{"OOMKilled", 137}
		if elapsed < oomRestart {
			return want{phase: corev1.PodRunning, container: containerWant{ended: &killed}}, oomRestart - elapsed
		}
		return crashed(1, killed, containerWant{running: true, ready: true}), 0
	case fault.Evicted:
		text := message("The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 512Mi. ")
		return want{
			phase: corev1.PodFailed, reason: "Evicted", message: text,
			container: containerWant{ended: &exit{"Error", 137}},
			event:     &event{reason: "Evicted", message: text, from: kubelet},
		}, 0
	case fault.Succeeded:
		return want{
			phase: corev1.PodSucceeded, message: f.Message, container: containerWant{ended: &exit{"Completed", 0}},
		}, 0
	case fault.NotReady:
		return want{phase: corev1.PodRunning, container: containerWant{running: true}}, 0
	default:
		return healthy, 0
	}
}

// pullFails alternates between a failed attempt and a back-off that doubles, as the kubelet does.
func pullFails(image string, message func(string) string, elapsed time.Duration, started bool) (want, time.Duration) {
	failure := message(fmt.Sprintf("failed to pull and unpack image %q: failed to resolve reference %q: %s: not found",
		image, image, image))
	for backOff := pullBackOff; ; backOff = min(2*backOff, maxPullBackOff) {
		if elapsed < pullAttempt {
			return neverStarts("ErrImagePull", failure, started, event{
				reason: "Failed", message: fmt.Sprintf("Failed to pull image %q: %s", image, failure), from: kubelet,
			}), pullAttempt - elapsed
		}
		if elapsed -= pullAttempt; elapsed < backOff {
			text := fmt.Sprintf("Back-off pulling image %q", image)
			return neverStarts("ImagePullBackOff", text+": ErrImagePull: "+failure, started,
				event{reason: "BackOff", message: text, from: kubelet}), backOff - elapsed
		}
		elapsed -= backOff
	}
}

// crashes says how often the container has been restarted and whether it now waits for the next start. The first
// restart comes at once, later ones after a back-off that doubles.
func crashes(elapsed time.Duration) (restarts int32, inBackOff bool, left time.Duration) {
	for backOff := time.Duration(0); ; restarts++ {
		if elapsed < crashRun {
			return restarts, false, crashRun - elapsed
		}
		if elapsed -= crashRun; elapsed < backOff {
			return restarts, true, backOff - elapsed
		}
		elapsed -= backOff
		backOff = min(max(2*backOff, crashBackOff), maxCrashBackOff)
	}
}

// neverStarts is a container that waits for its start, or, if it ran before the fault came, for a restart.
func neverStarts(reason, message string, started bool, e event) want {
	w := want{phase: corev1.PodPending, container: waits(reason, message), event: &e}
	if started {
		w.phase, w.container.last = corev1.PodRunning, &exit{"Error", 137}
	}
	return w
}

func waits(reason, message string) containerWant {
	return containerWant{waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// hindersStart: the container never starts.
func hindersStart(kind fault.Kind) bool {
	return kind == fault.ImagePullError || kind == fault.ConfigError
}

// shapesStatus: the fault shows in the status of a bound, living Pod. The others only change times.
func shapesStatus(kind fault.Kind) bool {
	switch kind {
	case "", fault.None, fault.SlowStart, fault.Unschedulable, fault.HangInTermination:
		return false
	default:
		return true
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
