package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

const mebibyte = 1 << 20

func TestBodiesThatAreRefused(t *testing.T) {
	t.Parallel()
	good := body(configuration(""))
	nested := func(open, inner, end string, levels int) string {
		return body(configuration(`"note":` + strings.Repeat(open, levels) + inner + strings.Repeat(end, levels)))
	}
	type expected struct {
		status  int
		code    string
		message string // a part of it
	}
	invalid := func(message string) expected { return expected{http.StatusBadRequest, "invalid_request", message} }
	for name, c := range map[string]struct {
		body string
		want expected
	}{
		"empty":             {"", invalid("not JSON")},
		"not JSON":          {"configuration=1", invalid("not JSON")},
		"ends early":        {good[:len(good)-1], invalid("ends too early")},
		"goes on":           {good + "{}", invalid("more than one JSON document")},
		"not UTF-8":         {body(configuration(`"note":"` + "\xff" + `"`)), invalid("UTF-8")},
		"NUL":               {body(configuration(`"note":"\u0000"`)), invalid("at /configuration/test/note")},
		"array":             {"[" + good + "]", invalid("not a JSON object")},
		"string":            {`"configuration"`, invalid("not a JSON object")},
		"null":              {"null", invalid("not a JSON object")},
		"array within":      {`{"configuration":[]}`, invalid("not an object")},
		"null within":       {`{"configuration":null}`, invalid("not an object")},
		"nothing":           {`{}`, invalid(`no member "configuration"`)},
		"unknown member":    {`{"configuration":{},"deploy":true}`, invalid(`"deploy"`)},
		"key twice":         {`{"configuration":{},"configuration":{}}`, invalid("at /configuration: the key is there twice")},
		"key twice within":  {body(configuration(`"domain":"example.net"`)), invalid("at /configuration/test/domain: the key is there twice")},
		"10,000 arrays":     {nested("[", "", "]", 10_000), invalid("deeper than 100 levels")},
		"10,000 objects":    {nested(`{"a":`, "1", "}", 10_000), invalid("deeper than 100 levels")},
		"101 levels":        {nested("[", "", "]", 98), invalid("deeper than 100 levels")},
		"integer too large": {body(configuration(`"note":9223372036854775808`)), invalid("at /configuration/test/note")},
		"a byte too many":   {padded(mebibyte + 1), expected{http.StatusRequestEntityTooLarge, "request_too_large", "1048576"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := "body-" + strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(name), " ", "-"), ",", "")
			check := func(a answer) {
				require.Equal(t, c.want.status, a.Status, a.Body)
				require.Equal(t, c.want.code, a.Error)
				require.Contains(t, a.Message, c.want.message)
			}
			check(slipway.put(t, id, c.body))
			check(slipway.preview(t, id, c.body))
			slipway.nothingStored(t, id)
		})
	}
}

// padded is a good body of so many bytes, most of which encoding/json would
// write as six.
func padded(size int) string {
	empty := len(body(configuration(`"note":""`)))
	return body(configuration(`"note":"` + strings.Repeat("<", size-empty) + `"`))
}

// A body whose length is not told is read to the limit, and no further.
func TestBodyOfUnknownLengthIsBounded(t *testing.T) {
	t.Parallel()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, slipway.URL+"/deployments/chunked",
		struct{ *strings.Reader }{strings.NewReader(padded(mebibyte + 1))})
	require.NoError(t, err)
	require.EqualValues(t, 0, request.ContentLength)
	request.Header = asJSON()
	request.Header.Set("Authorization", "Bearer "+slipway.Token(all))
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusRequestEntityTooLarge, response.StatusCode)
	slipway.nothingStored(t, "chunked")
}

func TestAMebibyteIsDeployed(t *testing.T) {
	t.Parallel()
	const id = "mebibyte"
	a := slipway.put(t, id, padded(mebibyte))
	require.Equal(t, http.StatusAccepted, a.Status, a.Body)
	d := slipway.settled(t, id)
	require.Equal(t, deployment.StateActive, d.State, d.Reason)
	// As it was sent, however its JSON is written.
	require.JSONEq(t, padded(mebibyte), body(d.Configuration))
}

