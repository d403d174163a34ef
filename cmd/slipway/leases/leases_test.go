package leases

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway/exit"
	"slipway.dev/slipway/schema/lease"
)

// asSlipway makes the test program be "slipway lease": the client starts itself
// as the watchdog, so it has to be a program of its own.
const asSlipway = "TEST_AS_SLIPWAY"

func TestMain(m *testing.M) {
	if os.Getenv(asSlipway) == "" {
		os.Exit(m.Run())
	}
	c := exit.Strict(Command(os.Getenv, nil))
	c.SilenceErrors, c.SilenceUsage = true, true
	if len(os.Args) > 1 && os.Args[1] == "lease" {
		os.Args = os.Args[1:]
	}
	err := c.Execute()
	coded, ok := errors.AsType[*exit.Error](err)
	switch {
	case err == nil:
		os.Exit(0)
	case !ok:
		fmt.Fprintln(os.Stderr, "not coded:", err)
		os.Exit(1)
	case coded.Error() != "":
		fmt.Fprintln(os.Stderr, coded)
	}
	os.Exit(coded.Code)
}

// api is a lease API that grants what it is asked for.
type api struct {
	*httptest.Server
	folder string

	mu     sync.Mutex
	calls  []string
	answer func(r *http.Request) (status int, body string) // status 0: the usual
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{folder: t.TempDir()}
	a.Server = httptest.NewTLSServer(a)
	t.Cleanup(a.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	require.NoError(t, os.WriteFile(a.path("ca.crt"), ca, 0o600))
	require.NoError(t, os.WriteFile(a.path("token"), []byte("the-token"), 0o600))
	return a
}

func (a *api) path(name string) string { return filepath.Join(a.folder, name) }

// answers makes all further answers.
func (a *api) answers(with func(r *http.Request) (status int, body string)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = with
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, r.Method)
	w.Header().Set("Content-Type", "application/json")
	status, body := 0, ""
	if a.answer != nil {
		status, body = a.answer(r)
	}
	var ask struct {
		TTL int `json:"ttlSeconds"`
	}
	_ = json.NewDecoder(r.Body).Decode(&ask)
	expires := time.Now().Add(time.Duration(ask.TTL) * time.Second).UTC().Format(time.RFC3339Nano)
	switch {
	case status != 0:
	case r.Method == http.MethodGet:
		status, body = 200, `{"leases":[]}`
	case r.Method == http.MethodPost:
		status, body = 201, `{"token":"t","expiresAt":"`+expires+`","topologyGeneration":17}`
	case r.Method == http.MethodPut:
		status, body = 200, `{"expiresAt":"`+expires+`","topologyGeneration":17}`
	default:
		status = 204
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func (a *api) called() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.calls, " ")
}

// command is "slipway lease …" with all that it needs in its environment.
func (a *api) command(args ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", args...)
	c.Dir = a.folder
	c.Env = []string{
		asSlipway + "=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + a.folder, "GORACE=" + os.Getenv("GORACE"),
		"SLIPWAY_LEASE_URL=" + a.URL, "SLIPWAY_LEASE_CA_FILE=" + a.path("ca.crt"), "SLIPWAY_LEASE_TOKEN_FILE=" + a.path("token"),
		"SLIPWAY_LEASE_GROUP=orders", "SLIPWAY_LEASE_INSTANCE=orders-app", "SLIPWAY_LEASE_TTL=20s",
	}
	return c
}

func run(c *exec.Cmd) (code int, out, errOut string) {
	var o, e bytes.Buffer
	c.Stdout, c.Stderr = &o, &e
	_ = c.Run()
	return c.ProcessState.ExitCode(), o.String(), e.String()
}

