package callback

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/origin"
)

const (
	token  = "only-for-this-deployment"
	secret = "not-for-any-log"
)

var ref = deployment.Ref{Deployment: "one", Build: 7}

// frontEnd is a front-end under the name example.com, for which the test server
// has a certificate. Names have what addresses says, look by look.
type frontEnd struct {
	t       *testing.T
	server  *httptest.Server
	url     string
	calls   atomic.Int32
	looks   atomic.Int32
	logged  lines
	mu      sync.Mutex
	claim   deployment.Claim
	claimed error
	// addresses are those of each look at a name; the last one stays.
	addresses [][]string
}

// newFrontEnd starts one whose addresses a front-end may have: the rules do not
// allow this machine under another name, so the test dials for itself.
func newFrontEnd(t *testing.T, answer http.HandlerFunc) *frontEnd {
	t.Helper()
	f := &frontEnd{t: t, addresses: [][]string{{"127.0.0.1"}}}
	f.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.calls.Add(1)
		answer(w, r)
	}))
	t.Cleanup(f.server.Close)
	u, err := url.Parse(f.server.URL)
	require.NoError(t, err)
	f.url = "https://localhost:" + u.Port()
	return f
}

func (f *frontEnd) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	look := int(f.looks.Add(1))
	var found []netip.Addr
	for _, address := range f.addresses[min(look, len(f.addresses))-1] {
		found = append(found, netip.MustParseAddr(address))
	}
	if found == nil {
		return nil, &net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}
	}
	return found, nil
}

func (f *frontEnd) ClaimCallback(context.Context, deployment.Ref) (deployment.Claim, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.claim, f.claimed
}

// callBack runs the activity for a URL and an allowlist.
func (f *frontEnd) callBack(allowed, target string) (deployment.Callback, error) {
	f.t.Helper()
	f.claim = deployment.Claim{URL: target, Token: token}
	return f.run(allowed)
}

func (f *frontEnd) run(allowed string) (deployment.Callback, error) {
	f.t.Helper()
	list, err := origin.ParseList(allowed)
	require.NoError(f.t, err)
	roots := x509.NewCertPool()
	roots.AddCert(f.server.Certificate())
	a := &Activities{Claims: f, Origins: list, Caller: &Caller{
		Resolver: f,
		// The certificate is for example.com and the loopback addresses.
		TLS: &tls.Config{RootCAs: roots, ServerName: "example.com"},
	}}
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(&f.logged)
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(a)
	value, err := env.ExecuteActivity(a.CallBack, ref)
	var became deployment.Callback
	if err == nil {
		require.NoError(f.t, value.Get(&became))
		require.NotContains(f.t, became.Reason, secret)
		require.NotContains(f.t, became.Reason, token)
	} else {
		require.NotContains(f.t, err.Error(), secret)
	}
	require.NotContains(f.t, f.logged.text(), secret)
	require.NotContains(f.t, f.logged.text(), token)
	return became, err
}

func TestACallArrivesOnce(t *testing.T) {
	got := make(chan *http.Request, 2)
	f := newFrontEnd(t, func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(text, &map[string]any{}) != nil {
			t.Errorf("body %q: %v", text, err)
		}
		r.Header.Set("X-Body", string(text))
		got <- r
		w.WriteHeader(http.StatusNoContent)
	})
	// No proxy of the environment, which would be asked for other hosts too.
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	became, err := f.callBack(f.url, f.url+"/reconcile?key="+secret)
	require.NoError(t, err)
	require.Equal(t, deployment.Callback{State: deployment.CallbackDelivered, Status: 204}, became)
	r := <-got
	require.Equal(t, http.MethodPost, r.Method)
	require.Equal(t, "/reconcile?key="+secret, r.RequestURI)
	require.Equal(t, "Bearer "+token, r.Header.Get("Authorization"))
	require.Equal(t, "application/json", r.Header.Get("Content-Type"))
	require.JSONEq(t, `{"deploymentId":"one","build":7,"state":"idle"}`, r.Header.Get("X-Body"))
	require.EqualValues(t, 1, f.calls.Load())
	require.EqualValues(t, 1, f.looks.Load(), "the name is looked up once")
}

