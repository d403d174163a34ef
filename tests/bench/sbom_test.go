package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/activities/deployer"
	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/sbom"
)

const (
	sbomNodes      = 100
	sbomComponents = 2000
	sbomShared     = 1900
	sbomSnapshot   = "/nix/store/0000000000000000000000000000000000-slipway-source"
)

// sbomStore is an empty database of slipway on the server of the stand, and a
// pool of its own for the plain way.
func sbomStore(t *testing.T) (s *store.Store, plain *pgxpool.Pool, address string) {
	t.Helper()
	name := "bench_" + hex.EncodeToString([]byte(uuid.NewString()))[:12]
	admin, err := pgx.Connect(t.Context(), slipway.DatabaseURL)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), `CREATE DATABASE `+name)
	require.NoError(t, err)
	require.NoError(t, admin.Close(t.Context()))
	u, err := url.Parse(slipway.DatabaseURL)
	require.NoError(t, err)
	u.Path = "/" + name
	address = u.String()
	s, err = store.Open(t.Context(), address, 4)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.KeepSnapshot(t.Context(), deployment.SourceSnapshot{StorePath: sbomSnapshot, Schema: []byte(`{}`), Methods: []string{"vm"}, Renames: []byte(`{}`), Deployer: "/d"}))
	plain, err = pgxpool.New(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(plain.Close)
	_, err = plain.Exec(t.Context(), `CREATE TABLE plain (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text bytea NOT NULL)`)
	require.NoError(t, err)
	return s, plain, address
}

// component is the text of one of at least 500 bytes, much of which are hashes
// that nothing compresses.
func component(name string) string {
	hash := make([]byte, 64)
	_, _ = rand.Read(hash)
	c := fmt.Sprintf(`{"type":"library","bom-ref":"pkg:nix/%s@1.2.3","name":"%s","version":"1.2.3","purl":"pkg:nix/%s@1.2.3","hashes":[{"alg":"SHA-512","content":"%x"}],"licenses":[{"license":{"id":"MIT"}}],"properties":[{"name":"nix:path","value":"/nix/store/%x-%s-1.2.3"}],"description":"`,
		name, name, name, hash, hash[:16], name)
	return c + strings.Repeat("a b c ", 100)[:max(0, 500-len(c)-2)] + `"}`
}

func componentsNamed(name string, n int) (list []string) {
	for i := range n {
		list = append(list, component(fmt.Sprintf("%s-%d", name, i)))
	}
	return list
}

// bomOf is a document of components that all have and some of its own, which
// stand anywhere between them.
func bomOf(shared, own []string) []byte {
	list := append([]string{}, shared...)
	for _, c := range own {
		i := mathrand.IntN(len(list) + 1)
		list = append(list[:i], append([]string{c}, list[i:]...)...)
	}
	return []byte(`{"bomFormat":"CycloneDX","specVersion":"1.6","serialNumber":"urn:uuid:` + uuid.NewString() + `","version":1,"components":[` +
		"\n    " + strings.Join(list, ",\n    ") + "\n  ]\n}\n")
}

// deploySBOMs stores documents as a build does, and returns the time from the
// files to the end of the build.
func deploySBOMs(t testing.TB, s *store.Store, id string, documents [][]byte) time.Duration {
	t.Helper()
	request := uuid.NewString()
	recorded, err := s.Record(t.Context(), store.Submit{Deployment: id, Request: request, WorkflowID: request, Snapshot: sbomSnapshot, Configuration: []byte(`{}`)})
	require.NoError(t, err)
	ref := deployment.Ref{Deployment: id, Build: recorded.Build}
	_, err = s.TakeTurn(t.Context(), ref)
	require.NoError(t, err)
	_, err = s.Job(t.Context(), ref)
	require.NoError(t, err)
	fence := uuid.New()
	_, err = s.AcquireFence(t.Context(), ref, fence)
	require.NoError(t, err)
	start := time.Now()
	reader := sbom.NewReader()
	var entries []sbom.Entry
	for i, text := range documents {
		e := sbom.Entry{Node: fmt.Sprint("node", i), Changed: true}
		d, err := reader.Read(text)
		require.NoError(t, err)
		require.NoError(t, s.StageSBOM(t.Context(), ref, fence, e.Node, d))
		entries = append(entries, e)
	}
	require.NoError(t, s.StageSBOMs(t.Context(), ref, fence, entries))
	require.NoError(t, s.StageExit(t.Context(), ref, fence, deployment.Exit{}))
	_, err = s.Finish(t.Context(), ref, store.End{})
	require.NoError(t, err)
	return time.Since(start)
}

