package k8s

import (
	corev1 "k8s.io/api/core/v1"

	"sandbox-provisioner/internal/sandbox"
)

// brokerContainer holds the credentials of pattern B.
const brokerContainer = "lark-cli-broker"

const (
	larkRuntimeVolume = "lark-cli-runtime"
	larkRuntimeEnv    = "LARK_CLI_RUNTIME_DEST"

	brokerConfigPath = "/var/lark/config"
	brokerLocksPath  = brokerConfigPath + "/locks"
	brokerDataPath   = "/var/lark/data"
	brokerURL        = "http://127.0.0.1:8788"
)

// A larkPattern is a way in which a sandbox gets the Lark command line.
type larkPattern int

const (
	larkNone    larkPattern = iota
	larkRuntime             // pattern A: the command line itself, with the credentials in the sandbox
	larkBroker              // pattern B: a shim that asks the broker, which keeps the credentials to itself
)

func (s Settings) pattern(spec sandbox.Spec) larkPattern {
	switch {
	case spec.LarkBroker && s.LarkBrokerImage != "":
		return larkBroker
	case spec.LarkRuntime && s.LarkInitImage != "":
		return larkRuntime
	}
	return larkNone
}

// HasBroker tells whether the Pod carries the broker of pattern B.
func HasBroker(pod *corev1.Pod) bool { return container(pod, brokerContainer) != nil }

func isCredential(containerPath string) bool {
	switch containerPath {
	case sandbox.LarkConfigPath, sandbox.LarkLocksPath, sandbox.LarkDataPath:
		return true
	}
	return false
}

// addLark adds the runtime, which the init container fills, and with pattern B the credentials that were sent.
func (s Settings) addLark(st *storage, spec sandbox.Spec, credentials []extra) {
	pattern := s.pattern(spec)
	if pattern == larkNone {
		return
	}
	st.volumes = append(st.volumes, corev1.Volume{
		Name: larkRuntimeVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
	})
	st.sandbox = append(st.sandbox, corev1.VolumeMount{
		Name: larkRuntimeVolume, MountPath: sandbox.LarkRuntimePath, ReadOnly: true,
	})
	if pattern != larkBroker {
		return
	}
	// The config is mounted before the locks, which lie inside it.
	for _, place := range [...]struct{ name, from, at string }{
		{"lark-cli-config", sandbox.LarkConfigPath, brokerConfigPath},
		{"lark-cli-locks", sandbox.LarkLocksPath, brokerLocksPath},
		{"lark-cli-data", sandbox.LarkDataPath, brokerDataPath},
	} {
		for _, e := range credentials {
			if e.at == place.from {
				st.volumes = append(st.volumes, s.extraVolume(place.name, e))
				st.broker = append(st.broker, s.extraMount(place.name, place.at, e))
			}
		}
	}
}

// larkInit is the container that fills the runtime before the sandbox starts; none without a pattern.
func (s Settings) larkInit(pattern larkPattern) []corev1.Container {
	init := corev1.Container{
		ImagePullPolicy: corev1.PullIfNotPresent,
		Env:             []corev1.EnvVar{{Name: larkRuntimeEnv, Value: sandbox.LarkRuntimePath}},
		VolumeMounts:    []corev1.VolumeMount{{Name: larkRuntimeVolume, MountPath: sandbox.LarkRuntimePath}},
		SecurityContext: confined(),
	}
	switch pattern {
	case larkRuntime:
		init.Name, init.Image = "lark-cli-init", s.LarkInitImage
	case larkBroker:
		init.Name, init.Image = "lark-cli-shim-init", s.LarkBrokerImage
		init.Args = []string{"install-shim", sandbox.LarkRuntimePath}
	default:
		return nil
	}
	return []corev1.Container{init}
}

// broker is the sidecar of pattern B.
func (s Settings) broker(mounts []corev1.VolumeMount) corev1.Container {
	env := []corev1.EnvVar{
		{Name: "LARKSUITE_CLI_CONFIG_DIR", Value: brokerConfigPath},
		{Name: "LARKSUITE_CLI_DATA_DIR", Value: brokerDataPath},
	}
	if s.LarkDenySubcommands != "" {
		env = append(env, corev1.EnvVar{Name: "DEERFLOW_LARK_BROKER_DENY_SUBCOMMANDS", Value: s.LarkDenySubcommands})
	}
	return corev1.Container{
		Name:            brokerContainer,
		Image:           s.LarkBrokerImage,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args:            []string{"serve"},
		Env:             env,
		VolumeMounts:    mounts,
		SecurityContext: confined(),
	}
}

func confined() *corev1.SecurityContext {
	return &corev1.SecurityContext{Privileged: new(false), AllowPrivilegeEscalation: new(false)}
}
