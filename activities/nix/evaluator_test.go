package nix

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// newEvaluator returns an evaluator with a store and a state folder of its own.
// When the test ends it checks that no process and no folder is left.
func newEvaluator(t *testing.T) *Evaluator {
	t.Helper()
	folder := t.TempDir()
	config := Config{
		Timeout: time.Minute, MemoryBytes: 640 << 20, Slots: 2,
		StateDir: filepath.Join(folder, "state"),
		Env: []string{
			"NIX_STORE_DIR=" + filepath.Join(folder, "nix/store"), "NIX_STATE_DIR=" + filepath.Join(folder, "nix/var"),
			"NIX_LOG_DIR=" + filepath.Join(folder, "nix/log"),
			// A build asks no binary cache: there may be no network.
			"NIX_CONFIG=substitute = false",
		},
	}
	for _, name := range []string{"store", "var", "log"} {
		require.NoError(t, os.MkdirAll(filepath.Join(folder, "nix", name), 0o755))
	}
	e, err := New(config)
	require.NoError(t, err)
	t.Cleanup(func() {
		requireNothingLeft(t, e)
		e.Close()
		// A store is read-only, which only root can ignore.
		_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				_ = os.Chmod(path, 0o755)
			}
			return nil
		})
	})
	return e
}

// requireNothingLeft checks that no evaluation is running or has left a folder.
func requireNothingLeft(t *testing.T, e *Evaluator) {
	t.Helper()
	require.Empty(t, processes(t, e.config.StateDir))
	for _, folder := range []string{e.evaluations, e.sources} {
		left, err := filepath.Glob(filepath.Join(folder, scratch+"*"))
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// processes are the running processes whose arguments have the text.
func processes(t *testing.T, text string) []string {
	t.Helper()
	var found []string
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range paths {
		// One that ended meanwhile cannot be read.
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(text)) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// source is the path of a source of the tests.
func source(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	require.NoError(t, err)
	return path
}

// evaluate evaluates an attribute of a source, and a function if there is a
// configuration.
func evaluate(t *testing.T, e *Evaluator, name, attribute, configuration string) (string, error) {
	t.Helper()
	request := Request{Snapshot: source(t, name), Entry: "slipway.nix", Attribute: attribute}
	if configuration != "" {
		request.Configuration = []byte(configuration)
	}
	result, err := e.Evaluate(context.Background(), request)
	requireNothingLeft(t, e)
	return string(result), err
}

// requireFailure checks the kind of a failure and gives it.
func requireFailure(t *testing.T, err error, kind Kind) *Failure {
	t.Helper()
	var failure *Failure
	require.ErrorAs(t, err, &failure)
	require.Equal(t, kind, failure.Kind, failure.Message+"\n"+failure.Output)
	require.NotEmpty(t, failure.Message)
	return failure
}

func TestEvaluate(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)

	result, err := evaluate(t, e, "good", "schema", "")
	require.NoError(t, err)
	require.JSONEq(t, `{"type": "object"}`, result)

	result, err = evaluate(t, e, "good", "names", `{"nodes": {"web": ["a.example"], "data": []}}`)
	require.NoError(t, err)
	names, err := DecodeNames(json.RawMessage(result))
	require.NoError(t, err)
	require.Len(t, names.Nodes, 2)
	require.Equal(t, "data", names.Nodes[0].Name)
	require.Equal(t, "web", names.Nodes[1].Name)
	require.Equal(t, []string{"a.example"}, names.Nodes[1].Names)
	require.Equal(t, []string{"chat"}, names.DisabledApplications)

	result, err = evaluate(t, e, "good", "functor", `{"domain": "${builtins.currentTime} \" ''é"}`)
	require.NoError(t, err)
	require.JSONEq(t, `"${builtins.currentTime} \" ''é"`, result)
}

func TestSelectEvaluatesNothingElse(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	request := Request{
		Snapshot: source(t, "good"), Entry: "slipway.nix", Attribute: "systems",
		Configuration: []byte(`{"domain": "a.example"}`), Select: "web",
	}
	result, err := e.Evaluate(context.Background(), request)
	require.NoError(t, err)
	require.JSONEq(t, `"web of a.example"`, string(result))

	request.Select = "broken"
	_, err = e.Evaluate(context.Background(), request)
	require.Equal(t, "the system of broken does not evaluate", requireFailure(t, err, KindRefused).Message)

	request.Select = "gone"
	_, err = e.Evaluate(context.Background(), request)
	require.Equal(t, `the source has no attribute "systems.gone"`, requireFailure(t, err, KindNoSuchAttribute).Message)
}

func TestEvaluateExampleSource(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	folder, err := filepath.Abs("../../deploy/source")
	require.NoError(t, err)
	example, err := os.ReadFile(filepath.Join(folder, "example.json"))
	require.NoError(t, err)
	ctx := context.Background()

	request := Request{Snapshot: folder, Entry: "slipway.nix", Attribute: "names", Configuration: example}
	result, err := e.Evaluate(ctx, request)
	require.NoError(t, err)
	names, err := DecodeNames(result)
	require.NoError(t, err)
	var nodes []string
	for _, node := range names.Nodes {
		nodes = append(nodes, node.Name)
	}
	require.Equal(t, []string{"backup", "forum", "gateway", "wiki"}, nodes)

	request.Attribute = "systems"
	result, err = e.Evaluate(ctx, request)
	require.NoError(t, err)
	var systems map[string]string
	require.NoError(t, json.Unmarshal(result, &systems))
	require.Len(t, systems, 4)
	require.Contains(t, systems["wiki"], "slipway-system-wiki.drv")

	// A rule that its schema cannot say.
	request.Attribute = "names"
	request.Configuration = []byte(`{"single": {"domain": "a.example", "applications": {
		"wiki": {"enable": true, "domain": "status.a.example"}, "backup": {"enable": true, "applications": ["forum"]}}}}`)
	_, err = e.Evaluate(ctx, request)
	require.Equal(t, "status.a.example cannot be the address of wiki and status at once: give one of them another domain\n"+
		"the backup cannot copy forum, which is not enabled: enable it, or take it out of the backup",
		requireFailure(t, err, KindRefused).Message)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	for attribute, want := range map[string]string{
		"lines":            "two problems:\n\n  1. a-file.nix is wrong\n  error: that is a word like any other\nTalk to your operator.",
		"assertions":       "Failed assertions:\n- the first\n- the second",
		"aborted":          "evaluation aborted with the following error message: 'this is the end'",
		"context":          "the reason",
		"disguised":        "the reason",
		"where":            "look at slipway.nix",
		"missingAttribute": "attribute 'missing' missing",
		"coloured":         "a red word",
	} {
		_, err := evaluate(t, e, "refusing", attribute, "{}")
		require.Equal(t, want, requireFailure(t, err, KindRefused).Message, attribute)
	}

	// How Nix prints the expression is up to its version.
	_, err := evaluate(t, e, "refusing", "asserted", "{}")
	require.Regexp(t, `^assertion '.*configuration.* \? missing\)?' failed$`, requireFailure(t, err, KindRefused).Message)

	_, err = evaluate(t, e, "refusing", "needsArgument", "{}")
	message := requireFailure(t, err, KindRefused).Message
	require.Contains(t, message, "called without required argument 'missing'")
	require.NotContains(t, message, source(t, ""))

	_, err = evaluate(t, e, "refusing", "long", "{}")
	failure := requireFailure(t, err, KindRefused)
	require.LessOrEqual(t, len(failure.Message), 4<<10)
	require.True(t, strings.HasPrefix(failure.Message, "ää") && strings.HasSuffix(failure.Message, "ä…"))
	require.LessOrEqual(t, len(failure.Output), 16<<10)

	_, err = evaluate(t, e, "syntax", "schema", "")
	failure = requireFailure(t, err, KindRefused)
	require.Contains(t, failure.Message, "syntax error")
	require.Contains(t, failure.Output, "slipway.nix:2:12")
}

func TestWrongShapes(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	for _, test := range []struct{ source, attribute, configuration, want string }{
		{"lambda", "schema", "", "slipway.nix is a lambda, it must be an attribute set"},
		{"shapes", "notFunction", "{}", "notFunction is an int, it must be a function"},
		{"shapes", "function", "", "a function"},
		{"shapes", "functionInside", "", "a function"},
		{"shapes", "notANumber", "", "not JSON"},
		{"shapes", "notUTF8", "", "not UTF-8"},
		{"endless", "nested", "", "depth"},
	} {
		_, err := evaluate(t, e, test.source, test.attribute, test.configuration)
		require.Contains(t, requireFailure(t, err, KindWrongShape).Message, test.want)
	}

	_, err := evaluate(t, e, "shapes", "gone", "")
	require.Equal(t, `the source has no attribute "gone"`, requireFailure(t, err, KindNoSuchAttribute).Message)
	_, err = evaluate(t, e, "shapes", "", "{}")
	requireFailure(t, err, KindNoSuchAttribute)

	result, err := evaluate(t, e, "shapes", "names", "{}")
	require.NoError(t, err)
	_, err = DecodeNames(json.RawMessage(result))
	requireFailure(t, err, KindWrongShape)
}

func TestMissingEntry(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	for _, test := range []struct{ snapshot, entry, want string }{
		{source(t, "good"), "other.nix", "no file other.nix"},
		{source(t, "good"), "../good/slipway.nix", "not a path inside"},
		{source(t, ""), "good", "is a folder"},
		{source(t, "nowhere"), "slipway.nix", "does not exist"},
	} {
		_, err := e.Evaluate(context.Background(), Request{Snapshot: test.snapshot, Entry: test.entry, Attribute: "schema"})
		var missing *SourceError
		require.ErrorAs(t, err, &missing)
		require.Contains(t, missing.Error(), test.want)
	}
}

func TestStackOverflow(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	for _, attribute := range []string{"stack", "nestedMore"} {
		_, err := evaluate(t, e, "endless", attribute, "")
		require.True(t, requireFailure(t, err, KindStackOverflow).Lasting())
	}
	// Nix notices this one, and says so.
	_, err := evaluate(t, e, "endless", "recursion", "")
	require.Equal(t, "infinite recursion encountered", requireFailure(t, err, KindRefused).Message)
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	for _, attribute := range []string{"memory", "memoryOfStrings"} {
		_, err := evaluate(t, e, "endless", attribute, "")
		failure := requireFailure(t, err, KindOutOfMemory)
		require.Equal(t, "640 MiB", failure.Limit)
		require.False(t, failure.Lasting())
	}
}

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	release, ok := e.TryAcquire()
	require.True(t, ok)
	begin := time.Now()
	_, err := e.Evaluate(context.Background(), Request{
		Snapshot: source(t, "endless"), Entry: "slipway.nix", Attribute: "time", Timeout: 500 * time.Millisecond,
	})
	release()
	require.Less(t, time.Since(begin), 5*time.Second)
	require.Zero(t, e.InUse())
	failure := requireFailure(t, err, KindTimeout)
	require.Equal(t, "0.5 s", failure.Limit)
	require.False(t, failure.Lasting())
	requireNothingLeft(t, e)
}

func TestOutputLimit(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	e.config.MemoryBytes = 2 << 30
	_, err := evaluate(t, e, "endless", "output", "")
	require.Equal(t, "8 MiB", requireFailure(t, err, KindOutputTooLarge).Limit)

	// Messages are not the result, and are not kept.
	result, err := evaluate(t, e, "endless", "messages", "")
	require.NoError(t, err)
	require.JSONEq(t, `"short"`, result)

	// Without an end, either the output or the stack is the first to be full.
	_, err = evaluate(t, e, "endless", "cycle", "")
	var failure *Failure
	require.ErrorAs(t, err, &failure)
	require.Contains(t, []Kind{KindOutputTooLarge, KindStackOverflow}, failure.Kind)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := e.Evaluate(ctx, Request{Snapshot: source(t, "endless"), Entry: "slipway.nix", Attribute: "time"})
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(processes(t, e.config.StateDir)) > 0 }, 10*time.Second, time.Millisecond)
	cancel()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(5 * time.Second):
		t.Fatal("the evaluation goes on")
	}
	requireNothingLeft(t, e)

	_, err := e.Evaluate(ctx, Request{Snapshot: source(t, "good"), Entry: "slipway.nix", Attribute: "schema"})
	require.ErrorIs(t, err, context.Canceled)
}

