package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"

	"slipway.dev/slipway/activities/nix"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/tests/stand"
)

// TestModuleSource takes a module source through its life, on a stand of its
// own: missing and broken at start, mended, changed, broken again, and gone.
func TestModuleSource(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "source")
	started, err := stand.New(stand.Options{Source: folder, NotReady: true, Env: []string{
		"SLIPWAY_NIX_TIMEOUT=10s", "SLIPWAY_NIX_SYSTEMS_TIMEOUT=8s", "SLIPWAY_NIX_SLOTS=1", "SLIPWAY_DEPLOYER_GRACE=1s",
	}})
	require.NoError(t, err)
	s, err := newSite(started)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Logs())
		}
		require.NoError(t, s.Close())
	})
	own := &source{site: s, folder: folder}

	for _, step := range []struct {
		name string
		test func(*source, *testing.T)
	}{
		{"missing at start", (*source).missingAtStart},
		{"broken at start", (*source).brokenAtStart},
		{"mended", (*source).mended},
		{"one slot", (*source).oneSlot},
		{"slow system", (*source).slowSystem},
		{"changed", (*source).changed},
		{"broken later", (*source).brokenLater},
		{"another schema", (*source).anotherSchema},
		{"gone", (*source).gone},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.test(own, t) }) {
			return
		}
	}
}

type source struct {
	*site
	folder string
}

type readiness struct {
	Ready              bool
	WaitsFor, Problems []string
}

// readyz asks the API and the worker, which must agree, until check is content.
func (s *source) readyz(t *testing.T, status int, check func(readiness) bool) {
	t.Helper()
	for _, url := range []string{s.Health, s.WorkerHealth} {
		await(t, patience, func() error {
			response, err := http.Get(url)
			if err != nil {
				return err
			}
			defer func() { _ = response.Body.Close() }()
			text, err := io.ReadAll(response.Body)
			if err != nil {
				return err
			}
			var r readiness
			if err := json.Unmarshal(text, &r); err != nil {
				return err
			}
			if response.StatusCode != status || r.Ready != (status == http.StatusOK) || !check(r) {
				return fmt.Errorf("%s: %s: %s", url, response.Status, text)
			}
			return nil
		})
		response, err := http.Get(strings.Replace(url, "/readyz", "/healthz", 1))
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode, "it lives all the while")
	}
}

// waits: the service is not ready, and says why.
func (s *source) waits(t *testing.T, why string) {
	t.Helper()
	s.readyz(t, http.StatusServiceUnavailable, func(r readiness) bool {
		return len(r.WaitsFor) == 1 && strings.HasPrefix(r.WaitsFor[0], "module source: ") && strings.Contains(r.WaitsFor[0], why)
	})
	const id = "too-early"
	public := s.call(t, http.MethodGet, "/schema", http.Header{"Authorization": {""}}, "")
	for _, a := range []answer{s.put(t, id, body(configuration(""))), s.preview(t, id, body(configuration(""))), public} {
		require.Equal(t, http.StatusServiceUnavailable, a.Status, a.Body)
		require.Equal(t, "service_unavailable", a.Error)
		require.NotEmpty(t, a.Header.Get("Retry-After"))
		require.Contains(t, a.Message, "module source")
		require.NotContains(t, a.Body, s.folder)
	}
	s.nothingStored(t, id)
	// What needs no source works.
	require.Equal(t, http.StatusNotFound, s.call(t, http.MethodDelete, "/deployments/"+id, nil, "").Status)
}

// problem: the service is ready, with a source that was there before.
func (s *source) problem(t *testing.T, what string) {
	t.Helper()
	s.readyz(t, http.StatusOK, func(r readiness) bool {
		return len(r.Problems) == 1 && strings.Contains(r.Problems[0], what)
	})
}

