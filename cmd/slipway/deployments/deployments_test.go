package deployments

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway/exit"
)

func TestList(t *testing.T) {
	f := newFake(t).on("GET /deployments", reply(200, `{"deployments":[
		{"deploymentId":"example","state":"active","since":"2026-01-02T03:04:05Z","live":3,"latestBuild":`+build(3, "succeeded", "")+`},
		{"deploymentId":"a-longer-one","state":"failed","since":"2026-01-02T03:04:05Z","live":null,"reason":"build 1 failed:\nexit code 3","latestBuild":`+build(1, "failed", "")+`}]}`))
	out, errOut, err := f.run(t, "list", "example", "a-longer-one", "gone")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 3)
	require.Regexp(t, `^DEPLOYMENT    STATE   SINCE +LIVE  LATEST BUILD        REASON$`, lines[0])
	require.Regexp(t, `^example       active  2026-01-02 03:04:05Z \([^)]+\)  3     3 deploy succeeded  -$`, lines[1])
	require.Regexp(t, `^a-longer-one  failed  2026-01-02 03:04:05Z \([^)]+\)  -     1 deploy failed     build 1 failed: / exit code 3$`, lines[2])
	require.Equal(t, "unknown, or not for this token: gone\n", errOut)
	require.Equal(t, []string{"GET /deployments?id=example&id=a-longer-one&id=gone"}, f.asked)

	out, _, err = f.run(t, "list", "example", "-o", "json")
	require.NoError(t, err)
	var listed struct{ Deployments []map[string]any }
	require.NoError(t, json.Unmarshal([]byte(out), &listed))
	require.Len(t, listed.Deployments, 2)
}

