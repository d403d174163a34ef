package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	temporalclient "go.temporal.io/sdk/client"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/tests/stand"
)

// patience is how long a test waits for what should take a moment: the machine
// may be busy.
const patience = 2 * time.Minute

// site is a stand with what the tests ask of it.
type site struct {
	*stand.Stand
	database *pgxpool.Pool
	temporal temporalclient.Client
}

// newSite connects to what a stand runs. Close it.
func newSite(s *stand.Stand) (*site, error) {
	pool, err := s.Database(context.Background())
	if err != nil {
		return nil, err
	}
	c, err := s.TemporalClient()
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &site{s, pool, c}, nil
}

// Close ends the stand too.
func (s *site) Close() error {
	s.database.Close()
	s.temporal.Close()
	return s.Stand.Close()
}

// api is a client that may do everything.
func (s *site) api(t *testing.T) *client.Client {
	t.Helper()
	c, err := s.Client()
	require.NoError(t, err)
	return c
}

// configuration is one of the controlled source: members are added to what a
// configuration needs.
func configuration(members string) json.RawMessage {
	if members != "" {
		members = "," + members
	}
	return json.RawMessage(`{"test":{"domain":"example.org"` + members + `}}`)
}

// body is that of a submit or preview.
func body(configuration json.RawMessage) string {
	return `{"configuration":` + string(configuration) + `}`
}

// answer is what the API said.
type answer struct {
	Status int
	Header http.Header
	Body   string
	// The error, where it is one.
	Error     string
	Message   string
	Details   []client.Detail
	RequestID string
}

// paths are the JSON Pointers of the details.
func (a answer) paths() []string {
	var paths []string
	for _, d := range a.Details {
		paths = append(paths, d.Path)
	}
	return paths
}

// call sends a request with a token that may do everything, a header wins.
func (s *site) call(t *testing.T, method, path string, header http.Header, body string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	response, text, err := s.Do(ctx, method, path, header, strings.NewReader(body))
	require.NoError(t, err)
	a := answer{Status: response.StatusCode, Header: response.Header, Body: string(text)}
	require.NotEmpty(t, a.Header.Get("X-Request-Id"))
	if a.Status >= 400 {
		require.Equal(t, "application/json", a.Header.Get("Content-Type"), a.Body)
		require.NoError(t, json.Unmarshal(text, &a), a.Body)
		require.NotEmpty(t, a.Message, a.Body)
		require.Equal(t, a.Header.Get("X-Request-Id"), a.RequestID)
		for _, inner := range []string{"/nix/store", s.Dir, "goroutine", "pgx", "rpc error", "while evaluating"} {
			require.NotContains(t, a.Body, inner, "internals are not told")
		}
	}
	return a
}

// meanwhile makes a call that takes long beside the test. The result waits for
// its answer.
func meanwhile(t *testing.T, call func() answer) (result func() answer) {
	answered := make(chan answer, 1)
	go func() {
		defer close(answered) // also where the call failed the test
		answered <- call()
	}()
	return func() answer {
		t.Helper()
		select {
		case a, ok := <-answered:
			require.True(t, ok, "the call failed")
			return a
		case <-time.After(2 * patience):
			t.Fatal("the call is not answered")
			return answer{}
		}
	}
}

// asJSON is the header of a submit or preview.
func asJSON() http.Header { return http.Header{"Content-Type": {"application/json"}} }

// put submits with an idempotency key, by which nothingStored finds the
// workflow.
func (s *site) put(t *testing.T, id, body string) answer {
	t.Helper()
	header := asJSON()
	header.Set("Idempotency-Key", id)
	return s.call(t, http.MethodPut, "/deployments/"+id, header, body)
}

func (s *site) preview(t *testing.T, id, body string) answer {
	t.Helper()
	return s.call(t, http.MethodPost, "/deployments/"+id+"/preview", asJSON(), body)
}

// submit submits a configuration and returns the number of its build.
func (s *site) submit(t *testing.T, id, members string) int64 {
	t.Helper()
	submitted, err := s.api(t).Submit(t.Context(), id, configuration(members), "")
	require.NoError(t, err)
	return submitted.Build
}

// deploy submits a configuration and waits until it is up.
func (s *site) deploy(t *testing.T, id, members string) int64 {
	t.Helper()
	build := s.submit(t, id, members)
	d := s.settled(t, id)
	require.Equal(t, deployment.StateActive, d.State, d.Reason)
	return build
}

// destroy hauls out and waits for the end.
func (s *site) destroy(t *testing.T, id string) deployment.Deployment {
	t.Helper()
	_, err := s.api(t).Destroy(t.Context(), id)
	require.NoError(t, err)
	return s.settled(t, id)
}