// install puts a copy of a source in the place of the folder. The file that
// edit names is changed by it.
func (s *source) install(t *testing.T, from, edit string, change func(string) string) {
	t.Helper()
	next := s.folder + ".next"
	require.NoError(t, os.CopyFS(next, os.DirFS(filepath.Join(stand.Root(), "tests", "sources", from))))
	if edit != "" {
		path := filepath.Join(next, edit)
		text := string(mustRead(t, path))
		changed := change(text)
		require.NotEqual(t, text, changed)
		require.NoError(t, os.WriteFile(path, []byte(changed), 0o644)) // which keeps the mode
	}
	require.NoError(t, os.RemoveAll(s.folder))
	require.NoError(t, os.Rename(next, s.folder))
}

// snapshot is the one that submits are checked against.
func (s *source) snapshot(t *testing.T) (path string) {
	t.Helper()
	require.NoError(t, s.database.QueryRow(t.Context(), `SELECT coalesce(max(store_path), '') FROM source`).Scan(&path))
	return path
}

// snapshotOf is the one that a build deploys.
func (s *source) snapshotOf(t *testing.T, id string, build int64) (path string) {
	t.Helper()
	err := s.database.QueryRow(t.Context(), `SELECT snapshot FROM builds WHERE deployment_id = $1 AND number = $2`, id, build).Scan(&path)
	require.NoError(t, err)
	return path
}

// changes waits until submits are checked against another snapshot.
func (s *source) changes(t *testing.T, from string) {
	t.Helper()
	await(t, patience, func() error {
		if s.snapshot(t) == from {
			return fmt.Errorf("the source is still %s", from)
		}
		return nil
	})
}

func (s *source) missingAtStart(t *testing.T) {
	s.waits(t, "there is no such folder")
}

func (s *source) brokenAtStart(t *testing.T) {
	for _, piece := range []string{stand.API, stand.Worker} {
		require.NoError(t, s.Kill(piece))
	}
	s.install(t, "controlled", "slipway.nix", func(string) string { return `{ schema = throw "the schema is not done yet"; }` })
	for _, piece := range []string{stand.API, stand.Worker} {
		require.NoError(t, s.Start(piece))
	}
	s.waits(t, "the schema is not done yet")
	s.install(t, "controlled", "slipway.nix", func(text string) string {
		return strings.Replace(text, "deployer = ./deployer;",
			`deployer = derivation { name = "deployer"; system = builtins.currentSystem; builder = "/bin/sh"; args = [ "-c" "exit 3" ]; };`, 1)
	})
	s.waits(t, "the deployer does not build")
	require.Empty(t, s.snapshot(t))
}

func (s *source) mended(t *testing.T) {
	s.install(t, "controlled", "", nil)
	s.readyz(t, http.StatusOK, func(r readiness) bool { return len(r.Problems) == 0 })
	s.deploy(t, "mended", "")
	s.deploy(t, "hauled-later", "")
	s.schema(t, `"test"`, "")
	s.submit(t, "half-way", `"deploy":"fail"`)
	require.Equal(t, deployment.StateFailed, s.settled(t, "half-way").State)
}

// schema reads the schema, which anybody may, and gives its tag. It must have
// the text and, if there is one, not the tag that it had before.
func (s *source) schema(t *testing.T, text, before string) (tag string) {
	t.Helper()
	header := http.Header{"Authorization": {""}}
	if before != "" {
		header.Set("If-None-Match", before)
	}
	a := s.call(t, http.MethodGet, "/schema", header, "")
	require.Equal(t, http.StatusOK, a.Status, a.Body)
	require.Contains(t, a.Body, text)
	tag = a.Header.Get("ETag")
	header.Set("If-None-Match", tag)
	require.Equal(t, http.StatusNotModified, s.call(t, http.MethodGet, "/schema", header, "").Status)
	return tag
}

