package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/stand"
)

// ran is what a run of the slipway program left.
type ran struct {
	code     int
	out, err string
}

// cli runs `slipway deployments`.
func cli(t *testing.T, args ...string) ran {
	t.Helper()
	return finish(t, deployments(t, args...))
}

// deployments is a run of `slipway deployments` as a user has it: with a URL
// and a token.
func deployments(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, stand.Bin("slipway"), append([]string{"deployments"}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "SLIPWAY_URL=" + slipway.URL, "SLIPWAY_TOKEN=" + slipway.Token(all)}
	return cmd
}

func finish(t *testing.T, cmd *exec.Cmd) ran {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	r := ran{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	require.NotContains(t, r.out+r.err, "\x1b", "no colours outside of a terminal")
	return r
}

// file writes a configuration to a file.
func file(t *testing.T, configuration json.RawMessage) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "configuration.json")
	require.NoError(t, os.WriteFile(path, configuration, 0o644))
	return path
}

// inOrder says that the lines of a text match the patterns, one after another,
// with others between them where a pattern is "…".
func inOrder(t *testing.T, text string, patterns ...string) {
	t.Helper()
	rest := strings.Split(strings.TrimRight(text, "\n"), "\n")
	skip := false
	for _, pattern := range patterns {
		if pattern == "…" {
			skip = true
			continue
		}
		match := regexp.MustCompile("^" + pattern + "$")
		for skip && len(rest) > 0 && !match.MatchString(rest[0]) {
			rest = rest[1:]
		}
		require.NotEmpty(t, rest, "%s is missing in:\n%s", pattern, text)
		require.Regexp(t, match, rest[0], "in:\n%s", text)
		rest, skip = rest[1:], false
	}
	require.True(t, skip || len(rest) == 0, "more follows in:\n%s", text)
}

// since is how a step begins: with the seconds since the start.
const since = ` *[0-9]+\.[0-9]s  `

func TestCommandSubmitsAndDestroys(t *testing.T) {
	t.Parallel()
	const id = "cli"
	path := file(t, configuration(`"deploy":"lines-3"`))
	r := cli(t, "submit", id, "-f", path, "--follow")
	require.Equal(t, 0, r.code, r.err)
	inOrder(t, r.out,
		since+`submitted cli, build 1 \(evaluated: 1 node\)`, "…",
		since+`building: build 1 runs`,
		since+`  \| deploy of build 1: lines-3`, since+`  \| 1`, since+`  \| 2`, since+`  \| 3`, since+`  \| done`,
		since+`build 1 succeeded`, since+`active`)

	r = cli(t, "show", id)
	require.Equal(t, 0, r.code, r.err)
	inOrder(t, r.out, `deployment +cli`, `state +active`, `since +.* ago\)|since +.*\(now\)`, `live +build 1`,
		`domain +example\.org`, `method +test`, ``,
		`NODE +NAMES`, `web +example\.org`, ``, `BUILD +ACTION +STATUS +CREATED +TOOK +REASON`, `1 +deploy +succeeded +.*`)

	r = cli(t, "list", id, "cli-unknown")
	require.Equal(t, 0, r.code, r.err)
	inOrder(t, r.out, `DEPLOYMENT +STATE +SINCE +LIVE +LATEST BUILD +REASON`, `cli +active +.* +1 +1 deploy succeeded +-`)
	require.Contains(t, r.err, "cli-unknown")

	r = cli(t, "logs", id)
	require.Equal(t, ran{0, lines("lines-3", 1, "%d", 3), ""}, r)

	r = cli(t, "destroy", id, "--follow")
	require.Equal(t, 0, r.code, r.err)
	inOrder(t, r.out, since+`destroying cli, build 2`, "…", since+`destroying: build 2 runs`,
		since+`  \| destroy of build 2: quick`, since+`  \| done`, since+`build 2 succeeded`, since+`idle`)
	r = cli(t, "destroy", id, "--follow")
	require.Equal(t, 0, r.code, r.err)
	require.Equal(t, "cli is idle: there is nothing to destroy\n", r.out)

	// Without following, from standard input, with a key.
	for range 2 {
		cmd := deployments(t, "submit", id, "-f", "-", "--key", "once")
		cmd.Stdin = bytes.NewReader(configuration(""))
		r = finish(t, cmd)
		require.Equal(t, 0, r.code, r.err)
		inOrder(t, r.out, `submitted cli, build 3 \(evaluated: 1 node\)`, `NODE +NAMES`, `web +example\.org`)
		require.Contains(t, r.err, "slipway deployments logs cli -b 3 -f")
	}
	require.Equal(t, deployment.StateActive, slipway.settled(t, id).State)
}

