package leases

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// process is a line of the process table.
type process struct {
	pid, parent, group int
	dead               bool // and not yet reaped
}

type processes []process

// signal sends a signal to the processes: to whole groups where it can, because
// a process that forks and exits all the time is never where it was seen, but
// the kernel holds up forks while it signals a group. Groups are those led by
// one of the processes, and root; another one may have members that are none
// of them.
func (p processes) signal(signal syscall.Signal, root int) {
	groups := map[int]bool{root: true}
	for _, one := range p {
		groups[one.pid] = true
	}
	done := map[int]bool{}
	for _, one := range p {
		switch {
		case !groups[one.group]:
			_ = syscall.Kill(one.pid, signal)
		case !done[one.group]:
			done[one.group] = true
			_ = syscall.Kill(-one.group, signal)
		}
	}
}

// kill stops the processes first, so that none sees the end of another and acts
// on it.
func (p processes) kill(root int) {
	p.signal(syscall.SIGSTOP, root)
	p.signal(syscall.SIGKILL, root)
}

// living is how many of the processes are not dead.
func (p processes) living() int {
	n := 0
	for _, one := range p {
		if !one.dead {
			n++
		}
	}
	return n
}

// descendants are all processes below this one.
func descendants() processes {
	children := map[int]processes{}
	for _, one := range table() {
		children[one.parent] = append(children[one.parent], one)
	}
	found := children[os.Getpid()]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
	}
	return found
}

// table reads the process table. Who comes or goes meanwhile may be missing.
func table() processes {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = folder.Close() }()
	names, _ := folder.Readdirnames(-1)
	var all processes
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		// pid (name) state ppid pgrp …, and the name can hold anything.
		one := process{pid: pid}
		var state string
		if _, err := fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &one.parent, &one.group); err != nil {
			continue
		}
		one.dead = state == "Z" || state == "X"
		all = append(all, one)
	}
	return all
}