func TestListOfNothing(t *testing.T) {
	f := newFake(t).on("GET /deployments", reply(200, `{"deployments":[]}`))
	out, errOut, err := f.run(t, "list", "gone")
	require.NoError(t, err)
	require.Empty(t, out)
	require.Equal(t, "unknown, or not for this token: gone\n", errOut)
	out, _, err = f.run(t, "list", "gone", "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, `{"deployments":[]}`, out)
}

func TestShow(t *testing.T) {
	f := newFake(t).
		on("GET /deployments/example", reply(200, deploymentJSON("building", "build 3 waits for build 2", build(3, "queued", "")))).
		on("GET /deployments/example/builds", reply(200, `{"builds":[`+build(3, "queued", "")+`,`+build(2, "running", "")+`,`+build(1, "failed", "exit code 3")+`]}`))
	out, _, err := f.run(t, "show", "example", "--builds", "3")
	require.NoError(t, err)
	require.Regexp(t, `^deployment  example
state       building
since       2026-01-02 03:04:05Z \([^)]+\)
reason      build 3 waits for build 2
domain      example\.org
method      fleet

INSTANCE            DEPLOYED +SUBMITTED
application backup  no page +no page
application forum   https://old\.example\.org +https://forum\.example\.org
component status    - +https://status\.example\.org
application wiki    https://wiki\.example\.org +-

NODE  NAMES
web   a.example.org, b.example.org

BUILD  ACTION  STATUS   CREATED +TOOK +REASON
3      deploy  queued   2026-01-02 03:04:04Z \([^)]+\) +- +-
2      deploy  running  2026-01-02 03:04:04Z \([^)]+\) +[0-9a-z.]+ so far  -
1      deploy  failed   2026-01-02 03:04:04Z \([^)]+\) +3.1s +exit code 3
$`, out)
	require.Equal(t, []string{"GET /deployments/example/builds?limit=3"}, f.requests("GET /deployments/example/builds"))

	out, _, err = f.run(t, "show", "example", "-o", "json")
	require.NoError(t, err)
	var shown map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.Equal(t, "building", shown["state"])
	require.Len(t, shown["builds"], 3)
	require.Equal(t, map[string]any{"fleet": map[string]any{}}, shown["configuration"])

	before := len(f.requests("GET /deployments/example/builds"))
	_, _, err = f.run(t, "show", "example", "--builds", "0")
	require.NoError(t, err)
	require.Len(t, f.requests("GET /deployments/example/builds"), before)
}

func TestPreview(t *testing.T) {
	f := newFake(t).on("POST /deployments/example/preview", reply(200,
		`{"nodes":[{"name":"web","names":["a.example.org"]}],"disabledApplications":["wiki","backup"],"secretsSet":{"forum":["smtp.password","key"]},"instances":[{"name":"forum","title":"Forum","kind":"application","domains":["forum.example.org"],"url":"https://forum.example.org","sections":["forum"]},{"name":"backup","title":"Backup","kind":"application","domains":[],"url":null,"sections":["backup"]}]}`))
	file := filepath.Join(t.TempDir(), "c.json")
	require.NoError(t, os.WriteFile(file, []byte(`{ "n": 1.0 }`), 0o600))
	out, _, err := f.run(t, "preview", "example", "-f", file)
	require.NoError(t, err)
	require.Equal(t, `example is accepted: 1 node
NODE  NAMES
web   a.example.org

INSTANCE            URL
application forum   https://forum.example.org
application backup  no page
disabled applications: wiki, backup
secrets in the configuration: forum.smtp.password, forum.key
`, out)
	require.Equal(t, []string{`{"configuration":{ "n": 1.0 }}`}, f.bodies)
	out, _, err = f.run(t, "preview", "example", "-f", file, "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, `{"nodes":[{"name":"web","names":["a.example.org"]}],"disabledApplications":["wiki","backup"],"secretsSet":{"forum":["smtp.password","key"]},"instances":[{"name":"forum","title":"Forum","kind":"application","domains":["forum.example.org"],"url":"https://forum.example.org","sections":["forum"]},{"name":"backup","title":"Backup","kind":"application","domains":[],"url":null,"sections":["backup"]}]}`, out)
}

func TestSubmitWithoutFollow(t *testing.T) {
	f := newFake(t).on("PUT /deployments/example", reply(202, submitted))
	i := invocation{stdin: `{}`}
	require.NoError(t, i.run(t, f, "submit", "example", "-f", "-", "--key", "release-42"))
	require.Equal(t, "submitted example, build 1 (evaluated: 2 nodes)\nNODE  NAMES\nweb   a.example.org\ndb    -\n", i.out.String())
	require.Equal(t, "its log: slipway deployments logs example -b 1 -f\n", i.err.String())
	require.Equal(t, "release-42", f.headers[0].Get("Idempotency-Key"))

	f.on("PUT /deployments/example", reply(202, `{"deploymentId":"example","build":2,"evaluation":"skipped","nodes":[]}`))
	i = invocation{stdin: `{}`}
	require.NoError(t, i.run(t, f, "submit", "example", "-f", "-"))
	require.Equal(t, "submitted example, build 2 (not evaluated, because all slots were in use: the deploy does it)\n", i.out.String())
	require.Regexp(t, `^[0-9a-f-]{36}$`, f.headers[1].Get("Idempotency-Key"))

	i = invocation{stdin: `{}`}
	require.NoError(t, i.run(t, f, "submit", "example", "-f", "-", "-o", "json"))
	require.JSONEq(t, `{"deploymentId":"example","build":2,"evaluation":"skipped","nodes":[]}`, i.out.String())
	require.Empty(t, i.err.String())
}

func TestImport(t *testing.T) {
	f := newFake(t).on("POST /deployments/example/import", reply(201, `{"deploymentId":"example","build":null,"evaluation":"evaluated","nodes":[{"name":"web","names":["a.example.org"]}]}`))
	i := invocation{stdin: `{"a":1}`}
	require.NoError(t, i.run(t, f, "import", "example", "-f", "-", "--no-deploy", "--key", "release-42"))
	require.Equal(t, "imported example, nothing is deployed (evaluated: 1 node)\nNODE  NAMES\nweb   a.example.org\n", i.out.String())
	require.Equal(t, `{"configuration":{"a":1},"deploy":false}`, f.bodies[0])
	require.Equal(t, "release-42", f.headers[0].Get("Idempotency-Key"))
	i = invocation{stdin: `{}`}
	require.NoError(t, i.run(t, f, "import", "example", "-f", "-", "--no-deploy", "-o", "json"))
	require.JSONEq(t, `{"deploymentId":"example","build":null,"evaluation":"evaluated","nodes":[{"name":"web","names":["a.example.org"]}]}`, i.out.String())

	f.on("POST /deployments/example/import", reply(202, submitted))
	i = invocation{stdin: `{}`}
	require.NoError(t, i.run(t, f, "import", "example", "-f", "-"))
	require.Equal(t, "imported example, build 1 (evaluated: 2 nodes)\nNODE  NAMES\nweb   a.example.org\ndb    -\n", i.out.String())
	require.Equal(t, `{"configuration":{},"deploy":true}`, f.bodies[2])

	f.on("POST /deployments/example/import", reply(409, `{"error":"already_exists","message":"slipway knows it"}`))
	i = invocation{stdin: `{}`}
	require.Equal(t, 4, exit.Code(i.run(t, f, "import", "example", "-f", "-")))
	require.Equal(t, 2, exit.Code(i.run(t, f, "import", "example", "-f", "-", "--no-deploy", "--follow")))
}

func TestARefusedConfigurationListsEveryError(t *testing.T) {
	f := newFake(t).on("PUT /deployments/example", reply(400, `{"error":"invalid_configuration","message":"the configuration is not valid","requestId":"r-7",
		"details":[{"path":"/fleet/domain","message":"is required"},{"path":"","message":"has two methods"}]}`))
	i := invocation{stdin: `{}`}
	err := i.run(t, f, "submit", "example", "-f", "-", "--follow")
	require.Equal(t, 4, exit.Code(err))
	require.EqualError(t, err, `the configuration is not valid (invalid_configuration)
  /fleet/domain: is required
  the configuration: has two methods
  request r-7`)
	require.Empty(t, i.out.String())
	require.Empty(t, i.err.String(), "the program prints the error")
}

func TestAServiceThatIsAway(t *testing.T) {
	f := newFake(t).on("POST /deployments/example/preview", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "5")
		reply(503, `{"error":"service_unavailable","message":"all slots are in use"}`)(w, r)
	})
	i := invocation{stdin: `{}`}
	err := i.run(t, f, "preview", "example", "-f", "-")
	require.Equal(t, 5, exit.Code(err))
	require.EqualError(t, err, "all slots are in use (service_unavailable); try again in 5s")

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	url := "http://" + listener.Addr().String()
	require.NoError(t, listener.Close())
	_, _, err = f.run(t, "show", "example", "--url", url)
	require.Equal(t, 5, exit.Code(err))
	require.ErrorContains(t, err, "no answer from "+url)

	i = invocation{stdin: `{}`}
	err = i.run(t, f, "submit", "example", "-f", "-", "--url", url, "--timeout", "500ms", "--key", "k-1")
	require.Equal(t, 5, exit.Code(err))
	require.ErrorContains(t, err, "stopped after 500ms (--timeout)\nit may have been taken; the same submit with --key k-1 is taken at most once")
}

