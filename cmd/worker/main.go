// Command worker: see worker --help.
package main

import (
	"os"

	"sandbox-provisioner/internal/app"
	"sandbox-provisioner/internal/cli"
	"sandbox-provisioner/internal/config"
)

func main() {
	program := cli.Program[config.Worker]{
		Name:    "worker",
		Summary: "Takes jobs from NATS and makes the Kubernetes cluster match them.",
		Run:     app.RunWorker,
	}
	os.Exit(program.Exec())
}
