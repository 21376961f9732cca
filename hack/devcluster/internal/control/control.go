// Package control lets tests give faults to the simulated node over HTTP.
package control

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"sandbox-provisioner/hack/devcluster/internal/fault"
)

// Sandboxes answers in place of the sandbox behind a Service.
type Sandboxes interface {
	ServeService(w http.ResponseWriter, r *http.Request, namespace, name, path string)
}

const maxBody = 64 << 10

// Handler serves /healthz, /faults and /stub.
func Handler(faults *fault.Registry, sandboxes Sandboxes) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"faults": faults.List()})
	})
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) {
		for _, order := range faults.List() {
			faults.Clear(order.Namespace, order.Pod)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("PUT /faults/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		var f fault.Fault
		if err := decode(w, r, &f); err != nil {
			answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		order := fault.Order{Namespace: r.PathValue("namespace"), Pod: r.PathValue("pod"), Fault: f}
		faults.Put(order.Namespace, order.Pod, f)
		answer(w, http.StatusOK, order)
	})
	mux.HandleFunc("DELETE /faults/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		faults.Clear(r.PathValue("namespace"), r.PathValue("pod"))
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /stub/{namespace}/{service}/{path...}", func(w http.ResponseWriter, r *http.Request) {
		sandboxes.ServeService(w, r, r.PathValue("namespace"), r.PathValue("service"), "/"+r.PathValue("path"))
	})
	return mux
}

func decode(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return errors.New(`no body; want {"fault":"<name>"}`)
	}
	return json.Unmarshal(body, into)
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
