package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/sbom"
	"slipway.dev/slipway/tests/testdb"
)

// left is what a deployer left about a node: an SBOM, or a reason, or that it
// did not change.
type left struct {
	node      string
	text      string
	problem   string
	unchanged bool
}

// deploySBOMs runs a build whose deployer left something (nil: no list) and
// ended with code.
func deploySBOMs(t *testing.T, s *store.Store, id string, code int, list []left) int64 {
	t.Helper()
	ref := deployment.Ref{Deployment: id, Build: submit(t, s, id)}
	require.Equal(t, store.TurnTaken, take(t, s, id, ref.Build))
	_, err := s.Job(t.Context(), ref)
	require.NoError(t, err)
	fence := uuid.New()
	require.NoError(t, acquire(t, s, ref, fence))
	stageSBOMs(t, s, ref, fence, list)
	require.NoError(t, s.StageExit(t.Context(), ref, fence, deployment.Exit{Code: code, Reason: map[bool]string{false: "it broke"}[code == 0]}))
	_, err = s.Finish(t.Context(), ref, store.End{Reason: "no exit"})
	require.NoError(t, err)
	return ref.Build
}

func stageSBOMs(t *testing.T, s *store.Store, ref deployment.Ref, fence uuid.UUID, list []left) {
	t.Helper()
	if list == nil {
		return
	}
	reader := sbom.NewReader()
	entries := []sbom.Entry{}
	for _, l := range list {
		entries = append(entries, sbom.Entry{Node: l.node, Changed: !l.unchanged, Problem: l.problem})
		if l.text == "" {
			continue
		}
		d, err := reader.Read([]byte(l.text))
		require.NoError(t, err)
		require.NoError(t, s.StageSBOM(t.Context(), ref, fence, l.node, d))
		require.NoError(t, s.StageSBOM(t.Context(), ref, fence, l.node, d), "the answer was lost")
	}
	require.NoError(t, s.StageSBOMs(t.Context(), ref, fence, entries))
	require.NoError(t, s.StageSBOMs(t.Context(), ref, fence, entries))
}

// bom is a document with components of these names and versions.
func bom(names ...string) string {
	var components []string
	for _, name := range names {
		name, version, _ := strings.Cut(name, "@")
		components = append(components, fmt.Sprintf(`{ "type":"library", "name":%q, "version":%q, "purl":"pkg:nix/%s@%s" }`, name, version, name, version))
	}
	return `{"bomFormat":"CycloneDX","specVersion":"1.6","n":1.0,"components":[` + strings.Join(components, ",\n\t") + "]}\n"
}

func served(t *testing.T, s *store.Store, id, node string) string {
	t.Helper()
	d, text, err := s.SBOMText(t.Context(), id, node)
	require.NoError(t, err)
	require.Equal(t, sha256.Sum256(text), d.SHA256)
	require.Equal(t, int64(len(text)), d.Size)
	described, err := s.SBOM(t.Context(), id, node)
	require.NoError(t, err)
	require.Equal(t, d, described)
	return string(text)
}

// states writes the nodes as "web ready 1 1.6 2" or "web unavailable 1 reason".
func states(t *testing.T, s *store.Store, id string) []string {
	t.Helper()
	nodes, err := s.SBOMs(t.Context(), id)
	require.NoError(t, err)
	lines := []string{}
	for _, n := range nodes {
		build := "-"
		if n.Build != nil {
			build = fmt.Sprint(*n.Build)
			require.WithinDuration(t, time.Now(), *n.Time, time.Minute)
		} else {
			require.Nil(t, n.Time)
		}
		line := fmt.Sprintf("%s %s %s %s", n.Node, n.Status, build, n.Reason)
		if n.Status == deployment.SBOMReady {
			line += fmt.Sprintf("%s %d", n.SpecVersion, *n.Components)
		}
		lines = append(lines, line)
		d, err := s.SBOM(t.Context(), id, n.Node)
		if n.Status == deployment.SBOMReady {
			require.NoError(t, err)
			require.Equal(t, *n.Build, d.Build)
		} else {
			require.ErrorIs(t, err, deployment.ErrNoSBOM)
			require.Equal(t, deployment.NoSBOM{Reason: n.Reason}, err)
		}
	}
	return lines
}

// counts are the rows of the tables, in the order components, documents,
// remainders, keys, uses.
func counts(t *testing.T, db *pgx.Conn) (counted [5]int) {
	t.Helper()
	for i, table := range []string{"components", "documents", "remainders", "component_keys", "document_components"} {
		require.NoError(t, db.QueryRow(t.Context(), `SELECT count(*) FROM sbom_`+table).Scan(&counted[i]))
	}
	return counted
}

