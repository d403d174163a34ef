package leasejobs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/tests/stand"
)

const (
	refused   = 73
	lost      = 75
	lostInDDL = 76
	ttl       = 10 * time.Second // where the deadline has to come; the others have 20 seconds
	soon      = 30 * time.Second // until a run has ended that nothing keeps
)

func TestAMigrationIsRunUnderBothLeases(t *testing.T) {
	t.Parallel()
	r := enter(t)
	j := r.runWith("from standard input", `cat; echo to standard error >&2; echo >started; while [ ! -e go ]; do sleep 0.1; done; echo "$SLIPWAY_LEASE_OPERATION_ID $(wc -c <"$SLIPWAY_LEASE_BOUNDARY")"`, "--operation-id", "release/42")
	r.beats("started")
	leases := r.status().Leases
	require.Len(t, leases, 2)
	require.Equal(t, lease.KindMigration, leases[0].Kind)
	require.Equal(t, lease.KindHold, leases[1].Kind)
	for _, v := range leases {
		require.Equal(t, "release/42", v.OperationID)
		require.Equal(t, "orders-app", v.Instance)
	}
	text, err := r.command("status").CombinedOutput()
	require.NoError(t, err)
	require.Regexp(t, `(?s)stable +yes.*migration +release/42 +orders-app +17 +.*failover-hold +release/42`, string(text))

	j.awaits("renewed the migration lease")
	j.awaits("renewed the failover-hold lease")
	for i, v := range r.status().Leases {
		require.True(t, v.ExpiresAt.After(leases[i].ExpiresAt))
	}
	require.NoError(t, os.WriteFile(r.path("go"), nil, 0o600))
	j.is(0, soon)
	require.Equal(t, "from standard inputrelease/42 0\n", j.out.String())
	for _, text := range []string{
		"operation release/42", "granted the migration lease until", "granted the failover-hold lease until", "to standard error",
		"the command ended with 0\nslipway: released the failover-hold lease\nslipway: released the migration lease\n",
	} {
		j.says(text)
	}
	r.free()
	files, err := os.ReadDir(r.folder)
	require.NoError(t, err)
	require.Len(t, files, 3, "the boundary file is removed: %v", files) // started, go, token
}

func TestTheCommandsOwnExit(t *testing.T) {
	t.Parallel()
	r := enter(t)
	for script, code := range map[string]int{`exit 7`: 7, `echo >"$SLIPWAY_LEASE_BOUNDARY"; exit 75`: 75, `kill -9 $$`: 137} {
		j := r.run(script)
		j.is(code, soon)
		j.says(fmt.Sprintf("slipway: the command ended with %d\n", code))
		r.free()
	}
}

func TestSignalsArePassedOnAndTheLeasesReleased(t *testing.T) {
	t.Parallel()
	r := enter(t)
	for _, test := range []struct {
		signal syscall.Signal
		script string
		code   int
	}{
		{syscall.SIGTERM, `trap 'exit 9' TERM; ` + beat("a"), 9},
		{syscall.SIGINT, `trap 'echo >interrupted; exit 0' INT; ` + beat("b"), 0},
		{syscall.SIGTERM, `sh -c '` + beat("c") + `'; echo never`, 143},
	} {
		name := test.script[strings.Index(test.script, "echo >")+6:][:1]
		if test.code == 0 {
			name = "b"
		}
		j := r.run(test.script)
		r.beats(name)
		require.NoError(t, j.Process.Signal(test.signal))
		j.is(test.code, soon)
		r.last(name)
		r.free()
	}
}

func TestWhatTheCommandLeavesBehindIsEndedBeforeTheRelease(t *testing.T) {
	t.Parallel()
	r := enter(t)
	j := r.run(`setsid sh -c 'trap "" TERM; ` + beat("daemon") + `' & while [ ! -e daemon ]; do sleep 0.1; done; exit 3`)
	j.is(3, soon)
	j.says("ending the processes that the command left behind")
	require.True(t, r.last("daemon").Before(j.at))
	r.free()
}

