package leases

import (
	"os"
	"syscall"

	"slipway.dev/slipway/activities/deployer/processes"
)

// descendants are all processes below this one.
func descendants() processes.Table { return processes.Below(os.Getpid()) }

// signalAll sends a signal to the processes: to whole groups where it can, because
// a process that forks and exits all the time is never where it was seen, but
// the kernel holds up forks while it signals a group. Groups are those led by
// one of the processes, and root; another one may have members that are none
// of them.
func signalAll(all processes.Table, signal syscall.Signal, root int) {
	groups := map[int]bool{root: true}
	for _, one := range all {
		groups[one.PID] = true
	}
	done := map[int]bool{}
	for _, one := range all {
		switch {
		case !groups[one.Group]:
			_ = syscall.Kill(one.PID, signal)
		case !done[one.Group]:
			done[one.Group] = true
			_ = syscall.Kill(-one.Group, signal)
		}
	}
}

// killAll stops the processes first, so that none sees the end of another and acts
// on it.
func killAll(all processes.Table, root int) {
	signalAll(all, syscall.SIGSTOP, root)
	signalAll(all, syscall.SIGKILL, root)
}