func TestNoCallWithoutAClaim(t *testing.T) {
	f := newFrontEnd(t, func(http.ResponseWriter, *http.Request) {})
	f.claim.Instead = &deployment.Callback{State: deployment.CallbackSkipped, Reason: "there is a later build"}
	became, err := f.run(f.url)
	require.NoError(t, err)
	require.Equal(t, *f.claim.Instead, became)
	f.claimed = errors.New("the database is away")
	_, err = f.run(f.url)
	require.ErrorContains(t, err, "claim the callback")
	require.Zero(t, f.calls.Load())
}

func TestAnswers(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	t.Cleanup(elsewhere.Close)
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   deployment.Callback
		within time.Duration
	}{
		"200":             {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "thank you") }, deployment.Callback{State: "delivered", Status: 200}, 0},
		"401":             {status(401), deployment.Callback{State: "failed", Status: 401, Reason: "the front-end answered 401"}, 0},
		"500":             {status(500), deployment.Callback{State: "failed", Status: 500, Reason: "the front-end answered 500"}, 0},
		"a redirect":      {redirect("http://169.254.169.254/latest/meta-data/"), redirected(302), 0},
		"a redirect here": {redirect(elsewhere.URL), redirected(302), 0},
		"1 GiB": {func(w http.ResponseWriter, _ *http.Request) {
			piece := make([]byte, 1<<20)
			written := 0
			for range 1 << 10 {
				n, err := w.Write(piece)
				if written += n; err != nil {
					break
				}
			}
			if written > 64<<20 {
				t.Errorf("%d bytes of an answer were taken", written)
			}
		}, deployment.Callback{State: "delivered", Status: 200}, callTimeout},
		"headers without an end": {func(w http.ResponseWriter, _ *http.Request) {
			connection, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = connection.Close() }()
			_, _ = io.WriteString(connection, "HTTP/1.1 200 OK\r\n")
			for err == nil {
				_, err = io.WriteString(connection, "X-More: "+strings.Repeat("x", 1<<12)+"\r\n")
			}
		}, failed("the connection to the front-end failed; the call may have arrived"), callTimeout},
		"a slow loris": {func(w http.ResponseWriter, r *http.Request) {
			connection, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = connection.Close() }()
			for _, letter := range "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 100) {
				if _, err := io.WriteString(connection, string(letter)); err != nil {
					return
				}
				time.Sleep(200 * time.Millisecond)
			}
		}, failed("the front-end did not answer within 10s; the call may have arrived"), callTimeout + 5*time.Second},
		"a body without an end": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // from then on the server notices who leaves
			w.WriteHeader(http.StatusAccepted)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, deployment.Callback{State: "delivered", Status: 202}, callTimeout + 5*time.Second},
		"no answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			failed("the connection to the front-end failed; the call may have arrived"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFrontEnd(t, c.answer)
			start := time.Now()
			became, err := f.callBack(f.url, f.url+"/?key="+secret)
			require.NoError(t, err)
			require.Equal(t, c.want, became)
			require.EqualValues(t, 1, f.calls.Load(), "without a retry")
			if c.within > 0 {
				require.Less(t, time.Since(start), c.within)
			}
		})
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }
}

func redirected(code int) deployment.Callback {
	return deployment.Callback{State: "failed", Status: code, Reason: "the front-end answered 302, and redirects are not followed"}
}

func TestOriginsAreCheckedBeforeTheCall(t *testing.T) {
	f := newFrontEnd(t, func(http.ResponseWriter, *http.Request) {})
	port := f.url[strings.LastIndex(f.url, ":"):]
	for name, target := range map[string]string{
		"another port":        "https://localhost:1/",
		"another scheme":      "http://localhost" + port + "/",
		"userinfo":            "https://me:" + secret + "@localhost" + port + "/",
		"a longer name":       "https://localhost.evil.io" + port + "/",
		"a name as the user":  "https://localhost@evil.io" + port + "/",
		"trailing dot":        "https://localhost." + port + "/",
		"IDN look-alike":      "https://lоcalhost" + port + "/", // a Cyrillic о
		"loopback as IPv4":    "https://127.0.0.1" + port + "/",
		"loopback as IPv6":    "https://[::1]" + port + "/",
		"mapped":              "https://[::ffff:127.0.0.1]" + port + "/",
		"loopback as decimal": "https://2130706433" + port + "/",
		"metadata":            "http://169.254.169.254/",
		"no URL":              "nonsense",
	} {
		became, err := f.callBack(f.url, target)
		require.NoError(t, err)
		require.Equal(t, deployment.CallbackRefused, became.State, name)
	}
	became, err := f.callBack("https://another.example", f.url+"/?key="+secret)
	require.NoError(t, err)
	require.Equal(t, deployment.Callback{State: "refused", Reason: "the origin of the callback URL is not allowed"}, became,
		"the list lost the origin between the request and the call")
	list := "https://another.example," + f.url
	became, err = f.callBack(list, strings.Replace(f.url, "localhost", "LocalHost", 1)+"/")
	require.NoError(t, err)
	require.Equal(t, deployment.CallbackDelivered, became.State, "upper case is the same host")
	require.EqualValues(t, 1, f.calls.Load())
}

