// Command dashboards writes the Grafana dashboards: dashboards DIRECTORY. What it writes is checked in, so that it can be imported as
// it is; `make generate` runs it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboards DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, b := range []board{gateway(), queue(), platform()} {
		built, err := b.build()
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		content, err := json.MarshalIndent(built, "", "  ")
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, b.name+".json"), append(content, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}
