package api

import (
	"io"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"

	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
)

// The public procedures cost a request, and one more for each publicUnit bytes
// of the body: what they do takes time with the size of what they read.
const (
	publicRate  rate.Limit = 5 // a second
	publicBurst            = 60
	publicUnit             = 32 << 10
	// publicAddresses is how many addresses are kept apart. Those that were
	// away for the longest are forgotten, and begin anew.
	publicAddresses = 10_000
)

// limiter is how much the public procedures do for each address, in this
// process.
type limiter struct {
	mu        sync.Mutex
	addresses *lru.Cache // netip.Prefix → *rate.Limiter
}

func newLimiter() *limiter { return &limiter{addresses: lru.New(publicAddresses)} }

func (l *limiter) of(address netip.Prefix) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kept, ok := l.addresses.Get(address); ok {
		if of, ok := kept.(*rate.Limiter); ok {
			return of
		}
	}
	of := rate.NewLimiter(publicRate, publicBurst)
	l.addresses.Add(address, of)
	return of
}

// anyone is the access without a token. It is limited by address.
func (a *api) anyone(r *http.Request) (caller, error) {
	now := a.Now()
	reservation := a.limits.of(clientOf(r, a.TrustedProxies)).ReserveN(now, 1)
	wait := reservation.DelayFrom(now)
	if wait == 0 {
		return caller{}, nil
	}
	reservation.CancelAt(now)
	return caller{}, &failure{code: codeTooManyRequests, message: "there are too many requests from this address; try again later",
		retryAfter: time.Duration(math.Ceil(wait.Seconds())) * time.Second}
}

// clientOf is the network that a request comes from: an IPv4 address, or the
// /64 of an IPv6 address, which is what one client has. Where the peer is a
// trusted proxy it is the address that the nearest proxy not trusted, or the
// client, had: X-Forwarded-For is read from the right, since every proxy appends
// to it and anybody may have begun it.
func clientOf(r *http.Request, trusted []netip.Prefix) netip.Prefix {
	client := addressOf(r.RemoteAddr)
	var forwarded []string
	for _, value := range r.Header.Values("X-Forwarded-For") {
		forwarded = append(forwarded, strings.Split(value, ",")...)
	}
	for _, hop := range slices.Backward(forwarded) {
		if !slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(client) }) {
			break
		}
		before := addressOf(strings.TrimSpace(hop))
		if !before.IsValid() {
			break
		}
		client = before
	}
	bits := 64
	if client.Is4() {
		bits = 32
	}
	network, err := client.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // no address: all of these are one client
	}
	return network
}

// addressOf reads an IP address, with or without a port; the zero one where it
// is none.
func addressOf(text string) netip.Addr {
	address, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		withPort, err := netip.ParseAddrPort(text)
		if err != nil {
			return netip.Addr{}
		}
		address = withPort.Addr()
	}
	return address.Unmap().WithZone("")
}

// draft reads the body of a public procedure. A large one counts as several
// requests: it is answered, and those that follow wait.
func (a *api) draft(w http.ResponseWriter, r *http.Request, optional ...string) (map[string]any, error) {
	body := &counted{ReadCloser: r.Body}
	r.Body = body
	members, err := a.readObject(w, r, "configuration", optional...)
	a.limits.of(clientOf(r, a.TrustedProxies)).ReserveN(a.Now(), min(body.bytes, configuration.MaxBytes)/publicUnit)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if _, ok := members[name].(map[string]any); !ok {
			return nil, refuse(codeInvalidRequest, "the member %q is not an object", name)
		}
	}
	return members, nil
}

// counted is a body that counts what was read of it.
type counted struct {
	io.ReadCloser
	bytes int
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.bytes += n
	return n, err
}

type applicationPaths struct {
	Applications []configuration.Application `json:"applications"`
	Changed      []string                    `json:"changed"`
}

// applicationPaths answers where a configuration has its applications, and which
// of them differ from a previous one. It looks at no deployment.
func (a *api) applicationPaths(w http.ResponseWriter, r *http.Request, _ caller) error {
	members, err := a.draft(w, r, "previous")
	if err != nil {
		return err
	}
	source, err := a.current(r.Context())
	if err != nil {
		return err
	}
	out := applicationPaths{Applications: source.Applications(members["configuration"]), Changed: []string{}}
	if previous, ok := members["previous"]; ok {
		out.Changed = source.Changed(members["configuration"], previous)
	}
	return respondJSON(w, http.StatusOK, out)
}

// sections answers what a form of a configuration edits one at a time. It looks
// at no deployment.
func (a *api) sections(w http.ResponseWriter, r *http.Request, _ caller) error {
	members, err := a.draft(w, r)
	if err != nil {
		return err
	}
	source, err := a.current(r.Context())
	if err != nil {
		return err
	}
	return respondJSON(w, http.StatusOK, map[string][]deployment.Section{"sections": source.Sections(members["configuration"])})
}
