package store_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// The file schema.sql says what the migrations add up to.
func TestSchemaHasNotDrifted(t *testing.T) {
	url := testdb.Empty(t)
	s, err := store.Open(t.Context(), url, 2)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.ErrorContains(t, s.Ready(t.Context()), "slipway migrate")
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))

	dump, err := exec.CommandContext(t.Context(), "pg_dump", "--schema-only", "--no-owner", "--no-privileges",
		"--exclude-table=goose_db_version", "--exclude-table=goose_db_version_id_seq", url).Output()
	require.NoError(t, err)
	var lines []string
	for line := range strings.Lines(string(dump)) {
		// Versions of pg_dump differ in what they set, and newer ones write a
		// random key.
		if strings.HasPrefix(line, "SET ") || strings.HasPrefix(line, "--") || strings.HasPrefix(line, `\`) ||
			strings.HasPrefix(line, "SELECT pg_catalog.set_config") || strings.TrimSpace(line) == "" {
			continue
		}
		lines = append(lines, line)
	}
	const file = "../../schema/schema.sql"
	header := "-- What the migrations add up to. Written by `make generate`; a test compares.\n\n"
	got := header + strings.Join(lines, "")
	if os.Getenv("UPDATE_SCHEMA") != "" {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "schema.sql is not what the migrations make: run `make generate`")
}

const snapshot = "/nix/store/0000000000000000000000000000000000-slipway-source"

// database is a store with a snapshot that builds can deploy.
func database(t *testing.T) *store.Store {
	t.Parallel()
	s := testdb.New(t)
	useSnapshot(t, s, snapshot)
	return s
}

func useSnapshot(t *testing.T, s *store.Store, path string) {
	require.NoError(t, s.KeepSnapshot(t.Context(), deployment.SourceSnapshot{
		StorePath: path, Schema: json.RawMessage(`{}`), Methods: []string{"vm"}, Renames: json.RawMessage(`{}`), Deployer: path + "/deployer",
	}))
	require.NoError(t, s.UseSnapshot(t.Context(), path))
}

func submit(t *testing.T, s *store.Store, id string) int64 {
	t.Helper()
	request := uuid.NewString()
	recorded, err := s.Record(t.Context(), store.Submit{
		Deployment: id, Request: request, WorkflowID: "submit/" + id + "/" + request, Snapshot: snapshot,
		Configuration: json.RawMessage(`{"vm":{"request":"` + request + `"}}`),
	})
	require.NoError(t, err)
	return recorded.Build
}

func destroy(t *testing.T, s *store.Store, id string) store.RecordedDestroy {
	t.Helper()
	recorded, err := s.RecordDestroy(t.Context(), store.Destroy{Deployment: id, Request: uuid.NewString(), WorkflowID: "destroy/" + id})
	require.NoError(t, err)
	return recorded
}

func take(t *testing.T, s *store.Store, id string, build int64) store.Turn {
	t.Helper()
	turn, err := s.TakeTurn(t.Context(), deployment.Ref{Deployment: id, Build: build})
	require.NoError(t, err)
	return turn
}

// run takes the turn of a build, runs its deployer and ends with code.
func run(t *testing.T, s *store.Store, id string, build int64, code int) {
	t.Helper()
	ref := deployment.Ref{Deployment: id, Build: build}
	require.Equal(t, store.TurnTaken, take(t, s, id, build))
	_, err := s.Job(t.Context(), ref)
	require.NoError(t, err)
	fence := uuid.New()
	require.NoError(t, acquire(t, s, ref, fence))
	require.NoError(t, s.StageExit(t.Context(), ref, fence, deployment.Exit{Code: code, Reason: map[bool]string{false: "it broke"}[code == 0]}))
	_, err = s.Finish(t.Context(), ref, store.End{Reason: "no exit"})
	require.NoError(t, err)
}

func acquire(t *testing.T, s *store.Store, ref deployment.Ref, fence uuid.UUID) error {
	t.Helper()
	_, err := s.AcquireFence(t.Context(), ref, fence)
	return err
}

func state(t *testing.T, s *store.Store, id string) string {
	t.Helper()
	d, err := s.Deployment(t.Context(), id)
	require.NoError(t, err)
	live := "-"
	if d.Live != nil {
		live = fmt.Sprint(*d.Live)
	}
	return fmt.Sprintf("%s live=%s", d.State, live)
}

func TestStateFollowsFromBuilds(t *testing.T) {
	s := database(t)
	const id = "d"
	one := submit(t, s, id)
	require.Equal(t, "building live=-", state(t, s, id))
	run(t, s, id, one, 0)
	require.Equal(t, "active live=1", state(t, s, id))

	two := submit(t, s, id)
	run(t, s, id, two, 1)
	require.Equal(t, "failed live=1", state(t, s, id))
	d, err := s.Deployment(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "build 2 failed: it broke", d.Reason)

	three := submit(t, s, id)
	status, err := s.Cancel(t.Context(), deployment.Ref{Deployment: id, Build: three})
	require.NoError(t, err)
	require.Equal(t, deployment.StatusCancelled, status)
	require.Equal(t, "failed live=1", state(t, s, id), "a build cancelled while queued does not count")

	four := submit(t, s, id)
	five := submit(t, s, id)
	require.Equal(t, store.TurnEnded, take(t, s, id, four), "superseded")
	run(t, s, id, five, 0)
	require.Equal(t, "active live=5", state(t, s, id))

	six := destroy(t, s, id).Build
	require.Equal(t, "destroying live=5", state(t, s, id))
	run(t, s, id, six, 1)
	require.Equal(t, "failed live=5", state(t, s, id))
	run(t, s, id, destroy(t, s, id).Build, 0)
	require.Equal(t, "idle live=-", state(t, s, id))
	require.True(t, destroy(t, s, id).Idle)
}

func TestCancelledWhileRunningIsFailed(t *testing.T) {
	s := database(t)
	ref := deployment.Ref{Deployment: "d", Build: submit(t, s, "d")}
	take(t, s, "d", ref.Build)
	status, err := s.Cancel(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, deployment.StatusRunning, status)
	require.ErrorIs(t, acquire(t, s, ref, uuid.New()), deployment.ErrFenced, "no deployer starts any more")
	_, err = s.Finish(t.Context(), ref, store.End{Cancelled: true, Reason: "cancelled"})
	require.NoError(t, err)
	require.Equal(t, "failed live=-", state(t, s, "d"))
}

func TestOneRunsAtATimeOldestFirst(t *testing.T) {
	s := database(t)
	one := submit(t, s, "d")
	require.Equal(t, store.TurnTaken, take(t, s, "d", one))
	require.Equal(t, store.TurnTaken, take(t, s, "d", one), "a turn is kept")
	two := destroy(t, s, "d").Build
	three := submit(t, s, "d")
	require.Equal(t, store.TurnWait, take(t, s, "d", two))
	require.Equal(t, store.TurnWait, take(t, s, "d", three))
	run(t, s, "d", one, 0)
	require.Equal(t, store.TurnWait, take(t, s, "d", three), "behind the destroy")
	run(t, s, "d", two, 0)
	run(t, s, "d", three, 0)
	require.Equal(t, "active live=3", state(t, s, "d"))
}

func TestDestroyJoinsSupersedesAndKnowsIdle(t *testing.T) {
	s := database(t)
	_, err := s.RecordDestroy(t.Context(), store.Destroy{Deployment: "nobody", Request: "r", WorkflowID: "w"})
	require.ErrorIs(t, err, deployment.ErrUnknown)

	one := submit(t, s, "d")
	require.True(t, destroy(t, s, "d").Idle, "only a queued submit: superseded, nothing to haul out")
	require.Equal(t, store.TurnEnded, take(t, s, "d", one))
	require.Equal(t, "idle live=-", state(t, s, "d"))

	two := submit(t, s, "d")
	take(t, s, "d", two)
	first := destroy(t, s, "d")
	require.True(t, first.Ours)
	four := submit(t, s, "d")
	again := destroy(t, s, "d")
	require.Equal(t, first.Build, again.Build)
	require.False(t, again.Ours)
	require.Equal(t, store.TurnEnded, take(t, s, "d", four), "any destroy supersedes a queued submit")
}

func TestSameRequestIsTheSameBuild(t *testing.T) {
	s := database(t)
	in := store.Submit{Deployment: "d", Request: "key", WorkflowID: "w", Snapshot: snapshot, Configuration: json.RawMessage(`{"a":1}`)}
	var wg sync.WaitGroup
	builds := make([]store.Recorded, 10)
	for i := range builds {
		wg.Go(func() { builds[i], _ = s.Record(t.Context(), in) })
	}
	wg.Wait()
	fresh := 0
	for _, b := range builds {
		require.EqualValues(t, 1, b.Build)
		if !b.Before {
			fresh++
		}
	}
	require.Equal(t, 1, fresh)
	in.Configuration = json.RawMessage(`{"a":1.0}`)
	_, err := s.Record(t.Context(), in)
	require.ErrorIs(t, err, store.ErrOtherConfiguration)
	_, err = s.Recall(t.Context(), "d", "other", in.Configuration)
	require.ErrorIs(t, err, deployment.ErrUnknown)
}

func TestFence(t *testing.T) {
	s := database(t)
	ref := deployment.Ref{Deployment: "d", Build: submit(t, s, "d")}
	mine, other := uuid.New(), uuid.New()
	require.ErrorIs(t, acquire(t, s, ref, mine), deployment.ErrFenced, "it is queued")
	take(t, s, "d", ref.Build)
	s.Warm(t.Context()) // of a supervisor beside it
	require.NoError(t, acquire(t, s, ref, mine))
	s.Warm(t.Context())
	require.NoError(t, acquire(t, s, ref, mine), "after a lost answer")
	require.ErrorIs(t, acquire(t, s, ref, other), deployment.ErrAlreadyRan)
	require.ErrorIs(t, s.RenewFence(t.Context(), ref, other), deployment.ErrFenced)
	require.NoError(t, s.RenewFence(t.Context(), ref, mine))

	require.ErrorIs(t, s.AppendLog(t.Context(), ref, other, 0, []byte("x")), deployment.ErrFenced)
	require.NoError(t, s.AppendLog(t.Context(), ref, mine, 0, []byte("one\n")))
	require.NoError(t, s.AppendLog(t.Context(), ref, mine, 0, []byte("one\n")), "after a lost answer")
	require.NoError(t, s.AppendLog(t.Context(), ref, mine, 4, []byte("two\n")))

	_, err := s.Finish(t.Context(), ref, store.End{Reason: "lost"})
	var held *store.FenceHeldError
	require.ErrorAs(t, err, &held)
	require.Greater(t, held.Left, 10*time.Second)

	require.ErrorIs(t, s.StageExit(t.Context(), ref, other, deployment.Exit{Code: 1}), deployment.ErrFenced)
	require.NoError(t, s.StageExit(t.Context(), ref, mine, deployment.Exit{}))
	require.NoError(t, s.StageExit(t.Context(), ref, mine, deployment.Exit{}), "after a lost answer")
	ended, err := s.Finish(t.Context(), ref, store.End{Reason: "the worker was lost"})
	require.NoError(t, err)
	require.Equal(t, deployment.StatusSucceeded, ended.Status, "a deploy that succeeded is never recorded as failed")
	ended, err = s.Finish(t.Context(), ref, store.End{Reason: "again"})
	require.NoError(t, err)
	require.Equal(t, deployment.StatusSucceeded, ended.Status)
	require.ErrorIs(t, s.AppendLog(t.Context(), ref, mine, 8, []byte("late\n")), deployment.ErrFenced)
}

func TestDestroyMayRunAgainUntilItSucceeded(t *testing.T) {
	s := database(t)
	run(t, s, "d", submit(t, s, "d"), 0)
	ref := deployment.Ref{Deployment: "d", Build: destroy(t, s, "d").Build}
	take(t, s, "d", ref.Build)
	lost, next := uuid.New(), uuid.New()
	require.NoError(t, acquire(t, s, ref, lost))
	require.ErrorIs(t, acquire(t, s, ref, next), deployment.ErrFenced)
	require.NoError(t, s.StageExit(t.Context(), ref, lost, deployment.Exit{Code: 137, Reason: "killed"}))
	require.NoError(t, acquire(t, s, ref, next))
	_, err := s.Finish(t.Context(), ref, store.End{})
	require.ErrorAs(t, err, new(*store.FenceHeldError), "the exit of the first try is gone")
	require.NoError(t, s.StageExit(t.Context(), ref, next, deployment.Exit{}))
	require.ErrorIs(t, acquire(t, s, ref, uuid.New()), deployment.ErrAlreadyRan)
}

func TestJobOfADestroyIsTheNewestStartedDeploy(t *testing.T) {
	s := database(t)
	job := func(build int64) deployment.Job {
		j, err := s.Job(t.Context(), deployment.Ref{Deployment: "d", Build: build})
		require.NoError(t, err)
		return j
	}
	run(t, s, "d", submit(t, s, "d"), 0)
	run(t, s, "d", submit(t, s, "d"), 1) // failed half-way: this one is hauled out
	three := submit(t, s, "d")           // never started
	four := destroy(t, s, "d").Build
	require.Equal(t, store.TurnEnded, take(t, s, "d", three))
	two, err := s.Build(t.Context(), deployment.Ref{Deployment: "d", Build: 2})
	require.NoError(t, err)
	useSnapshot(t, s, snapshot+"-newer") // a source that changed meanwhile
	got := job(four)
	require.JSONEq(t, string(two.Configuration), string(got.Configuration))
	require.Equal(t, snapshot+"/deployer", got.Deployer)
	run(t, s, "d", four, 0)

	five := submit(t, s, "d")
	take(t, s, "d", five)
	_, err = s.Finish(t.Context(), deployment.Ref{Deployment: "d", Build: five}, store.End{Reason: "lost before it started"})
	require.NoError(t, err)
	six := destroy(t, s, "d")
	require.NotZero(t, six.Build)
	take(t, s, "d", six.Build)
	require.True(t, job(six.Build).Nothing, "hauled out before, not started since")
	fence := uuid.New()
	require.NoError(t, acquire(t, s, deployment.Ref{Deployment: "d", Build: six.Build}, fence))
	require.NoError(t, s.StageExit(t.Context(), deployment.Ref{Deployment: "d", Build: six.Build}, fence, deployment.Exit{}))
	ended, err := s.Finish(t.Context(), deployment.Ref{Deployment: "d", Build: six.Build}, store.End{})
	require.NoError(t, err)
	require.Equal(t, deployment.StatusSucceeded, ended.Status)
}

func TestLogReadsFromAnyOffset(t *testing.T) {
	s := database(t)
	ref := deployment.Ref{Deployment: "d", Build: submit(t, s, "d")}
	take(t, s, "d", ref.Build)
	fence := uuid.New()
	require.NoError(t, acquire(t, s, ref, fence))
	var whole []byte
	for i := range 200 {
		piece := []byte(strings.Repeat(fmt.Sprintf("line %d\n", i), i%5+1))
		require.NoError(t, s.AppendLog(t.Context(), ref, fence, int64(len(whole)), piece))
		whole = append(whole, piece...)
	}
	read := func(from int64, limit int) (got []byte, ended bool) {
		for {
			piece, err := s.Log(t.Context(), ref, from+int64(len(got)), limit)
			require.NoError(t, err)
			got = append(got, piece.Data...)
			if len(piece.Data) == 0 || piece.Ended {
				return got, piece.Ended
			}
		}
	}
	for _, from := range []int64{0, 1, 7, 8, 500, int64(len(whole)) - 1, int64(len(whole)), int64(len(whole)) + 10} {
		for _, limit := range []int{1 << 20, 100, 7} {
			got, ended := read(from, limit)
			require.False(t, ended)
			require.Equal(t, string(whole[min(from, int64(len(whole))):]), string(got), "from %d by %d", from, limit)
		}
	}
	require.NoError(t, s.StageExit(t.Context(), ref, fence, deployment.Exit{}))
	_, err := s.Finish(t.Context(), ref, store.End{})
	require.NoError(t, err)
	got, ended := read(0, 1<<20)
	require.True(t, ended)
	require.Equal(t, string(whole), string(got))
	_, err = s.Log(t.Context(), deployment.Ref{Deployment: "d", Build: 99}, 0, 10)
	require.ErrorIs(t, err, deployment.ErrUnknown)
}

func TestEventsCommitInOrderAndTellTheStory(t *testing.T) {
	s := database(t)
	run(t, s, "d", submit(t, s, "d"), 0)
	events, err := s.Events(t.Context(), "d", 0, 100)
	require.NoError(t, err)
	var story []string
	for i, e := range events.Events {
		require.EqualValues(t, i+1, e.Sequence)
		var data struct{ State, Status, Reason string }
		require.NoError(t, json.Unmarshal(e.Data, &data))
		story = append(story, fmt.Sprintf("%s %s%s", e.Kind, data.State, data.Status))
	}
	require.Equal(t, []string{
		"build queued", "state building", "build running", "state building", "build succeeded", "state active",
	}, story)
	snapshot, err := s.Snapshot(t.Context(), "d")
	require.NoError(t, err)
	require.EqualValues(t, 6, snapshot.Sequence)
	events, err = s.Events(t.Context(), "d", 4, 1)
	require.NoError(t, err)
	require.Len(t, events.Events, 1)
	require.EqualValues(t, 5, events.Events[0].Sequence)
	_, err = s.Events(t.Context(), "nobody", 0, 1)
	require.ErrorIs(t, err, deployment.ErrUnknown)
}

func TestListenerHearsOfChanges(t *testing.T) {
	s := database(t)
	l := testdb.Listener(t, s)
	changed, stop := l.Subscribe("d")
	defer stop()
	quiet, stopQuiet := l.Subscribe("other")
	defer stopQuiet()
	<-changed // connected
	<-quiet
	submit(t, s, "d")
	select {
	case <-changed:
	case <-time.After(5 * time.Second):
		t.Fatal("no signal")
	}
	select {
	case <-quiet:
		t.Fatal("a signal for another deployment")
	default:
	}
}

func TestEvaluationsAreKeptAndBounded(t *testing.T) {
	s := database(t)
	result, refusal, err := s.Evaluation(t.Context(), "k")
	require.NoError(t, err)
	require.Nil(t, result)
	require.Nil(t, refusal)
	names := deployment.Names{Nodes: []deployment.Node{{Name: "web", Names: []string{"a.example"}}}, DisabledApplications: []string{}}
	data, err := json.Marshal(names)
	require.NoError(t, err)
	require.NoError(t, s.KeepEvaluation(t.Context(), "k", data, nil))
	got, err := s.Names(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, names, got)
	require.NoError(t, s.TrimEvaluations(t.Context()))
	_, err = s.Names(t.Context(), "k")
	require.NoError(t, err)
}

// What is deployed is what the live build deployed, read by its own snapshot.
func TestWhatIsSubmittedAndDeployed(t *testing.T) {
	s := database(t)
	read := func() deployment.Deployment {
		d, err := s.Deployment(t.Context(), "d")
		require.NoError(t, err)
		return d
	}
	first := submit(t, s, "d")
	require.Nil(t, read().Deployed)
	require.Equal(t, snapshot, read().Snapshot)
	run(t, s, "d", first, 0)
	deployed := deployment.Recorded{Configuration: read().Configuration, Snapshot: snapshot}
	require.Equal(t, deployed, *read().Deployed)

	const newer = "/nix/store/1111111111111111111111111111111111-slipway-source"
	useSnapshot(t, s, newer)
	_, err := s.Record(t.Context(), store.Submit{Deployment: "d", Request: "r", WorkflowID: "w", Snapshot: newer, Configuration: json.RawMessage(`{"vm":{}}`)})
	require.NoError(t, err)
	run(t, s, "d", 2, 1)
	require.Equal(t, newer, read().Snapshot)
	require.JSONEq(t, `{"vm":{}}`, string(read().Configuration))
	require.Equal(t, deployed, *read().Deployed, "a failed deploy leaves what was there")

	run(t, s, "d", destroy(t, s, "d").Build, 0)
	require.Nil(t, read().Deployed)
	require.JSONEq(t, `{"vm":{}}`, string(read().Configuration))

	var listed []deployment.Deployment
	require.NoError(t, s.Deployments(t.Context(), []string{"d"}, func(d deployment.Deployment) error {
		listed = append(listed, d)
		return nil
	}))
	require.Equal(t, []deployment.Deployment{read()}, listed)
}

func TestSnapshotsStay(t *testing.T) {
	s := database(t)
	method := "appliance"
	pinned := deployment.SourceSnapshot{
		StorePath: "/nix/store/pinned", Schema: json.RawMessage(`{"title":"pinned"}`), Method: &method, Methods: []string{},
		Renames: json.RawMessage(`{}`), Deployer: "/d",
	}
	require.NoError(t, s.KeepSnapshot(t.Context(), pinned))
	source, err := s.Source(t.Context())
	require.NoError(t, err)
	require.Equal(t, snapshot, source.Snapshot, "it is kept, not used")
	require.NoError(t, s.UseSnapshot(t.Context(), pinned.StorePath))
	source, err = s.Source(t.Context())
	require.NoError(t, err)
	require.Equal(t, deployment.Source{Snapshot: pinned.StorePath, Schema: pinned.Schema, Method: &method, Methods: []string{}, Renames: pinned.Renames}, source)
	got, err := s.SourceSnapshot(t.Context(), pinned.StorePath)
	require.NoError(t, err)
	require.Equal(t, pinned, got)
	got, err = s.SourceSnapshot(t.Context(), snapshot)
	require.NoError(t, err)
	require.Nil(t, got.Method)
	require.Equal(t, []string{"vm"}, got.Methods)
	_, err = s.SourceSnapshot(t.Context(), "/nix/store/unknown")
	require.ErrorIs(t, err, deployment.ErrUnknown)
}

func TestListKeepsTheOrderAsked(t *testing.T) {
	s := database(t)
	for i := range 20 {
		submit(t, s, fmt.Sprintf("d%d", i))
	}
	asked := []string{"d7", "nobody", "d3", "d19", "d0"}
	var got []string
	require.NoError(t, s.Deployments(t.Context(), asked, func(d deployment.Deployment) error {
		got = append(got, d.ID)
		return nil
	}))
	require.Equal(t, []string{"d7", "d3", "d19", "d0"}, got)
}