// revoke revokes the leases of the room's group by the annotation.
func (r *room) revoke() {
	r.t.Helper()
	all.kube.ChangeGroup(r.t, r.group, r.group, func(group *unstructured.Unstructured) {
		annotations := group.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[lease.AnnotationRevoke] = "test"
		group.SetAnnotations(annotations)
	})
}

func TestRevokedBeforeAndAfterTheBoundary(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, script string
		code         int
		says         string
	}{
		{"before", beat("command"), lost, "authority was lost before DDL had begun: the "},
		{"after", `echo ddl >"$SLIPWAY_LEASE_BOUNDARY"; ` + beat("command"), lostInDDL, "Verify the schema by hand"},
		{"ended well", `trap 'exit 0' TERM; ` + beat("command"), lost, "The job may be run again"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := enter(t)
			j := r.run(test.script)
			r.beats("command")
			r.revoke()
			j.is(test.code, soon)
			j.says("operator_revoked")
			j.says(test.says)
			r.last("command")
			r.free()
			require.Equal(t, 2, strings.Count(j.err.String(), "granted the"), "a lost lease is not asked for again")
			again := r.run("echo never", "--operation-id", j.operation())
			again.is(refused, soon)
			again.says("a revoked operation never gets a lease again")
			require.Empty(t, again.out.String())
		})
	}
}

func (j *job) operation() string {
	j.room.t.Helper()
	found := regexp.MustCompile(`(?m)^slipway: operation (\S+) on`).FindStringSubmatch(j.err.String())
	require.Len(j.room.t, found, 2)
	return found[1]
}

func TestAnotherGenerationEndsTheCommand(t *testing.T) {
	t.Parallel()
	r := enter(t)
	j := r.run(beat("command"))
	r.beats("command")
	all.kube.ChangeGroup(t, r.group, r.group, func(group *unstructured.Unstructured) {
		require.NoError(t, unstructured.SetNestedField(group.Object, int64(18), "status", "topologyGeneration"))
	})
	j.is(lost, soon)
	require.Regexp(t, "topology_changed|the primary moved", j.err.String())
	r.last("command")
}

// expiry is when the last lease that the run was told of ends: the earlier of
// the two.
func (r *room) expiry(j *job) time.Time {
	r.t.Helper()
	latest := map[string]time.Time{}
	lines := bufio.NewScanner(strings.NewReader(j.err.String()))
	for lines.Scan() {
		var e struct {
			Event, Lease string
			ExpiresAt    time.Time
		}
		if json.Unmarshal(lines.Bytes(), &e) == nil && (e.Event == "granted" || e.Event == "renewed") {
			latest[e.Lease] = e.ExpiresAt
		}
	}
	require.Len(r.t, latest, 2)
	if a, b := latest["migration"], latest["failover-hold"]; a.Before(b) {
		return a
	}
	return latest["failover-hold"]
}

// Whatever hangs, the command and all that it has started is ended before the
// leases are.
func TestNothingOutlivesItsLeases(t *testing.T) {
	t.Parallel()
	everything := []string{"command", "session", "orphan"}
	for name, test := range map[string]struct {
		script string
		do     func(t *testing.T, r *room, j *job)
		code   int
	}{
		"an API that accepts and never answers": {stubborn, func(_ *testing.T, r *room, _ *job) { r.proxy.hang() }, lost},
		"the same in the middle of DDL": {`echo >"$SLIPWAY_LEASE_BOUNDARY"; ` + stubborn,
			func(_ *testing.T, r *room, _ *job) { r.proxy.hang() }, lostInDDL},
		"a client that is stopped": {stubborn, func(t *testing.T, _ *room, j *job) {
			require.NoError(t, j.Process.Signal(syscall.SIGSTOP))
			time.Sleep(ttl + time.Second)
			require.NoError(t, j.Process.Signal(syscall.SIGCONT))
		}, lost},
		"a client that is killed":   {stubborn, func(t *testing.T, _ *room, j *job) { require.NoError(t, j.Process.Kill()) }, -1},
		"a watchdog that is killed": {stubborn, func(t *testing.T, _ *room, j *job) { require.NoError(t, syscall.Kill(j.watchdog(), syscall.SIGKILL)) }, lost},
		"a watchdog that is stopped, and an API that hangs": {stubborn, func(t *testing.T, r *room, j *job) {
			require.NoError(t, syscall.Kill(j.watchdog(), syscall.SIGSTOP))
			r.proxy.hang()
		}, lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := enter(t)
			j := r.run(test.script, "--output", "json", "--ttl", ttl.String())
			r.beats(everything...)
			test.do(t, r, j)
			j.is(test.code, soon)
			r.await(ttl, func() error { // the client may have gone first
				if time.Now().Before(r.expiry(j)) {
					return errors.New("the leases have not expired")
				}
				return nil
			})
			for _, name := range everything {
				require.True(t, r.last(name).Before(r.expiry(j)), "%s beat at %s, and the leases ended at %s", name, r.last(name), r.expiry(j))
			}
		})
	}
}