func TestCommandIsLive(t *testing.T) {
	t.Parallel()
	const id = "cli-live"
	follow := deployments(t, "submit", id, "-f", file(t, configuration(`"deploy":"gate"`)), "--follow")
	followed := live(t, follow)
	for line := range followed {
		if strings.HasSuffix(line, "| deploy of build 1: gate") {
			break
		}
	}
	// The deployer waits for this test, so that line came while it runs.
	slipway.build(t, id, 1, deployment.StatusRunning)
	logs := deployments(t, "logs", id, "-f")
	logged := live(t, logs)
	require.Equal(t, "deploy of build 1: gate", <-logged)
	slipway.open(t, id)
	require.Equal(t, "done", <-logged)
	_, more := <-logged
	require.False(t, more)
	require.NoError(t, logs.Wait())
	var rest []string
	for line := range followed {
		rest = append(rest, line)
	}
	require.NoError(t, follow.Wait())
	inOrder(t, strings.Join(rest, "\n"), since+`  \| done`, since+`build 1 succeeded`, since+`active`)
}

// live starts a command and gives its lines as they come.
func live(t *testing.T, cmd *exec.Cmd) <-chan string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = io.Discard
	require.NoError(t, cmd.Start())
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines
}

func TestCommandFails(t *testing.T) {
	t.Parallel()
	const id = "cli-fails"
	r := cli(t, "submit", id, "-f", file(t, configuration(`"deploy":"fail"`)), "--follow")
	require.Equal(t, 1, r.code)
	inOrder(t, r.out, "…", since+`  \| it is broken`, "…", since+`build 1 failed: the deployer exited with 3: deploy of build 1: fail`,
		` +it is broken`, ` +done`, since+`failed`)
	require.Contains(t, r.err, "slipway: build 1 of cli-fails failed")
	require.Contains(t, r.err, "slipway deployments logs cli-fails -b 1")

	r = cli(t, "submit", id, "-f", file(t, configuration(`"work":0,"count":3`)), "--follow")
	require.Equal(t, 4, r.code)
	require.Empty(t, r.out)
	inOrder(t, r.err, `slipway: the configuration is not valid \(invalid_configuration\)`,
		`  /test/count: is not a multiple of 2`, `  /test/work: is too small, the least allowed is 1`, `  request [0-9a-f-]{36}`)
	r = cli(t, "submit", id, "-f", file(t, configuration(`"evaluate":"refuse"`)))
	require.Equal(t, 4, r.code)
	inOrder(t, r.err, `slipway: the domain example\.org is not ours`, `ask for one that is \(see slipway\.nix\) \(invalid_configuration\)`, `  request .*`)
	r = cli(t, "submit", id, "-f", file(t, []byte("{\n  1}")))
	require.Equal(t, 2, r.code)
	require.Contains(t, r.err, "configuration.json:2:3: ")

	for _, args := range [][]string{{"show", "cli-unknown"}, {"destroy", "cli-unknown"}, {"logs", "cli-unknown"}, {"cancel", "cli-unknown"}, {"cancel", id}} {
		r := cli(t, args...)
		require.Equal(t, 4, r.code, "%s: %s", args, r.err)
		require.True(t, strings.HasPrefix(r.err, "slipway: "), r.err)
	}
	for _, args := range [][]string{
		{"show"}, {"show", "UPPER"}, {"show", id, "--no-such"}, {"submit", id}, {"submit", id, "-f", "/no/such/file"}, {"no-such"},
		{"list"}, {"show", id, "-o", "yaml"}, {"logs", id, "-b", "0"},
	} {
		r := cli(t, args...)
		require.Equal(t, 2, r.code, "%s: %s", args, r.err)
		require.Empty(t, r.out)
	}
	away := deployments(t, "show", id, "--url", "http://127.0.0.1:1")
	r = finish(t, away)
	require.Equal(t, 5, r.code, r.err)
	expired := deployments(t, "show", id, "--token", "no-jwt")
	r = finish(t, expired)
	require.Equal(t, 4, r.code, r.err)
	require.NotContains(t, r.err, "no-jwt")
}