// tables is a database as database makes it, with a connection of its own.
func tables(t *testing.T) (*store.Store, *pgx.Conn) {
	t.Helper()
	t.Parallel()
	url := testdb.Empty(t)
	s, err := store.Open(t.Context(), url, 30)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	useSnapshot(t, s, snapshot)
	db, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close(context.WithoutCancel(t.Context())) })
	return s, db
}

func collect(t *testing.T, s *store.Store) {
	t.Helper()
	require.NoError(t, s.CollectSBOMs(t.Context()))
}

func TestSBOMsOfADeployment(t *testing.T) {
	s, db := tables(t)
	_, err := s.SBOMs(t.Context(), "site")
	require.ErrorIs(t, err, deployment.ErrUnknown)
	_, err = s.SBOM(t.Context(), "site", "web")
	require.ErrorIs(t, err, deployment.ErrUnknown)

	deploySBOMs(t, s, "site", 0, nil)
	require.Empty(t, states(t, s, "site"))

	web, data := bom("a@1", "b@1", "a@1"), bom("a@1", "c@1")
	two := deploySBOMs(t, s, "site", 0, []left{{node: "web", text: web}, {node: "db", text: data}, {node: "mail", problem: "it timed out"}, {node: "old", unchanged: true}})
	unchanged := "old unavailable - " + sbom.ErrUnchanged.Error()
	require.Equal(t, []string{"db ready 2 1.6 2", "mail unavailable 2 it timed out", unchanged, "web ready 2 1.6 3"}, states(t, s, "site"))
	require.Equal(t, web, served(t, s, "site", "web"))
	require.Equal(t, data, served(t, s, "site", "db"))
	_, err = s.SBOM(t.Context(), "site", "none")
	require.ErrorIs(t, err, deployment.ErrUnknown)
	_, err = s.SBOMDiff(t.Context(), "site", "web")
	require.Equal(t, deployment.NoSBOM{Reason: "the node had no SBOM before this one"}, err)
	require.Equal(t, [5]int{3, 2, 2, 3, 2}, counts(t, db), "each component once")

	// A failed build and one without a list change none.
	deploySBOMs(t, s, "site", 1, []left{{node: "web", text: bom("x@1")}})
	deploySBOMs(t, s, "site", 0, nil)
	require.Equal(t, web, served(t, s, "site", "web"))
	collect(t, s)
	require.Equal(t, [5]int{3, 2, 2, 3, 2}, counts(t, db), "the SBOM of the failed build is gone")

	// Unchanged keeps, a bad one becomes a reason, what is gone goes.
	web = bom("a@2", "b@1", "d@1")
	five := deploySBOMs(t, s, "site", 0, []left{{node: "web", text: web}, {node: "mail", unchanged: true}, {node: "old", unchanged: true}})
	require.Equal(t, []string{"mail unavailable 2 it timed out", unchanged, "web ready 5 1.6 3"}, states(t, s, "site"))
	require.Equal(t, web, served(t, s, "site", "web"))
	diff, err := s.SBOMDiff(t.Context(), "site", "web")
	require.NoError(t, err)
	component := func(name, version string) deployment.SBOMComponent {
		return deployment.SBOMComponent{Name: name, Version: version, PURL: "pkg:nix/" + name + "@" + version}
	}
	require.Equal(t, deployment.SBOMDiff{
		Node: "web", Build: five, Before: two, Added: []deployment.SBOMComponent{component("d", "1")}, Removed: []deployment.SBOMComponent{},
		Changed: []deployment.SBOMChange{{SBOMComponent: component("a", "2"), Before: component("a", "1")}},
	}, diff)
	collect(t, s)
	require.Equal(t, [5]int{4, 2, 2, 4, 2}, counts(t, db), "a@1 a@2 b d, and the earlier SBOM of web")

	// An unavailable one does not lose the earlier one for the next diff.
	deploySBOMs(t, s, "site", 0, []left{{node: "web", problem: "not JSON"}})
	require.Equal(t, []string{"web unavailable 6 not JSON"}, states(t, s, "site"))
	_, err = s.SBOMDiff(t.Context(), "site", "web")
	require.Equal(t, deployment.NoSBOM{Reason: "not JSON"}, err)
	deploySBOMs(t, s, "site", 0, []left{{node: "web", text: bom("a@2", "b@1")}})
	diff, err = s.SBOMDiff(t.Context(), "site", "web")
	require.NoError(t, err)
	require.Equal(t, []deployment.SBOMComponent{component("d", "1")}, diff.Removed)
	require.Empty(t, diff.Added)

	// A destroy that fails changes none, one that succeeds takes all.
	run(t, s, "site", destroy(t, s, "site").Build, 1)
	require.Len(t, states(t, s, "site"), 1)
	run(t, s, "site", destroy(t, s, "site").Build, 0)
	require.Empty(t, states(t, s, "site"))
	_, err = s.SBOM(t.Context(), "site", "web")
	require.ErrorIs(t, err, deployment.ErrUnknown)
	collect(t, s)
	require.Equal(t, [5]int{}, counts(t, db))
}

