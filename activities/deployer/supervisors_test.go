package deployer

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
)

// spare is the process of the supervisor that waits for its order.
func spare(t *testing.T, s *Supervisors) int {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotNil(t, s.spare)
	return s.spare.cmd.Process.Pid
}

func TestSpare(t *testing.T) {
	h := newHarness(t)
	a := h.activities()
	a.Supervisors.Ready()
	first := spare(t, a.Supervisors)
	a.Supervisors.Ready()
	require.Equal(t, first, spare(t, a.Supervisors), "one is enough")

	b := h.ended(t, a, deploy(`echo $PPID`))
	require.Equal(t, strconv.Itoa(first), strings.TrimSpace(string(b.log)), "the spare was not used")
	second := spare(t, a.Supervisors)
	require.NotEqual(t, first, second)

	a.Supervisors.Close()
	require.ErrorIs(t, syscall.Kill(second, 0), syscall.ESRCH, "the spare outlives its worker")
	a.Supervisors.Ready()
	require.Nil(t, a.Supervisors.spare, "a worker that ends starts no other")
}

// A spare that something ended meanwhile costs nobody a deploy.
func TestSpareIsKilled(t *testing.T) {
	h := newHarness(t)
	a := h.activities()
	a.Supervisors.Ready()
	require.NoError(t, syscall.Kill(spare(t, a.Supervisors), syscall.SIGKILL))
	require.Eventually(t, func() bool {
		a.Supervisors.mu.Lock()
		defer a.Supervisors.mu.Unlock()
		return !a.Supervisors.spare.alive()
	}, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, deployment.Exit{}, *h.ended(t, a, deploy("")).exit)
}