func TestCommandCancels(t *testing.T) {
	t.Parallel()
	const id = "cli-cancels"
	slipway.submit(t, id, `"deploy":"gate"`)
	slipway.started(t, id, "deploy", 1)
	queued := deployments(t, "submit", id, "-f", file(t, configuration("")), "--follow")
	lines := live(t, queued)
	for line := range lines {
		if strings.Contains(line, "build 2 waits for build 1") {
			break
		}
	}
	r := cli(t, "cancel", id, "-b", "2")
	require.Equal(t, 0, r.code, r.err)
	require.Equal(t, "build 2 is cancelled\n", r.out)
	ended := ""
	for line := range lines {
		ended += line + "\n"
	}
	inOrder(t, ended, "…", since+`build 2 cancelled: cancelled while queued`, since+`building: build 1 runs`)
	var exit *exec.ExitError
	require.ErrorAs(t, queued.Wait(), &exit)
	require.Equal(t, 3, exit.ExitCode(), "it did not run")

	r = cli(t, "cancel", id)
	require.Equal(t, 0, r.code, r.err)
	require.Equal(t, "build 1 is asked to stop\n", r.out)
	slipway.build(t, id, 1, deployment.StatusCancelled)
	r = cli(t, "cancel", id, "-b", "1")
	require.Equal(t, ran{0, "build 1 is cancelled\n", ""}, r, "as asked for")
}

func TestCommandWritesJSON(t *testing.T) {
	t.Parallel()
	const id = "cli-json"
	path := file(t, configuration(`"deploy":"lines-2"`))
	r := cli(t, "preview", id, "-f", path, "-o", "json")
	require.Equal(t, 0, r.code, r.err)
	require.JSONEq(t, `{"nodes":[{"name":"web","names":["example.org"]}],"disabledApplications":[],"secretsSet":{},"instances":[]}`, r.out)
	r = cli(t, "preview", id, "-f", path)
	require.Equal(t, 0, r.code, r.err)
	inOrder(t, r.out, `cli-json is accepted: 1 node`, `NODE +NAMES`, `web +example\.org`)
	r = cli(t, "preview", id, "-f", file(t, configuration(`"evaluate":"refuse"`)), "-o", "json")
	require.Equal(t, 4, r.code)
	require.Empty(t, r.out)
	slipway.nothingStored(t, id)

	r = cli(t, "submit", id, "-f", path, "--follow", "-o", "json")
	require.Equal(t, 0, r.code, r.err)
	type step struct {
		Time    time.Time
		Elapsed float64
		Event   string
		Data    map[string]any
	}
	var told []string
	var log string
	for line := range strings.Lines(r.out) {
		var s step
		require.NoError(t, json.Unmarshal([]byte(line), &s), line)
		require.WithinDuration(t, time.Now(), s.Time, 2*patience)
		switch s.Event {
		case "log":
			log += s.Data["text"].(string)
			continue
		case "build":
			s.Event = fmt.Sprint("build ", s.Data["status"])
		case "state":
			s.Event = fmt.Sprint("state ", s.Data["state"])
		}
		told = append(told, s.Event)
	}
	require.Equal(t, "submit", told[0])
	require.Equal(t, []string{"build succeeded", "state active"}, told[len(told)-2:])
	require.Equal(t, lines("lines-2", 1, "%d", 2), log)

	r = cli(t, "show", id, "-o", "json")
	require.Equal(t, 0, r.code, r.err)
	var shown struct {
		deployment.Deployment
		Builds []deployment.Build
	}
	require.NoError(t, json.Unmarshal([]byte(compact(t, r.out)), &shown))
	require.Equal(t, slipway.settled(t, id), shown.Deployment)
	require.Len(t, shown.Builds, 1)
	r = cli(t, "list", id, "-o", "json")
	var listed struct{ Deployments []deployment.Deployment }
	require.NoError(t, json.Unmarshal([]byte(compact(t, r.out)), &listed))
	require.Equal(t, []deployment.Deployment{shown.Deployment}, listed.Deployments)
}

// compact is a JSON document as the API writes it.
func compact(t *testing.T, document string) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, json.Compact(&b, []byte(document)))
	return b.String()
}

func TestCommandsExplainThemselves(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"list", "show", "submit", "preview", "destroy", "logs", "cancel"} {
		r := cli(t, command, "--help")
		require.Equal(t, 0, r.code)
		require.Empty(t, r.err)
		for _, part := range []string{"Usage:\n  slipway deployments " + command, "Examples:\n", "--url", "--token-file", "--output"} {
			require.Contains(t, r.out, part, command)
		}
	}
	r := cli(t)
	require.Equal(t, 0, r.code)
	for _, part := range []string{"SLIPWAY_TOKEN", "Exit codes:", "preview", "cancel"} {
		require.Contains(t, r.out, part)
	}
	for _, command := range []string{"", "serve", "api", "worker", "migrate", "temporal-setup", "config", "version"} {
		cmd := slipway.Command(strings.Fields(command + " --help")...)
		r := finish(t, cmd)
		require.Equal(t, 0, r.code, r.err)
		require.Contains(t, r.out, "Usage:\n  slipway "+command)
		require.NotContains(t, r.out, "supervise", "which is the worker's")
	}
}