// A node of a build from before slipway kept SBOMs.
func TestNodeThatNoDeployChangedSinceSBOMsAreKept(t *testing.T) {
	s := database(t)
	require.NoError(t, s.KeepEvaluation(t.Context(), "k", json.RawMessage(`{"nodes":[{"name":"web","names":[]},{"name":"db","names":[]}]}`), nil))
	recorded, err := s.Record(t.Context(), store.Submit{Deployment: "d", Request: "r", WorkflowID: "w", Snapshot: snapshot, Configuration: json.RawMessage(`{}`), EvaluationKey: "k"})
	require.NoError(t, err)
	run(t, s, "d", recorded.Build, 0)
	want := []string{"db unavailable - " + sbom.ErrUnchanged.Error(), "web unavailable - " + sbom.ErrUnchanged.Error()}
	require.Equal(t, want, states(t, s, "d"))
	_, err = s.SBOMDiff(t.Context(), "d", "web")
	require.Equal(t, deployment.NoSBOM{Reason: sbom.ErrUnchanged.Error()}, err)
	run(t, s, "d", destroy(t, s, "d").Build, 0)
	require.Empty(t, states(t, s, "d"))
}

func TestSBOMsAreStagedUnderTheFence(t *testing.T) {
	s, db := tables(t)
	ref := deployment.Ref{Deployment: "d", Build: submit(t, s, "d")}
	take(t, s, "d", ref.Build)
	fence := uuid.New()
	require.NoError(t, acquire(t, s, ref, fence))
	d, err := sbom.NewReader().Read([]byte(bom("a@1")))
	require.NoError(t, err)
	require.ErrorIs(t, s.StageSBOM(t.Context(), ref, uuid.New(), "web", d), deployment.ErrFenced)
	require.ErrorIs(t, s.StageSBOMs(t.Context(), ref, uuid.New(), nil), deployment.ErrFenced)
	require.Equal(t, [5]int{}, counts(t, db))
	stageSBOMs(t, s, ref, fence, []left{{node: "web", text: bom("a@1")}})
	_, err = s.SBOM(t.Context(), "d", "web")
	require.ErrorIs(t, err, deployment.ErrUnknown, "it is not there before the build has succeeded")
	collect(t, s)
	// The worker died: whoever finishes the build finds all.
	require.NoError(t, s.StageExit(t.Context(), ref, fence, deployment.Exit{}))
	ended, err := s.Finish(t.Context(), ref, store.End{Reason: "its workflow is gone"})
	require.NoError(t, err)
	require.Equal(t, deployment.StatusSucceeded, ended.Status)
	require.Equal(t, bom("a@1"), served(t, s, "d", "web"))
	require.ErrorIs(t, s.StageSBOM(t.Context(), ref, fence, "late", d), deployment.ErrFenced)
}

func TestServedByteForByte(t *testing.T) {
	s, db := tables(t)
	files, err := filepath.Glob("../../schema/sbom/testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	list := []left{
		{node: "mark", text: "\ufeff" + bom("a@1")},
		{node: "none", text: `{"bomFormat":"CycloneDX","specVersion":"1.6"}`},
		{node: "empty", text: ` {"bomFormat":"CycloneDX","specVersion":"1.6","components" : [ ] } `},
		{node: "twice", text: `{"components":[{"name":"a"}],"bomFormat":"CycloneDX","specVersion":"1.6","components":[{"name":"b"},{"name":"a"}]}`},
		{node: "nul", text: `{"bomFormat":"CycloneDX","specVersion":"1.6","components":[{"name":"a\u0000","purl":"\ud800"},{"name":"` + "\xff" + `"}]}`},
		{node: "long", text: `{"bomFormat":"CycloneDX","specVersion":"1.6","metadata":{"component":{"name":"` + strings.Repeat("x", 5<<20) + `"}},"components":[{"name":"` + strings.Repeat("y", 3<<20) + `"},{"name":"z"}]}`},
	}
	for i, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		list = append(list, left{node: fmt.Sprintf("file%d", i), text: string(text)})
	}
	for i := range 5 { // components in random orders, and repeated
		var names []string
		for range 3000 {
			names = append(names, fmt.Sprintf("p%d@1.%d", rand.IntN(2000), rand.IntN(3)))
		}
		list = append(list, left{node: fmt.Sprintf("random%d", i), text: bom(names...)})
	}
	deploySBOMs(t, s, "d", 0, list)
	for _, l := range list {
		if got := served(t, s, "d", l.node); got != l.text {
			t.Errorf("node %s has another document", l.node)
		}
	}
	deploySBOMs(t, s, "d", 0, []left{})
	collect(t, s)
	collect(t, s)
	require.Equal(t, [5]int{}, counts(t, db))
}

