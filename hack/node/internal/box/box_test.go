package box_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"sandbox-provisioner/hack/node/internal/box"
)

// outerCommand makes this program start a box and wait for its own end.
const outerCommand = "outer"

func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == box.InitCommand:
		err = box.Init(os.Args[2:])
	case len(os.Args) > 1 && os.Args[1] == box.InsideCommand:
		err = inside()
	case len(os.Args) > 1 && os.Args[1] == outerCommand:
		err = outer()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// view is what somebody inside sees.
type view struct {
	Address, Hostname, Overcommit string
	Run, Devices                  []string
}

// inside makes a mess: a device, a mount, a process in a control group of its own.
func inside() error {
	var place box.Layout
	if err := box.Receive(&place, func() { os.Exit(0) }); err != nil {
		return err
	}
	seen := view{Address: place.Address}
	seen.Hostname, _ = os.Hostname()
	overcommit, _ := os.ReadFile("/proc/sys/vm/overcommit_memory")
	seen.Overcommit = strings.TrimSpace(string(overcommit))
	entries, _ := os.ReadDir("/run")
	for _, entry := range entries {
		seen.Run = append(seen.Run, entry.Name())
	}
	devices, _ := net.Interfaces()
	for _, device := range devices {
		if device.Flags&net.FlagUp != 0 {
			seen.Devices = append(seen.Devices, device.Name)
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "mess0"
	sleeper := exec.Command("sleep", "1000")
	err := errors.Join(
		netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}),
		os.Mkdir("/run/mess", 0o755), syscall.Mount("tmpfs", "/run/mess", "tmpfs", 0, ""),
		sleeper.Start(),
	)
	if err != nil {
		return err
	}
	for _, group := range cgroupsOf(filepath.Base(place.Dir)) {
		own := filepath.Join(group, "mess")
		_ = os.Mkdir(own, 0o755)
		_ = os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte(fmt.Sprint(sleeper.Process.Pid)), 0o644)
	}
	if err := box.Report(seen); err != nil {
		return err
	}
	return sleeper.Wait()
}

func start(ctx context.Context) (b *box.Box, seen view, err error) {
	b, err = box.Start(slog.New(slog.DiscardHandler), func(place box.Layout) any { return place })
	if err == nil {
		err = b.Report(ctx, &seen)
	}
	return b, seen, err
}

// outer says which box it has started, and does not clean up.
func outer() error {
	b, _, err := start(context.Background())
	if err != nil {
		return err
	}
	fmt.Println(b.Dir)
	select {}
}

func cgroupsOf(name string) []string {
	one, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", name))
	many, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", name))
	return append(one, many...)
}

// left is what is to be found of the box that was in dir.
func left(dir string) error {
	var found error
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		found = fmt.Errorf("its directory: %w", err)
	}
	name := filepath.Base(dir)
	if groups := cgroupsOf(name); len(groups) > 0 {
		found = errors.Join(found, fmt.Errorf("control groups: %v", groups))
	}
	links, err := netlink.LinkList()
	for _, l := range links {
		if l.Attrs().Alias == name {
			found = errors.Join(found, fmt.Errorf("the device %s", l.Attrs().Name))
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	if strings.Contains(string(mounts), name) {
		found = errors.Join(found, errors.New("mounts"))
	}
	return errors.Join(found, err)
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() == 0 {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal("namespaces need root, and CI must have it")
	}
	t.Skip("NOT TESTED: namespaces need root")
}

func TestABoxHasItsOwnFaceAndLeavesTheMachineAlone(t *testing.T) {
	needRoot(t)
	tunable := "/proc/sys/vm/overcommit_memory"
	before, err := os.ReadFile(tunable)
	if err != nil {
		t.Fatal(err)
	}
	b, seen, err := start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := view{Address: b.Address, Hostname: box.Hostname, Overcommit: "1", Devices: []string{"eth0", "lo"}}
	slices.Sort(seen.Devices)
	if fmt.Sprintf("%+v", seen) != fmt.Sprintf("%+v", want) {
		t.Errorf("inside: wanted %+v, got %+v", want, seen)
	}
	if _, err := os.Stat(box.Own(b.Dir, "/run/mess")); err != nil {
		t.Errorf("wanted what is made below /run inside to lie in the box's directory: %v", err)
	}
	if _, err := os.Stat("/run/mess"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("wanted nothing of it in /run outside, got %v", err)
	}
	if err := b.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := left(b.Dir); err != nil {
		t.Errorf("wanted nothing left of a stopped box, found %v", err)
	}
	if after, _ := os.ReadFile(tunable); !slices.Equal(after, before) {
		t.Errorf("wanted %s to stay %q, got %q", tunable, before, after)
	}
}

func TestNothingIsLeftOfAKilledBoxOnceAnotherIsStarted(t *testing.T) {
	needRoot(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	victim := exec.Command(self, outerCommand)
	victim.Stderr = os.Stderr
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(line)
	_ = victim.Process.Kill()
	_ = victim.Wait()
	var found error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		b, _, err := start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Stop(); err != nil {
			t.Fatal(err)
		}
		// The first may come while the last process of the killed one is still about to end.
		if found = left(dir); found == nil {
			return
		}
	}
	t.Errorf("wanted nothing left of a killed box, found %v", found)
}
