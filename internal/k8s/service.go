package k8s

import (
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"sandbox-provisioner/internal/sandbox"
)

// portName is the name of the one port of Pod and Service.
const portName = "http"

// Service is the Service of id, stamped with the generation of the intent that makes it. The node port is left to the API
// server.
func (s Settings) Service(id string, gen sandbox.Generation) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: sandbox.Service},
		ObjectMeta: s.meta(sandbox.ServiceName(id), id, gen),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceType(s.ServiceType),
			// Only the id: a Pod that another provisioner made has it too, whatever else it has.
			Selector: map[string]string{sandbox.LabelID: id},
			Ports: []corev1.ServicePort{{
				Name:       portName,
				Port:       s.Port,
				TargetPort: intstr.FromInt32(s.Port),
				Protocol:   corev1.ProtocolTCP,
			}},
		},
	}
}

// URL is where the sandbox of id is reached. In NodePort mode it is empty without a nodePort; in ClusterIP mode, where it is
// known before the Service exists, nodePort does not matter.
func (s Settings) URL(id string, nodePort int32) string {
	switch {
	case s.ServiceType == ClusterIP:
		host := sandbox.ServiceName(id) + "." + s.Namespace + ".svc." + s.ClusterDomain
		return "http://" + host + ":" + strconv.Itoa(int(s.Port))
	case nodePort == 0:
		return ""
	}
	// The host may be an IPv6 address, which a URL has in brackets.
	host := strings.Trim(s.NodeHost, "[]")
	return "http://" + net.JoinHostPort(host, strconv.Itoa(int(nodePort)))
}

// meta is what Pod and Service of id have in common.
func (s Settings) meta(name, id string, gen sandbox.Generation) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:        name,
		Namespace:   s.Namespace,
		Labels:      sandbox.Labels(id),
		Annotations: map[string]string{sandbox.GenerationAnnotation: gen.String()},
	}
}
