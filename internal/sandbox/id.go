// Package sandbox is the domain: what a sandbox is called, what may be asked of it, and what can be said about it.
// It knows neither Kubernetes nor NATS.
package sandbox

import "regexp"

const (
	// IDPattern is the shape of a sandbox id. With MaxIDLength it makes Pod name, Service name and label value legal.
	IDPattern = `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// MaxIDLength is in characters: "sandbox-<id>-svc" must fit the 63 of a DNS label.
	MaxIDLength = 51
)

var idRegexp = regexp.MustCompile(IDPattern)

// ValidID tells whether id can name a sandbox at all. No object of an invalid id ever exists.
func ValidID(id string) bool {
	return len(id) <= MaxIDLength && idRegexp.MatchString(id)
}

// PodName is the name of the Pod of id.
func PodName(id string) string { return "sandbox-" + id }

// ServiceName is the name of the Service of id.
func ServiceName(id string) string { return "sandbox-" + id + "-svc" }

// Labels of the Pod and the Service of a sandbox.
const (
	LabelApp       = "app"
	LabelID        = "sandbox-id"
	LabelName      = "app.kubernetes.io/name"
	LabelComponent = "app.kubernetes.io/component"

	// App is the value of LabelApp, by which all sandboxes are listed.
	App = "deer-flow-sandbox"
)

// Labels are the labels of both objects of id.
func Labels(id string) map[string]string {
	labels := NamespaceLabels()
	labels[LabelApp] = App
	labels[LabelID] = id
	return labels
}

// NamespaceLabels are the labels of a namespace that was made for sandboxes.
func NamespaceLabels() map[string]string {
	return map[string]string{LabelName: "deer-flow", LabelComponent: "sandbox"}
}
