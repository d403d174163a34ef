package deployer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"slipway.dev/slipway/activities/deployer/processes"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// TestMain makes the test binary a supervisor, or a worker that a test can
// kill, when it is told so.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		var err error
		switch os.Args[1] {
		case "supervise":
			err = Supervise(context.Background(), os.Stdin, os.Stdout, openRemote)
		case "work": // address, folder, out, configuration
			h := &harness{address: os.Args[2], folder: os.Args[3], out: os.Args[4]}
			err = h.run(context.Background(), h.activities(), deploy(os.Args[5]))
		default:
			os.Exit(m.Run())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var ref = deployment.Ref{Deployment: "blue-sea", Build: 7}

// harness is what a deployer runs in: a memory, a folder of working folders,
// and a folder that deployers know as $OUT and tell tests things in.
type harness struct {
	memory  *memory
	address string
	folder  string
	out     string
	roots   *memoryRoots
	log     lockedBuffer // of the SDK
	close   []func()
}

// lockedBuffer is a buffer for several writers.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func newHarness(t *testing.T) *harness {
	t.Parallel()
	h := &harness{memory: newMemory(), folder: filepath.Join(t.TempDir(), "work"), out: t.TempDir(), roots: &memoryRoots{}}
	h.memory.builds[ref] = &memoryBuild{action: deployment.ActionDeploy}
	h.address = h.memory.serve(t)
	t.Cleanup(func() { // of a test that failed
		for _, one := range h.marked() {
			_ = syscall.Kill(one.PID, syscall.SIGKILL)
		}
		for _, closeOne := range h.close {
			closeOne()
		}
	})
	return h
}

// deploy is a job whose deployer runs a script of bash.
func deploy(script string) deployment.Job {
	deployer, err := filepath.Abs("testdata/deployer")
	if err != nil {
		panic(err)
	}
	return deployment.Job{Ref: ref, Action: deployment.ActionDeploy, Configuration: []byte(script),
		Snapshot: "/nix/store/source", Deployer: deployer}
}

func (h *harness) activities() *Activities {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	a := &Activities{
		// The race detector sleeps for a second at each end of a process, if
		// it is not told otherwise.
		Supervisors: &Supervisors{Command: []string{"/usr/bin/env", "GORACE=atexit_sleep_ms=0", self, "supervise"}, Database: h.address},
		Folder:      h.folder,
		Environment: map[string]string{"OUT": h.out}, Limits: DefaultLimits(), Roots: h.roots, Server: &pretender{},
	}
	h.close = append(h.close, a.Supervisors.Close)
	if h.roots == nil {
		a.Roots = &memoryRoots{}
	}
	return a
}

// run runs a job as a worker does.
func (h *harness) run(ctx context.Context, a *Activities, job deployment.Job) error {
	a.Jobs = oneJob(job)
	env := h.environment(ctx, a)
	activity := a.Deploy
	if job.Action == deployment.ActionDestroy {
		activity = a.Destroy
	}
	_, err := env.ExecuteActivity(activity, job.Ref)
	a.Running.Wait() // as a worker that stops does
	return err
}

func (h *harness) environment(ctx context.Context, a *Activities) *testsuite.TestActivityEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.NewTextHandler(&h.log, nil))))
	env := suite.NewTestActivityEnvironment()
	env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
	env.SetTestTimeout(time.Minute)
	env.RegisterActivity(a)
	return env
}

// ended runs a job to its end, and returns what the memory has of it then.
func (h *harness) ended(t *testing.T, a *Activities, job deployment.Job) memoryBuild {
	t.Helper()
	require.NoError(t, h.run(t.Context(), a, job))
	b := h.memory.build(job.Ref)
	require.NotNil(t, b.exit, "no exit was staged")
	h.requireClean(t)
	return b
}

// started runs a job in the background, and returns when its script has made
// $OUT/ready. wait returns the error of the activity.
func (h *harness) started(t *testing.T, ctx context.Context, a *Activities, job deployment.Job) (wait func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- h.run(ctx, a, job) }()
	h.awaitFile(t, "ready")
	return func() error { return <-done }
}

func (h *harness) path(name string) string { return filepath.Join(h.out, name) }

func (h *harness) awaitFile(t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool { _, err := os.Stat(h.path(name)); return err == nil },
		20*time.Second, 5*time.Millisecond, "the deployer did not make %s", name)
}

func (h *harness) read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(h.path(name))
	require.NoError(t, err)
	return string(content)
}

// marked are the living processes that have $OUT in their environment.
func (h *harness) marked() processes.Table {
	var found processes.Table
	for _, one := range processes.All() {
		environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", one.PID))
		if bytes.Contains(environment, []byte("OUT="+h.out+"\x00")) && !one.Dead {
			found = append(found, one)
		}
	}
	return found
}