func TestMediaTypesThatAreRefused(t *testing.T) {
	t.Parallel()
	const id = "media"
	for name, header := range map[string]http.Header{
		"none":         {},
		"text":         {"Content-Type": {"text/plain"}},
		"form":         {"Content-Type": {"application/x-www-form-urlencoded"}},
		"another JSON": {"Content-Type": {"application/merge-patch+json"}},
		"not a type":   {"Content-Type": {"json"}},
		"charset":      {"Content-Type": {"application/json; charset=iso-8859-1"}},
		"two":          {"Content-Type": {"application/json", "text/plain"}},
		"compressed":   {"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}},
	} {
		for _, call := range []struct{ method, path string }{{http.MethodPut, "/deployments/" + id}, {http.MethodPost, "/deployments/" + id + "/preview"}} {
			a := slipway.call(t, call.method, call.path, header, body(configuration("")))
			require.Equal(t, http.StatusUnsupportedMediaType, a.Status, "%s: %s", name, a.Body)
			require.Equal(t, "unsupported_media_type", a.Error)
		}
	}
	slipway.nothingStored(t, id)
	utf8 := http.Header{"Content-Type": {"application/json; charset=UTF-8"}}
	require.Equal(t, http.StatusOK, slipway.call(t, http.MethodPost, "/deployments/"+id+"/preview", utf8, body(configuration(""))).Status)
}

func TestIdentifiersThatAreRefused(t *testing.T) {
	t.Parallel()
	// What is stored if it is taken all the same.
	meant := map[string]string{
		"%61bc": "abc", "a%2Fb": "a/b", "a%2eb": "a.b", "%2e%2e": "..", "a%00": "a", "a%20b": "a b", "%C3%A9": "é", "a%2d": "a-", "abc%20": "abc ",
	}
	for _, id := range []string{
		strings.Repeat("a", 41), "Abc", "ABC", "a.b", "..", ".", "a_b", "-", "a-", "-a", "a~b", "a:b", "a@b", "a+b", "a;b",
		"%61bc", "a%2Fb", "a%2eb", "%2e%2e", "a%00", "a%20b", "%C3%A9", "a%2d", "abc%20",
	} {
		for _, call := range routes(id) {
			a := slipway.call(t, call.method, call.path, asJSON(), call.body)
			require.Equal(t, http.StatusBadRequest, a.Status, "%s %s: %s", call.method, call.path, a.Body)
			require.Equal(t, "invalid_deployment_id", a.Error)
		}
		if as, ok := meant[id]; ok {
			slipway.noRows(t, strings.TrimRight(as, " "))
		}
		slipway.noRows(t, id)
	}
	// A slash makes it another path, which is none, or lacks the call.
	for _, id := range []string{"a/b", "a/", "/a", "a/../b", "a/b/c", "", "/"} {
		a := slipway.call(t, http.MethodPut, "/deployments/"+id, asJSON(), body(configuration("")))
		require.Contains(t, []int{http.StatusNotFound, http.StatusMethodNotAllowed}, a.Status, "%q: %s", id, a.Body)
	}
	for _, id := range []string{"a", "b"} {
		slipway.noRows(t, id)
	}
	// In a list too.
	for _, id := range []string{"A", "a.b", "a/b", "a-", strings.Repeat("a", 41), ""} {
		for _, a := range []answer{
			slipway.call(t, http.MethodGet, "/deployments?id=good&id="+id, nil, ""),
			slipway.call(t, http.MethodPost, "/deployments/list", asJSON(), `{"ids":["good",`+strconv.Quote(id)+`]}`),
		} {
			require.Equal(t, http.StatusBadRequest, a.Status, "%q: %s", id, a.Body)
			require.Equal(t, "invalid_deployment_id", a.Error)
			require.Contains(t, a.Message, "identifier 2 of the list")
		}
	}
	longest := strings.Repeat("a-", 19) + "42"
	require.Len(t, longest, deployment.MaxIDLength)
	require.Equal(t, http.StatusAccepted, slipway.put(t, longest, body(configuration(""))).Status)
	require.Equal(t, deployment.StateActive, slipway.settled(t, longest).State)
}

type route struct{ method, path, body string }

// routes are the calls about a deployment.
func routes(id string) []route {
	good := body(configuration(""))
	return []route{
		{http.MethodPut, "/deployments/" + id, good},
		{http.MethodGet, "/deployments/" + id, ""},
		{http.MethodDelete, "/deployments/" + id, ""},
		{http.MethodPost, "/deployments/" + id + "/preview", good},
		{http.MethodGet, "/deployments/" + id + "/builds", ""},
		{http.MethodGet, "/deployments/" + id + "/builds/1", ""},
		{http.MethodGet, "/deployments/" + id + "/builds/1/log", ""},
		{http.MethodPost, "/deployments/" + id + "/builds/1/cancel", ""},
		{http.MethodGet, "/deployments/" + id + "/events", ""},
		{http.MethodPost, "/deployments/" + id + "/events/ticket", ""},
		{http.MethodGet, "/sbom-list/" + id, ""},
		{http.MethodGet, "/sbom/" + id, ""},
		{http.MethodGet, "/sbom-diff/" + id, ""},
	}
}

func TestConfigurationThatTheModuleRefuses(t *testing.T) {
	t.Parallel()
	const id = "refused"
	for range 2 { // the second comes from the cache
		for _, a := range []answer{
			slipway.put(t, id, body(configuration(`"evaluate":"refuse"`))),
			slipway.preview(t, id, body(configuration(`"evaluate":"refuse"`))),
		} {
			require.Equal(t, http.StatusBadRequest, a.Status, a.Body)
			require.Equal(t, "invalid_configuration", a.Error)
			require.Equal(t, "the domain example.org is not ours\nask for one that is (see slipway.nix)", a.Message)
		}
	}
	slipway.nothingStored(t, id)
}

// The one that ignores SIGTERM is in TestSlots.
func TestEvaluationsThatMisbehave(t *testing.T) {
	t.Parallel()
	passwd, err := os.ReadFile("/etc/passwd")
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(passwd), ":")
	for kind, want := range map[string]struct{ code, message string }{
		"recurse":  {"evaluation_failed", "recurses too deeply"},
		"allocate": {"evaluation_failed", "limit of 768 MiB"},
		"print":    {"evaluation_failed", "limit of 8 MiB"},
		"shape":    {"evaluation_failed", "names has no attribute disabledApplications"},
		"passwd":   {"invalid_configuration", "access to"},
		"network":  {"invalid_configuration", "access to"},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			id := "evaluate-" + kind
			a := slipway.put(t, id, body(configuration(fmt.Sprintf(`"evaluate":%q`, kind))))
			require.Equal(t, http.StatusBadRequest, a.Status, a.Body)
			require.Equal(t, want.code, a.Error, a.Body)
			require.Contains(t, a.Message, want.message)
			require.NotContains(t, a.Message, first+":")
			require.Less(t, len(a.Message), 5<<10)
			slipway.nothingStored(t, id)
			workflow, err := slipway.temporal.DescribeWorkflow(t.Context(), wire.SubmitID(id, wire.HashRequest(id)), "")
			require.NoError(t, err, "it came to the evaluation")
			require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_COMPLETED, workflow.Status)
		})
	}
	t.Run("environment", func(t *testing.T) { // the source throws if it sees one
		t.Parallel()
		a := slipway.preview(t, "evaluate-environment", body(configuration(`"evaluate":"environment"`)))
		require.Equal(t, http.StatusOK, a.Status, a.Body)
	})
}

