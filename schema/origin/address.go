package origin

import (
	"errors"
	"net/netip"
)

// embedded are the ranges of IPv6 addresses that stand for an IPv4 address,
// with the byte that it begins at: IPv4-compatible (RFC 4291, 2.5.5.1), NAT64
// (RFC 6052) and 6to4 (RFC 3056). IPv4-mapped ones are known to netip.
var embedded = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},
	{netip.MustParsePrefix("2002::/16"), 2},
	{netip.MustParsePrefix("::/96"), 12},
}

// never are addresses that no front-end has, besides those that netip knows to
// be special: this network, the shared ones of providers (RFC 6598), NAT64 of
// the local network (RFC 8215), whose inner address cannot be told, and the
// metadata of a cloud.
var never = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("fd00:ec2::254/128"),
}

// CheckAddress says why a target must not be connected to an address that its
// name resolved to, or that it names.
func (o Origin) CheckAddress(address netip.Addr) error {
	address = unwrap(address)
	switch {
	case !address.IsValid():
		return errors.New("the host has no valid address")
	case address.IsUnspecified(), address.IsMulticast(), address.IsLinkLocalUnicast():
		return errors.New("the host has an address that is never called")
	case address.IsLoopback() && !o.Loopback():
		return errors.New("the host has the address of this machine")
	case !address.IsLoopback() && o.Loopback():
		return errors.New("the host names this machine and has another address")
	}
	for _, prefix := range never {
		if prefix.Contains(address) {
			return errors.New("the host has an address that is never called")
		}
	}
	return nil
}

// unwrap finds the IPv4 address that an IPv6 address stands for.
func unwrap(address netip.Addr) netip.Addr {
	address = address.Unmap().WithZone("")
	if !address.Is6() || address.IsUnspecified() || address.IsLoopback() {
		return address
	}
	for _, e := range embedded {
		if e.prefix.Contains(address) {
			bytes := address.As16()
			inner, _ := netip.AddrFromSlice(bytes[e.at : e.at+4])
			return inner
		}
	}
	return address
}