// oneSlot: who finds no slot does not wait, and an evaluation that cannot be
// stopped nicely gives its slot back all the same.
func (s *source) oneSlot(t *testing.T) {
	const id = "slots"
	known := body(configuration(`"note":"known"`))
	require.Equal(t, http.StatusOK, s.preview(t, id, known).Status)

	begun := time.Now()
	answered := make(chan struct{})
	stuck := meanwhile(t, func() answer {
		defer close(answered)
		return s.put(t, "stuck", body(configuration(`"evaluate":"ignore-sigterm"`)))
	})
	await(t, patience, func() error {
		if s.metric(t, stand.Worker, "slipway_nix_slots_in_use") != "1" {
			return fmt.Errorf("no evaluation runs")
		}
		return nil
	})
	refused := s.preview(t, id, body(configuration(`"note":"refused"`)))
	require.Equal(t, http.StatusServiceUnavailable, refused.Status, refused.Body)
	require.Equal(t, "service_unavailable", refused.Error)
	require.NotEmpty(t, refused.Header.Get("Retry-After"))
	for _, configuration := range []string{`,"note":"refused"`, `,"note":"known"`} {
		refused := s.importOnce(t, id, id, configuration, true)
		require.Equal(t, "service_unavailable", refused.Error, refused.Body)
		require.NotEmpty(t, refused.Header.Get("Retry-After"), "an import never goes on without, also where the names are known")
	}
	s.noRows(t, id)

	require.Equal(t, http.StatusOK, s.preview(t, id, known).Status, "what is known needs no slot")
	submitted, err := s.api(t).Submit(t.Context(), id, configuration(`"note":"skips","applications":{"wiki":{}}`), "")
	require.NoError(t, err)
	require.Equal(t, deployment.EvaluationSkipped, submitted.Evaluation)
	require.Empty(t, submitted.Nodes)
	select {
	case <-answered:
		t.Fatalf("the slot was free again: %s", stuck().Body)
	default:
	}
	d := s.settled(t, id)
	require.Equal(t, deployment.StateActive, d.State, d.Reason)
	require.Equal(t, deployment.EvaluationSkipped, d.LatestBuild.Evaluation)
	// What it serves needs no evaluation to be known.
	require.Equal(t, "example.org", *d.Domain)
	require.Equal(t, "wiki", d.Instances.Deployed[0].Name)

	a := stuck()
	require.Equal(t, "0", s.metric(t, stand.Worker, "slipway_nix_slots_in_use"), "the slot is free at once")
	require.Equal(t, http.StatusBadRequest, a.Status, a.Body)
	require.Equal(t, "evaluation_failed", a.Error)
	require.Contains(t, a.Message, "limit of 10 s")
	require.Less(t, time.Since(begun), patience)
	require.Equal(t, http.StatusOK, s.preview(t, id, body(configuration(`"note":"after"`))).Status)
	s.nothingStored(t, "stuck")
}

// slowSystem: a system that takes too long ends an import in time, which says
// so, and shows before that which node it is.
func (s *source) slowSystem(t *testing.T) {
	const id = "import-slow"
	asked := meanwhile(t, func() answer { return s.imports(t, id, id, `,"systems":{"a":"good","b":"slow"}`, true) })
	await(t, patience, func() error {
		run, err := s.temporal.DescribeWorkflowExecution(t.Context(), wire.ImportID(id, wire.HashRequest(id)), "")
		if err != nil {
			return err
		}
		for _, pending := range run.GetPendingActivities() {
			var progress nix.Progress
			if pending.GetHeartbeatDetails() != nil &&
				converter.GetDefaultDataConverter().FromPayloads(pending.GetHeartbeatDetails(), &progress) == nil &&
				progress == (nix.Progress{Node: "b", Done: 1, Of: 3}) {
				return nil
			}
		}
		return fmt.Errorf("no progress is told: %v", run.GetPendingActivities())
	})
	// It has the deployment in hand.
	_, err := s.database.Exec(t.Context(), `INSERT INTO preparing (deployment_id, workflow_id, run_id) VALUES ($1, '', '')`, id)
	require.ErrorContains(t, err, "preparing_pkey")
	a := asked()
	require.Equal(t, "evaluation_failed", a.Error, a.Body)
	require.Len(t, a.Details, 2)
	require.Equal(t, "b", a.Details[0].Node)
	require.Contains(t, a.Details[0].Message, "limit of 8 s")
	s.nothingStoredBy(t, id, wire.ImportID)
}