// What a source reaches for is refused, and what the environment has is not
// there.
func TestCuriousSource(t *testing.T) {
	const canary = "canary-of-the-environment"
	t.Setenv("SLIPWAY_CANARY", canary)
	e := newEvaluator(t)
	require.NoError(t, os.WriteFile(filepath.Join(e.config.StateDir, ".netrc"), []byte(canary), 0o600))

	for _, attribute := range []string{"file", "folder", "home", "imported", "copied", "searched"} {
		_, err := evaluate(t, e, "curious", attribute, "")
		failure := requireFailure(t, err, KindRefused)
		require.NotContains(t, failure.Message+failure.Output, "root:")
		require.NotContains(t, failure.Message+failure.Output, canary)
	}
	// Whether a file exists is refused too, or denied.
	if result, err := evaluate(t, e, "curious", "existence", ""); err == nil {
		require.Equal(t, "false", result)
	} else {
		requireFailure(t, err, KindRefused)
	}
	result, err := evaluate(t, e, "curious", "environment", "")
	require.NoError(t, err)
	require.JSONEq(t, `{"canary": "", "home": "", "path": ""}`, result)

	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer server.Close()
	url, err := json.Marshal(server.URL + "/thing")
	require.NoError(t, err)
	for _, attribute := range []string{"fetchurl", "fetchTarball", "fetchGit", "importFromDerivation"} {
		_, err := evaluate(t, e, "curious", attribute, string(url))
		requireFailure(t, err, KindRefused)
	}
	require.Zero(t, requests.Load())
}