// requireClean: no process and no folder is left, and no supervisor wrote to
// its standard error, where the race detector does.
func (h *harness) requireClean(t *testing.T) {
	t.Helper()
	require.NotContains(t, h.log.String(), "complained")
	require.Empty(t, h.marked(), "processes are left")
	entries, err := os.ReadDir(h.folder)
	require.NoError(t, err)
	require.Empty(t, entries, "working folders are left")
}

type oneJob deployment.Job

func (j oneJob) Job(context.Context, deployment.Ref) (deployment.Job, error) {
	if j.WorkflowID == "" {
		j.WorkflowID = "default-test-workflow-id" // of the SDK's environment
	}
	return deployment.Job(j), nil
}

func (j oneJob) CancelRequested(context.Context, deployment.Ref) (bool, error) { return false, nil }

// pretender is a Temporal that answers heartbeats with err.
type pretender struct {
	mu     sync.Mutex
	err    error
	status enums.WorkflowExecutionStatus
	beats  int
}

func (s *pretender) RecordActivityHeartbeat(context.Context, []byte, ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beats++
	return s.err
}

func (s *pretender) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: s.status},
	}, nil
}

type memoryRoots struct {
	mu    sync.Mutex
	paths map[string][]string
}

func (r *memoryRoots) Keep(_ context.Context, name string, paths ...string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paths == nil {
		r.paths = map[string][]string{}
	}
	r.paths[name] = paths
	return nil
}

func (r *memoryRoots) Names(context.Context) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for name := range r.paths {
		names = append(names, name)
	}
	return names, nil
}

func (r *memoryRoots) Drop(_ context.Context, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.paths, name)
	return nil
}

func TestExits(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   deployment.Exit
		log    string
	}{
		"success":                 {`echo out; echo err >&2`, deployment.Exit{}, "out\nerr\n"},
		"no output":               {`exit 3`, deployment.Exit{Code: 3, Reason: "the deployer exited with 3"}, ""},
		"last lines":              {`echo 1; echo 2; echo; echo " 3 "; echo 4; echo 5; printf 6; exit 3`, deployment.Exit{Code: 3, Reason: "the deployer exited with 3: 2\n3\n4\n5\n6"}, "1\n2\n\n 3 \n4\n5\n6\n"},
		"exit 137":                {`echo no; exit 137`, deployment.Exit{Code: 137, Reason: "the deployer exited with 137: no"}, "no\n"},
		"killed":                  {`echo no; kill -9 $$`, deployment.Exit{Code: 137, Reason: "the deployer was ended by SIGKILL: no"}, "no\n"},
		"a signal":                {`kill -SEGV $$`, deployment.Exit{Code: 139, Reason: "the deployer was ended by SIGSEGV"}, ""},
		"stdin":                   {`cat; echo $?`, deployment.Exit{}, "0\n"},
		"not printable":           {`printf 'a\0b\xff\033[1mc\033[0m\033]0;x\a\n'`, deployment.Exit{}, `a\x00b\xffc\x1b]0;x\x07` + "\n"},
		"signals are not ignored": {`trap`, deployment.Exit{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			b := h.ended(t, h.activities(), deploy(test.script))
			require.Equal(t, test.want, *b.exit)
			require.Equal(t, test.log, string(b.log))
		})
	}
}

func TestNotStarted(t *testing.T) {
	h := newHarness(t)
	job := deploy("")
	job.Deployer = "/nix/store/is-not-here"
	require.Equal(t, deployment.Exit{Code: 127, Reason: "the deployer cannot be started: no such file or directory"}, *h.ended(t, h.activities(), job).exit)

	h.memory.builds[ref] = &memoryBuild{action: deployment.ActionDeploy}
	job.Deployer = "/etc/passwd"
	require.Equal(t, deployment.Exit{Code: 126, Reason: "the deployer cannot be started: permission denied"}, *h.ended(t, h.activities(), job).exit)
}

func TestReasonIsShort(t *testing.T) {
	h := newHarness(t)
	b := h.ended(t, h.activities(), deploy(`for i in 1 2 3 4 5; do printf '%0600d\n' $i; done; exit 1`))
	require.Equal(t, "the deployer exited with 1: "+fmt.Sprintf("%0600d", 5), b.exit.Reason)
	h.memory.builds[ref] = &memoryBuild{action: deployment.ActionDeploy}
	b = h.ended(t, h.activities(), deploy(`printf 'é%.0s' {1..2000}; exit 1`))
	require.Equal(t, "the deployer exited with 1: "+strings.Repeat("é", 510)+"…", b.exit.Reason)
}

