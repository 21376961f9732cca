package main

import (
	"fmt"
	"sync"
	"time"
)

// A report counts checks and shows each as soon as it is done.
type report struct {
	mu             sync.Mutex
	passed, failed int
}

// that counts a check, and shows what it saw when it failed.
func (r *report) that(name string, ok bool, saw ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ok {
		r.passed++
		fmt.Printf("ok    %s\n", name)
		return
	}
	r.failed++
	fmt.Printf("FAIL  %s:", name)
	for _, v := range saw {
		fmt.Printf(" %+v", v)
	}
	fmt.Println()
}

func (r *report) succeeds(name string, err error) { r.that(name, err == nil, err) }

var began = time.Now()

// say tells what goes on, and since when.
func say(format string, args ...any) {
	fmt.Printf("%4.0fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}
