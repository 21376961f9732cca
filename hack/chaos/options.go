package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
)

// How much of everything there is.
const (
	apis    = 2
	workers = 3
	ids     = 300
	clients = 40
	ackWait = 3 * time.Second
)

// options of a run, from the environment.
type options struct {
	// length of the load: CHAOS_SECONDS, default 60.
	length time.Duration
	// seed of the schedules of faults and requests: SEED, default a random one.
	seed uint64
	// sweep is SWEEP_INTERVAL of the workers: CHAOS_SWEEP, default 0s, so that the backstop hides nothing.
	sweep string
}

func readOptions() (options, error) {
	seconds, err := number("CHAOS_SECONDS", 60)
	if err != nil {
		return options{}, err
	}
	o := options{length: time.Duration(seconds) * time.Second, sweep: "0s"}
	if o.seed, err = number("SEED", rand.Uint64()>>32); err != nil {
		return options{}, err
	}
	if v := os.Getenv("CHAOS_SWEEP"); v != "" {
		o.sweep = v
	}
	return o, nil
}

// number reads a variable of the environment.
func number(name string, preset uint64) (uint64, error) {
	value := os.Getenv(name)
	if value == "" {
		return preset, nil
	}
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s=%q: must be a whole number below 2^32", name, value)
	}
	return n, nil
}

// The streams of random numbers that a seed gives, each drawn from by one goroutine in an order that does not depend on time.
const (
	faultStream  = 100
	clientStream = 1000 // what is asked
	whimStream   = 2000 // how a client reacts to answers
	proxyStream  = 3000
)

func (o options) stream(n int) *rand.Rand { return rand.New(rand.NewPCG(o.seed, uint64(n))) }