// The deployer gets what the contract names, and nothing of slipway's own.
func TestSurroundings(t *testing.T) {
	h := newHarness(t)
	a := h.activities()
	a.Supervisors.Command = []string{"/proc/self/exe", "supervise"}
	a.Environment["EXTRA"] = "is here"
	a.Environment["HOME"] = "/is/not/taken"
	b := h.ended(t, a, deploy(`
		cat /proc/self/environ > $OUT/env
		cat /proc/$PPID/environ > $OUT/supervisor-env
		cat /proc/$PPID/cmdline > $OUT/supervisor-args
		ls -l /proc/self/fd > $OUT/fd
		pwd > $OUT/pwd
		stat -c '%a %n' . configuration.json tmp sbom > $OUT/modes
		cmp $SLIPWAY_CONFIGURATION configuration.json && [ "$*" = deploy ]
		read -r pid _ _ _ group session _ < /proc/$$/stat; echo $pid $group $session > $OUT/session
		mkdir -p tmp/copy && touch tmp/copy/file && chmod 0500 tmp/copy
	`))
	require.Equal(t, deployment.Exit{}, *b.exit, string(b.log))

	folder := strings.TrimSpace(h.read(t, "pwd"))
	env := map[string]string{}
	for _, one := range strings.Split(strings.TrimRight(h.read(t, "env"), "\x00"), "\x00") {
		name, value, _ := strings.Cut(one, "=")
		env[name] = value
	}
	delete(env, "_") // bash sets these
	delete(env, "SHLVL")
	delete(env, "PWD")
	require.Equal(t, map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": folder, "TMPDIR": folder + "/tmp",
		"SLIPWAY_DEPLOYMENT_ID": "blue-sea", "SLIPWAY_BUILD": "7", "SLIPWAY_CONFIGURATION": folder + "/configuration.json",
		"SLIPWAY_SOURCE": "/nix/store/source", "SBOM_OUT_DIR": folder + "/sbom", "DEPLOY_SBOM_TIMEOUT": "600",
		"OUT": h.out, "EXTRA": "is here",
	}, env)
	require.Equal(t, "GOGC=400\x00", h.read(t, "supervisor-env"), "the supervisor has nothing of ours")
	require.Equal(t, "/proc/self/exe\x00supervise\x00", h.read(t, "supervisor-args"))

	var open []string
	for _, line := range strings.Split(h.read(t, "fd"), "\n") {
		if fields := strings.Fields(line); len(fields) > 3 {
			open = append(open, strings.Join(fields[len(fields)-3:], " "))
		}
	}
	require.Len(t, open, 4, "%q", open) // 3 is the folder that ls lists
	require.Equal(t, "0 -> /dev/null", open[0])
	require.Contains(t, open[1], h.path("fd"))
	require.Regexp(t, `^2 -> pipe:`, open[2])
	require.Regexp(t, `^3 -> /proc/`, open[3])
	require.Equal(t, "700 .\n600 configuration.json\n700 tmp\n700 sbom\n", h.read(t, "modes"))

	session := strings.Fields(h.read(t, "session"))
	require.Equal(t, []string{session[2], session[2], session[2]}, session)
}

func TestLongLine(t *testing.T) {
	h := newHarness(t)
	b := h.ended(t, h.activities(), deploy(`
		perl -e '$| = 1; my $a = "a" x 65536; print $a for 1 .. 16384; print "\n"'
		grep VmHWM /proc/$PPID/status | tr -dc 0-9 > $OUT/peak
		echo end`))
	require.Equal(t, deployment.Exit{}, *b.exit)
	require.Equal(t, strings.Repeat("a", 16<<10)+" [… line cut at 16 KiB]\nend\n", string(b.log))
	peak, err := strconv.Atoi(h.read(t, "peak"))
	require.NoError(t, err)
	t.Logf("the supervisor had %d KiB at most", peak)
	require.Less(t, peak, 64<<10)
}

func TestLogLimit(t *testing.T) {
	h := newHarness(t)
	a := h.activities()
	a.Limits.Log = 1 << 20
	b := h.ended(t, a, deploy(`yes 0123456789abcde | head -c 8M; echo last words; exit 4`))
	require.Equal(t, deployment.Exit{Code: 4, Reason: "the deployer exited with 4: " + strings.Repeat("0123456789abcde\n", 4) + "last words"}, *b.exit)
	kept, note, _ := strings.Cut(string(b.log), "[")
	require.Equal(t, "the log ends here: it has reached 1 MiB]\n", note)
	require.Len(t, kept, 1<<20)
	require.Less(t, b.pieces, 100, "pieces are small")
}