func TestExitCodes(t *testing.T) {
	held := fmt.Sprintf(`{"error":"held","holder":{"operationId":"other\u001b[2J","instance":"orders-app","expiresAt":%q}}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	posts := func(status int, body string) func(*http.Request) (int, string) {
		return func(r *http.Request) (int, string) {
			if r.Method != http.MethodPost {
				return 0, ""
			}
			return status, body
		}
	}
	for name, test := range map[string]struct {
		args   []string
		env    string
		answer func(*http.Request) (int, string)
		code   int
		says   string
		calls  string
	}{
		"well":              {[]string{"--", "true"}, "", nil, 0, "the command ended with 0", "GET POST POST DELETE DELETE"},
		"no hold":           {[]string{"--no-hold", "--", "true"}, "", nil, 0, "released the migration lease", "GET POST DELETE"},
		"no hold, from env": {[]string{"--", "true"}, "SLIPWAY_LEASE_NO_HOLD=true", nil, 0, "released the migration lease", "GET POST DELETE"},
		"arguments":         {[]string{"--", "sh", "-c", `exit "$1"`, "sh", "9"}, "", nil, 9, "the command ended with 9", "GET POST POST DELETE DELETE"},
		"killed":            {[]string{"--", "sh", "-c", "kill -KILL $$"}, "", nil, 137, "the command ended with 137", "GET POST POST DELETE DELETE"},
		"not found":         {[]string{"--", "no-such-command"}, "", nil, 127, "executable file not found", ""},
		"not executable":    {[]string{"--", "./token"}, "", nil, 126, "permission denied", ""},
		"held":              {[]string{"--", "true"}, "", posts(409, held), 73, "operation other\uFFFD[2J of orders-app has it until", "GET POST"},
		"forbidden":         {[]string{"--", "true"}, "", posts(403, `{"error":"forbidden"}`), 73, "deploymentClients", "GET POST"},
		"unstable":          {[]string{"--", "true"}, "", posts(423, `{"error":"unstable","reason":"NoPrimary"}`), 73, "the group is not stable (NoPrimary); --wait waits longer", "GET POST"},
		"no command":        {[]string{"--"}, "", nil, 2, "takes a command, after --", ""},
		"no dashes":         {[]string{"true"}, "", nil, 2, "takes a command, after --", ""},
		"too early":         {[]string{"true", "--", "true"}, "", nil, 2, "takes a command, after --", ""},
		"no flag":           {[]string{"--nonsense", "--", "true"}, "", nil, 2, "lease run --help", ""},
		"no group":          {[]string{"--group", "", "--", "true"}, "", nil, 2, "--group is needed", ""},
		"bad group":         {[]string{"--group", "A/b", "--", "true"}, "", nil, 2, "is not the name of a group", ""},
		"bad ttl":           {[]string{"--", "true"}, "SLIPWAY_LEASE_TTL=soon", nil, 2, "SLIPWAY_LEASE_TTL: ", ""},
		"bad output":        {[]string{"-o", "xml", "--", "true"}, "", nil, 2, "--output is text or json", ""},
		"no TLS":            {[]string{"--url", "http://a", "--", "true"}, "", nil, 2, "begin with https://", ""},
		"no token file":     {[]string{"--token-file", "none", "--", "true"}, "", nil, 2, "token file: ", ""},
		"no CA file":        {[]string{"--ca-file", "none", "--", "true"}, "", nil, 2, "CA file: ", ""},
		"boundary, no path": {[]string{"--boundary-file", "none/x", "--", "true"}, "", nil, 2, "boundary file: ", ""},
		"boundary of another run": {[]string{"--", "true"}, "SLIPWAY_LEASE_BOUNDARY=token", nil, 2,
			"token is not empty: an earlier run has begun DDL", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t)
			a.answers(test.answer)
			c := a.command(append([]string{"run"}, test.args...)...)
			c.Env = append(c.Env, test.env)
			code, out, errOut := run(c)
			require.Equal(t, test.code, code, errOut)
			require.Contains(t, errOut, test.says)
			require.NotContains(t, errOut, "\x1b")
			require.Empty(t, out)
			require.Equal(t, test.calls, a.called())
		})
	}
}

func TestTheLossOfALeaseEndsTheCommand(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		code   int
		begun  bool
	}{
		"before DDL":             {"sleep 100", 75, false},
		"after DDL":              {`echo ALTER >"$SLIPWAY_LEASE_BOUNDARY"; sleep 100`, 76, true},
		"the boundary file gone": {`rm "$SLIPWAY_LEASE_BOUNDARY"; sleep 100`, 76, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t)
			a.answers(func(r *http.Request) (int, string) {
				if r.Method == http.MethodPut {
					return 409, `{"error":"revoked","reason":"operator_revoked","topologyGeneration":17}`
				}
				return 0, ""
			})
			code, _, errOut := run(a.command("run", "--ttl", "5s", "-o", "json", "--", "sh", "-c", test.script))
			require.Equal(t, test.code, code, errOut)
			var events []string
			var last record
			for line := range strings.Lines(errOut) {
				last = record{}
				require.NoError(t, json.Unmarshal([]byte(line), &last), line)
				events = append(events, last.Event)
				require.False(t, last.Time.IsZero())
				if last.Event == "lost" {
					require.Equal(t, "revoked", string(last.Cause))
					require.Contains(t, last.Reason, "operator_revoked")
				}
			}
			require.Subset(t, events, []string{"operation", "granted", "started", "lost", "released", "ended"})
			require.NotContains(t, a.called(), "PUT POST")
			require.True(t, strings.HasSuffix(a.called(), "DELETE DELETE"), a.called())
			require.Equal(t, test.code, *jsonOf(t, errOut, "ended").ExitCode)
			require.Equal(t, test.begun, *jsonOf(t, errOut, "ended").DDLBegan)
		})
	}
}

// jsonOf is the record of an event.
func jsonOf(t *testing.T, lines, event string) record {
	t.Helper()
	for line := range strings.Lines(lines) {
		var r record
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		if r.Event == event {
			return r
		}
	}
	require.Fail(t, "there is no "+event)
	return record{}
}

func TestTheBoundaryFileOfOnesOwnStays(t *testing.T) {
	a := newAPI(t)
	code, _, errOut := run(a.command("run", "--boundary-file", "mark", "--", "sh", "-c", `echo "$SLIPWAY_LEASE_OPERATION_ID" >"$SLIPWAY_LEASE_BOUNDARY"`))
	require.Equal(t, 0, code, errOut)
	text, err := os.ReadFile(a.path("mark"))
	require.NoError(t, err)
	require.Contains(t, errOut, "operation "+strings.TrimSpace(string(text)))
}

func TestARunGoesOnWhenNobodyReadsItsProgress(t *testing.T) {
	a := newAPI(t)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	c := a.command("run", "--", "sh", "-c", "echo works; exit 3")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, write
	_ = c.Run()
	require.NoError(t, write.Close())
	require.Equal(t, 3, c.ProcessState.ExitCode())
	require.Equal(t, "works\n", out.String())
	require.Equal(t, "GET POST POST DELETE DELETE", a.called())
}

func TestStatus(t *testing.T) {
	a := newAPI(t)
	a.answers(func(*http.Request) (int, string) { return 200, `{"group":"orders","topologyGeneration":17}` })
	code, out, errOut := run(a.command("status", "-o", "json"))
	require.Equal(t, 0, code, errOut)
	var o lease.Observation
	require.NoError(t, json.Unmarshal([]byte(out), &o))
	require.Equal(t, lease.Observation{Group: "orders", TopologyGeneration: 17}, o)
	a.answers(func(*http.Request) (int, string) { return 423, `{"error":"unstable","reason":"NoPrimary"}` })
	code, _, errOut = run(a.command("status"))
	require.Equal(t, 4, code)
	require.Equal(t, "423 unstable: NoPrimary\n", errOut)
	a.answers(func(*http.Request) (int, string) { return 503, `{"error":"not_leader"}` })
	code, _, errOut = run(a.command("status"))
	require.Equal(t, 5, code)
	require.Equal(t, "503 not_leader\n", errOut)
	code, _, errOut = run(a.command("status", "-g", ""))
	require.Equal(t, 2, code)
	require.Contains(t, errOut, "--group is needed")

	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var shown bytes.Buffer
	require.NoError(t, show(&shown, lease.Observation{
		Group: "orders", Namespace: "bloodraven", TopologyGeneration: 17, UnstableReason: "PlannedFailover",
		Health: lease.Health{ReplicationLagSeconds: 0.4}, Operations: lease.Operations{PlannedFailover: lease.FailoverView{Phase: "Deferred", Reason: "DeploymentHold"}, UpdatePhase: "x"},
		Leases: []lease.View{{Kind: lease.KindMigration, OperationID: "a\x1bb", Instance: "orders-app", TopologyGeneration: 17, ExpiresAt: now.Add(20 * time.Second)}},
	}, now))
	require.Equal(t, `group             bloodraven/orders
active site       -, generation 17
stable            no: PlannedFailover
replication       not running, 0.4 s behind
planned failover  Deferred DeploymentHold
ordered update    x

LEASE      OPERATION  INSTANCE    GENERATION  EXPIRES
migration  a`+"\uFFFD"+`b        orders-app  17          `+now.Add(20*time.Second).Local().Format(time.TimeOnly)+` (in 20s)
`, shown.String())
}

func TestTheWatchdogIsNotForPeople(t *testing.T) {
	a := newAPI(t)
	c := a.command("watchdog", "--", "true")
	// As if its client died before it said a word.
	orders, client, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, client.Close())
	notices, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	c.ExtraFiles = []*os.File{orders, notices}
	code, _, errOut := run(c)
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "started by slipway lease run")
}
