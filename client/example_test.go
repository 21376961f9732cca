package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"sandbox-provisioner/client"
)

// provisioner stands for the real one in the examples.
func provisioner() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Header.Get("X-API-Key") != "secret":
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "Unauthorized")
		case r.Method == http.MethodPost && strings.Contains(string(body), "A1"):
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"detail":[{"type":"string_pattern_mismatch","loc":["body","sandbox_id"],"msg":"String should match pattern","input":"A1"}]}`)
		case r.Method == http.MethodPost && r.Header.Get("Prefer") == "respond-async":
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"sandbox_id":"a1","sandbox_url":null,"status":"Pending","ready":false}`)
		case r.Method == http.MethodDelete:
			_, _ = io.WriteString(w, `{"ok":true,"sandbox_id":"a1"}`)
		case r.URL.Path == "/api/sandboxes" && r.Method == http.MethodGet:
			_, _ = io.WriteString(w, `{"sandboxes":[{"sandbox_id":"a1","status":"Running"},{"sandbox_id":"b2","status":"Pending"}],"count":2}`)
		default:
			_, _ = io.WriteString(w, `{"sandbox_id":"a1","sandbox_url":"http://node:31507","status":"Running","ready":true}`)
		}
	}))
}

// Create a sandbox, use it, delete it.
func Example() {
	server := provisioner()
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c := client.New(server.URL, "secret", client.WithHTTPClient(server.Client()))
	if _, err := c.Create(ctx, client.CreateRequest{SandboxID: "a1", UserID: "alice"}); err != nil {
		fmt.Println(err)
		return
	}
	sandbox, err := c.WaitReady(ctx, "a1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sandbox.Status, sandbox.URL)
	fmt.Println(c.Delete(ctx, "a1"))
	// Output:
	// Running http://node:31507
	// <nil>
}

// Ask for many sandboxes without waiting for any.
func ExampleRespondAsync() {
	server := provisioner()
	defer server.Close()
	c := client.New(server.URL, "secret", client.WithHTTPClient(server.Client()))

	sandbox, err := c.Create(context.Background(), client.CreateRequest{SandboxID: "a1"}, client.RespondAsync())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sandbox.Queued, sandbox.Status)
	// Output: true Pending
}

func ExampleClient_List() {
	server := provisioner()
	defer server.Close()
	c := client.New(server.URL, "secret", client.WithHTTPClient(server.Client()))

	for sandbox, err := range c.List(context.Background()) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(sandbox.ID, sandbox.Status)
	}
	// Output:
	// a1 Running
	// b2 Pending
}

func ExampleError() {
	server := provisioner()
	defer server.Close()
	c := client.New(server.URL, "secret", client.WithHTTPClient(server.Client()))

	_, err := c.Create(context.Background(), client.CreateRequest{SandboxID: "A1"})
	var refusal *client.Error
	switch {
	case errors.Is(err, client.ErrCapacity):
		fmt.Println("delete it first")
	case errors.Is(err, client.ErrQuota):
		fmt.Println("delete another one first")
	case errors.As(err, &refusal):
		for _, field := range refusal.Fields {
			fmt.Println(field.Path(), field.Type)
		}
	}
	// Output: sandbox_id string_pattern_mismatch
}
