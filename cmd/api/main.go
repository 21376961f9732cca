// Command api: see api --help.
package main

import (
	"os"

	"sandbox-provisioner/internal/app"
	"sandbox-provisioner/internal/cli"
	"sandbox-provisioner/internal/config"
)

func main() {
	program := cli.Program[config.API]{
		Name:    "api",
		Summary: "Takes requests for sandboxes over HTTP, queues them as jobs on NATS, and answers with their outcomes.",
		Run:     app.RunAPI,
	}
	os.Exit(program.Exec())
}
