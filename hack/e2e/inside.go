package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
)

// The headers of hack/e2e/gateway.
const (
	targetHeader  = "X-Target"
	failureHeader = "X-Failure"
)

// inside sends requests from inside the cluster: to the API server, which passes them to the gateway's Pod, which sends them on.
type inside struct {
	server *url.URL
	admin  http.RoundTripper
}

func newInside(config *rest.Config) (*inside, error) {
	server, err := url.Parse(config.Host + "/")
	if err != nil {
		return nil, err
	}
	admin, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	return &inside{server: server.JoinPath("api/v1/namespaces", releaseSpace, "pods", gatewayName+":8080", "proxy"), admin: admin}, nil
}

// RoundTrip implements http.RoundTripper.
func (i *inside) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := req.Clone(req.Context())
	sent.Header.Set(targetHeader, req.URL.Scheme+"://"+req.URL.Host)
	sent.URL = i.server.JoinPath(req.URL.Path)
	sent.URL.RawQuery, sent.Host = req.URL.RawQuery, ""
	res, err := i.admin.RoundTrip(sent)
	if err != nil {
		return nil, fmt.Errorf("reach the gateway: %w", err)
	}
	if failure := res.Header.Get(failureHeader); failure != "" {
		_ = res.Body.Close()
		return nil, errors.New(failure)
	}
	return res, nil
}