func TestDeployerThatPrintsBytes(t *testing.T) {
	t.Parallel()
	const id = "prints-bytes"
	slipway.deploy(t, id, `"deploy":"binary"`)
	require.Equal(t, "deploy of build 1: binary\na\\x00b\\xffcred\ndone\n", slipway.logOf(t, id, 1))
}

func TestDeployerThatPrintsAGibibyteOnALine(t *testing.T) {
	t.Parallel()
	const id = "prints-a-line"
	slipway.deploy(t, id, `"deploy":"long-line"`)
	line := strings.Repeat("x", 16<<10)
	require.Equal(t, "deploy of build 1: long-line\n"+line+" [… line cut at 16 KiB]\ndone\n", slipway.logOf(t, id, 1))
}

func TestDeployerThatIsKilled(t *testing.T) {
	t.Parallel()
	const id = "is-killed"
	slipway.submit(t, id, `"deploy":"exit-137"`)
	d := slipway.settled(t, id)
	require.Equal(t, deployment.StateFailed, d.State)
	require.Nil(t, d.Live)
	require.Equal(t, "build 1 failed: the deployer was ended by SIGKILL: deploy of build 1: exit-137\ndies", d.Reason)
	require.Equal(t, deployment.StateIdle, slipway.destroy(t, id).State)
}