// The log shows while the deployer runs.
func TestLogIsLive(t *testing.T) {
	h := newHarness(t)
	wait := h.started(t, t.Context(), h.activities(), deploy(`echo first; touch $OUT/ready; until [ -e $OUT/go ]; do sleep 0.02; done; echo second`))
	require.Eventually(t, func() bool { return string(h.memory.build(ref).log) == "first\n" }, 5*time.Second, 10*time.Millisecond)
	require.NoError(t, os.WriteFile(h.path("go"), nil, 0o600))
	require.NoError(t, wait())
	require.Equal(t, "first\nsecond\n", string(h.memory.build(ref).log))
}

// daemon starts a daemon: two forks, a session of its own, the environment
// cleared but for a mark, standard output kept open, deaf to everything that
// can be ignored.
const daemon = `daemon() { ( setsid bash -c '( trap "" TERM HUP INT; echo $BASHPID > $OUT/daemon; exec env -i OUT=$OUT sleep 1000 ) & disown' & ); until [ -s $OUT/daemon ]; do sleep 0.01; done; }; `

func TestDaemonThatKeepsTheOutput(t *testing.T) {
	h := newHarness(t)
	b := h.ended(t, h.activities(), deploy(daemon+`daemon; echo done`))
	require.Equal(t, deployment.Exit{}, *b.exit)
	require.Contains(t, string(b.log), "done\n")
	// The shell that started it may be about to end.
	require.Regexp(t, `(?m)^\[processes that the deployer left running are ended: [12]\]$`, string(b.log))
}

// Somebody who is no descendant got hold of the output.
func TestOutputIsHeldByAnother(t *testing.T) {
	h := newHarness(t)
	wait := h.started(t, t.Context(), h.activities(), deploy(`echo $$ > $OUT/pid; touch $OUT/ready; until [ -e $OUT/go ]; do sleep 0.01; done; yes 0123456789abcde | head -c 1M`))
	pipe, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", h.pid(t, "pid")), os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { _ = pipe.Close() }()
	require.NoError(t, os.WriteFile(h.path("go"), nil, 0o600))
	require.NoError(t, wait())
	b := h.memory.build(ref)
	require.Equal(t, deployment.Exit{}, *b.exit)
	require.Len(t, b.log, 1<<20)
}

// What a deployer leaves gets the time to end by itself.
func TestLeftOverIsAsked(t *testing.T) {
	h := newHarness(t)
	a := h.activities()
	a.Limits.Short = 20 * time.Second
	b := h.ended(t, a, deploy(`( trap 'echo tidied; exit' TERM; touch $OUT/ready; while :; do sleep 0.01; done ) & until [ -e $OUT/ready ]; do sleep 0.01; done; exit 5`))
	require.Equal(t, 5, b.exit.Code)
	require.Contains(t, string(b.log), "tidied\n")
}

// Processes that fork faster than anybody can list them.
func TestForkStorm(t *testing.T) {
	h := newHarness(t)
	a := h.activities()
	a.Limits.Short = 100 * time.Millisecond
	b := h.ended(t, a, deploy(daemon+`
		perl -e 'exit if fork; $SIG{TERM} = "IGNORE"; while (1) { my $pid = fork; exit if $pid }' &
		for i in $(seq 50); do setsid sleep 1000 & done
		perl -e '$SIG{TERM} = "IGNORE"; $SIG{CHLD} = "IGNORE"; while (1) { if (!fork) { setpgrp; select undef, undef, undef, 0.05; exit } select undef, undef, undef, 0.001 }' &
		daemon
		exit 6`))
	require.Equal(t, 6, b.exit.Code)
}

func TestCancel(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   deployment.Exit
	}{
		"stops":             {`touch $OUT/ready; exec sleep 1000`, deployment.Exit{Code: 143, Reason: "cancelled", Cancelled: true}},
		"stops with a code": {`trap 'exit 9' TERM; touch $OUT/ready; while :; do sleep 0.01; done`, deployment.Exit{Code: 9, Reason: "cancelled", Cancelled: true}},
		"succeeds":          {`trap 'exit 0' TERM; touch $OUT/ready; while :; do sleep 0.01; done`, deployment.Exit{}},
		"hangs":             {daemon + `daemon; trap '' TERM; touch $OUT/ready; while :; do sleep 0.01; done`, deployment.Exit{Code: 137, Reason: "cancelled", Cancelled: true}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			a := h.activities()
			a.Limits.Grace = 500 * time.Millisecond
			ctx, cancel := context.WithCancelCause(t.Context())
			wait := h.started(t, ctx, a, deploy(test.script))
			cancel(temporal.NewCanceledError()) // as the SDK does when the server says so
			require.True(t, temporal.IsCanceledError(wait()))
			h.requireClean(t)
			b := h.memory.build(ref)
			require.Equal(t, test.want, *b.exit)
			require.Contains(t, string(b.log), "[cancelled: the deployer was asked to stop]\n")
		})
	}
}

