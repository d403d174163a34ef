package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/stand"
)

// (a) and (b): what slipway adds to the evaluation and to the deployer.
func TestWhatSlipwayAdds(t *testing.T) {
	roundTrip := yardstick(t)
	const n = 15
	submit := func(id, note string) {
		_, err := api(t).Submit(t.Context(), id, configuration(note, ""), "")
		require.NoError(t, err)
	}
	settle := func(id string) {
		require.Eventually(t, func() bool {
			d, err := api(t).Get(t.Context(), id)
			return err == nil && d.State.Settled()
		}, time.Minute, 20*time.Millisecond)
	}
	submit("warm", "warm")
	settle("warm")

	var cold, bare, cached, active, trips []time.Duration
	for i := range n { // interleaved, so that the machine is the same for all
		for range 3 {
			trips = append(trips, timed(roundTrip))
		}
		note := fmt.Sprintf("cold-%d", i)
		id := fmt.Sprintf("a%d", i)
		cold = append(cold, timed(func() { submit(id, note) }))
		settle(id)
		bare = append(bare, timed(func() { instantiate(t, configuration(note, "")) }))
		again := fmt.Sprintf("b%d", i)
		cached = append(cached, timed(func() { submit(again, note) }))
		settle(again)
		active = append(active, untilActive(t, fmt.Sprintf("c%d", i), configuration(note, "")))
	}
	alone := median(t, n, func(i int) { runDeployer(t, configuration("alone", "")) })
	rt, added := middle(trips), middle(cold)-middle(bare)
	report(t, "(a) cold submit less bare nix-instantiate, in RT", ratio(added, rt), 4,
		"submit ", middle(cold), ", nix-instantiate ", middle(bare), ", RT ", rt)
	report(t, "(a) cached submit, in RT", ratio(middle(cached), rt), 4, "submit ", middle(cached))
	report(t, "(b) 202 to active less the deployer alone, in RT", ratio(middle(active)-alone, rt), 8,
		"to active ", middle(active), ", deployer ", alone)
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

func timed(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}

// instantiate is the evaluation of a submit by hand.
func instantiate(t *testing.T, configuration json.RawMessage) {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "configuration.json"), configuration, 0o600))
	source := filepath.Join(stand.Root(), "tests", "sources", "controlled")
	out, err := exec.CommandContext(t.Context(), "nix-instantiate", "--eval", "--strict", "--json",
		"--option", "restrict-eval", "true", "--option", "allow-import-from-derivation", "false",
		"-I", "slipway="+source, "-I", "configuration="+folder,
		"-E", "(import <slipway/slipway.nix>).names (builtins.fromJSON (builtins.readFile <configuration/configuration.json>))").CombinedOutput()
	require.NoError(t, err, string(out))
}

// runDeployer runs the deployer of the controlled source by hand.
func runDeployer(t *testing.T, configuration json.RawMessage) {
	t.Helper()
	folder := t.TempDir()
	file := filepath.Join(folder, "configuration.json")
	require.NoError(t, os.WriteFile(file, configuration, 0o600))
	cmd := exec.CommandContext(t.Context(), filepath.Join(stand.Root(), "tests", "sources", "controlled", "deployer"), "deploy")
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "TEST_RECORD=" + folder, "SLIPWAY_DEPLOYMENT_ID=alone", "SLIPWAY_BUILD=1",
		"SLIPWAY_CONFIGURATION=" + file,
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

// untilActive submits and gives the time from the answer to the event that
// says active.
func untilActive(t *testing.T, id string, configuration json.RawMessage) time.Duration {
	t.Helper()
	_, err := api(t).Submit(t.Context(), id, configuration, "")
	require.NoError(t, err)
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var took time.Duration
	err = api(t).Follow(ctx, id, client.FollowOptions{}, func(e client.Event) error {
		state := deployment.State("")
		switch data := e.Data.(type) {
		case deployment.Deployment:
			state = data.State
		case deployment.Standing:
			state = data.State
		}
		if state == deployment.StateActive {
			took = time.Since(start)
			return io.EOF
		}
		return nil
	})
	require.ErrorIs(t, err, io.EOF)
	return took
}

// (c) Every submit of a burst is accepted; those beyond the slots are answered
// before the first evaluation ends.
func TestBurstOnFewSlots(t *testing.T) {
	const burst = 50
	var mu sync.Mutex
	var evaluated, skipped []time.Duration
	start := time.Now()
	var wg sync.WaitGroup
	for i := range burst {
		wg.Go(func() {
			submitted, err := api(t).Submit(t.Context(), fmt.Sprintf("burst%d", i),
				configuration(fmt.Sprintf("burst-%d", i), `,"evaluate":"slow","work":10`), "")
			took := time.Since(start)
			if err != nil {
				t.Errorf("submit %d: %v", i, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if submitted.Evaluation == deployment.EvaluationSkipped {
				skipped = append(skipped, took)
			} else {
				evaluated = append(evaluated, took)
			}
		})
	}
	wg.Wait()
	require.Len(t, evaluated, slots)
	require.Len(t, skipped, burst-slots)
	first, last := evaluated[0], skipped[0]
	for _, d := range evaluated {
		first = min(first, d)
	}
	for _, d := range skipped {
		last = max(last, d)
	}
	report(t, "(c) last skipped answer / first evaluated answer", ratio(last, first), 1, "last skipped ", last, ", first evaluated ", first)
}

// (d) The list of 1,000 identifiers among 10,000 deployments.
func TestList(t *testing.T) {
	db, err := slipway.Database(t.Context())
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(t.Context(), `
		INSERT INTO deployments (id, next_build, next_event) SELECT 'list-' || i, 4, 1 FROM generate_series(1, 10000) i;
		INSERT INTO builds (deployment_id, number, action, status, workflow_id, request, evaluation, configuration,
		                    configuration_hash, snapshot, nodes, started_at, finished_at)
		SELECT 'list-' || i, n, 'deploy', 'succeeded', 'w', n::text, 'evaluated',
		       '{"test":{"domain":"example.org","applications":{"forum":{},"wiki":{}},"note":"' || i || repeat('x', 500) || '"}}',
		       '\x00', (SELECT store_path FROM source),
		       '[{"name":"web","names":["example.org"]}]', now(), now()
		FROM generate_series(1, 10000) i, generate_series(1, 3) n;
		ANALYZE deployments, builds;`)
	require.NoError(t, err)
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = fmt.Sprintf("list-%d", i*10+1)
	}
	bare := func(int) {
		rows, err := db.Query(t.Context(), store.SelectDeployments, ids)
		require.NoError(t, err)
		count := 0
		for rows.Next() {
			_ = rows.RawValues()
			count++
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 1000, count)
	}
	body, err := json.Marshal(map[string]any{"ids": ids})
	require.NoError(t, err)
	list := func(int) {
		response, text, err := slipway.Do(t.Context(), http.MethodPost, "/deployments/list",
			http.Header{"Content-Type": {"application/json"}}, strings.NewReader(string(body)))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.Equal(t, 1000, strings.Count(string(text), `"deploymentId"`))
		require.Equal(t, 4000, strings.Count(string(text), `"kind":"application"`), "with what they serve")
	}
	median(t, 5, bare)
	median(t, 5, list)
	b, l := median(t, 20, bare), median(t, 20, list)
	report(t, "(d) list of 1,000 / its bare SQL", ratio(l, b), 3, "list ", l, ", SQL ", b)
}
