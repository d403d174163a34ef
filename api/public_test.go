package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
)

// clock is one that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func startPublic(t *testing.T, proxies ...string) (*bundle, *clock) {
	t.Helper()
	at := &clock{now: time.Now()}
	b := start(t, func(c *Config) {
		c.Now = at.Now
		for _, proxy := range proxies {
			c.TrustedProxies = append(c.TrustedProxies, netip.MustParsePrefix(proxy))
		}
	})
	b.SetSource(sourceOf(t, "example", "/nix/store/one"))
	return b, at
}

// A token is neither needed nor looked at.
var public = []string{"Authorization", ""}

func TestApplicationPaths(t *testing.T) {
	b, _ := startPublic(t)
	const now = `{"fleet":{"domain":"example.org","applications":{"forum":{"enable":true,"uploadMegabytes":16.0},"wiki":{"enable":true}}}}`
	a := b.do("POST", "/application-paths", `{"configuration":`+now+`}`, public...)
	require.Equal(t, http.StatusOK, a.status)
	require.JSONEq(t, `{"changed":[],"applications":[
		{"application":"backup","path":"/fleet/applications/backup","enabled":false},
		{"application":"forum","path":"/fleet/applications/forum","enabled":true},
		{"application":"wiki","path":"/fleet/applications/wiki","enabled":true}]}`, a.body)

	const before = `{"single":{"domain":"other.example","applications":{"wiki":{"public":true,"enable":true},"forum":{"enable":true},"backup":{"hour":4}}}}`
	var out applicationPaths
	b.do("POST", "/application-paths", `{"previous":`+before+`,"configuration":`+now+`}`, public...).json(t, &out)
	require.Equal(t, []string{"backup"}, out.Changed)
	a = b.do("POST", "/application-paths", `{"configuration":{"fleet":{"applications":{"forum":{"translationApiKey":"value-of-mine"}}}},"previous":{"fleet":{"applications":{"forum":{}}}}}`, public...)
	a.json(t, &out)
	require.Equal(t, []string{"forum"}, out.Changed)
	require.NotContains(t, a.body, "value-of-mine")

	a = b.do("POST", "/application-paths", `{"configuration":{}}`, public...)
	require.JSONEq(t, `{"applications":[],"changed":[]}`, a.body)
	require.Zero(t, b.Reads("Deployment")+b.Reads("Deployments")+b.Reads("SourceSnapshot"), "no stored data is looked at")
	require.Zero(t, b.workflows.called())
	b.do("POST", "/application-paths", `{"configuration":{}}`, "Authorization", "Bearer not-a-token").json(t, &out)
}

func TestSections(t *testing.T) {
	b, _ := startPublic(t)
	a := b.do("POST", "/sections", `{"configuration":{"single":{}}}`, public...)
	require.JSONEq(t, `{"sections":[
		{"id":"backup","title":"Backup","path":"/single/applications/backup","kind":"application"},
		{"id":"forum","title":"Forum","path":"/single/applications/forum","kind":"application"},
		{"id":"wiki","title":"Wiki","path":"/single/applications/wiki","kind":"application"}]}`, a.body)
	require.JSONEq(t, `{"sections":[]}`, b.do("POST", "/sections", `{"configuration":{}}`, public...).body)

	b.SetSource(deployment.Source{Problem: "secret-place"})
	for _, path := range []string{"/sections", "/application-paths"} {
		a := b.do("POST", path, `{"configuration":{}}`, public...)
		require.Equal(t, codeServiceUnavailable, a.failure(t).Error)
		require.NotContains(t, a.body, "secret-place")
	}
}