// A command has the time from SIGTERM to SIGKILL to end well.
func TestTheCommandIsAskedToEndBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	r := enter(t)
	j := r.run(`trap 'echo >asked; exit 0' TERM; `+beat("command"), "--output", "json", "--ttl", ttl.String())
	r.beats("command")
	r.proxy.hang()
	j.is(lost, soon)
	left := r.expiry(j).Sub(r.last("asked"))
	require.Greater(t, left, ttl/6-beatTime, "a sixth of the TTL before the deadline")
	require.Less(t, left, ttl/2)
	j.says(`"cause":"deadline"`)
}

// As after a sleep of the machine, or a freeze of the container.
func TestAPauseOfEverythingEndsTheCommandFirst(t *testing.T) {
	t.Parallel()
	r := enter(t)
	j := r.run(stubborn, "--ttl", ttl.String())
	r.beats("command", "session", "orphan")
	watchdog := j.watchdog()
	processes := append(below(t, watchdog), watchdog, j.Process.Pid)
	for _, pid := range processes {
		// Parents come first, and a sleep of theirs may have ended.
		if err := syscall.Kill(pid, syscall.SIGSTOP); !errors.Is(err, syscall.ESRCH) {
			require.NoError(t, err)
		}
	}
	time.Sleep(ttl + time.Second)
	for _, pid := range processes { // the command first: it has a head start
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	woken := time.Now()
	j.is(lost, soon)
	for _, name := range []string{"command", "session", "orphan"} {
		require.Less(t, r.last(name).Sub(woken), time.Second, name)
	}
}

// below are the processes below one.
func below(t testing.TB, pid int) []int {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	var all []int
	for _, task := range tasks {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name())) // may have ended
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			require.NoError(t, err)
			all = append(append(all, child), below(t, child)...)
		}
	}
	return all
}

// watchdog is the process ID of the run's watchdog.
func (j *job) watchdog() int {
	j.room.t.Helper()
	for _, pid := range below(j.room.t, j.Process.Pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(text), "\x00lease\x00watchdog\x00") {
			return pid
		}
	}
	require.Fail(j.room.t, "the run has no watchdog")
	return 0
}

func TestAnAPIThatHangsForAWhileIsNoLoss(t *testing.T) {
	t.Parallel()
	r := enter(t)
	// The renewal at 12 s has no answer until 22 s, and the authority ends at 30 s.
	const patient = 36 * time.Second
	j := r.run(beat("command")+" & while [ ! -e go ]; do sleep 0.1; done", "--ttl", patient.String())
	j.awaits("running sh")
	granted := time.Now()
	r.beats("command")
	r.proxy.hang()
	j.awaits("could not be renewed: no answer from")
	r.proxy.release()
	time.Sleep(time.Until(granted.Add(patient)))
	require.Len(t, r.status().Leases, 2)
	require.NoError(t, os.WriteFile(r.path("go"), nil, 0o600))
	j.is(0, soon)
	r.free()
}

