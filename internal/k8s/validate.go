package k8s

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"sandbox-provisioner/internal/sandbox"
)

// Validate finds what would make every sandbox fail. Each wrong variable is one line of the error, which says what is allowed.
func (s Settings) Validate() error {
	var problems []error
	refuse := func(name string, value any, way string) {
		problems = append(problems, fmt.Errorf("%s=%v: %s", name, value, way))
	}
	switch {
	case s.Namespace == "":
		refuse("K8S_NAMESPACE", "", "must not be empty; unset it for deer-flow")
	case len(validation.IsDNS1123Label(s.Namespace)) > 0:
		refuse("K8S_NAMESPACE", s.Namespace, "must be 1 to 63 of a-z, 0-9 and -, with a letter or digit first and last")
	}
	if s.Image == "" {
		refuse("SANDBOX_IMAGE", "", "must not be empty; unset it for the stock image")
	}
	if s.Port < 1 || s.Port > 65535 {
		refuse("SANDBOX_CONTAINER_PORT", s.Port, "must be a port from 1 to 65535")
	}
	switch {
	case s.ServiceType != NodePort && s.ServiceType != ClusterIP:
		refuse("SANDBOX_SERVICE_TYPE", s.ServiceType, "must be NodePort or ClusterIP")
	case s.ServiceType == NodePort && s.NodeHost == "":
		refuse("NODE_HOST", "", "must not be empty with SANDBOX_SERVICE_TYPE=NodePort; set the host at which node ports are reached")
	case s.ServiceType == ClusterIP && s.ClusterDomain == "":
		refuse("CLUSTER_DOMAIN", "", "must not be empty with SANDBOX_SERVICE_TYPE=ClusterIP; unset it for cluster.local")
	}
	switch base := s.stateDir(); {
	case s.BaseDir != "" && (!base.IsAbs() || base.IsRoot()):
		refuse("DEER_FLOW_HOST_BASE_DIR", s.BaseDir,
			"must be an absolute path on the nodes; the root directory would let requests mount anything")
	case s.SkillsPVC == "" && !base.IsAbs():
		refuse("DEER_FLOW_HOST_BASE_DIR", s.BaseDir,
			"must not be empty, because the skills are mounted from there; set it, or set SKILLS_PVC_NAME, or let THREADS_HOST_PATH end in /threads")
	}
	if s.UserDataPVC == "" && !sandbox.ParseHostPath(s.ThreadsPath).IsAbs() {
		refuse("THREADS_HOST_PATH", s.ThreadsPath, "must be an absolute path on the nodes, unless USERDATA_PVC_NAME is set")
	}
	if _, err := ParseSubPathTemplate(s.SkillsSubPathTemplate); err != nil {
		refuse("SKILLS_PVC_SUBPATH_TEMPLATE", s.SkillsSubPathTemplate, err.Error())
	}
	switch corev1.SeccompProfileType(s.SeccompProfile) {
	case corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined:
	default:
		refuse("SANDBOX_SECCOMP_PROFILE", s.SeccompProfile, "must be RuntimeDefault or Unconfined")
	}
	if s.TerminationGracePeriod < 0 || s.TerminationGracePeriod%time.Second != 0 {
		refuse("SANDBOX_TERMINATION_GRACE_PERIOD", s.TerminationGracePeriod, "must be whole seconds, 0s or more")
	}
	return errors.Join(problems...)
}
