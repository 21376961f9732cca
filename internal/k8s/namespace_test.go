package k8s

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestEnsureNamespace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		read, create int
		creates      bool
		wantErr      []string
	}{
		{"one that exists is left alone", 200, 0, false, nil},
		{"a missing one is created", 404, 201, true, nil},
		{"somebody else may create it first", 404, 409, true, nil},
		{"one that cannot be read", 403, 0, false, []string{`cannot read namespace "deer-flow"`, "K8S_NAMESPACE"}},
		{"one that cannot be created", 404, 403, true, []string{`cannot create namespace "deer-flow"`, "K8S_NAMESPACE"}},
		{"a server that fails", 500, 0, false, []string{`cannot read namespace "deer-flow"`, "KUBECONFIG_PATH"}},
		{"a server that does not know us", 401, 0, false, []string{`cannot read namespace "deer-flow"`, "KUBECONFIG_PATH"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var sent []byte
			core := newTestCore(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				code := tt.read
				if r.Method == http.MethodPost {
					code = tt.create
					sent, _ = io.ReadAll(r.Body)
				}
				answer(t, w, code, &corev1.Namespace{})
			}))
			err := EnsureNamespace(t.Context(), core, "deer-flow")
			if len(tt.wantErr) == 0 {
				require.NoError(t, err)
			}
			for _, want := range tt.wantErr {
				require.ErrorContains(t, err, want)
				require.NotContains(t, err.Error(), "\n")
			}
			require.Equal(t, tt.creates, sent != nil)
			if sent != nil {
				obj, _, err := codecs.UniversalDeserializer().Decode(sent, nil, nil)
				require.NoError(t, err)
				created, ok := obj.(*corev1.Namespace)
				require.True(t, ok, "%T", obj)
				require.Equal(t, "deer-flow", created.Name)
				require.Equal(t, map[string]string{
					"app.kubernetes.io/name": "deer-flow", "app.kubernetes.io/component": "sandbox",
				}, created.Labels)
			}
		})
	}
}

// answer is obj, or the Status that an API server sends with an error.
func answer(t *testing.T, w http.ResponseWriter, code int, obj any) {
	reasons := map[int]metav1.StatusReason{
		401: metav1.StatusReasonUnauthorized, 403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound,
		409: metav1.StatusReasonAlreadyExists, 500: metav1.StatusReasonInternalError,
	}
	if reason, failed := reasons[code]; failed {
		obj = metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "because",
		}
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	assert.NoError(t, json.NewEncoder(w).Encode(obj))
}
