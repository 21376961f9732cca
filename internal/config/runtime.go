package config

import "fmt"

// Runtime says how much of the machine a program uses.
type Runtime struct {
	// Processors is 1 because a program waits most of the time, and to spread what is left over more of them costs a fifth more
	// processor time for the same work. Go's runtime reads the variable, too, but takes what it does not understand for all of them.
	Processors int `env:"GOMAXPROCS, default=1" help:"processors that the program uses at once"`
}

// Validate refuses to do without any.
func (c Runtime) Validate() error {
	if c.Processors < 1 {
		return fmt.Errorf("GOMAXPROCS=%d: must be 1 or more", c.Processors)
	}
	return nil
}