func TestAnInterruptDuringASubmitNamesTheKey(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	f := newFake(t).on("PUT /deployments/example", func(_ http.ResponseWriter, r *http.Request) {
		interrupt()
		<-r.Context().Done()
	})
	i := invocation{ctx: ctx, stdin: `{}`}
	err := i.run(t, f, "submit", "example", "-f", "-", "--follow")
	require.Equal(t, 130, exit.Code(err))
	require.EqualError(t, err, "interrupted\nit may have been taken; the same submit with --key "+f.headers[0].Get("Idempotency-Key")+" is taken at most once")
}

func TestUsageErrors(t *testing.T) {
	folder := t.TempDir()
	empty := filepath.Join(folder, "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	jwt := "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
	for want, args := range map[string][]string{
		`did you mean submit?`:                                    {"sumbit", "example"},
		`has no command "x"`:                                      {"x"},
		`unknown flag: --nonsense`:                                {"list", "example", "--nonsense"},
		`the API has no list of all`:                              {"list"},
		`takes one deployment`:                                    {"show"},
		`takes one deployment identifier, and got 2`:              {"destroy", "a", "b"},
		`"Example": a deployment identifier has lower-case`:       {"show", "Example"},
		`at most 40 characters`:                                   {"list", "ok", strings.Repeat("a", 41)},
		`submit takes the configuration with -f`:                  {"submit", "example"},
		`preview takes the configuration with -f`:                 {"preview", "example"},
		`no such file`:                                            {"submit", "example", "-f", filepath.Join(folder, "none.json")},
		`--output is text or json, not "xml"`:                     {"list", "example", "-o", "xml"},
		`--timeout is below zero`:                                 {"list", "example", "--timeout", "-1s"},
		`invalid argument "soon" for "--timeout"`:                 {"list", "example", "--timeout", "soon"},
		`--build is the number of a build`:                        {"logs", "example", "-b", "0"},
		`--build is the number of a build, from 1`:                {"cancel", "example", "--build", "-1"},
		`--builds is from 0 to 100`:                               {"show", "example", "--builds", "-1"},
		`--key is empty`:                                          {"submit", "example", "-f", "-", "--key", ""},
		`--token and --token-file are both set`:                   {"list", "example", "--token", "a", "--token-file", "b"},
		`token file: ` + empty + ` is empty`:                      {"list", "example", "--token-file", empty},
		`token file: open ` + folder + `/gone: no such file`:      {"list", "example", "--token-file", folder + "/gone"},
		`CA file: ` + empty + ` has no certificate in PEM`:        {"list", "example", "--ca-file", empty},
		`CA file: open ` + folder + `/gone: no such file`:         {"list", "example", "--ca-file", folder + "/gone"},
		`a token file is the name of a file, and this is a token`: {"list", "example", "--token-file", jwt},
		`must begin with http://`:                                 {"list", "example", "--url", "slipway.example.org"},
		`holds a user or a password`:                              {"list", "example", "--url", "http://user:hunter2@localhost"},
		`--list comes without --node and --diff`:                  {"sbom", "example", "--list", "--node", "web"},
		`only a document goes to a file`:                          {"sbom", "example", "--diff", "-o", "file"},
		`--output is text, json or a file, not ""`:                {"sbom", "example", "-o", ""},
		`--node is empty`:                                         {"sbom", "example", "--node", ""},
		`deployments logs --help`:                                 {"logs", "example", "--wrong"},
		`cancel takes one`:                                        {"cancel"},
		`the URL of the deployments API is not a URL`:             {"list", "example", "--url", "http://user:hunter2@lo cal"},
		`must have no query`:                                      {"list", "example", "--url", "http://localhost?x=1"},
	} {
		f := newFake(t)
		i := invocation{}
		err := i.run(t, f, args...)
		require.ErrorContains(t, err, want, "%q", args)
		require.Equal(t, 2, exit.Code(err), "%q", args)
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, err.Error(), jwt)
		require.Empty(t, f.asked)
		require.Empty(t, i.err.String(), "the program prints the error")
	}

	for want, env := range map[string]map[string]string{
		"no URL of the API": {},
		"SLIPWAY_TOKEN and SLIPWAY_TOKEN_FILE are both set": {"SLIPWAY_URL": "http://localhost", "SLIPWAY_TOKEN": "a", "SLIPWAY_TOKEN_FILE": "b"},
	} {
		i := invocation{env: env}
		err := i.run(t, nil, "list", "example")
		require.ErrorContains(t, err, want)
		require.Equal(t, 2, exit.Code(err))
	}
}