func (s *source) changed(t *testing.T) {
	const id = "changes"
	first := s.snapshot(t)
	s.submit(t, id, `"deploy":"gate","destroy":"lines-1"`)
	s.started(t, id, "deploy", 1)
	s.submit(t, id, `"deploy":"lines-2"`)
	s.install(t, "controlled", "deployer", func(text string) string {
		return strings.Replace(text, `echo "done"`, `echo "done by the second source"`, 1)
	})
	s.changes(t, first)
	second := s.snapshot(t)

	s.deploy(t, "second", `"deploy":"lines-1"`)
	require.Equal(t, second, s.snapshotOf(t, "second", 1))
	require.Equal(t, "deploy of build 1: lines-1\n1\ndone by the second source\n", s.logOf(t, "second", 1))

	s.open(t, id)
	s.build(t, id, 2, deployment.StatusSucceeded)
	for build, log := range map[int64]string{
		1: "deploy of build 1: gate\ndone\n",
		2: "deploy of build 2: lines-2\n1\n2\ndone\n",
	} {
		require.Equal(t, first, s.snapshotOf(t, id, build))
		require.Equal(t, log, s.logOf(t, id, build), "a build keeps the snapshot that it was submitted with")
	}
	s.deploy(t, id, "")
	require.Equal(t, second, s.snapshotOf(t, id, 3))
	require.Equal(t, "deploy of build 3: quick\ndone by the second source\n", s.logOf(t, id, 3))
	// A destroy runs what the newest deploy that started ran.
	require.Equal(t, deployment.StateIdle, s.destroy(t, "mended").State)
	require.Equal(t, "destroy of build 2: quick\ndone\n", s.logOf(t, "mended", 2))
}

func (s *source) brokenLater(t *testing.T) {
	before := s.snapshot(t)
	s.install(t, "controlled", "slipway.nix", func(text string) string { return text + "}" })
	s.problem(t, "cannot be used, submits go on with the one before: ")
	require.Equal(t, before, s.snapshot(t))
	s.deploy(t, "while-broken", "")
	require.Equal(t, before, s.snapshotOf(t, "while-broken", 1))
	require.Equal(t, deployment.StateIdle, s.destroy(t, "while-broken").State)
}