func TestATokenThatRotates(t *testing.T) {
	t.Parallel()
	r := enter(t)
	j := r.run(`while [ ! -e go ]; do sleep 0.1; done`, "--ttl", "15s")
	j.awaits("running sh")
	r.writeToken("not.a.token")
	j.awaits("could not be renewed: 401 unauthorized")
	r.writeToken(r.newToken())
	time.Sleep(12 * time.Second)
	require.Len(t, r.status().Leases, 2)
	require.NoError(t, os.WriteFile(r.path("go"), nil, 0o600))
	j.is(0, soon)
	r.free()
}

func TestTwoRunsWaitForEachOther(t *testing.T) {
	t.Parallel()
	r := enter(t)
	// mkdir fails when the other is in there.
	const alone = `mkdir inside && sleep 2 && rmdir inside`
	first, second := r.run(alone, "--wait", "60s"), r.run(alone, "--wait", "60s")
	first.is(0, time.Minute)
	second.is(0, time.Minute)
	waited := 0
	for _, j := range []*job{first, second} {
		if strings.Contains(j.err.String(), "waiting for the migration lease: operation ") {
			waited++
		}
	}
	require.Equal(t, 1, waited)
	r.free()
}

func TestWhoDoesNotWaitIsRefused(t *testing.T) {
	t.Parallel()
	r := enter(t)
	holder := r.run(beat("command"), "--operation-id", "first", "--no-hold")
	r.beats("command")
	require.Len(t, r.status().Leases, 1)

	j := r.run("echo never")
	j.is(refused, soon)
	j.says("no lease: operation first of orders-app has it until")
	require.Empty(t, j.out.String())

	j = r.run("echo never", "--operation-id", "first")
	j.is(refused, soon)
	j.says("no lease: operation first of orders-app has it until")

	j = r.run("echo never", "--wait", "3s", "-o", "json")
	j.is(refused, 10*time.Second)
	var last struct {
		Event    string
		ExitCode int
		DDLBegan bool
	}
	lines := strings.Split(strings.TrimSpace(j.err.String()), "\n")
	for _, line := range lines {
		require.NoError(t, json.Unmarshal([]byte(line), &last), line)
	}
	require.Equal(t, "ended", last.Event)
	require.Equal(t, refused, last.ExitCode)
	require.False(t, last.DDLBegan)
	require.Contains(t, lines[1], `"holder":{"operationId":"first","instance":"orders-app"`)

	waiting := r.run("echo never", "--wait", "60s")
	waiting.awaits("waiting for")
	require.NoError(t, waiting.Process.Signal(syscall.SIGINT))
	waiting.is(130, soon)

	require.NoError(t, holder.Process.Signal(syscall.SIGTERM))
	holder.is(143, soon)
	r.free()
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	r := enter(t)
	for says, flags := range map[string][]string{
		"403 forbidden": {"--instance", "another"},
	} {
		j := r.run("echo never", flags...)
		j.is(refused, soon)
		j.says(says)
	}
	require.NoError(t, os.WriteFile(r.path("boundary"), []byte("x"), 0o600))
	j := r.run("echo never", "--boundary-file", r.path("boundary"))
	j.is(2, soon)
	j.says("an earlier run has begun DDL")
	r.writeToken("not.a.token")
	j = r.run("echo never")
	j.is(refused, soon)
	j.says("401 unauthorized; is the token of the right audience")
}

// The API is killed, and stays away for longer than the leases last.
func TestTheAPIIsGone(t *testing.T) {
	r := enter(t)
	j := r.run(stubborn, "--output", "json", "--ttl", "6s")
	r.beats("command", "session", "orphan")
	require.NoError(t, all.Kill(stand.API))
	j.is(lost, soon)
	for _, name := range []string{"command", "session", "orphan"} {
		require.True(t, r.last(name).Before(r.expiry(j)), name)
	}
	j.says(`"event":"unreleased"`)
	require.NoError(t, all.Start(stand.API))
	again := r.run("true", "--wait", "60s")
	again.is(0, time.Minute)
	r.free()
}