func TestPublicBodiesThatAreRefused(t *testing.T) {
	b, at := startPublic(t)
	deep := func(levels int) string {
		return `{"configuration":{"fleet":` + strings.Repeat(`{"a":`, levels) + `1` + strings.Repeat(`}`, levels) + `}}`
	}
	for _, c := range []struct {
		body string
		code code
		says string
	}{
		{``, codeUnsupportedMediaType, ""},
		{`{`, codeInvalidRequest, "ends too early"},
		{`[]`, codeInvalidRequest, "not a JSON object"},
		{`{}`, codeInvalidRequest, `no member "configuration"`},
		{`{"configuration":null}`, codeInvalidRequest, `"configuration" is not an object`},
		{`{"configuration":"x"}`, codeInvalidRequest, `"configuration" is not an object`},
		{`{"configuration":{},"id":"one"}`, codeInvalidRequest, `"id"`},
		{`{"configuration":{},"configuration":{}}`, codeInvalidRequest, "twice"},
		{`{"configuration":{"fleet":{"a":1,"a":1}}}`, codeInvalidRequest, "at /configuration/fleet/a"},
		{`{"configuration":{"fleet":1e999}}`, codeInvalidRequest, "at /configuration/fleet"},
		{`{"configuration":{"fleet":{"applications":{"backup":{"applications":[1e-1000001` + strings.Repeat(`,"wiki"`, 20) + `]}}}}}`,
			codeInvalidRequest, "at /configuration/fleet/applications/backup/applications/0"},
		{`{"configuration":{"fleet":` + strings.Repeat("9", 100_000) + `}}`, codeInvalidRequest, "64 bits"},
		{deep(99), codeInvalidRequest, "deeper than 100 levels"},
		{deep(100_000), codeInvalidRequest, "deeper than 100 levels"},
		{`{"configuration":{"` + strings.Repeat("k", 5000) + `":1}}`, codeInvalidRequest, "more than 4096 bytes together"},
		{`{"configuration":{"a":"` + strings.Repeat("a", 1<<20) + `"}}`, codeRequestTooLarge, "1048576"},
		{"{\"configuration\":{\"a\":\"\xff\"}}", codeInvalidRequest, "UTF-8"},
	} {
		for _, path := range []string{"/sections", "/application-paths"} {
			at.pass(time.Minute)
			a := b.do("POST", path, c.body, public...)
			require.Equal(t, c.code, a.failure(t).Error, c.body[:min(len(c.body), 100)])
			require.Contains(t, a.failure(t).Message, c.says)
		}
	}
	require.Equal(t, codeInvalidRequest, b.do("POST", "/sections", `{"configuration":{},"previous":{}}`, public...).failure(t).Error)
	for _, previous := range []string{`null`, `[]`, `1`} {
		a := b.do("POST", "/application-paths", `{"configuration":{},"previous":`+previous+`}`, public...)
		require.Contains(t, a.failure(t).Message, `"previous" is not an object`)
	}
	at.pass(time.Minute)
	require.Equal(t, http.StatusOK, b.do("POST", "/sections", deep(90), public...).status)
}

func TestAddressesAreLimited(t *testing.T) {
	b, at := startPublic(t, "127.0.0.0/8")
	const body = `{"configuration":{}}`
	from := func(address string) answer {
		return b.do("POST", "/sections", body, append(public, "X-Forwarded-For", address)...)
	}
	drain := func(address string) (answered int) {
		for from(address).status == http.StatusOK {
			answered++
		}
		return answered
	}
	require.Equal(t, publicBurst, drain("192.0.2.1"))
	a := from("192.0.2.1")
	require.Equal(t, http.StatusTooManyRequests, a.status)
	require.Equal(t, codeTooManyRequests, a.failure(t).Error)
	require.Equal(t, "1", a.header.Get("Retry-After"))
	require.Equal(t, http.StatusTooManyRequests, b.do("POST", "/application-paths", body, append(public, "X-Forwarded-For", "192.0.2.1")...).status, "one bucket for both")
	require.Equal(t, http.StatusOK, b.do("GET", "/openapi.yaml", "", "X-Forwarded-For", "192.0.2.1").status, "what needs no limit has none")
	require.Equal(t, http.StatusOK, b.do("POST", "/deployments/list", `{"ids":["one"]}`, "X-Forwarded-For", "192.0.2.1").status)
	require.Equal(t, http.StatusOK, from("192.0.2.2").status, "others are not concerned")

	// What Retry-After says is true.
	at.pass(time.Second)
	require.Equal(t, int(publicRate), drain("192.0.2.1"))

	// An IPv6 client has a /64, and cannot leave its bucket within it.
	require.Equal(t, publicBurst, drain("2001:db8:1:2::1"))
	require.Equal(t, http.StatusTooManyRequests, from("2001:db8:1:2:ffff::7").status)
	require.Equal(t, http.StatusOK, from("2001:db8:1:3::1").status)

	// What anybody may have written on the left is not believed.
	for i := range 3 {
		require.Equal(t, http.StatusTooManyRequests, from(fmt.Sprintf("198.51.100.%d, 192.0.2.1", i)).status)
	}
	// A large body counts as what it costs.
	large := `{"configuration":{"x":"` + strings.Repeat("x", 1<<20-100) + `"}}`
	counts := 0
	for b.do("POST", "/sections", large, append(public, "X-Forwarded-For", "192.0.2.3")...).status == http.StatusOK {
		counts++
	}
	require.Equal(t, 2, counts)
	wait, err := strconv.Atoi(from("192.0.2.3").header.Get("Retry-After"))
	require.NoError(t, err)
	at.pass(time.Duration(wait) * time.Second)
	require.Equal(t, http.StatusOK, from("192.0.2.3").status)
}

