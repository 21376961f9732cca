package k8s

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"sandbox-provisioner/internal/sandbox"
)

const (
	sandboxContainer = "sandbox"
	// capacityEnv tells the image how many shell sessions to allow, and us how many it allows.
	capacityEnv = "MAX_SHELL_SESSIONS"
	// probePath answers 200 once the sandbox serves; the gateway polls the same one.
	probePath = "/v1/sandbox"
)

// Resources of the sandbox container, parsed once.
var (
	requestedCPU     = resource.MustParse("100m")
	requestedMemory  = resource.MustParse("256Mi")
	limitedCPU       = resource.MustParse("1000m")
	limitedMemory    = resource.MustParse("1Gi")
	ephemeralStorage = resource.MustParse("500Mi")
)

// Pod is the Pod of id, stamped with the generation of the intent that makes it. It depends on the arguments and the
// settings only, which must be valid, and shares no memory with them.
func (s Settings) Pod(id string, spec sandbox.Spec, gen sandbox.Generation) *corev1.Pod {
	st := s.storage(spec)
	pattern := s.pattern(spec)
	containers := []corev1.Container{s.sandbox(spec, pattern, st.sandbox)}
	if pattern == larkBroker {
		containers = append(containers, s.broker(st.broker))
	}
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: sandbox.Pod},
		ObjectMeta: s.meta(sandbox.PodName(id), id, gen),
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: new(int64(s.TerminationGracePeriod / time.Second)),
			AutomountServiceAccountToken:  new(s.AutomountServiceAccountToken),
			EnableServiceLinks:            new(s.EnableServiceLinks),
			SecurityContext: &corev1.PodSecurityContext{
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileType(s.SeccompProfile)},
			},
			InitContainers: s.larkInit(pattern),
			Containers:     containers,
			Volumes:        st.volumes,
		},
	}
}

func (s Settings) sandbox(spec sandbox.Spec, pattern larkPattern, mounts []corev1.VolumeMount) corev1.Container {
	var env []corev1.EnvVar
	if spec.MaxShellSessions > 0 {
		env = append(env, corev1.EnvVar{Name: capacityEnv, Value: strconv.Itoa(spec.MaxShellSessions)})
	}
	if pattern == larkBroker {
		env = append(env, corev1.EnvVar{Name: "DEERFLOW_LARK_BROKER_URL", Value: brokerURL})
	}
	return corev1.Container{
		Name:            sandboxContainer,
		Image:           s.Image,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Ports:           []corev1.ContainerPort{{Name: portName, ContainerPort: s.Port, Protocol: corev1.ProtocolTCP}},
		Env:             env,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:              requestedCPU,
				corev1.ResourceMemory:           requestedMemory,
				corev1.ResourceEphemeralStorage: ephemeralStorage,
			},
			Limits: corev1.ResourceList{
				corev1.ResourceCPU:              limitedCPU,
				corev1.ResourceMemory:           limitedMemory,
				corev1.ResourceEphemeralStorage: ephemeralStorage,
			},
		},
		VolumeMounts: mounts,
		// The startup probe makes a sandbox ready within a second of serving, and gives a cold image two minutes before the
		// container is restarted. The other two, which wait for it, are those of DeerFlow's own provisioner without their
		// initial delays.
		StartupProbe:   s.probe(1, 1, 120),
		ReadinessProbe: s.probe(5, 3, 3),
		LivenessProbe:  s.probe(10, 3, 3),
		SecurityContext: &corev1.SecurityContext{
			Privileged:               new(false),
			AllowPrivilegeEscalation: new(s.AllowPrivilegeEscalation),
		},
	}
}

// probe has its period and its timeout in seconds.
func (s Settings) probe(period, timeout, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: probePath, Port: intstr.FromInt32(s.Port)},
		},
		PeriodSeconds:    period,
		TimeoutSeconds:   timeout,
		FailureThreshold: failures,
	}
}

// Capacity is the number of shell sessions of a Pod, whoever made it. It is an error when that cannot be told.
func Capacity(pod *corev1.Pod) (int, error) {
	c := container(pod, sandboxContainer)
	if c == nil {
		return 0, fmt.Errorf("pod %s has no container named %q, so its capacity is unknown", pod.Name, sandboxContainer)
	}
	// Of several variables of one name the last one counts.
	for i := len(c.Env) - 1; i >= 0; i-- {
		if c.Env[i].Name != capacityEnv {
			continue
		}
		n, err := strconv.Atoi(c.Env[i].Value)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("pod %s has %s=%q, which is no capacity", pod.Name, capacityEnv, c.Env[i].Value)
		}
		return n, nil
	}
	return sandbox.DefaultCapacity, nil
}

// container is the container of that name; nil when there is none.
func container(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}