// settled waits until a deployment has settled and returns it.
func (s *site) settled(t *testing.T, id string) deployment.Deployment {
	t.Helper()
	var got deployment.Deployment
	await(t, patience, func() error {
		var err error
		if got, err = s.api(t).Get(t.Context(), id); err != nil {
			return err
		}
		if !got.State.Settled() {
			return fmt.Errorf("%s is %s: %s", id, got.State, got.Reason)
		}
		return nil
	})
	return got
}

// build waits until a build has a status.
func (s *site) build(t *testing.T, id string, number int64, status deployment.Status) deployment.Build {
	t.Helper()
	var got deployment.Build
	await(t, patience, func() error {
		var err error
		if got, err = s.api(t).Build(t.Context(), deployment.Ref{Deployment: id, Build: number}); err != nil {
			return err
		}
		if got.Status != status {
			return fmt.Errorf("build %d of %s is %s (%s), want %s", number, id, got.Status, got.Reason, status)
		}
		return nil
	})
	return got
}

// logOf waits for the end of a build and returns its log.
func (s *site) logOf(t *testing.T, id string, number int64) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	body, err := s.api(t).Log(ctx, deployment.Ref{Deployment: id, Build: number}, 0, true)
	require.NoError(t, err)
	defer func() { _ = body.Close() }()
	text, err := io.ReadAll(body)
	require.NoError(t, err)
	return string(text)
}

// record is what the deployer of the controlled source noted.
func (s *site) record(t *testing.T, id string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.Record, id))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return string(text)
}

// runs are the starts and ends of deployers in order, such as "start deploy 1".
func (s *site) runs(t *testing.T, id string) []string {
	t.Helper()
	var runs []string
	for line := range strings.Lines(s.record(t, id)) {
		fields := strings.Fields(line)
		runs = append(runs, strings.Join(fields[:min(3, len(fields))], " "))
	}
	return runs
}

// started waits until a deployer runs for a build and returns its process.
func (s *site) started(t *testing.T, id, action string, build int64) (pid int) {
	t.Helper()
	await(t, patience, func() error {
		for line := range strings.Lines(s.record(t, id)) {
			if rest, ok := strings.CutPrefix(line, fmt.Sprintf("start %s %d ", action, build)); ok {
				var err error
				pid, err = strconv.Atoi(strings.TrimSpace(rest))
				return err
			}
		}
		return fmt.Errorf("no %s of build %d of %s has started", action, build, id)
	})
	return pid
}

// open lets a deployer go on that waits at its gate.
func (s *site) open(t *testing.T, id string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.Record, id+".open"), nil, 0o644))
}

// gone waits until a process does not exist.
func gone(t *testing.T, pid int) {
	t.Helper()
	await(t, patience, func() error {
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			return fmt.Errorf("process %d is there: %v", pid, err)
		}
		return nil
	})
}

// metric is the value of a metric without labels, empty when there is none.
func (s *site) metric(t *testing.T, piece, name string) string {
	t.Helper()
	response, err := http.Get(s.Metrics(piece))
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// nothingStored says that slipway does not know a deployment whose submit, by
// put, was refused, and that nothing goes on for it.
func (s *site) nothingStored(t *testing.T, id string) {
	t.Helper()
	s.nothingStoredBy(t, id, wire.SubmitID)
}

// nothingStoredBy is nothingStored for another workflow than that of a submit.
func (s *site) nothingStoredBy(t *testing.T, id string, of func(id, request string) string) {
	t.Helper()
	require.Equal(t, http.StatusNotFound, s.call(t, http.MethodGet, "/deployments/"+id, nil, "").Status)
	s.noRows(t, id)
	await(t, patience, func() error {
		workflow, err := s.temporal.DescribeWorkflow(t.Context(), of(id, wire.HashRequest(id)), "")
		var notFound *serviceerror.NotFound
		if errors.As(err, &notFound) {
			return nil // it was refused before
		}
		if err == nil && workflow.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
			err = fmt.Errorf("%s runs", workflow.WorkflowExecution.ID)
		}
		return err
	})
}

// noRows says that PostgreSQL has nothing of a deployment, whose identifier
// may be one that the API does not take.
func (s *site) noRows(t *testing.T, id string) {
	t.Helper()
	var rows int
	require.NoError(t, s.database.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM deployments WHERE id = $1) + (SELECT count(*) FROM builds WHERE deployment_id = $1) +
		       (SELECT count(*) FROM imports WHERE deployment_id = $1) + (SELECT count(*) FROM events WHERE deployment_id = $1) + (SELECT count(*) FROM build_log WHERE deployment_id = $1)`,
		id).Scan(&rows))
	require.Zero(t, rows)
}

// await polls until done returns nil.
func await(t *testing.T, limit time.Duration, done func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := done()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", limit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
