package faults

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/stand"
)

// gone is how long what a dead worker ran may outlive it: a deployer that
// ignores SIGTERM has a second.
const gone = 5 * time.Second

// lost is the reason of a build whose deployer died with its worker.
const lost = "the worker that ran the deployer was lost"

func TestWorkerKilled(t *testing.T) {
	w := enter(t)
	p := w.newPhases(t, true)
	w.kill(t, stand.Worker)
	for _, s := range p.all() {
		s.gone(t, gone)
	}
	await(t, gone, func() error {
		if pids := w.evaluators(); len(pids) > 0 {
			return fmt.Errorf("evaluators are left: %v", pids)
		}
		return nil
	})
	up := w.start(t, stand.Worker)
	p.finish(t, up)
	p.hauling.ended(t, 2, deployment.StatusSucceeded)
	for _, s := range []*subject{p.queued, p.deploying, p.daemon} {
		s.ended(t, 1, deployment.StatusFailed)
		require.Equal(t, lost, s.build(t, 1).Reason)
	}
	usable(t, p.all()...)
}

// The deployer has ended, and nobody has finished its build.
func TestWorkerKilledAfterDeploy(t *testing.T) {
	w := enter(t)
	deploying, hauling := w.newSubject(t, "deploying"), w.newSubject(t, "hauling")
	must(t)(deploying.submit(t.Context(), `"deploy":"gate"`))
	deploying.noted(t, "start deploy 1")
	must(t)(hauling.submit(t.Context(), `"destroy":"gate"`))
	require.NoError(t, hauling.becomes(t.Context(), deployment.StateActive, 1))
	must(t)(hauling.destroy(t.Context()))
	hauling.noted(t, "start destroy 2")

	// A frozen worker finishes nothing, but its supervisors go on.
	require.NoError(t, w.Signal(stand.Worker, syscall.SIGSTOP))
	for s, number := range map[*subject]int64{deploying: 1, hauling: 2} {
		s.openGate(t)
		s.staged(t, number)
		s.gone(t, gone)
		require.Equal(t, deployment.StatusRunning, s.build(t, number).Status)
	}
	w.kill(t, stand.Worker)
	up := w.start(t, stand.Worker)
	sound(t, up, deploying, hauling)
	deploying.ended(t, 1, deployment.StatusSucceeded)
	hauling.ended(t, 2, deployment.StatusSucceeded)
	lines, err := hauling.note()
	require.NoError(t, err)
	require.Equal(t, 1, count(lines, "start destroy 2"), "a destroy that succeeded is not repeated")
	usable(t, deploying, hauling)
}

// staged waits until the supervisor of a build has put its exit code 0 aside.
func (s *subject) staged(t *testing.T, number int64) {
	t.Helper()
	await(t, trueWithin, func() error {
		var code *int
		err := s.database.QueryRow(t.Context(), `SELECT exit_code FROM builds WHERE deployment_id = $1 AND number = $2`, s.id, number).Scan(&code)
		switch {
		case err != nil:
			return err
		case code == nil:
			return fmt.Errorf("build %d of %s has no exit", number, s.id)
		case *code != 0:
			t.Fatalf("build %d of %s exited with %d", number, s.id, *code)
		}
		return nil
	})
}

// The worker is taken for dead while its deployers run, and another one takes
// over. Then it wakes up.
func TestWorkerFrozen(t *testing.T) {
	w := enter(t)
	p := w.newPhases(t, soakTime > 0)
	ended := w.newSubject(t, "ended")
	must(t)(ended.submit(t.Context(), `"deploy":"gate"`))
	ended.noted(t, "start deploy 1")

	require.NoError(t, w.Signal(stand.Worker, syscall.SIGSTOP))
	since := time.Now()
	require.NoError(t, w.Start(stand.Second))
	ended.openGate(t)
	ended.staged(t, 1)
	// The other worker finishes what has ended.
	require.NoError(t, ended.becomes(t.Context(), deployment.StateActive, 1))
	// It can do nothing for what runs on: the supervisors hold the fences.
	// After a while it tries to repeat the destroy.
	time.Sleep(time.Until(since.Add(long(time.Minute, 12*time.Second))))
	p.goesOn(t)
	require.NoError(t, w.Signal(stand.Worker, syscall.SIGCONT))
	up := time.Now()
	time.Sleep(3 * time.Second) // of heartbeats that nobody wants
	p.goesOn(t)
	p.finish(t, up)
	sound(t, up, ended)
	p.wentOn(t)
	require.NoError(t, w.Stop(stand.Second))
	usable(t, append(p.all(), ended)...)
}

// The supervisor is killed, and the worker lives.
func TestSupervisorKilled(t *testing.T) {
	w := enter(t)
	deploying, daemon, hauling := w.newSubject(t, "deploying"), w.newSubject(t, "daemon"), w.newSubject(t, "hauling")
	all := []*subject{deploying, daemon, hauling}
	members := map[*subject]string{deploying: `"deploy":"gate"`, daemon: `"deploy":"daemon-gate"`, hauling: `"destroy":"gate"`}
	together(t, all, func(s *subject) error {
		_, err := s.submit(t.Context(), members[s])
		return err
	})
	require.NoError(t, hauling.becomes(t.Context(), deployment.StateActive, 1))
	must(t)(hauling.destroy(t.Context()))
	daemon.hasDaemon(t)
	for s, line := range map[*subject]string{deploying: "start deploy 1", daemon: "start deploy 1", hauling: "start destroy 2"} {
		s.noted(t, line)
		supervisor := parent(t, s.deployer(t, line))
		require.Contains(t, s.supervisors(s.id), supervisor)
		require.NoError(t, syscall.Kill(supervisor, syscall.SIGKILL))
	}
	for _, s := range all {
		s.gone(t, gone)
	}
	up := time.Now()
	hauling.openGate(t)
	sound(t, up, all...)
	deploying.ended(t, 1, deployment.StatusFailed)
	daemon.ended(t, 1, deployment.StatusFailed)
	hauling.ended(t, 2, deployment.StatusSucceeded)
	usable(t, all...)
}

// deployer is the process that wrote a line to the record.
func (s *subject) deployer(t *testing.T, beginning string) int {
	t.Helper()
	lines, err := s.note()
	require.NoError(t, err)
	for _, line := range lines {
		if pid, found := strings.CutPrefix(line, beginning+" "); found {
			number, err := strconv.Atoi(pid)
			require.NoError(t, err)
			return number
		}
	}
	t.Fatalf("nobody wrote %q: %q", beginning, lines)
	return 0
}

// parent is the parent of a process.
func parent(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if text, found := strings.CutPrefix(line, "PPid:"); found {
			number, err := strconv.Atoi(strings.TrimSpace(text))
			require.NoError(t, err)
			return number
		}
	}
	t.Fatalf("no parent of %d", pid)
	return 0
}