func TestComponentUses(t *testing.T) {
	s := database(t)
	nested := `{"bomFormat":"CycloneDX","specVersion":"1.6","components":[{"name":"outer","components":[{"name":"openssl","version":"3.1","purl":"pkg:nix/openssl@3.1"}]}]}`
	deploySBOMs(t, s, "one", 0, []left{{node: "web", text: bom("openssl@3.0", "zlib@1", "openssl@3.1")}, {node: "db", text: bom("zlib@1")}})
	deploySBOMs(t, s, "two", 0, []left{{node: "web", text: nested}})
	look := func(query deployment.ComponentQuery, ids []string, limit int) (lines []string) {
		uses, err := s.ComponentUses(t.Context(), query, ids, limit)
		require.NoError(t, err)
		require.NotNil(t, uses)
		for _, u := range uses {
			lines = append(lines, fmt.Sprintf("%s/%s#%d %s@%s", u.Deployment, u.Node, u.Build, u.Component.Name, u.Component.Version))
		}
		return lines
	}
	require.Equal(t, []string{"one/web#1 openssl@3.0", "one/web#1 openssl@3.1", "two/web#1 openssl@3.1"}, look(deployment.ComponentQuery{Name: "openssl"}, nil, 10))
	require.Equal(t, []string{"one/web#1 openssl@3.0", "one/web#1 openssl@3.1"}, look(deployment.ComponentQuery{Name: "openssl"}, nil, 2))
	require.Equal(t, []string{"one/web#1 openssl@3.1", "two/web#1 openssl@3.1"}, look(deployment.ComponentQuery{PURL: "pkg:nix/openssl@3.1"}, nil, 10))
	require.Equal(t, []string{"two/web#1 openssl@3.1"}, look(deployment.ComponentQuery{Name: "openssl", Version: "3.1"}, []string{"two"}, 10))
	require.Equal(t, []string{"one/db#1 zlib@1", "one/web#1 zlib@1"}, look(deployment.ComponentQuery{Name: "zlib"}, nil, 10))
	require.Empty(t, look(deployment.ComponentQuery{Name: "openssl"}, []string{}, 10))
	require.Empty(t, look(deployment.ComponentQuery{Name: "openss"}, nil, 10))
	deploySBOMs(t, s, "one", 0, []left{{node: "web", text: bom("zlib@1")}})
	require.Equal(t, []string{"one/web#2 zlib@1"}, look(deployment.ComponentQuery{Name: "zlib"}, nil, 10), "not the earlier SBOM, not a node that is gone")
	require.Equal(t, []string{"two/web#1 openssl@3.1"}, look(deployment.ComponentQuery{Name: "openssl"}, nil, 10))
}

// Finishing a build moves no document, so its time does not grow with them.
func TestLargeDocument(t *testing.T) {
	s, db := tables(t)
	var text bytes.Buffer
	text.WriteString(`{"bomFormat":"CycloneDX","specVersion":"1.6","components":[`)
	for i := range 12_000 { // more than one look and one write take
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, `{"name":"p%d","description":"%s"}`, i, strings.Repeat("x", 290))
	}
	text.WriteString("]}")
	text.WriteString(strings.Repeat(" ", 3<<20)) // and more than a part of the remainder
	deploySBOMs(t, s, "d", 0, []left{{node: "web", text: text.String()}})
	d, got, err := s.SBOMText(t.Context(), "d", "web")
	require.NoError(t, err)
	require.True(t, bytes.Equal(text.Bytes(), got))
	require.Equal(t, int64(text.Len()), d.Size)
	start := time.Now()
	run(t, s, "d", destroy(t, s, "d").Build, 0)
	require.Less(t, time.Since(start), 3*time.Second, "a build is finished within the time of a local activity")
	collect(t, s)
	require.Equal(t, [5]int{}, counts(t, db))
}