func TestAConfigurationThatIsNotJSONIsNotSent(t *testing.T) {
	for stdin, want := range map[string]string{
		"{\n  \"a\": 1,\n}":                   "standard input:3:1: invalid character",
		"":                                    "standard input:1:0: unexpected end of JSON input",
		"[1]":                                 "standard input: a configuration is a JSON object, not array",
		"null":                                "standard input: a configuration is a JSON object, not null",
		`{"a":"` + strings.Repeat("x", 1<<20): "standard input has more than 1048576 bytes",
	} {
		f := newFake(t)
		i := invocation{stdin: stdin}
		err := i.run(t, f, "submit", "example", "-f", "-")
		require.ErrorContains(t, err, want)
		require.Equal(t, 2, exit.Code(err))
		require.Empty(t, f.asked)
	}
}

func TestTheTokenIsFoundAndNotShown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("from-file\n"), 0o600))
	for name, test := range map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"environment":                        {map[string]string{"SLIPWAY_TOKEN": "from-env"}, nil, "Bearer from-env"},
		"file of the environment":            {map[string]string{"SLIPWAY_TOKEN_FILE": file}, nil, "Bearer from-file"},
		"a flag is before the environment":   {map[string]string{"SLIPWAY_TOKEN": "from-env"}, []string{"--token-file", file}, "Bearer from-file"},
		"the token flag":                     {map[string]string{"SLIPWAY_TOKEN_FILE": "gone"}, []string{"--token", "from-flag"}, "Bearer from-flag"},
		"a flag can take the token away too": {map[string]string{"SLIPWAY_TOKEN": "from-env"}, []string{"--token", ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t).on("GET /deployments/example", func(w http.ResponseWriter, r *http.Request) {
				reply(401, fmt.Sprintf(`{"error":"unauthorized","message":"not trusted: %s"}`, r.Header.Get("Authorization")))(w, r)
			})
			i := invocation{env: test.env}
			err := i.run(t, f, append([]string{"show", "example"}, test.args...)...)
			require.Equal(t, 4, exit.Code(err))
			require.Equal(t, test.want, f.headers[0].Get("Authorization"))
			if test.want == "" {
				require.ErrorContains(t, err, "no token was given: set SLIPWAY_TOKEN or SLIPWAY_TOKEN_FILE")
				return
			}
			require.EqualError(t, err, "not trusted: Bearer [token] (unauthorized)")
		})
	}
}

