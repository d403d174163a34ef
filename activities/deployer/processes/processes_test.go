package processes

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for stat, want := range map[string]Process{
		"7 (sh) S 1 7 7 0 -1":                {PID: 7, Parent: 1, Group: 7},
		"7 (a) Z 1 (b) Z 3 4 7 0":            {PID: 7, Parent: 3, Group: 4, Dead: true},
		"7 (new\nline) X 3 4 7 0":            {PID: 7, Parent: 3, Group: 4, Dead: true},
		"7 (of another namespace) S 0 0 0 0": {PID: 7},
	} {
		got, ok := parse(7, []byte(stat))
		require.True(t, ok, stat)
		require.Equal(t, want, got, stat)
	}
	for _, stat := range []string{"", "7 (sh)", "7 (sh) S 1", "7 (sh) S x 7", "7 (sh) S 1 x"} {
		_, ok := parse(7, []byte(stat))
		require.False(t, ok, stat)
	}
}

func TestBelow(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "sleep 60 & sleep 60 & wait")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		for _, one := range append(Below(cmd.Process.Pid), Process{PID: cmd.Process.Pid}) {
			p, _ := os.FindProcess(one.PID)
			_ = p.Kill()
		}
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool { return len(Below(cmd.Process.Pid)) == 2 }, 10*time.Second, 10*time.Millisecond)
	var ours Table
	for _, one := range Below(os.Getpid()) {
		if one.PID == cmd.Process.Pid || one.Parent == cmd.Process.Pid {
			ours = append(ours, one)
		}
	}
	require.Len(t, ours, 3)
	require.Equal(t, 3, ours.Living())
	require.NoError(t, cmd.Process.Kill())
	require.Eventually(t, func() bool {
		for _, one := range Below(os.Getpid()) {
			if one.PID == cmd.Process.Pid {
				return one.Dead
			}
		}
		return false
	}, 10*time.Second, 10*time.Millisecond, "dead, and not reaped")
}