// A workflow that was terminated or reset, or that Temporal gave up on, ends
// the deployer too. But nobody cancelled the build.
func TestAbandoned(t *testing.T) {
	h := newHarness(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	wait := h.started(t, ctx, h.activities(), deploy(`touch $OUT/ready; exec sleep 1000`))
	cancel(serviceerror.NewNotFound("workflow execution already completed")) // as the SDK does
	require.Error(t, wait())
	h.requireClean(t)
	b := h.memory.build(ref)
	require.False(t, b.exit.Cancelled)
	require.Contains(t, b.exit.Reason, "the workflow of the build was lost")
	require.Contains(t, string(b.log), "[the workflow was lost: the deployer was asked to stop]\n")
}

func TestCancelBySignal(t *testing.T) {
	h := newHarness(t)
	wait := h.started(t, t.Context(), h.activities(), deploy(`echo $PPID > $OUT/pid; touch $OUT/ready; exec sleep 1000`))
	pid := h.pid(t, "pid")
	require.NoError(t, syscall.Kill(pid, syscall.SIGINT))
	require.NoError(t, syscall.Kill(pid, syscall.SIGHUP))
	time.Sleep(100 * time.Millisecond)
	require.NotEmpty(t, h.marked(), "SIGINT or SIGHUP ended it")
	require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
	require.NoError(t, wait())
	require.Equal(t, deployment.Exit{Code: 143, Reason: "cancelled", Cancelled: true}, *h.memory.build(ref).exit)
}

func (h *harness) pid(t *testing.T, name string) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(h.read(t, name)))
	require.NoError(t, err)
	return pid
}