func TestTheAuthorityOfTheAPI(t *testing.T) {
	f := &fake{answers: map[string]http.HandlerFunc{}}
	f.Server = httptest.NewUnstartedServer(f)
	f.EnableHTTP2 = true
	f.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // of the handshakes that fail
	f.StartTLS()
	t.Cleanup(f.Close)
	f.on("GET /deployments/example", func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("%s is not HTTP/2", r.Proto)
		}
		reply(200, deploymentJSON("active", "", "null"))(w, r)
	}).on("GET /deployments/example/builds", reply(200, `{"builds":[]}`))
	ca := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw}), 0o600))

	env := func() map[string]string { return map[string]string{"SLIPWAY_TOKEN": "t", "SLIPWAY_CA_FILE": ca} }
	require.NoError(t, (&invocation{env: env()}).run(t, f, "show", "example"))
	require.NoError(t, (&invocation{}).run(t, f, "show", "example", "--ca-file", ca))
	i := invocation{env: env()}
	require.ErrorContains(t, i.run(t, f, "show", "example", "--ca-file", ""), "certificate", "a flag can take the file away too")
}

func TestColoursAreForTerminalsThatWantThem(t *testing.T) {
	f := newFake(t).on("GET /deployments/example", reply(200, deploymentJSON("active", "", "null")))
	for name, test := range map[string]struct {
		width  int
		env    map[string]string
		args   []string
		colour bool
	}{
		"terminal": {80, map[string]string{"TERM": "xterm"}, nil, true},
		"pipe":     {0, map[string]string{"TERM": "xterm"}, nil, false},
		"NO_COLOR": {80, map[string]string{"NO_COLOR": "1"}, nil, false},
		"dumb":     {80, map[string]string{"TERM": "dumb"}, nil, false},
		"JSON":     {80, map[string]string{}, []string{"-o", "json"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			i := invocation{env: test.env, outWidth: test.width}
			require.NoError(t, i.run(t, f, append([]string{"show", "example", "--builds", "0"}, test.args...)...))
			require.Contains(t, i.out.String(), "active")
			require.Equal(t, test.colour, strings.Contains(i.out.String(), "\x1b[32mactive\x1b[0m"))
			require.Equal(t, test.colour, strings.Contains(i.out.String(), "\x1b"))
		})
	}
}

func TestColoursKeepTablesAligned(t *testing.T) {
	f := newFake(t).on("GET /deployments", reply(200, `{"deployments":[{"deploymentId":"a","state":"active",`+since+`},{"deploymentId":"b","state":"destroying",`+since+`}]}`))
	plain, _, err := f.run(t, "list", "a", "b")
	require.NoError(t, err)
	i := invocation{outWidth: 80}
	require.NoError(t, i.run(t, f, "list", "a", "b"))
	require.Contains(t, i.out.String(), "\x1b[33mdestroying\x1b[0m")
	require.Equal(t, plain, strings.NewReplacer("\x1b[33m", "", "\x1b[32m", "", "\x1b[0m", "").Replace(i.out.String()))
}

// hostile tries to move the cursor, set the title, ring, paste, and turn text
// around, in bytes and as C1 characters.
const hostile = "evil\u001b[2J\u001b]0;owned\u0007\u009b31m\u202eexe\u2028\u0000"

