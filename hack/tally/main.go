// Command tally runs go test and counts what passed: tally NAME [ARGUMENTS OF GO TEST]. It prints the output of what failed, and as
// its last line "NAME: N passed, M failed". A test with subtests counts as its subtests. A skipped test has failed.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: tally NAME ARGUMENTS-OF-GO-TEST...")
		os.Exit(2)
	}
	passed, failed, err := run(os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
	}
	fmt.Printf("%s: %d passed, %d failed\n", os.Args[1], passed, failed)
	if err != nil || failed > 0 || passed == 0 {
		os.Exit(1)
	}
}

// An event is one line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

func (e event) name() string { return e.Package + " " + e.Test }

func run(args []string) (passed, failed int, err error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	passed, failed = count(out)
	// go test ends with 1 when a test fails, which is counted already, and when a package cannot be built, which is not.
	if err := cmd.Wait(); err != nil && failed == 0 {
		return passed, failed, err
	}
	return passed, failed, nil
}

func count(in io.Reader) (passed, failed int) {
	results := map[string]string{}
	parents := map[string]bool{}
	output := map[string]*strings.Builder{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(os.Stderr, lines.Text())
			continue
		}
		switch e.Action {
		case "output", "build-output":
			if output[e.name()] == nil {
				output[e.name()] = &strings.Builder{}
			}
			output[e.name()].WriteString(e.Output)
		case "pass", "fail", "skip":
			if e.Action != "pass" && output[e.name()] != nil {
				fmt.Print(output[e.name()])
			}
			if e.Test == "" {
				fmt.Printf("%-4s %s\n", e.Action, e.Package)
				continue
			}
			results[e.name()] = e.Action
			if slash := strings.LastIndexByte(e.Test, '/'); slash >= 0 {
				parents[e.Package+" "+e.Test[:slash]] = true
			}
			delete(output, e.name())
		case "build-fail":
			for name, out := range output {
				fmt.Print(name, "\n", out)
			}
		}
	}
	for name, result := range results {
		switch {
		case parents[name] && result == "pass":
		case result == "pass":
			passed++
		default:
			failed++
		}
	}
	return passed, failed
}
