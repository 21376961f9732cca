package config

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Runtime says how much of the machine a program uses.
type Runtime struct {
	// Processors is 1 because a program waits most of the time, and to spread what is left over more of them costs a fifth more
	// processor time for the same work. Go's runtime reads the variable, too, but takes what it does not understand for all of them.
	Processors int `env:"GOMAXPROCS, default=1" help:"processors that the program uses at once"`
	// GC is four times that of Go's runtime, which reads the variable, too: so little lives that there would be a collection every
	// sixty creates.
	GC GCPercent `env:"GOGC, default=400" help:"garbage that may pile up before it is collected, in percent of what is in use, or off"`
}

// Validate refuses to do without any.
func (c Runtime) Validate() error {
	if c.Processors < 1 {
		return fmt.Errorf("GOMAXPROCS=%d: must be 1 or more", c.Processors)
	}
	return nil
}

// Apply makes the process so. However much garbage may pile up, it is collected before a container's limit of memory is reached;
// GOMEMLIMIT is another limit instead.
func (c Runtime) Apply() {
	runtime.GOMAXPROCS(c.Processors)
	debug.SetGCPercent(int(c.GC))
	_, _ = memlimit.Set() // fails where there are no containers
}

// GCPercent is what debug.SetGCPercent takes.
type GCPercent int

const gcOff GCPercent = -1

// UnmarshalText reads "off" or a number above 0.
func (p *GCPercent) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*p = gcOff
		return nil
	}
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil || n <= 0 {
		return errors.New("must be off or a whole number above 0, such as 100")
	}
	*p = GCPercent(n)
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (p GCPercent) MarshalText() ([]byte, error) {
	if p == gcOff {
		return []byte("off"), nil
	}
	return strconv.AppendInt(nil, int64(p), 10), nil
}