// Without trusted proxies the header means nothing.
func TestXForwardedForOfAnybody(t *testing.T) {
	b, _ := startPublic(t)
	limited := false
	for i := range publicBurst + 1 {
		limited = b.do("POST", "/sections", `{"configuration":{}}`, append(public, "X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i))...).status == http.StatusTooManyRequests
	}
	require.True(t, limited)
}

func TestAddressesThatAreKeptAreBounded(t *testing.T) {
	l := newLimiter()
	for i := range 3 * publicAddresses {
		l.of(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32))
	}
	require.Equal(t, publicAddresses, l.addresses.Len())
}

func TestClientOf(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"direct", "192.0.2.1:5", nil, "192.0.2.1/32"},
		{"direct, by IPv6", "[2001:db8::7]:5", nil, "2001:db8::/64"},
		{"direct, by IPv4 as IPv6", "[::ffff:192.0.2.1]:5", nil, "192.0.2.1/32"},
		{"direct, with a header", "192.0.2.1:5", []string{"198.51.100.1"}, "192.0.2.1/32"},
		{"a proxy", "10.0.0.1:5", []string{"198.51.100.1"}, "198.51.100.1/32"},
		{"a proxy by IPv4 as IPv6", "[::ffff:10.0.0.1]:5", []string{"::ffff:198.51.100.1"}, "198.51.100.1/32"},
		{"a proxy that says nothing", "10.0.0.1:5", nil, "10.0.0.1/32"},
		{"an address before the client's", "10.0.0.1:5", []string{"10.9.9.9, 203.0.113.9, 198.51.100.1"}, "198.51.100.1/32"},
		{"two proxies", "10.0.0.1:5", []string{"203.0.113.9, 198.51.100.1 , 10.0.0.2"}, "198.51.100.1/32"},
		{"two headers", "10.0.0.1:5", []string{"203.0.113.9, 198.51.100.1", "fd00::2"}, "198.51.100.1/32"},
		{"only proxies", "10.0.0.1:5", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3/32"},
		{"ports", "10.0.0.1:5", []string{"203.0.113.9, 198.51.100.1:8080"}, "198.51.100.1/32"},
		{"IPv6 with a port", "10.0.0.1:5", []string{"[2001:db8::7]:8080"}, "2001:db8::/64"},
		{"IPv6 in brackets", "10.0.0.1:5", []string{"[2001:db8::7]"}, "2001:db8::/64"},
		{"a zone", "10.0.0.1:5", []string{"fe80::1%eth0"}, "fe80::/64"},
		{"a name", "10.0.0.1:5", []string{"203.0.113.9, unknown"}, "10.0.0.1/32"},
		{"nothing in the header", "10.0.0.1:5", []string{""}, "10.0.0.1/32"},
		{"an empty hop", "10.0.0.1:5", []string{"203.0.113.9,,10.0.0.2"}, "10.0.0.2/32"},
		{"no peer", "", []string{"203.0.113.9"}, "invalid Prefix"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/sections", nil)
		r.RemoteAddr = c.peer
		for _, value := range c.forwarded {
			r.Header.Add("X-Forwarded-For", value)
		}
		require.Equal(t, c.want, clientOf(r, proxies).String(), c.name)
	}
}

// A body at a limit takes about as long as one of its size that has nothing to
// it. They have a part of what is allowed, for the time of the test.
func TestLargeDrafts(t *testing.T) {
	b, at := startPublic(t)
	b.SetSource(sourceOf(t, "composed", "/nix/store/one"))
	const size = configuration.MaxBytes / 4
	// fill repeats an item as often as the body may have it.
	fill := func(before, item, after string) string {
		before, after = `{"configuration":`+before, after+`}`
		return before + strings.TrimSuffix(strings.Repeat(item, (size-len(before)-len(after))/len(item)), ",") + after
	}
	sites := func() string {
		var sites []string
		for i := range size / 2 / 36 {
			sites = append(sites, fmt.Sprintf(`"site-%c%c%c%c":{"domain":"a.example"}`, 'a'+i%26, 'a'+i/26%26, 'a'+i/676%26, 'a'+i/17576))
		}
		return `{"solo":{"applications":{` + strings.Join(sites, ",") + `}}}`
	}
	const levels = 80
	took := func(body string, status int) time.Duration {
		at.pass(time.Minute)
		begun := time.Now()
		a := b.do("POST", "/application-paths", body, public...)
		require.Equal(t, status, a.status, a.body[:min(len(a.body), 500)])
		return time.Since(begun)
	}
	plain := func() time.Duration { return took(fill(`{"k":[`, `0,`, `]}`), http.StatusOK) }
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"a name of half the body":     {fill(`{"`+strings.Repeat("k", size/2)+`":[`, `0,`, `]}`), http.StatusBadRequest},
		"the longest name":            {fill(`{"`+strings.Repeat("k", 4_000)+`":[`, `0,`, `]}`), http.StatusOK},
		"many names, many levels":     {fill(strings.Repeat(`{"`+strings.Repeat("k", 40)+`":`, levels)+"[", `0,`, "]"+strings.Repeat("}", levels)), http.StatusOK},
		"brackets":                    {fill(`{"k":[`, `[],`, `]}`), http.StatusOK},
		"a name twice, after a while": {fill(`{"`+strings.Repeat("k", 4_000)+`":{"a":[`, `0,`, `],"a":0}}`), http.StatusBadRequest},
		"many applications, twice":    {`{"configuration":` + sites() + `,"previous":` + sites() + `}`, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			require.InDelta(t, size, len(c.body), size/10)
			// What else the machine does may fall on either.
			fast := false
			for range 3 {
				fast = fast || took(c.body, c.status) <= 10*plain()
			}
			require.True(t, fast)
		})
	}
}
