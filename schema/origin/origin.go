package origin

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// MaxURL is the longest URL to call back, in bytes.
const MaxURL = 2048

// Origin is a scheme, a host and a port. Origins may be compared.
type Origin struct {
	scheme string
	host   string // a name in lower case, or an address in its canonical form without brackets
	port   uint16 // never 0
}

var defaultPorts = map[string]uint16{"http": 80, "https": 443}

// String writes the origin as a browser does in the header Origin.
func (o Origin) String() string {
	host := o.host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if o.port != defaultPorts[o.scheme] {
		host += ":" + strconv.Itoa(int(o.port))
	}
	return o.scheme + "://" + host
}

// Loopback reports whether the origin itself names this machine. Only such a
// one may be without TLS.
func (o Origin) Loopback() bool {
	address, err := netip.ParseAddr(o.host)
	return o.host == "localhost" || err == nil && address.IsLoopback()
}

// List is the list of allowed front-ends.
type List []Origin

// ParseList reads a list with commas. Its error names the entry.
func ParseList(text string) (List, error) {
	var list List
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		o, err := parseEntry(entry)
		if err != nil {
			return nil, fmt.Errorf("the entry %q %w", entry, err)
		}
		if slices.Contains(list, o) {
			return nil, fmt.Errorf("the entry %q is there twice", entry)
		}
		list = append(list, o)
	}
	return list, nil
}

func parseEntry(entry string) (Origin, error) {
	switch {
	case entry == "":
		return Origin{}, errors.New("is empty")
	case strings.Contains(entry, "*"):
		return Origin{}, errors.New("has a wildcard; every origin is listed by itself")
	case entry == "null":
		return Origin{}, errors.New("stands for any page without an origin")
	case strings.HasSuffix(entry, "/"):
		return Origin{}, errors.New("has a slash at its end, which no origin has")
	}
	u, o, err := parse(entry)
	switch {
	case err != nil:
		return Origin{}, err
	case u.Path != "" || u.RawQuery != "" || u.ForceQuery:
		return Origin{}, errors.New("has a path or a query, which no origin has")
	}
	return o, nil
}

// Allows reports whether a browser's header Origin is that of an entry. It must
// be written as browsers do.
func (l List) Allows(header string) bool {
	return slices.ContainsFunc(l, func(o Origin) bool { return o.String() == header })
}

// Target is a URL that may be called.
type Target struct {
	URL *url.URL
	// Origin is the entry that allows it.
	Origin Origin
}

// Target reads the URL of a callback. Its error says why it is not allowed,
// for the caller of the API, and has nothing of the URL in it.
func (l List) Target(text string) (Target, error) {
	if len(text) > MaxURL {
		return Target{}, fmt.Errorf("the callback URL has more than %d bytes", MaxURL)
	}
	u, o, err := parse(text)
	if err != nil {
		return Target{}, fmt.Errorf("the callback URL %w", err)
	}
	if !slices.Contains(l, o) {
		return Target{}, errors.New("the origin of the callback URL is not allowed")
	}
	return Target{u, o}, nil
}

// parse reads a URL and its origin. Its error goes on behind "the URL".
func parse(text string) (*url.URL, Origin, error) {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' || text[i] == '\\' {
			return nil, Origin{}, errors.New("has characters that no URL has; a name in another script is written as xn--…")
		}
	}
	u, err := url.Parse(text)
	if err != nil { // which repeats the URL
		return nil, Origin{}, errors.New("is not a URL")
	}
	o := Origin{scheme: u.Scheme, port: defaultPorts[u.Scheme]}
	switch {
	case o.port == 0 || u.Opaque != "" || u.Host == "":
		return nil, Origin{}, errors.New("is not of the form https://host")
	case u.User != nil:
		return nil, Origin{}, errors.New("has a user name")
	case strings.Contains(text, "#"):
		return nil, Origin{}, errors.New("has a fragment")
	}
	if o.host, err = canonicalHost(u.Hostname(), strings.HasPrefix(u.Host, "[")); err != nil {
		return nil, Origin{}, err
	}
	if strings.HasSuffix(u.Host, ":") {
		return nil, Origin{}, errors.New("has an empty port")
	}
	if port := u.Port(); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
			return nil, Origin{}, errors.New("has no possible port")
		}
		o.port = uint16(n)
	}
	if o.scheme == "http" && !o.Loopback() {
		return nil, Origin{}, errors.New("is not https, which only localhost and loopback addresses may do without")
	}
	return u, o, nil
}

// canonicalHost writes a host in the one way that hosts are compared in.
func canonicalHost(host string, brackets bool) (string, error) {
	if brackets {
		address, err := netip.ParseAddr(host)
		if err != nil || !address.Is6() || address.Zone() != "" {
			return "", errors.New("has no possible IPv6 address")
		}
		return address.String(), nil
	}
	host = strings.ToLower(host)
	labels := strings.Split(host, ".")
	if last := labels[len(labels)-1]; last != "" && (strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")) {
		// Some programs take any number for an address, so only the usual form is.
		address, err := netip.ParseAddr(host)
		if err != nil {
			return "", errors.New("has an address that is not written as four decimal numbers")
		}
		return address.String(), nil
	}
	if len(host) > 253 {
		return "", errors.New("has a host name that is too long")
	}
	for _, label := range labels {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", errors.New("has no possible host name")
		}
	}
	return host, nil
}