func TestIsolated(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	network := func(l *launcher) string {
		out, err := l.run(context.Background(), command{args: []string{"/bin/readlink", "/proc/self/ns/net"}})
		require.NoError(t, err)
		return strings.TrimSpace(string(out.stdout))
	}
	ours, err := os.Readlink("/proc/thread-self/ns/net")
	require.NoError(t, err)
	require.Equal(t, ours, network(e.online))
	require.Equal(t, e.Isolated(), ours != network(e.offline))
}

func TestSlots(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	first, ok := e.TryAcquire()
	require.True(t, ok)
	second, err := e.Acquire(context.Background())
	require.NoError(t, err)
	require.Equal(t, 2, e.InUse())
	_, ok = e.TryAcquire()
	require.False(t, ok)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = e.Acquire(ctx)
	require.ErrorIs(t, err, context.Canceled)

	first()
	first()
	require.Equal(t, 1, e.InUse(), "a slot is given back once")
	third, ok := e.TryAcquire()
	require.True(t, ok)
	second()
	third()
	require.Zero(t, e.InUse())
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	registry := prometheus.NewRegistry()
	var err error
	e.metrics, err = newMetrics(registry, e)
	require.NoError(t, err)
	for range 3 {
		e.TryAcquire()
	}
	for _, err := range []error{
		nil, &Failure{Kind: KindRefused}, fmt.Errorf("evaluate: %w", timeout(time.Second)), context.Canceled, errors.New("no such program"),
	} {
		e.metrics.evaluated(time.Second, err)
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				got[m.GetLabel()[0].GetValue()] = float64(h.GetSampleCount())
			} else {
				got[family.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	require.Equal(t, map[string]float64{
		"slipway_nix_slots": 2, "slipway_nix_slots_in_use": 2, "slipway_nix_slots_refused_total": 1,
		"ok": 1, "refused": 1, "timeout": 1, "cancelled": 1, "error": 1,
	}, got)
	_, err = newMetrics(registry, e)
	require.Error(t, err, "registered twice")
}

func TestVersion(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	version, err := e.Version(context.Background())
	require.NoError(t, err)
	require.Regexp(t, `^(Nix|Lix).* \d+\.\d+`, version)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	again, err := e.Version(ctx)
	require.NoError(t, err, "it is remembered")
	require.Equal(t, version, again)
}

func TestNew(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Timeout: time.Second, MemoryBytes: 1, Slots: 1, StateDir: t.TempDir(), BinDir: t.TempDir()})
	require.ErrorContains(t, err, "install Nix")
	for _, config := range []Config{
		{MemoryBytes: 1, Slots: 1, StateDir: "x"},
		{Timeout: 1, Slots: 1, StateDir: "x"},
		{Timeout: 1, MemoryBytes: 1, StateDir: "x"},
		{Timeout: 1, MemoryBytes: 1, Slots: 1},
	} {
		_, err := New(config)
		require.Error(t, err)
	}

	// What a killed worker left is removed once nobody can still use it.
	state := t.TempDir()
	old, young := filepath.Join(state, "evaluations", scratch+"old"), filepath.Join(state, "evaluations", scratch+"young")
	for _, folder := range []string{old, young} {
		require.NoError(t, os.MkdirAll(folder, 0o700))
	}
	past := time.Now().Add(-2 * abandoned)
	require.NoError(t, os.Chtimes(old, past, past))
	e, err := New(Config{Timeout: time.Second, MemoryBytes: 1 << 30, Slots: 1, StateDir: state})
	require.NoError(t, err)
	e.Close()
	require.NoDirExists(t, old)
	require.DirExists(t, young)

	_, err = e.Evaluate(context.Background(), Request{Snapshot: source(t, "good"), Entry: "slipway.nix", Attribute: "schema"})
	require.ErrorIs(t, err, errClosed)
}

