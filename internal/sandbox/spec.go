package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// A Spec is what was asked for, validated and with its defaults filled in. It travels in the intent.
type Spec struct {
	ThreadID string `json:"thread_id"`
	UserID   string `json:"user_id"`
	// SkillsPath is where the skills appear in the container: absolute, normalised.
	SkillsPath  string  `json:"skills_container_path"`
	ExtraMounts []Mount `json:"extra_mounts,omitempty"`
	// MaxShellSessions is the capacity asked for; 0 leaves it to the image.
	MaxShellSessions int `json:"max_shell_sessions,omitempty"`
	// LarkRuntime asks for the Lark command line inside the sandbox (pattern A).
	LarkRuntime bool `json:"provision_lark_cli_runtime,omitempty"`
	// LarkBroker asks for the Lark command line in a sidecar that keeps the credentials (pattern B). It wins over LarkRuntime.
	LarkBroker bool `json:"provision_lark_cli_broker,omitempty"`
}

// A Mount is one directory of the host's DeerFlow state inside the sandbox. Both paths are absolute and normalised.
type Mount struct {
	HostPath      string `json:"host_path"`
	ContainerPath string `json:"container_path"`
	ReadOnly      bool   `json:"read_only,omitempty"`
}

// Hash identifies the content of the Spec: two requests with the same Hash ask for the same thing.
func (s Spec) Hash() string {
	// A struct of strings, numbers and slices always marshals, and always in the same order.
	b, _ := json.Marshal(s)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}
