package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
)

// surroundings are what figures depend on besides the product.
type surroundings struct {
	CPU        string
	Cores      int
	MemoryGB   float64
	Kernel     string
	Disk       string
	GoVersion  string
	Kubernetes string
	EtcdSyncs  bool
	Commit     string
	Load       string // of the machine, before we began
	Date       string
}

func describe(ctx context.Context, p *plant) (surroundings, error) {
	s := surroundings{
		CPU: lineOf("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), GoVersion: runtime.Version(),
		Kernel: firstLine("/proc/sys/kernel/osrelease"), Load: firstLine("/proc/loadavg"), Date: time.Now().UTC().Format(time.DateOnly),
		Disk: output(ctx, "stat", "-f", "-c", "%T", p.dir()), Commit: output(ctx, "git", "describe", "--always", "--dirty"),
	}
	var kb float64
	if _, err := fmt.Sscan(lineOf("/proc/meminfo", "MemTotal"), &kb); err != nil {
		return s, fmt.Errorf("memory of this machine: %w", err)
	}
	s.MemoryGB = kb / (1 << 20)
	s.Load, _, _ = strings.Cut(s.Load, " ")
	var server *version.Info
	server, err := discovery.NewDiscoveryClient(p.core.RESTClient()).ServerVersion()
	if err != nil {
		return s, err
	}
	s.Kubernetes = server.GitVersion
	s.EtcdSyncs, err = p.etcdSyncs()
	return s, err
}

// output is what a command prints, or "unknown".
func output(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func firstLine(file string) string {
	content, _ := os.ReadFile(file)
	line, _, _ := strings.Cut(string(content), "\n")
	return line
}

// lineOf is what stands behind a word and a colon, or "unknown".
func lineOf(file, word string) string {
	content, _ := os.ReadFile(file)
	for line := range strings.Lines(string(content)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == word {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// page is docs/benchmarks.md. commits are those of its goes.
func (s surroundings) page(r *results, o options, commits []string) string {
	var out strings.Builder
	out.WriteString(`# Benchmarks

What the product costs on top of Kubernetes: the same Pods and Services, written by plain client-go to the same API server, are the
baseline. This page is the output of ` + "`make bench`" + `; do not edit it. A whole run takes about an hour, with nothing else at work; one that is
broken off goes on after the last section that it has finished. ` + "`BENCH_QUICK=1`" + ` takes a minute,
` + "`BENCH_ONLY=" + strings.Join(sectionNames(), ",") + "`" + ` chooses sections, ` + "`BENCH_ROUNDS`" + ` sets the number of rounds;
*profile* takes CPU and allocation profiles of the programs in place of figures.

`)
	syncs := "both sync every write to the disk"
	if !s.EtcdSyncs {
		syncs = "NATS syncs every write to the disk, **etcd does not**"
	}
	commit := s.Commit
	if len(commits) > 1 {
		commit = strings.Join(slices.Compact(slices.Clone(commits)), " and ") +
			fmt.Sprintf(" (taken in %d goes; product and cluster are the same)", len(commits))
	}
	fmt.Fprintf(&out, "| | |\n|---|---|\n| processor | %s, %d cores, shared by clients, product and servers |\n"+
		"| memory | %.0f GB |\n| kernel, file system | Linux %s, %s |\n| Go | %s |\n"+
		"| Kubernetes | %s: kube-apiserver, etcd and a simulated node of the development cluster |\n| etcd, NATS | %s |\n"+
		"| commit, date | %s, %s |\n| rounds | %d, of draining %d |\n| load of the machine before | %s |\n\n",
		s.CPU, s.Cores, s.MemoryGB, s.Kernel, s.Disk, s.GoVersion, s.Kubernetes, syncs, commit, s.Date, o.rounds, o.drainRounds(), s.Load)
	out.WriteString("## Goals\n\n" + goalTable(r) + `
Each ratio is that of two contestants in one round; shown are the median of the rounds and the extremes.

## How it is measured

* Contestants take turns within each round, in reverse order in every other one, each in a namespace that is empty before its turn.
  Before each load goes a tenth of it that does not count.
* *client-go*: protobuf, no throttle, as many HTTP/2 connections as the product opens, Pod and Service written at the same time. The
  objects are rendered by the product's own code from the same request, ` + "`SANDBOX_SERVICE_TYPE=ClusterIP`" + `; that all contestants write
  the same is checked first.
* *standalone*, *api + n workers*: processes with their default settings, over HTTP with connections that are kept. NATS of the latter
  is a process of its own.
* A create is done when it is answered with 200: both objects exist. *Both visible* counts from the request until a watch of a sample
  of them has shown both.
* An accept is a create with ` + "`Prefer: respond-async`" + `, answered with 202. A *bare publish* has the same bytes, stream and expected sequence.
* In an open loop requests come at a fixed rate, a percentage of what the slowest contestant reaches in a closed loop with 32 clients.
  Latencies count from when the request was to be sent.
* CPU is the processor time of the processes, from the first request to the last answer. What the simulated node asks for is
  part of kube-apiserver's; the node itself is most of *everything else*, unless somebody else was at work on the machine.
* Memory is VmRSS after five idle seconds.

## Figures

Medians of the rounds, with the smallest and the largest; × is the median of the ratios to the first column.

`)
	for _, g := range r.groups {
		out.WriteString(g.table() + "\n")
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}