func TestAddressesAreCheckedAndPinned(t *testing.T) {
	reached := func(c net.Conn, s http.ConnState) {
		if s == http.StateNew {
			t.Errorf("a connection from %s", c.RemoteAddr())
		}
	}
	for name, addresses := range map[string][]string{
		"metadata": {"169.254.169.254"}, "metadata, mapped": {"::ffff:169.254.169.254"}, "metadata by NAT64": {"64:ff9b::a9fe:a9fe"},
		"metadata of AWS": {"fd00:ec2::254"}, "shared": {"100.64.0.1"}, "unspecified": {"0.0.0.0"}, "unspecified IPv6": {"::"},
		"multicast": {"224.0.0.1"}, "link-local": {"fe80::1"}, "this machine": {"127.0.0.1"}, "this machine, IPv6": {"::1"},
		"this machine, mapped": {"::ffff:127.0.0.1"}, "one of them": {"192.0.2.7", "169.254.169.254"},
	} {
		f := newFrontEnd(t, func(http.ResponseWriter, *http.Request) {})
		f.server.Config.ConnState = reached
		f.addresses = [][]string{addresses}
		became, err := f.callBack("https://panel.example", "https://panel.example/?key="+secret)
		require.NoError(t, err)
		require.Equal(t, deployment.CallbackRefused, became.State, name)
		require.NotContains(t, became.Reason, addresses[0], name)
	}

	// A name that answers otherwise when it is asked a second time.
	f := newFrontEnd(t, func(http.ResponseWriter, *http.Request) {})
	f.addresses = [][]string{{"::1", "127.0.0.1"}, {"169.254.169.254"}}
	became, err := f.callBack(f.url, f.url+"/")
	require.NoError(t, err)
	require.Equal(t, deployment.CallbackDelivered, became.State, became.Reason)
	require.EqualValues(t, 1, f.looks.Load(), "there is no second look")
	became, err = f.callBack(f.url, f.url+"/")
	require.NoError(t, err)
	require.Equal(t, deployment.CallbackRefused, became.State, "and it counts in the next call")
	require.EqualValues(t, 1, f.calls.Load())

	f.addresses = [][]string{nil}
	became, err = f.callBack(f.url, f.url+"/")
	require.NoError(t, err)
	require.Equal(t, failed("the name of the front-end has no address"), became)
	f.addresses = [][]string{{"192.0.2.7"}}
	became, err = f.callBack(f.url, f.url+"/")
	require.NoError(t, err)
	require.Equal(t, deployment.CallbackRefused, became.State, "a name of this machine with another address")
}

func TestCertificatesAreChecked(t *testing.T) {
	f := newFrontEnd(t, func(http.ResponseWriter, *http.Request) {})
	list, err := origin.ParseList(f.url)
	require.NoError(t, err)
	target, err := list.Target(f.url + "/")
	require.NoError(t, err)
	became, cause := (&Caller{Resolver: f}).Call(t.Context(), target, token, ref)
	require.Equal(t, failed("the certificate of the front-end is not trusted"), became)
	require.Error(t, cause)
	require.Zero(t, f.calls.Load())
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	held strings.Builder
}

var _ log.Logger = (*lines)(nil)

func (l *lines) add(message string, values ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text, _ := json.Marshal(values)
	l.held.WriteString(message + " " + string(text) + "\n")
	for _, v := range values {
		if err, ok := v.(error); ok {
			l.held.WriteString(err.Error() + "\n")
		}
	}
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held.String()
}

func (l *lines) Debug(message string, values ...any) { l.add(message, values...) }
func (l *lines) Info(message string, values ...any)  { l.add(message, values...) }
func (l *lines) Warn(message string, values ...any)  { l.add(message, values...) }
func (l *lines) Error(message string, values ...any) { l.add(message, values...) }