func TestConfigCommand(t *testing.T) {
	t.Parallel()
	r := finish(t, slipway.Command("config", "--nix-slots", "7"))
	require.Equal(t, 0, r.code, r.err)
	require.Regexp(t, `(?m)^SLIPWAY_NIX_SLOTS +7 +\(flag\)`, r.out)
	require.Regexp(t, `(?m)^SLIPWAY_NIX_MEMORY +768MiB +\(environment\)`, r.out)
	require.Regexp(t, `(?m)^SLIPWAY_NIX_SYSTEMS_TIMEOUT +600s +\(default\)`, r.out)
	require.Regexp(t, `(?m)^SLIPWAY_DATABASE_URL +\*+ +\(environment\)`, r.out)
	require.NotContains(t, r.out, slipway.DatabaseURL)
	_, password, _ := strings.Cut(strings.SplitN(slipway.DatabaseURL, "@", 2)[0], "slipway:")
	require.NotEmpty(t, password)
	require.NotContains(t, r.out+r.err, password)

	refuses := func(command, name, value string) {
		cmd := slipway.Command(command)
		cmd.Env = append(cmd.Env, name+"="+value)
		r := finish(t, cmd)
		require.Equal(t, 1, r.code, "%s with %s=%s", command, name, value)
		require.Regexp(t, name+`[: ]`, r.err, "%s with %s=%s", command, name, value)
		require.NotContains(t, r.err, password)
	}
	for name, value := range map[string]string{
		"SLIPWAY_NIX_SLOTS": "many", "SLIPWAY_NIX_TIMEOUT": "5", "SLIPWAY_NIX_MEMORY": "-1GiB", "SLIPWAY_LISTEN": "8082",
		"SLIPWAY_TRUSTED_ISSUERS": "{}", "SLIPWAY_LOG_LEVEL": "loud", "SLIPWAY_DEPLOYER_ENV": "SLIPWAY_DATABASE_URL",
	} {
		refuses("config", name, value)
	}
	for _, command := range []string{"config", "api", "worker", "serve", "migrate"} {
		refuses(command, "SLIPWAY_NIX_SLOT", "4") // no such setting
	}
	// What is not set is named.
	for command, missing := range map[string]string{
		"api": "SLIPWAY_TRUSTED_ISSUERS", "worker": "SLIPWAY_SOURCE", "migrate": "SLIPWAY_DATABASE_URL", "serve": "SLIPWAY_SOURCE",
	} {
		cmd := slipway.Command(command)
		cmd.Env = append(cmd.Env, missing+"=")
		r := finish(t, cmd)
		require.Equal(t, 1, r.code, command)
		require.Contains(t, r.err, missing+" is not set")
	}
}

func TestSetupCommandsMayBeRepeated(t *testing.T) {
	t.Parallel()
	for range 2 {
		r := finish(t, slipway.Command("migrate"))
		require.Equal(t, 0, r.code, r.err)
		require.Regexp(t, `^The database is at migration [1-9][0-9]*\.\n$`, r.out)
		r = finish(t, slipway.Command("temporal-setup"))
		require.Equal(t, 0, r.code, r.err)
		require.Equal(t, "The namespace default has the search attributes of slipway.\n", r.out)
	}
	r := finish(t, slipway.Command("version"))
	require.Equal(t, 0, r.code, r.err)
	require.Regexp(t, `^slipway \S+ \(commit \S+, date \S+, go1\.\S+\)\n$`, r.out)

	cmd := slipway.Command("temporal-setup", "--wait", "3s")
	cmd.Env = append(cmd.Env, "TEMPORAL_ADDRESS=127.0.0.1:1")
	r = finish(t, cmd)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "waiting for Temporal")
	cmd = slipway.Command("migrate")
	cmd.Env = append(cmd.Env, "SLIPWAY_DATABASE_URL=postgres://slipway:topsecret@127.0.0.1:1/slipway?connect_timeout=2")
	r = finish(t, cmd)
	require.Equal(t, 1, r.code)
	require.NotContains(t, r.err, "topsecret")
	cmd = slipway.Command("migrate")
	cmd.Env = append(cmd.Env, "SLIPWAY_DATABASE_URL=postgres//slipway:topsecret")
	r = finish(t, cmd)
	require.Equal(t, 1, r.code)
	require.NotContains(t, r.err, "topsecret")
}