// A worker that stops lets go of the deployer, but its exit is staged first.
func TestWorkerStops(t *testing.T) {
	h := newHarness(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	wait := h.started(t, ctx, h.activities(), deploy(`touch $OUT/ready; exec sleep 1000`))
	cancel(worker.ErrWorkerShutdown)
	require.NoError(t, wait())
	h.requireClean(t)
	require.Equal(t, deployment.Exit{Code: 143, Reason: "the worker that ran the deployer was lost"}, *h.memory.build(ref).exit)
}

// killWorker runs a script below a worker process of its own and kills that
// one, with its group.
func (h *harness) killWorker(t *testing.T, script string) {
	cmd := exec.Command(os.Args[0], "work", h.address, h.folder, h.out, script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	h.awaitFile(t, "ready")
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
	require.Error(t, cmd.Wait())
}

func TestWorkerIsKilled(t *testing.T) {
	h := newHarness(t)
	h.killWorker(t, daemon+`daemon; trap '' TERM; touch $OUT/ready; while :; do sleep 0.01; done`)
	require.Eventually(t, func() bool { return h.memory.build(ref).exit != nil }, 10*time.Second, 10*time.Millisecond)
	require.Empty(t, h.marked())
	require.Equal(t, deployment.Exit{Code: 137, Reason: "the worker that ran the deployer was lost"}, *h.memory.build(ref).exit)
	require.Eventually(t, func() bool { entries, err := os.ReadDir(h.folder); return err == nil && len(entries) == 0 },
		10*time.Second, 10*time.Millisecond, "the supervisor left the working folder")
}

// The deploy that succeeded while the worker died is a success.
func TestWorkerIsKilledAndTheDeployerSucceeds(t *testing.T) {
	h := newHarness(t)
	h.killWorker(t, `trap 'exit 0' TERM; touch $OUT/ready; while :; do sleep 0.01; done`)
	require.Eventually(t, func() bool { return h.memory.build(ref).exit != nil }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, deployment.Exit{}, *h.memory.build(ref).exit)
}

// stubborn is a deployer with a daemon that notes the time as long as it runs.
const stubborn = `trap '' TERM; echo $PPID > $OUT/supervisor
	( setsid bash -c '( trap "" TERM; while :; do date +%s%N > $OUT/alive.new; mv $OUT/alive.new $OUT/alive; sleep 0.01; done ) & disown' & )
	until [ -e $OUT/alive ]; do sleep 0.01; done
	touch $OUT/ready; while :; do sleep 0.01; done`

func (h *harness) lastAlive(t *testing.T) time.Time {
	t.Helper()
	ns, err := strconv.ParseInt(strings.TrimSpace(h.read(t, "alive")), 10, 64)
	require.NoError(t, err)
	return time.Unix(0, ns)
}

func TestSupervisorIsKilled(t *testing.T) {
	h := newHarness(t)
	wait := h.started(t, t.Context(), h.activities(), deploy(stubborn))
	require.NoError(t, syscall.Kill(h.pid(t, "supervisor"), syscall.SIGKILL))
	require.ErrorContains(t, wait(), "ended without a report")
	h.requireClean(t)
	require.Nil(t, h.memory.build(ref).exit)
}

// Worker and supervisor are killed at the same moment: the next worker cleans.
func TestClean(t *testing.T) {
	h := newHarness(t)
	require.NoError(t, Clean(h.folder), "there is no folder yet")
	cmd := exec.Command(os.Args[0], "work", h.address, h.folder, h.out, stubborn)
	require.NoError(t, cmd.Start())
	h.awaitFile(t, "ready")
	require.NoError(t, Clean(h.folder))
	require.NotEmpty(t, h.marked(), "a deployer was ended whose supervisor lives")

	supervisor := h.pid(t, "supervisor")
	require.NoError(t, syscall.Kill(supervisor, syscall.SIGSTOP)) // so that it does not see the end of the worker
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.NoError(t, Clean(h.folder))
	require.NotEmpty(t, h.marked(), "a deployer was ended whose supervisor lives")
	require.NoError(t, syscall.Kill(supervisor, syscall.SIGKILL))
	require.Eventually(t, func() bool { return Clean(h.folder) == nil && len(h.marked()) == 0 }, 5*time.Second, 10*time.Millisecond)
	h.requireClean(t)
}

// short are limits with which a fence lapses within a test.
func (h *harness) short(a *Activities) {
	h.memory.life = 3 * time.Second
	a.Limits.Renew, a.Limits.Lapse, a.Limits.Call = 300*time.Millisecond, 1500*time.Millisecond, 200*time.Millisecond
}

func TestDatabaseIsAwayForLong(t *testing.T) {
	h := newHarness(t)
	a := h.activities()
	h.short(a)
	wait := h.started(t, t.Context(), a, deploy(stubborn))
	h.memory.goAway(5 * time.Second)
	require.NoError(t, wait())
	b := h.memory.build(ref)
	require.Less(t, h.lastAlive(t), b.lapse.Add(-time.Second), "it ran when its fence was about to lapse")
	require.Equal(t, deployment.Exit{Code: 137, Reason: "the deployer was killed because the database could not be reached for 1.5s"}, *b.exit)
	h.requireClean(t)
}

func TestDatabaseIsAwayForShort(t *testing.T) {
	h := newHarness(t)
	a := h.activities()
	h.short(a)
	a.Limits.Lapse = 10 * time.Second
	// The log is in the way as well: more than the supervisor keeps.
	wait := h.started(t, t.Context(), a, deploy(`touch $OUT/ready; until [ -e $OUT/go ]; do sleep 0.01; done; yes 0123456789abcde | head -c 1M`))
	h.memory.goAway(700 * time.Millisecond)
	require.NoError(t, os.WriteFile(h.path("go"), nil, 0o600))
	require.NoError(t, wait())
	b := h.memory.build(ref)
	require.Equal(t, deployment.Exit{}, *b.exit)
	require.Equal(t, strings.Repeat("0123456789abcde\n", 1<<16), string(b.log))
}

// A database that hangs when the deployer has ended gets the exit later, also
// after the fence has lapsed.
func TestExitIsStagedLate(t *testing.T) {
	h := newHarness(t)
	a := h.activities()
	h.short(a)
	a.Limits.Lapse = 2500 * time.Millisecond
	wait := h.started(t, t.Context(), a, deploy(`touch $OUT/ready; until [ -e $OUT/go ]; do sleep 0.01; done; echo done`))
	h.memory.goAway(4 * time.Second)
	require.NoError(t, os.WriteFile(h.path("go"), nil, 0o600))
	require.NoError(t, wait())
	b := h.memory.build(ref)
	require.Equal(t, deployment.Exit{}, *b.exit)
	require.Contains(t, string(b.log), "done\n")
}

// Every call is repeated when its answer is lost.
func TestAnswersAreLost(t *testing.T) {
	h := newHarness(t)
	h.memory.loses = 3
	b := h.ended(t, h.activities(), deploy(`echo one; sleep 0.2; echo two`))
	require.Equal(t, deployment.Exit{}, *b.exit)
	require.Equal(t, "one\ntwo\n", string(b.log))
	require.Equal(t, 1, b.acquired)
}

func TestFenceIsLost(t *testing.T) {
	h := newHarness(t)
	a := h.activities()
	h.short(a)
	wait := h.started(t, t.Context(), a, deploy(stubborn))
	h.memory.steal(ref)
	stolen := time.Now()
	require.ErrorContains(t, wait(), deployment.ErrFenced.Error())
	require.WithinRange(t, h.lastAlive(t), stolen.Add(-time.Second), stolen.Add(3*time.Second))
	require.Nil(t, h.memory.build(ref).exit)
	h.requireClean(t)
}

// A log that the database does not take ends, and the deployer does not.
func TestLogIsRefused(t *testing.T) {
	h := newHarness(t)
	h.memory.refused = errors.New("no room")
	a := h.activities()
	a.Limits.LogPatience = 100 * time.Millisecond
	b := h.ended(t, a, deploy(`yes | head -c 1M; exit 3`))
	require.Equal(t, 3, b.exit.Code)
	require.Empty(t, b.log)
}

// Two workers run the same build at once: one deployer runs.
func TestTwoSupervisors(t *testing.T) {
	h := newHarness(t)
	job := deploy(`echo run >> $OUT/runs; touch $OUT/ready; until [ -e $OUT/go ]; do sleep 0.01; done`)
	for _, action := range []deployment.Action{deployment.ActionDeploy, deployment.ActionDestroy} {
		for _, name := range []string{"runs", "ready", "go"} {
			_ = os.Remove(h.path(name))
		}
		job.Action = action
		h.memory.builds[ref] = &memoryBuild{action: action}
		wait := h.started(t, t.Context(), h.activities(), job)
		var refused *temporal.ApplicationError
		require.ErrorAs(t, h.run(t.Context(), h.activities(), job), &refused)
		require.True(t, refused.NonRetryable())
		require.Equal(t, map[deployment.Action]string{
			deployment.ActionDeploy: wire.ErrorAlreadyRan, deployment.ActionDestroy: wire.ErrorFenceHeld,
		}[action], refused.Type())
		require.NoError(t, os.WriteFile(h.path("go"), nil, 0o600))
		require.NoError(t, wait())
		require.Equal(t, "run\n", h.read(t, "runs"))
		h.requireClean(t)
	}
}

// A destroy may run again, and its log goes on.
func TestDestroyRunsAgain(t *testing.T) {
	h := newHarness(t)
	h.memory.builds[ref].action = deployment.ActionDestroy
	job := deploy(`echo $1; [ -e $OUT/once ] || { touch $OUT/once; exit 1; }`)
	job.Action = deployment.ActionDestroy
	require.Equal(t, 1, h.ended(t, h.activities(), job).exit.Code)
	b := h.ended(t, h.activities(), job)
	require.Equal(t, deployment.Exit{}, *b.exit)
	require.Equal(t, "destroy\ndestroy\n", string(b.log))
}

func TestNothingToDestroy(t *testing.T) {
	h := newHarness(t)
	h.memory.builds[ref].action = deployment.ActionDestroy
	b := h.ended(t, h.activities(), deployment.Job{Ref: ref, Action: deployment.ActionDestroy, Nothing: true})
	require.Equal(t, deployment.Exit{}, *b.exit)
	require.Equal(t, "[nothing was ever deployed, so there is nothing to destroy]\n", string(b.log))
	require.Empty(t, h.roots.paths)
}

func TestCancelledBeforeTheFence(t *testing.T) {
	h := newHarness(t)
	h.memory.goAway(time.Minute)
	a := h.activities()
	a.Limits.Call = 100 * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, nil)
	defer cancel()
	require.Error(t, h.run(ctx, a, deploy(`touch $OUT/ran`)))
	require.NoFileExists(t, h.path("ran"))
	h.requireClean(t)
}

func TestDatabaseIsAwayAtTheStart(t *testing.T) {
	h := newHarness(t)
	h.memory.goAway(time.Minute)
	a := h.activities()
	a.Limits.Call, a.Limits.Acquire = 100*time.Millisecond, 200*time.Millisecond
	err := h.run(t.Context(), a, deploy(`touch $OUT/ran`))
	var failed *temporal.ApplicationError
	require.ErrorAs(t, err, &failed)
	require.False(t, failed.NonRetryable())
	require.NoFileExists(t, h.path("ran"))
	h.requireClean(t)
}

// The configuration can be larger than a pipe.
func TestLargeConfiguration(t *testing.T) {
	h := newHarness(t)
	script := `stat -c %s $SLIPWAY_CONFIGURATION; exit # ` + strings.Repeat("x", 1<<20)
	b := h.ended(t, h.activities(), deploy(script))
	require.Equal(t, fmt.Sprintln(len(script)), string(b.log))
}

func TestWrongCommand(t *testing.T) {
	h := newHarness(t)
	a := h.activities()
	a.Supervisors.Command = []string{"/bin/sh", "-c", "echo no such command >&2; exit 2"}
	require.ErrorContains(t, h.run(t.Context(), a, deploy("")), "exit status 2): no such command")
	require.Contains(t, h.log.String(), "no such command")
}

func TestRoots(t *testing.T) {
	h := newHarness(t)
	old := map[string][]string{"blue-sea-3": {"a"}, "blue-sea-6": {"a"}, "blue-sea-8": {"a"}, "blue-5": {"a"}, "blue-sea-1-2": {"a"}, "odd": {"a"}}
	h.roots.paths = old
	h.memory.goAway(300 * time.Millisecond)
	job := deploy(`exit 1`)
	h.ended(t, h.activities(), job)
	kept := func() []string {
		names, err := h.roots.Names(t.Context())
		require.NoError(t, err)
		return names
	}
	require.ElementsMatch(t, []string{"blue-sea-7", "blue-sea-8", "blue-5", "blue-sea-1-2", "odd"}, kept())
	require.Equal(t, []string{job.Snapshot, job.Deployer}, h.roots.paths["blue-sea-7"])

	h.memory.builds[ref] = &memoryBuild{action: deployment.ActionDestroy}
	job.Action = deployment.ActionDestroy
	h.ended(t, h.activities(), job)
	require.Contains(t, kept(), "blue-sea-7", "a destroy that failed needs them again")
	job.Configuration = []byte("exit 0")
	h.ended(t, h.activities(), job)
	require.ElementsMatch(t, []string{"blue-sea-8", "blue-5", "blue-sea-1-2", "odd"}, kept())
}

// What Temporal answers to heartbeats decides whether the deployer goes on.
func TestHeartbeats(t *testing.T) {
	gone := serviceerror.NewNotFound("activity already timed out")
	running, terminated := enums.WORKFLOW_EXECUTION_STATUS_RUNNING, enums.WORKFLOW_EXECUTION_STATUS_TERMINATED
	for name, test := range map[string]struct {
		err       error
		status    enums.WorkflowExecutionStatus
		cancelled bool // in the database
		stops     bool
	}{
		"lives":                           {},
		"cancelled":                       {err: temporal.NewCanceledError(), stops: true},
		"Temporal is away":                {err: serviceerror.NewUnavailable("away")},
		"timed out":                       {err: gone, status: running},
		"timed out, and cancelled since":  {err: gone, status: running, cancelled: true, stops: true},
		"the workflow was terminated":     {err: gone, status: terminated, stops: true},
		"another error, not to be minded": {err: errors.New("odd")},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			a := h.activities()
			server := &pretender{err: test.err, status: test.status}
			a.Server, a.Jobs = server, cancelledJob{oneJob(deploy(`sleep 2.5`)), test.cancelled}
			env := h.environment(t.Context(), a)
			var mu sync.Mutex
			asked := 0 // the SDK, which would cancel the activity
			env.SetOnActivityHeartbeatListener(func(*activity.Info, converter.EncodedValues) {
				mu.Lock()
				defer mu.Unlock()
				asked++
			})
			_, err := env.ExecuteActivity(a.Deploy, ref)
			require.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, test.stops, asked > 0)
			require.GreaterOrEqual(t, server.beats, 1)
		})
	}
}

type cancelledJob struct {
	oneJob
	cancelled bool
}

func (j cancelledJob) CancelRequested(context.Context, deployment.Ref) (bool, error) {
	return j.cancelled, nil
}

// A database that was restored has given the number of the build to another.
func TestAnotherWorkflowsBuild(t *testing.T) {
	h := newHarness(t)
	a := h.activities()
	job := deploy("")
	job.WorkflowID = "submit/one/another"
	a.Jobs = oneJob(job)
	_, err := h.environment(t.Context(), a).ExecuteActivity(a.Deploy, ref)
	var final *temporal.ApplicationError
	require.ErrorAs(t, err, &final)
	require.Equal(t, wire.ErrorNotItsBuild, final.Type())
	require.True(t, final.NonRetryable())
}

func TestWrongAction(t *testing.T) {
	h := newHarness(t)
	a := h.activities()
	a.Jobs = oneJob(deploy(""))
	env := h.environment(t.Context(), a)
	_, err := env.ExecuteActivity(a.Destroy, ref)
	require.ErrorContains(t, err, "is a deploy, not a destroy")
}
