// Package fault says which simulated Pod misbehaves, how, and for how long.
package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Kind is a way to misbehave. README.md describes what each does to a Pod.
type Kind string

// The Kinds.
const (
	// None makes a Pod healthy although a weaker source (annotation, image) says otherwise.
	None              Kind = "none"
	ImagePullError    Kind = "image-pull-error"
	Unschedulable     Kind = "unschedulable"
	SlowStart         Kind = "slow-start"
	CrashLoop         Kind = "crash-loop"
	ConfigError       Kind = "config-error"
	HangInTermination Kind = "hang-in-termination"
	Evicted           Kind = "evicted"
	OOM               Kind = "oom"
	Succeeded         Kind = "succeeded"
	NotReady          Kind = "not-ready"
)

// Kinds lists all that can be asked for.
var Kinds = []Kind{
	None, ImagePullError, Unschedulable, SlowStart, CrashLoop, ConfigError, HangInTermination, Evicted, OOM, Succeeded,
	NotReady,
}

// Annotations on a Pod that mean the same as the fields of a Fault.
const (
	AnnotationFault    = "simulated-node/fault"
	AnnotationMessage  = "simulated-node/message"
	AnnotationDelay    = "simulated-node/delay"
	AnnotationDuration = "simulated-node/duration"
)

// imageMarker in the name of the image of the container named sandbox is followed by a Kind.
const imageMarker = "simulated-fault-"

// Container is the name of the container that misbehaves; a Pod without it lets its first one misbehave.
const Container = "sandbox"

// Fault is comparable: two equal ones are the same order given once.
type Fault struct {
	Kind Kind
	// Message replaces the message that the real component would give. Empty: a realistic one.
	Message string
	// Delay is how long the Pod behaves before the fault begins; for SlowStart how much longer the start takes (0: 5 s).
	Delay time.Duration
	// Duration is how long the fault lasts before the Pod proceeds. 0: until cleared.
	Duration time.Duration
	// order tells orders apart that read the same, so that evicting twice evicts twice.
	order uint64
}

// Active reports whether there is anything to simulate.
func (f Fault) Active() bool { return f.Kind != "" && f.Kind != None }

type wire struct {
	Fault    Kind   `json:"fault"`
	Message  string `json:"message,omitempty"`
	Delay    string `json:"delay,omitempty"`
	Duration string `json:"duration,omitempty"`
}

// MarshalJSON writes durations as Go does: "2s".
func (f Fault) MarshalJSON() ([]byte, error) { return json.Marshal(f.wire()) }

func (f Fault) wire() wire {
	w := wire{Fault: f.Kind, Message: f.Message}
	if f.Delay > 0 {
		w.Delay = f.Delay.String()
	}
	if f.Duration > 0 {
		w.Duration = f.Duration.String()
	}
	return w
}

// UnmarshalJSON refuses unknown kinds.
func (f *Fault) UnmarshalJSON(data []byte) error {
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	parsed, err := parse(w)
	if err != nil {
		return err
	}
	*f = parsed
	return nil
}

func parse(w wire) (Fault, error) {
	kind, kindErr := parseKind(w.Fault)
	delay, delayErr := parseDuration("delay", w.Delay)
	duration, durationErr := parseDuration("duration", w.Duration)
	return Fault{Kind: kind, Message: w.Message, Delay: delay, Duration: duration},
		errors.Join(kindErr, delayErr, durationErr)
}

func parseKind(name Kind) (Kind, error) {
	names := make([]string, len(Kinds))
	for i, kind := range Kinds {
		if kind == name {
			return kind, nil
		}
		names[i] = string(kind)
	}
	return "", fmt.Errorf("unknown fault %q, known are %s", name, strings.Join(names, ", "))
}

func parseDuration(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = errors.New("negative")
	}
	if err != nil {
		return 0, fmt.Errorf("%s %q is not a duration such as 2s: %w", field, text, err)
	}
	return d, nil
}

// ofPod returns what the Pod itself asks for, by annotation or else by image.
func ofPod(pod *corev1.Pod) (Fault, error) {
	if name, ok := pod.Annotations[AnnotationFault]; ok {
		return parse(wire{
			Fault: Kind(name), Message: pod.Annotations[AnnotationMessage],
			Delay: pod.Annotations[AnnotationDelay], Duration: pod.Annotations[AnnotationDuration],
		})
	}
	for _, container := range pod.Spec.Containers {
		if container.Name != Container {
			continue
		}
		_, after, found := strings.Cut(container.Image, imageMarker)
		if !found {
			break
		}
		if end := strings.IndexAny(after, ":@/"); end >= 0 {
			after = after[:end]
		}
		return parse(wire{Fault: Kind(after)})
	}
	return Fault{}, nil
}
