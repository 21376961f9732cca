// Package box runs a program in namespaces of its own: processes, mounts, network, host name. Whatever it does there to routes,
// firewall rules, devices and mounts concerns nobody else, and is gone when it ends, however it ends: the kernel takes a
// namespace down with its last process.
package box

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// InitCommand is the first process in the box, InsideCommand the program that it starts: see Init.
const (
	InitCommand   = "init"
	InsideCommand = "inside"
)

const (
	// What both get from outside: orders end when the outer process does, and reports go back.
	ordersFD  = 3
	reportsFD = 4
	// lockFD is held by the first process alone.
	lockFD = 5
)

// A Box is a running box.
type Box struct {
	// Dir is the box's directory. Address is its address, at which this machine reaches it.
	Dir, Address string
	// PID is the box's first process, seen from outside.
	PID int

	scratch *scratch
	link    *link
	cmd     *exec.Cmd
	orders  *os.File
	reports *os.File
	ended   chan struct{}
	err     error
}

// Layout is what the program inside is told.
type Layout struct {
	// Dir is the box's directory, the same path inside and outside.
	Dir string
	// Address is the address of the device eth0; the machine outside is its only neighbour.
	Address string
	// Cgroup is the control group under which the program should put its containers, relative to the hierarchy's root.
	Cgroup string
}

// Start makes a box and starts this program in it, which receives order through Receive. prepare may fill in the order when the
// box's place is known.
func Start(log *slog.Logger, prepare func(Layout) any) (_ *Box, err error) {
	scratch, err := newScratch(log)
	if err != nil {
		return nil, err
	}
	b := &Box{Dir: scratch.dir, scratch: scratch, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Stop())
		}
	}()
	if err := b.launch(); err != nil {
		return nil, fmt.Errorf("start a process in its own namespaces: %w", err)
	}
	if b.link, err = connect(b.PID, scratch.name()); err != nil {
		return nil, fmt.Errorf("connect the node's network to this machine: %w", err)
	}
	b.Address = b.link.inside.IP.String()
	if err := makeCgroups(scratch.name()); err != nil {
		return nil, fmt.Errorf("make control groups: %w", err)
	}
	order := prepare(Layout{Dir: b.Dir, Address: b.Address, Cgroup: "/" + scratch.name()})
	return b, json.NewEncoder(b.orders).Encode(envelope{Net: b.link.inside.String(), Order: order})
}

// envelope is what goes through the pipe.
type envelope struct {
	Net   string
	Order any
}

func (b *Box) launch() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ordersIn, ordersOut, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ordersIn.Close()
	b.orders = ordersOut
	reportsIn, reportsOut, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reportsOut.Close()
	b.reports = reportsIn
	b.cmd = exec.Command(self, InitCommand, b.Dir)
	// The lock goes along: the directory is in use until the last process in the box is gone.
	b.cmd.ExtraFiles = []*os.File{ordersIn, reportsOut, b.scratch.lock}
	b.cmd.Stderr = os.Stderr
	// Nothing else of the caller's environment: the address of a proxy or a KUBECONFIG would lead out of the box.
	b.cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "HOME=" + b.Dir}
	b.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Setsid:     true, // Ctrl-C is for the outer process, which then ends the box
	}
	if err := b.cmd.Start(); err != nil {
		return err
	}
	b.PID = b.cmd.Process.Pid
	go func() {
		b.err = b.cmd.Wait()
		close(b.ended)
	}()
	return nil
}

// Report waits for what the program inside has to say, and decodes it.
func (b *Box) Report(ctx context.Context, into any) error {
	got := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(b.reports).ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			got <- errors.New("the node ended before it was ready")
			return
		}
		got <- errors.Join(err, json.Unmarshal(line, into))
	}()
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ended is closed when the box has ended without having been stopped.
func (b *Box) Ended() <-chan struct{} { return b.ended }

// Stop ends every process in the box and removes all traces.
func (b *Box) Stop() error {
	if b.PID != 0 {
		_ = b.cmd.Process.Kill() // a namespace dies with its first process
		<-b.ended
	}
	for _, pipe := range []*os.File{b.orders, b.reports} {
		if pipe != nil {
			_ = pipe.Close()
		}
	}
	if b.link != nil {
		b.link.remove()
	}
	return b.scratch.remove()
}

// Receive returns the order that Start was given, and calls gone when the outer process is no more.
func Receive(into any, gone func()) error {
	syscall.CloseOnExec(ordersFD)
	syscall.CloseOnExec(reportsFD)
	orders := bufio.NewReader(os.NewFile(ordersFD, "orders"))
	line, err := orders.ReadString('\n')
	if err != nil {
		return fmt.Errorf("receive the order: %w", err)
	}
	var e struct {
		Net   string
		Order json.RawMessage
	}
	if err := json.NewDecoder(strings.NewReader(line)).Decode(&e); err != nil {
		return fmt.Errorf("receive the order: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, orders)
		gone()
	}()
	if err := bringUp(e.Net); err != nil {
		return fmt.Errorf("set up the network: %w", err)
	}
	return json.Unmarshal(e.Order, into)
}

// Report tells the outer process.
func Report(what any) error {
	return json.NewEncoder(os.NewFile(reportsFD, "reports")).Encode(what)
}