// Nix that cannot work says nothing about the source.
func TestNixIsNotWell(t *testing.T) {
	t.Parallel()
	e := newEvaluator(t)
	// The state folder of Nix is a file.
	broken := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(broken, nil, 0o600))
	e.config.Env = []string{"NIX_STATE_DIR=" + broken, "NIX_STORE_DIR=" + broken}
	_, err := evaluate(t, e, "good", "schema", "")
	require.Error(t, err)
	var failure *Failure
	require.False(t, errors.As(err, &failure), "%v", err)
	require.Contains(t, err.Error(), broken)
}

// An evaluation ends with the worker, even one that is killed.
func TestEvaluationDiesWithItsWorker(t *testing.T) {
	const folderOf = "SLIPWAY_TEST_WORKER"
	if folder := os.Getenv(folderOf); folder != "" {
		e, err := New(Config{Timeout: time.Minute, MemoryBytes: 4 << 30, Slots: 1, StateDir: folder})
		require.NoError(t, err)
		_, err = e.Evaluate(context.Background(), Request{Snapshot: source(t, "endless"), Entry: "slipway.nix", Attribute: "time"})
		t.Fatalf("the evaluation ended: %v", err)
	}
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "state")
	worker := exec.Command(os.Args[0], "-test.run=^TestEvaluationDiesWithItsWorker$")
	worker.Env = append(os.Environ(), folderOf+"="+folder)
	require.NoError(t, worker.Start())
	t.Cleanup(func() { _ = worker.Process.Kill(); _ = worker.Wait() })
	require.Eventually(t, func() bool { return len(processes(t, folder)) == 1 }, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, worker.Process.Signal(syscall.SIGKILL))
	require.Eventually(t, func() bool { return len(processes(t, folder)) == 0 }, 10*time.Second, 5*time.Millisecond)
}