func TestDeployerThatFails(t *testing.T) {
	t.Parallel()
	const id = "fails"
	slipway.submit(t, id, `"deploy":"fail"`)
	d := slipway.settled(t, id)
	require.Equal(t, deployment.StateFailed, d.State)
	require.Equal(t, "build 1 failed: the deployer exited with 3: deploy of build 1: fail\nit is broken\ndone", d.Reason)
	require.Equal(t, deployment.StatusFailed, d.LatestBuild.Status)
}

func TestDeployerThatLeavesADaemon(t *testing.T) {
	t.Parallel()
	const id = "leaves-a-daemon"
	slipway.deploy(t, id, `"deploy":"daemon"`)
	gone(t, daemon(t, id))
	require.Regexp(t, `(?m)^\[processes that the deployer left running are ended: [1-9][0-9]*\]$`, slipway.logOf(t, id, 1))
}

func TestDaemonOfACancelledDeployer(t *testing.T) {
	t.Parallel()
	const id = "cancelled-daemon"
	slipway.submit(t, id, `"deploy":"daemon-gate"`)
	deployer := slipway.started(t, id, "deploy", 1)
	pid := daemon(t, id)
	require.NoError(t, syscall.Kill(pid, 0), "it runs")
	_, err := slipway.api(t).Cancel(t.Context(), deployment.Ref{Deployment: id, Build: 1})
	require.NoError(t, err)
	slipway.build(t, id, 1, deployment.StatusCancelled)
	require.ErrorIs(t, syscall.Kill(deployer, 0), syscall.ESRCH, "the build ends after its deployer")
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "and after all that it started")
}

// daemon waits for the process that a deployer has put into the background.
func daemon(t *testing.T, id string) (pid int) {
	t.Helper()
	await(t, patience, func() error {
		text, err := os.ReadFile(filepath.Join(slipway.Record, id+".daemon"))
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	})
	return pid
}

func TestDeployerThatHangsAtCancel(t *testing.T) {
	t.Parallel()
	const id = "hangs"
	slipway.submit(t, id, `"deploy":"hang"`)
	pid := slipway.started(t, id, "deploy", 1)
	cancelled, err := slipway.api(t).Cancel(t.Context(), deployment.Ref{Deployment: id, Build: 1})
	require.NoError(t, err)
	require.Equal(t, deployment.StatusRunning, cancelled.Status)
	slipway.build(t, id, 1, deployment.StatusCancelled)
	gone(t, pid)
	d := slipway.settled(t, id)
	require.Equal(t, deployment.StateFailed, d.State)
	require.Equal(t, "build 1 cancelled", strings.SplitN(d.Reason, ":", 2)[0])
	log := slipway.logOf(t, id, 1)
	require.Contains(t, log, "[cancelled: the deployer was asked to stop]\n")
	require.True(t, strings.HasSuffix(log, "[the deployer did not stop in time and was killed]\n"), log)
	require.Equal(t, deployment.StateIdle, slipway.destroy(t, id).State)
}

func TestDeployerHasNoCredentials(t *testing.T) {
	t.Parallel()
	const id = "environment"
	slipway.deploy(t, id, `"deploy":"environment"`)
	log := slipway.logOf(t, id, 1)
	names := map[string]bool{}
	for line := range strings.Lines(log) {
		if name, _, ok := strings.Cut(line, "="); ok {
			names[name] = true
		}
	}
	for _, name := range []string{
		"HOME", "LANG", "PATH", "TMPDIR", "SLIPWAY_DEPLOYMENT_ID", "SLIPWAY_BUILD", "SLIPWAY_CONFIGURATION", "SLIPWAY_SOURCE",
		"SBOM_OUT_DIR", "DEPLOY_SBOM_TIMEOUT", "TEST_RECORD", "DEPLOY_PROFILES",
	} {
		require.True(t, names[name], "%s is missing in:\n%s", name, log)
		delete(names, name)
	}
	for _, name := range []string{"PWD", "OLDPWD", "SHLVL", "_"} { // the shell's own
		delete(names, name)
	}
	require.Empty(t, names)
	// Descriptors: its own three, and what script and ls opened.
	for line := range strings.Lines(log) {
		if _, target, ok := strings.Cut(line, " -> "); ok {
			require.Regexp(t, `^(/dev/null|pipe:\[\d+\]|/proc/\d+/fd|.*/record/environment\.lock)$`, strings.TrimSpace(target))
		}
	}
}