func TestHostileTextDoesNotReachTheTerminal(t *testing.T) {
	quoted, err := json.Marshal(hostile)
	require.NoError(t, err)
	h := string(quoted)
	instances := `[{"name":` + h + `,"title":` + h + `,"kind":` + h + `,"domains":[` + h + `],"url":` + h + `,"sections":[` + h + `]}]`
	d := `{"domain":` + h + `,"method":` + h + `,"instances":{"submitted":` + instances + `,"deployed":` + instances + `},"deploymentId":` + h + `,"state":` + h + `,"reason":` + h + `,` + since + `,"nodes":[{"name":` + h + `,"names":[` + h + `]}],"latestBuild":` + strings.ReplaceAll(build(1, "failed", "@"), `"@"`, h) + `,"configuration":{"a":` + h + `}}`
	b := strings.ReplaceAll(build(1, "failed", "@"), `"@"`, h)
	f := newFake(t).
		on("GET /deployments", reply(200, `{"deployments":[`+d+`]}`)).
		on("GET /deployments/example", reply(200, d)).
		on("GET /deployments/example/builds", reply(200, `{"builds":[`+b+`]}`)).
		on("GET /deployments/example/builds/1", reply(200, b)).
		on("GET /deployments/example/builds/1/log", serveLog(hostile+"\n"+hostile)).
		on("PUT /deployments/example", reply(202, `{"deploymentId":`+h+`,"build":1,"evaluation":`+h+`,"nodes":[{"name":`+h+`,"names":[`+h+`]}]}`)).
		on("POST /deployments/example/preview", reply(200, `{"nodes":[],"disabledApplications":[`+h+`],"secretsSet":{`+h+`:[`+h+`]},"instances":`+instances+`}`)).
		on("POST /deployments/example/builds/1/cancel", reply(409, `{"error":`+h+`,"message":`+h+`,"requestId":`+h+`,"details":[{"path":`+h+`,"message":`+h+`}]}`)).
		on("GET /deployments/example/events", stream(true, sse("1.1.0", "snapshot", d))).
		on("GET /sbom-list/example", reply(200, `{"nodes":[{"node":`+h+`,"status":`+h+`,"reason":`+h+`},{"node":"b","status":"ready","specVersion":`+h+`}]}`)).
		on("GET /sbom-diff/example", reply(200, `{"node":`+h+`,"build":2,"before":1,"added":[{"name":`+h+`,"version":`+h+`}],"removed":[{"name":`+h+`}],"changed":[{"name":`+h+`,"version":`+h+`,"before":{"version":`+h+`}}]}`))
	check := func(text string) {
		t.Helper()
		for _, r := range text {
			if r != '\n' && unsafe(r) {
				t.Fatalf("%q reached the terminal in %q", r, text)
			}
		}
		require.NotContains(t, text, "\r")
	}
	for _, output := range []string{"text", "json"} {
		for _, args := range [][]string{
			{"list", "example"},
			{"show", "example"},
			{"logs", "example"},
			{"logs", "example", "-f"},
			{"submit", "example", "-f", "-"},
			{"submit", "example", "-f", "-", "--follow"},
			{"preview", "example", "-f", "-"},
			{"cancel", "example", "-b", "1"},
			{"sbom", "example"},
			{"sbom", "example", "--diff"},
		} {
			i := invocation{stdin: `{}`}
			err := i.run(t, f, append(args, "-o", output)...)
			check(i.out.String())
			check(i.err.String())
			text := i.out.String()
			if err != nil {
				check(err.Error())
				text += err.Error()
			}
			require.Contains(t, text, "evil", "%q", args)
		}
	}

	out, _, err := f.run(t, "show", "example", "-o", "json")
	require.NoError(t, err)
	var shown struct{ Reason string }
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.Equal(t, hostile, shown.Reason, "JSON is exact")
}

