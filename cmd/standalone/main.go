// Command standalone: see standalone --help.
package main

import (
	"os"

	"sandbox-provisioner/internal/app"
	"sandbox-provisioner/internal/cli"
	"sandbox-provisioner/internal/config"
)

func main() {
	program := cli.Program[config.Standalone]{
		Name:    "standalone",
		Summary: "Does the work of api and worker in one process, with its own NATS server inside.",
		Run:     app.RunStandalone,
	}
	os.Exit(program.Exec())
}
