package supervise_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway-dev/supervise"
)

func shell(t *testing.T, script string) (*supervise.Process, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	log, err := supervise.OpenLog(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	p, err := supervise.Start(supervise.Spec{
		Name: "script", Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")}, Output: log,
	})
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return p, path
}

// wrote waits until the log has a line.
func wrote(t *testing.T, path, line string) {
	t.Helper()
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(content), line+"\n")
	}, 10*time.Second, 10*time.Millisecond)
}

// alive is whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return fields[0] != "Z"
}

func number(t *testing.T, path, key string) int {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(content)) {
		if rest, found := strings.CutPrefix(strings.TrimSpace(line), key+"="); found {
			n, err := strconv.Atoi(rest)
			require.NoError(t, err)
			return n
		}
	}
	require.Fail(t, "no "+key+" in the log")
	return 0
}

func TestStopLetsAChildEndByItself(t *testing.T) {
	p, log := shell(t, `trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done`)
	wrote(t, log, "up")
	require.False(t, p.Stop(10*time.Second))
	require.NoError(t, p.Err())
	require.Contains(t, p.Tail(5), "bye\n")
}

func TestStopKillsTheGroupAfterItsDeadline(t *testing.T) {
	p, log := shell(t, `trap '' TERM; sleep 1000 & echo child=$!; echo up; while :; do sleep 1000; done`)
	wrote(t, log, "up")
	child := number(t, log, "child")
	require.True(t, p.Stop(100*time.Millisecond))
	require.Error(t, p.Err())
	require.Eventually(t, func() bool { return !alive(child) }, 5*time.Second, 10*time.Millisecond)
}

func TestWhatAChildLeavesBehindIsKilled(t *testing.T) {
	p, log := shell(t, `sleep 1000 & echo child=$!; exit 3`)
	<-p.Done()
	require.ErrorContains(t, p.Err(), "exit status 3")
	child := number(t, log, "child")
	require.Eventually(t, func() bool { return !alive(child) }, 5*time.Second, 10*time.Millisecond)
}

func TestStopOfAChildThatHasEnded(t *testing.T) {
	p, _ := shell(t, `exit 0`)
	<-p.Done()
	require.False(t, p.Stop(time.Second))
	p.Kill()
	p.Signal(syscall.SIGTERM)
}

func TestStartOfWhatDoesNotExist(t *testing.T) {
	_, err := supervise.Start(supervise.Spec{Name: "nothing", Path: filepath.Join(t.TempDir(), "nothing")})
	require.ErrorContains(t, err, "start nothing: ")
}

func TestTailHasTheLastLinesOfThisRunAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte("of an earlier run\n"), 0o600))
	log, err := supervise.OpenLog(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, log.Close()) }()
	p, err := supervise.Start(supervise.Spec{Name: "script", Path: "/bin/sh", Args: []string{"-c", `echo one; echo two; echo three >&2`}, Output: log})
	require.NoError(t, err)
	<-p.Done()
	require.Equal(t, "two\nthree\n", p.Tail(2))
	require.Equal(t, "one\ntwo\nthree\n", p.Tail(20))
}

func TestOpenLogBeginsANewFileWhenTheOldOneIsLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, 17<<20))
	log, err := supervise.OpenLog(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, log.Close()) }()
	info, err := log.Stat()
	require.NoError(t, err)
	require.Zero(t, info.Size())
	require.FileExists(t, path+".old")
}

// TestMain is also the parent that dies in TestTheDeathSignal.
func TestMain(m *testing.M) {
	if os.Getenv("SUPERVISE_TEST_PARENT") == "" {
		os.Exit(m.Run())
	}
	p, err := supervise.Start(supervise.Spec{Name: "child", Path: "/bin/sleep", Args: []string{"1000"}})
	if err != nil {
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString("child=" + strconv.Itoa(p.PID) + "\nup\n")
	select {}
}

func TestTheDeathSignalReachesAChildWhoseParentIsKilled(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "log")
	log, err := supervise.OpenLog(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, log.Close()) }()
	parent, err := supervise.Start(supervise.Spec{
		Name: "parent", Path: self, Env: append(os.Environ(), "SUPERVISE_TEST_PARENT=1"), Output: log,
	})
	require.NoError(t, err)
	wrote(t, path, "up")
	child := number(t, path, "child")
	require.True(t, alive(child))
	parent.Signal(syscall.SIGKILL)
	<-parent.Done()
	require.Eventually(t, func() bool { return !alive(child) }, 5*time.Second, 10*time.Millisecond)
}