// anotherSchema: every error of a configuration is reported, by its place and
// without what stands there.
func (s *source) anotherSchema(t *testing.T) {
	const id = "strict"
	before := s.snapshot(t)
	tag := s.schema(t, `"test"`, "")
	s.install(t, "strict", "", nil)
	s.changes(t, before)
	s.readyz(t, http.StatusOK, func(r readiness) bool { return len(r.Problems) == 0 })

	s.schema(t, `"uniqueItems"`, tag)

	const value = "hush-hush"
	given := `{"one":{
		"type":"hush-hush", "enum":"hush-hush", "const":"hush-hush", "multipleOf":770077, "minimum":-770077, "maximum":770077,
		"exclusiveMinimum":-770077, "exclusiveMaximum":770077, "minLength":"hush-hush", "maxLength":"hush-hush", "pattern":"hush-hush",
		"minItems":["hush-hush"], "maxItems":["hush-hush",1,2], "uniqueItems":["hush-hush",1,"hush-hush"], "items":[1,"hush-hush"],
		"prefixItems":[1,"hush-hush"], "contains":["hush-hush"], "minProperties":{"a":"hush-hush"}, "maxProperties":{"a":1,"b":"hush-hush"},
		"not":"hush-hush", "false":"hush-hush", "allOf":{"a":"hush-hush"}, "anyOf":{"a":"hush-hush"}, "oneOf":{"a":"hush-hush"},
		"both":"hush-hush", "conditional":"hush-hush", "referred":"hush-hush", "unevaluated":{"a~/b":"hush-hush"},
		"pattern-x":"hush-hush", "unknown":"hush-hush", "dependent":"hush-hush", "a-name-of-more-than-sixteen":"hush-hush"
	},"two":{}}`
	want := map[string]string{ // by place, a part of the message
		"": "at most 1", "/one/required": "is required", "/two/required": "is required",
		"/one/type": "allowed: boolean or integer", "/one/enum": `["red","green"]`, "/one/const": `"blue"`,
		"/one/multipleOf": "not a multiple of 5", "/one/minimum": "least allowed is 10", "/one/maximum": "most allowed is 10",
		"/one/exclusiveMinimum": "more than 10", "/one/exclusiveMaximum": "less than 10", "/one/minLength": "at least 100",
		"/one/maxLength": "at most 3", "/one/pattern": "^[0-9]+$", "/one/minItems": "at least 4", "/one/maxItems": "at most 2",
		"/one/uniqueItems": "items 0 and 2 are equal", "/one/items/1": "allowed: integer", "/one/prefixItems/1": "not allowed here",
		"/one/contains": "does not hold", "/one/minProperties": "at least 2", "/one/maxProperties": "at most 1", "/one/not": "not allowed here",
		"/one/false": "not allowed here", "/one/allOf/inner": "is required", "/one/anyOf": "none of the 2 allowed forms",
		"/one/oneOf": "none of the 2 allowed forms", "/one/both": "more than one of the allowed forms", "/one/conditional": "at most 2",
		"/one/referred": "allowed: integer", "/one/unevaluated/a~0~1b": "not allowed here", "/one/pattern-x": "allowed: integer",
		"/one/unknown": "not a known member", "/one": `"a-name-of-more-than-sixteen"`,
	}
	for _, a := range []answer{s.put(t, id, body(json.RawMessage(given))), s.preview(t, id, body(json.RawMessage(given)))} {
		require.Equal(t, http.StatusBadRequest, a.Status, a.Body)
		require.Equal(t, "invalid_configuration", a.Error)
		for path, message := range want {
			require.Contains(t, a.paths(), path)
			var said []string
			for _, d := range a.Details {
				if d.Path == path {
					said = append(said, d.Message)
				}
			}
			require.Contains(t, strings.Join(said, "\n"), message, path)
		}
		require.Contains(t, a.Body, "needs needed beside dependent")
		require.NotContains(t, a.Body, value)
		require.NotContains(t, a.Body, "770077")
	}
	s.nothingStored(t, id)

	// Exactly one method.
	for given, message := range map[string]string{
		`{}`: "at least 1", `{"one":{"required":1},"two":{"required":1}}`: "at most 1", `{"three":{}}`: "not a known member",
	} {
		a := s.put(t, id, body(json.RawMessage(given)))
		require.Equal(t, http.StatusBadRequest, a.Status, a.Body)
		require.Equal(t, "invalid_configuration", a.Error)
		require.Len(t, a.Details, 1)
		require.Contains(t, a.Details[0].Message, message)
	}
	s.nothingStored(t, id)
	a := s.preview(t, id, body(json.RawMessage(`{"two":{"required":null}}`)))
	require.Equal(t, http.StatusOK, a.Status, a.Body)
	require.JSONEq(t, `{"nodes":[],"disabledApplications":["one"],"secretsSet":{},"instances":[]}`, a.Body)
}

// gone: without the source, also for a worker that never saw it, what is up is
// hauled out, and a deploy that failed half-way too.
func (s *source) gone(t *testing.T) {
	require.NoError(t, os.RemoveAll(s.folder))
	s.problem(t, "there is no such folder")
	s.schema(t, `"uniqueItems"`, "")
	require.NoError(t, s.Restart(stand.Worker))
	for _, id := range []string{"hauled-later", "half-way"} {
		require.Equal(t, deployment.StateIdle, s.destroy(t, id).State)
		require.Equal(t, []string{"start deploy 1", "end deploy 1", "start destroy 2", "end destroy 2"}, s.runs(t, id))
	}
	require.Equal(t, deployment.StateIdle, s.destroy(t, "second").State)
	require.Equal(t, "destroy of build 2: quick\ndone by the second source\n", s.logOf(t, "second", 2))
}