func TestLogs(t *testing.T) {
	const log = "one\r\ntwo\x1b[31m red\x1b[0m\nhalf"
	f := newFake(t).
		on("GET /deployments/example/builds", reply(200, `{"builds":[`+build(4, "queued", "")+`,`+build(3, "running", "")+`,`+build(2, "failed", "")+`]}`)).
		on("GET /deployments/example/builds/3/log", serveLog(log)).
		on("GET /deployments/example/builds/2", reply(200, build(2, "failed", ""))).
		on("GET /deployments/example/builds/2/log", serveLog(""))
	out, _, err := f.run(t, "logs", "example")
	require.NoError(t, err)
	require.Equal(t, "one\ntwo red\nhalf\n", out)
	out, _, err = f.run(t, "logs", "example", "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, `{"build":3,"from":0,"text":"one\r\ntwo\u001b[31m red\u001b[0m\nhalf"}`, out)
	out, errOut, err := f.run(t, "logs", "example", "-b", "2")
	require.NoError(t, err)
	require.Empty(t, out)
	require.Equal(t, "build 2 has no log; it is failed\n", errOut)
	_, _, err = f.run(t, "logs", "example", "-b", "9")
	require.Equal(t, 4, exit.Code(err))
	require.EqualError(t, err, "there is no such thing (not_found)\n  request r-404")

	f.on("GET /deployments/example/builds", reply(200, `{"builds":[`+build(2, "failed", "")+`]}`))
	_, errOut, err = f.run(t, "logs", "example")
	require.NoError(t, err)
	require.Equal(t, "build 2 has no log; it is failed\n", errOut)
	f.on("GET /deployments/example/builds", reply(200, `{"builds":[]}`))
	_, _, err = f.run(t, "logs", "example")
	require.EqualError(t, err, "example has no build")
}

func TestLogsFollowGoesOnWhereItWas(t *testing.T) {
	broken := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = io.WriteString(w, text)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	const log = "one\ntwo …\nthree\n"
	f := newFake(t).
		on("GET /deployments/example/builds/3", inTurn(reply(200, build(3, "running", "")), reply(200, build(3, "succeeded", "")))).
		on("GET /deployments/example/builds/3/log", inTurn(
			broken(log[:len("one\ntwo \xe2")]), // inside a character
			serveLog(log[:len("one\ntwo …\nth")]),
			serveLog(log)))
	out, _, err := f.run(t, "logs", "example", "-b", "3", "-f")
	require.NoError(t, err)
	require.Equal(t, "one\ntwo …\nthree\n", out)
	require.Equal(t, []string{
		"GET /deployments/example/builds/3/log?follow=true",
		"GET /deployments/example/builds/3/log?follow=true&from=8",
		"GET /deployments/example/builds/3/log?from=14",
	}, f.requests("GET /deployments/example/builds/3/log"))
}

func TestLogsFollowEndsWithARefusal(t *testing.T) {
	f := newFake(t).
		on("GET /deployments/example/builds/3", reply(200, build(3, "running", ""))).
		on("GET /deployments/example/builds/3/log", reply(403, `{"error":"forbidden","message":"no"}`))
	_, _, err := f.run(t, "logs", "example", "-b", "3", "-f")
	require.Equal(t, 4, exit.Code(err))
}

func TestCancel(t *testing.T) {
	f := newFake(t).
		on("GET /deployments/example/builds", reply(200, `{"builds":[`+build(4, "queued", "")+`,`+build(3, "running", "")+`]}`)).
		on("POST /deployments/example/builds/3/cancel", reply(202, build(3, "running", ""))).
		on("POST /deployments/example/builds/4/cancel", reply(200, build(4, "cancelled", ""))).
		on("POST /deployments/example/builds/2/cancel", reply(409, `{"error":"build_ended","message":"build 2 has ended"}`))
	out, errOut, err := f.run(t, "cancel", "example")
	require.NoError(t, err)
	require.Equal(t, "build 3 is asked to stop\n", out)
	require.Equal(t, "its log: slipway deployments logs example -b 3 -f\n", errOut)
	out, _, err = f.run(t, "cancel", "example", "-b", "4")
	require.NoError(t, err)
	require.Equal(t, "build 4 is cancelled\n", out)
	_, _, err = f.run(t, "cancel", "example", "-b", "2")
	require.Equal(t, 4, exit.Code(err))
	require.EqualError(t, err, "build 2 has ended (build_ended)")
	out, _, err = f.run(t, "cancel", "example", "-o", "json")
	require.NoError(t, err)
	require.Contains(t, out, `"status": "running"`)

	f.on("GET /deployments/example/builds", reply(200, `{"builds":[`+build(4, "queued", "")+`,`+build(3, "failed", "")+`]}`))
	out, _, err = f.run(t, "cancel", "example")
	require.NoError(t, err)
	require.Equal(t, "build 4 is cancelled\n", out)
	f.on("GET /deployments/example/builds", reply(200, `{"builds":[`+build(3, "failed", "")+`]}`))
	_, _, err = f.run(t, "cancel", "example")
	require.Equal(t, 4, exit.Code(err))
	require.EqualError(t, err, "example has no build that runs or is queued")
}

func TestDestroy(t *testing.T) {
	f := newFake(t).on("DELETE /deployments/example", reply(202, `{"deploymentId":"example","build":2,"callback":"none"}`))
	out, errOut, err := f.run(t, "destroy", "example")
	require.NoError(t, err)
	require.Equal(t, "destroying example, build 2\n", out)
	require.Equal(t, "its log: slipway deployments logs example -b 2 -f\n", errOut)
	out, _, err = f.run(t, "destroy", "example", "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, `{"deploymentId":"example","build":2,"callback":"none"}`, out)

	f.on("DELETE /deployments/example", reply(200, `{"deploymentId":"example","state":"idle"}`))
	f.on("GET /deployments/example", reply(200, deploymentJSON("idle", "", build(2, "succeeded", ""))))
	for _, args := range [][]string{{"destroy", "example"}, {"destroy", "example", "--follow"}} {
		out, errOut, err = f.run(t, args...)
		require.NoError(t, err)
		require.Equal(t, "example is idle: there is nothing to destroy\n", out)
		require.Empty(t, errOut)
	}
	f.on("GET /deployments/example", reply(200, deploymentJSON("idle", "", "null")))
	_, errOut, err = f.run(t, "destroy", "example")
	require.NoError(t, err)
	require.Contains(t, errOut, "never deployed: what was up before that is up still")
	out, _, err = f.run(t, "destroy", "example", "--follow", "-o", "json")
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(out, "\n"))
	require.Contains(t, out, `"event":"destroy","data":{"deploymentId":"example","state":"idle"}`)

	f.on("DELETE /deployments/example", reply(404, `{"error":"unknown_deployment","message":"slipway does not know it"}`))
	_, _, err = f.run(t, "destroy", "example")
	require.Equal(t, 4, exit.Code(err))
	require.EqualError(t, err, "slipway does not know it (unknown_deployment)")
}

func TestDestroyWithACallback(t *testing.T) {
	f := newFake(t).on("DELETE /deployments/example", reply(202, `{"deploymentId":"example","build":2,"callback":"accepted"}`))
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("of-the-panel\n"), 0o600))
	destroy := []string{"destroy", "example", "--callback-url", "https://panel.example/x", "--callback-token-file", file}
	out, _, err := f.run(t, destroy...)
	require.NoError(t, err)
	require.Equal(t, "destroying example, build 2\n", out)
	require.Equal(t, "https://panel.example/x", f.headers[0].Get("X-Callback-Url"))
	require.Equal(t, "of-the-panel", f.headers[0].Get("X-Callback-Token"))

	f.on("DELETE /deployments/example", reply(202, `{"deploymentId":"example","build":2,"callback":"refused","callbackReason":"not allowed"}`))
	_, errOut, err := f.run(t, destroy...)
	require.NoError(t, err, "the destroy goes on")
	require.Contains(t, errOut, "the callback is refused: not allowed\n")

	asked := len(f.asked)
	for _, args := range [][]string{destroy[:4], {"destroy", "example", "--callback-token-file", file}, {"destroy", "example", "--callback-url", "https://x", "--callback-token-file", file + ".none"}} {
		_, _, err = f.run(t, args...)
		require.Equal(t, 2, exit.Code(err), args)
	}
	require.Len(t, f.asked, asked, "nothing was asked for")
}

func TestAnOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	f := newFake(t).on("GET /deployments/example", reply(200, deploymentJSON("active", "", "null")))
	cmd := command(&cli{
		getenv:   func(name string) string { return map[string]string{"SLIPWAY_URL": f.URL}[name] },
		terminal: func(io.Writer) (int, bool) { return 0, false },
		quiet:    time.Hour, repeat: time.Hour,
	})
	cmd.SetArgs([]string{"show", "example", "--builds", "0"})
	cmd.SetOut(full{})
	err := cmd.ExecuteContext(t.Context())
	require.Equal(t, 1, exit.Code(err))
	require.EqualError(t, err, "output: no space left on device")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestHelpTeaches(t *testing.T) {
	root := Command(func(string) string { return "" })
	require.Contains(t, root.Long, "130  interrupted")
	for _, name := range []string{"list", "show", "preview", "submit", "import", "destroy", "logs", "cancel", "sbom"} {
		i := invocation{env: map[string]string{}}
		require.NoError(t, i.run(t, nil, name, "--help"))
		require.Contains(t, i.out.String(), "Examples:\n  ", name)
		require.Contains(t, i.out.String(), "slipway deployments "+name+" example", name)
		require.NotContains(t, i.out.String(), "%!", name)
	}
	i := invocation{env: map[string]string{}}
	require.NoError(t, i.run(t, nil))
	require.Contains(t, i.out.String(), "Exit codes:")
}

func TestExitCode(t *testing.T) {
	require.Equal(t, 0, exit.Code(nil))
	require.Equal(t, 1, exit.Code(errors.New("of somebody else")))
	require.Equal(t, 2, exit.Code(fmt.Errorf("wrapped: %w", exit.Misuse("wrong"))))
}
