package box

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/vishvananda/netlink"
)

const (
	insideDevice = "eth0"
	// maxBoxes at a time on one machine.
	maxBoxes = 64
)

// A link is the cable between this machine and a box: two addresses of 198.18.0.0/15, which is reserved for tests of networks.
// There is no way on: nothing inside reaches further than this machine's end.
type link struct {
	outside netlink.Link
	inside  *net.IPNet
}

// connect lays a cable from the network of a process, for a box of that name. The device's name claims its pair of addresses.
func connect(pid int, box string) (*link, error) {
	for n := range maxBoxes {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = fmt.Sprintf("sandboxnode%d", n)
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: insideDevice, PeerNamespace: netlink.NsPid(pid)}
		err := netlink.LinkAdd(veth)
		if errors.Is(err, syscall.EEXIST) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("add the device %s: %w", attrs.Name, err)
		}
		l := &link{outside: veth, inside: address(n, 2)}
		if err := errors.Join(netlink.LinkSetAlias(veth, box), raise(veth, address(n, 1))); err != nil {
			l.remove()
			return nil, err
		}
		return l, nil
	}
	return nil, fmt.Errorf("there are %d nodes on this machine already", maxBoxes)
}

func address(n, host int) *net.IPNet {
	return &net.IPNet{IP: net.IPv4(198, 18, 255, byte(4*n+host)), Mask: net.CIDRMask(30, 32)}
}

func raise(device netlink.Link, address *net.IPNet) error {
	name := device.Attrs().Name
	if err := netlink.AddrAdd(device, &netlink.Addr{IPNet: address}); err != nil {
		return fmt.Errorf("give %s the address %s: %w", name, address, err)
	}
	if err := netlink.LinkSetUp(device); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// remove takes the cable away. It may be gone already, with the box.
func (l *link) remove() { _ = netlink.LinkDel(l.outside) }

// removeLink takes away what a killed box of that name has left: the kernel keeps a network for as long as one of its
// connections, which have lost both ends, has not timed out.
func removeLink(box string) error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Attrs().Alias == box {
			if err := netlink.LinkDel(l); err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) && !errors.Is(err, syscall.ENODEV) {
				return fmt.Errorf("remove the device %s: %w", l.Attrs().Name, err)
			}
		}
	}
	return nil
}

// bringUp is the end inside.
func bringUp(cidr string) error {
	ip, network, err := net.ParseCIDR(cidr)
	if err != nil {
		return err
	}
	network.IP = ip
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return err
	}
	device, err := netlink.LinkByName(insideDevice)
	if err != nil {
		return err
	}
	return raise(device, network)
}
