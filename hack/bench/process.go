package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is USER_HZ, in which Linux tells processor time on every architecture that Go knows.
const ticksPerSecond = 100

// cpuTime is what a process has used of the processors, in user mode and in the kernel, to the nanosecond: a client's share of a short
// turn is some tenths of a second. The clock is that of clock_getcpuclockid(3).
func cpuTime(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED, of all threads
	var used unix.Timespec
	err := unix.ClockGettime(^int32(pid)<<3|scheduled, &used)
	return time.Duration(used.Nano()), err
}

// machineTime is what all processes together have used of the processors.
func machineTime() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseMachine(string(stat))
}

// parseMachine adds up the first line but for idle and waiting, its fourth and fifth number, and for what guests have used, which
// is part of the first ones.
func parseMachine(stat string) (total time.Duration, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, fmt.Errorf("not the stat of a machine: %q", line)
	}
	for _, i := range []int{1, 2, 3, 6, 7} {
		ticks, err := strconv.ParseUint(fields[i], 10, 63)
		if err != nil {
			return 0, err
		}
		total += time.Duration(ticks) * time.Second / ticksPerSecond
	}
	return total, nil
}

// resident is the memory of a process in MB.
func resident(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kb float64
	_, err = fmt.Sscan(rest, &kb)
	return kb / 1024, err
}

// usage is the processor time of each part, by its name.
type usage map[string]time.Duration

// usageOf adds up the processes of each part. What remains is everybody else's.
func usageOf(parts map[string][]int) (usage, error) {
	all, err := machineTime()
	if err != nil {
		return nil, err
	}
	u := usage{partElse: all}
	for part, pids := range parts {
		for _, pid := range pids {
			d, err := cpuTime(pid)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", part, err)
			}
			u[part] += d
			u[partElse] -= d
		}
	}
	return u, nil
}

// since is what was used between two looks.
func (u usage) since(before usage) usage {
	d := usage{}
	for part := range u {
		d[part] = u[part] - before[part]
	}
	return d
}

func (u usage) sum(parts ...string) (total time.Duration) {
	for _, part := range parts {
		total += u[part]
	}
	return total
}