func sizeOf(t *testing.T, db *pgxpool.Pool, tables ...string) (size int64) {
	t.Helper()
	for _, table := range tables {
		var one int64
		require.NoError(t, db.QueryRow(t.Context(), `SELECT pg_total_relation_size($1::text::regclass)`, table).Scan(&one))
		size += one
	}
	return size
}

// What is kept, written and read of 100 nodes, against the documents as rows.
func TestSBOMs(t *testing.T) {
	s, plain, _ := sbomStore(t)
	shared := componentsNamed("shared", sbomShared)
	var documents [][]byte
	raw := int64(0)
	for i := range sbomNodes {
		d := bomOf(shared, componentsNamed(fmt.Sprint("own-", i), sbomComponents-sbomShared))
		documents = append(documents, d)
		raw += int64(len(d))
	}
	const each = 10
	writePlain := func(documents [][]byte) time.Duration {
		start := time.Now()
		require.NoError(t, pgx.BeginFunc(t.Context(), plain, func(tx pgx.Tx) error {
			for _, d := range documents {
				if _, err := tx.Exec(t.Context(), `INSERT INTO plain (text) VALUES ($1)`, d); err != nil {
					return err
				}
			}
			return nil
		}))
		return time.Since(start)
	}
	var ours, theirs []time.Duration
	for i := 0; i < sbomNodes; i += each {
		ours = append(ours, deploySBOMs(t, s, fmt.Sprint("d", i/each), documents[i:i+each]))
		theirs = append(theirs, writePlain(documents[i:i+each]))
	}
	first := ratio(ours[0], theirs[0])
	report(t, "(s) store of 10 nodes / writing the documents", ratio(middle(ours), middle(theirs)), 3,
		"store ", middle(ours), ", write ", middle(theirs), fmt.Sprintf(", the first %.2f", first))

	kept := sizeOf(t, plain, "sbom_components", "sbom_documents", "sbom_remainders", "sbom_nodes")
	search := sizeOf(t, plain, "sbom_component_keys", "sbom_document_components")
	pglz := sizeOf(t, plain, "plain")
	_, err := plain.Exec(t.Context(), `CREATE TABLE plain_lz4 (text bytea COMPRESSION lz4); INSERT INTO plain_lz4 SELECT text || ''::bytea FROM plain`)
	require.NoError(t, err)
	lz4 := sizeOf(t, plain, "plain_lz4")
	percent := func(size int64) float64 { return 100 * float64(size) / float64(raw) }
	report(t, "(s) size of 100 nodes / documents, in %", percent(kept), 8,
		fmt.Sprintf("documents %d KiB; search columns %.2f %%; documents as rows: pglz %.2f %%, lz4 %.2f %%", raw>>10, percent(search), percent(pglz), percent(lz4)))

	var read, bare []time.Duration
	for i := range 4 * sbomNodes { // each in turn, so that the machine is the same for both
		n := i % sbomNodes
		read = append(read, timed(func() {
			_, text, err := s.SBOMText(t.Context(), fmt.Sprint("d", n/each), fmt.Sprint("node", n%each))
			require.NoError(t, err)
			require.Len(t, text, len(documents[n]))
		}))
		bare = append(bare, timed(func() {
			var text []byte
			require.NoError(t, plain.QueryRow(t.Context(), `SELECT text FROM plain WHERE id = $1`, n+1).Scan(&text))
			require.Len(t, text, len(documents[n]))
		}))
	}
	report(t, "(s) read of an SBOM / of a document as a row", ratio(middle(read), middle(bare)), 2, "SBOM ", middle(read), ", row ", middle(bare))
}

