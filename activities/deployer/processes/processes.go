package processes

import (
	"bytes"
	"os"
	"strconv"
)

// Process is a line of the process table.
type Process struct {
	PID, Parent, Group int
	Dead               bool // and not yet reaped
}

// Table is a process table, or a part of one.
type Table []Process

// All reads the process table. Who comes or goes meanwhile may be missing; it is
// empty where /proc cannot be read.
func All() Table {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = folder.Close() }()
	names, _ := folder.Readdirnames(-1)
	var all Table
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		if one, ok := parse(pid, stat); ok {
			all = append(all, one)
		}
	}
	return all
}

// parse reads pid (name) state ppid pgrp …, where the name can hold anything
// (proc_pid_stat(5)).
func parse(pid int, stat []byte) (Process, bool) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return Process{}, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return Process{}, false
	}
	group, err := strconv.Atoi(string(fields[2]))
	state := string(fields[0])
	return Process{PID: pid, Parent: parent, Group: group, Dead: state == "Z" || state == "X"}, err == nil
}

// Below are all processes below those given, without these.
func Below(roots ...int) Table {
	children := map[int]Table{}
	for _, one := range All() {
		children[one.Parent] = append(children[one.Parent], one)
	}
	var found Table
	for _, root := range roots {
		found = append(found, children[root]...)
	}
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].PID]...)
	}
	return found
}

// Living is how many of the processes are not dead.
func (t Table) Living() int {
	n := 0
	for _, one := range t {
		if !one.Dead {
			n++
		}
	}
	return n
}
