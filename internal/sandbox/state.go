package sandbox

import "time"

// A Status is what the gateway is told of a sandbox: the phase of its Pod.
type Status string

// The values of Status. NotFound is a Service whose Pod is gone.
const (
	Pending   Status = "Pending"
	Running   Status = "Running"
	Succeeded Status = "Succeeded"
	Failed    Status = "Failed"
	Unknown   Status = "Unknown"
	NotFound  Status = "NotFound"
)

// DefaultCapacity is the number of shell sessions of a Pod that does not say otherwise.
const DefaultCapacity = 10

// A State is one sandbox as the cluster showed it in one read, or as the API server returned it on creation.
type State struct {
	ID string `json:"id"`
	// URL is empty while nobody can know it: no Service, or one without its nodePort.
	URL    string `json:"url,omitempty"`
	Status Status `json:"status"`
	// Capacity is the number of shell sessions of the Pod; 0 when there is no Pod.
	Capacity int `json:"capacity,omitempty"`
	// PodUID is empty when there is no Pod.
	PodUID string `json:"pod_uid,omitempty"`
	// Broker tells whether the Pod carries the credential broker.
	Broker     bool      `json:"broker,omitempty"`
	Ready      bool      `json:"ready,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Message    string    `json:"message,omitempty"`
	Node       string    `json:"node,omitempty"`
	CreatedAt  time.Time `json:"created_at,omitzero"`
	Generation uint64    `json:"generation,omitempty"`
}