// The time of a store, with 10 and with 10,000 sets of components there, in turns.
func TestSBOMGrowth(t *testing.T) {
	const many, rounds = 10_000, 15
	begun := func() (one func() time.Duration, plain *pgxpool.Pool) {
		s, plain, _ := sbomStore(t)
		shared := componentsNamed("shared", 180)
		next := 0
		one = func() time.Duration {
			next++
			return deploySBOMs(t, s, fmt.Sprint("d", next), [][]byte{bomOf(shared, componentsNamed(fmt.Sprint("own-", next), 20))})
		}
		for range 10 {
			one()
		}
		return one, plain
	}
	besideFew, _ := begun()
	besideLots, plain := begun()
	_, err := plain.Exec(t.Context(), `
		INSERT INTO deployments (id) SELECT 'seed' || i FROM generate_series(1, $1::int) i`, many)
	require.NoError(t, err)
	for _, statement := range []string{
		`INSERT INTO builds (deployment_id, number, action, status, finished_at, started_at, workflow_id, request, configuration, configuration_hash, snapshot, evaluation)
			SELECT id, 1, 'deploy', 'succeeded', now(), now(), 'w', 'r', '{}', '', '', 'skipped' FROM deployments WHERE id LIKE 'seed%'`,
		// 20 components of its own for each set.
		`INSERT INTO sbom_components (id, text)
			SELECT 1000000 + i, convert_to(rpad(format('{"name":"seeded-%s","x":"%s', i, md5(i::text)), 498, md5(i::text)) || '"}', 'UTF8')
			FROM generate_series(1, 20 * ` + fmt.Sprint(many) + `) i`,
		`INSERT INTO sbom_component_keys SELECT id, ARRAY[hashint8extended(id, 0), hashint8extended(id, 1)] FROM sbom_components WHERE id > 1000000`,
		`INSERT INTO sbom_documents (deployment_id, build, node, spec_version, sha256, size, components, component_ids)
			SELECT id, 1, 'node0', '1.6', sha256(id::bytea), 100000, 200, ''::bytea FROM deployments WHERE id LIKE 'seed%'`,
		// The components of the first documents that most have, and its own.
		`INSERT INTO sbom_document_components
			SELECT d.id, (SELECT array_agg(c) FROM unnest(first.components[1:180]) c) || ARRAY(SELECT 1000000 + 20 * d.place - g FROM generate_series(0, 19) g)
			FROM (SELECT id, row_number() OVER (ORDER BY id) AS place FROM sbom_documents WHERE deployment_id LIKE 'seed%') d,
			     (SELECT components FROM sbom_document_components ORDER BY document_id LIMIT 1) first`,
		`INSERT INTO sbom_nodes (deployment_id, node, build, document_id) SELECT deployment_id, node, 1, id FROM sbom_documents WHERE deployment_id LIKE 'seed%'`,
		`VACUUM ANALYZE`, `CHECKPOINT`,
	} {
		_, err := plain.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	besideLots()
	var few, lots []time.Duration
	for range rounds {
		few = append(few, besideFew())
		lots = append(lots, besideLots())
	}
	report(t, "(s) store beside 10,000 sets / beside 10", ratio(middle(lots), middle(few)), 1.5, "10,000: ", middle(lots), ", 10: ", middle(few))
}

// The environment variable sbomTask makes the test binary a process that stores
// or serves the file sbomFile, so that its memory can be measured.
const (
	sbomTask     = "BENCH_SBOM_TASK"
	sbomDatabase = "BENCH_SBOM_DATABASE"
	sbomFile     = "BENCH_SBOM_FILE"
	sbomBuild    = "BENCH_SBOM_FENCE"
)

var sbomRef = deployment.Ref{Deployment: "large", Build: 1}

func runSBOMTask(task string) int {
	err := func(ctx context.Context) error {
		s, err := store.Open(ctx, os.Getenv(sbomDatabase), 3)
		if err != nil {
			return err
		}
		defer s.Close()
		switch task {
		case "nothing":
			return s.Ready(ctx)
		case "serve":
			_, text, err := s.SBOMText(ctx, sbomRef.Deployment, "node0")
			if err == nil {
				err = os.WriteFile(os.Getenv(sbomFile), text, 0o644)
			}
			return err
		}
		debug.SetMemoryLimit(deployer.SupervisorMemory) // as a supervisor does, which stores
		text, err := os.ReadFile(os.Getenv(sbomFile))
		if err != nil {
			return err
		}
		d, err := sbom.NewReader().Read(text)
		if err != nil {
			return err
		}
		fence, err := uuid.Parse(os.Getenv(sbomBuild))
		if err != nil {
			return err
		}
		return s.StageSBOM(ctx, sbomRef, fence, "node0", d)
	}(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// The peak of this process; that of getrusage begins with its parent's.
	status, err := os.ReadFile("/proc/self/status")
	_, peak, found := strings.Cut(string(status), "VmHWM:")
	if err != nil || !found {
		fmt.Fprintln(os.Stderr, "no peak of the memory:", err)
		return 1
	}
	fmt.Println(strings.Fields(peak)[0])
	return 0
}

// The memory of a process that stores, and of one that serves, the largest
// document: one with many components, and one that is nearly all remainder.
func TestSBOMMemory(t *testing.T) {
	var many bytes.Buffer
	many.WriteString(`{"bomFormat":"CycloneDX","specVersion":"1.6","components":[`)
	for i := 0; many.Len() < sbom.MaxSize-1000; i++ {
		if i > 0 {
			many.WriteByte(',')
		}
		many.WriteString(component(fmt.Sprint("p", i)))
	}
	many.WriteString("]}")
	var graph bytes.Buffer
	graph.WriteString(`{"bomFormat":"CycloneDX","specVersion":"1.6","components":[{"type":"library","name":"a"}],"dependencies":[{"ref":"a"}`)
	for i := 0; graph.Len() < sbom.MaxSize-1000; i++ {
		fmt.Fprintf(&graph, `,{"ref":"pkg:nix/p%d@1","dependsOn":["pkg:nix/p%d@1","pkg:nix/p%d@1"]}`, i, i+1, i+2)
	}
	graph.WriteString("]}")
	for name, text := range map[string][]byte{"components": many.Bytes(), "graph": graph.Bytes()} {
		s, _, address := sbomStore(t)
		recorded, err := s.Record(t.Context(), store.Submit{Deployment: sbomRef.Deployment, Request: "r", WorkflowID: "w", Snapshot: sbomSnapshot, Configuration: []byte(`{}`)})
		require.NoError(t, err)
		require.Equal(t, sbomRef.Build, recorded.Build)
		_, err = s.TakeTurn(t.Context(), sbomRef)
		require.NoError(t, err)
		fence := uuid.New()
		_, err = s.AcquireFence(t.Context(), sbomRef, fence)
		require.NoError(t, err)
		in, out := filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "out")
		require.NoError(t, os.WriteFile(in, text, 0o644))
		peak := func(task, file string) float64 {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), sbomTask+"="+task, sbomDatabase+"="+address, sbomFile+"="+file, sbomBuild+"="+fence.String())
			output, err := cmd.CombinedOutput()
			require.NoError(t, err, string(output))
			kib, err := strconv.ParseFloat(strings.TrimSpace(string(output)), 64)
			require.NoError(t, err, string(output))
			return kib / 1024
		}
		idle := peak("nothing", "")
		report(t, "(s) MiB to store 64 MiB of "+name, peak("store", in), 200, fmt.Sprintf("the same process without it: %.0f", idle))
		require.NoError(t, s.StageSBOMs(t.Context(), sbomRef, fence, []sbom.Entry{{Node: "node0", Changed: true}}))
		require.NoError(t, s.StageExit(t.Context(), sbomRef, fence, deployment.Exit{}))
		_, err = s.Finish(t.Context(), sbomRef, store.End{})
		require.NoError(t, err)
		report(t, "(s) MiB to serve 64 MiB of "+name, peak("serve", out), 200)
		served, err := os.ReadFile(out)
		require.NoError(t, err)
		require.True(t, bytes.Equal(text, served))
	}
}
