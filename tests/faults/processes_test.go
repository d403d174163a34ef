package faults

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"slipway.dev/slipway/tests/stand"
)

// processes are those of this machine for which is returns true, given the
// environment and the arguments, each text ended by NUL.
func processes(is func(pid int, environment, arguments []byte) bool) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// Who ends meanwhile, or has ended and is not reaped, has neither.
		environment, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		arguments, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if len(arguments) > 0 && is(pid, environment, arguments) {
			found = append(found, pid)
		}
	}
	return found
}

// deployers are the processes of a deployment's deployers, daemons too.
func (w *world) deployers(id string) []int {
	return processes(func(_ int, environment, _ []byte) bool {
		return bytes.Contains(environment, []byte("TEST_RECORD="+w.Record+"\x00")) &&
			bytes.Contains(environment, []byte("SLIPWAY_DEPLOYMENT_ID="+id+"\x00"))
	})
}

// supervisors are the processes that hold a working folder of a deployment,
// but for the workers.
func (w *world) supervisors(id string) []int {
	return processes(func(pid int, _, arguments []byte) bool {
		if !bytes.Contains(arguments, []byte("\x00supervise\x00")) {
			return false
		}
		folder := fmt.Sprintf("/proc/%d/fd", pid)
		descriptors, _ := os.ReadDir(folder)
		for _, descriptor := range descriptors {
			target, _ := os.Readlink(filepath.Join(folder, descriptor.Name()))
			for _, mine := range w.workingFolders(id) {
				if strings.HasPrefix(target, mine) {
					return true
				}
			}
		}
		return false
	})
}

// evaluators are the processes that evaluate in this world.
func (w *world) evaluators() []int {
	return processes(func(_ int, _, arguments []byte) bool {
		return bytes.Contains(arguments, []byte("nix-instantiate\x00")) && bytes.Contains(arguments, []byte(w.Dir))
	})
}

// workingFolders are what the names of a deployment's working folders begin
// with.
func (w *world) workingFolders(id string) []string {
	return []string{
		filepath.Join(w.StateDir(stand.Worker), "deployers", id+"-"),
		filepath.Join(w.StateDir(stand.Second), "deployers", id+"-"),
	}
}

// leftovers is an error while anything of a deployer is left.
func (w *world) leftovers(id string) error {
	if pids := append(w.deployers(id), w.supervisors(id)...); len(pids) > 0 {
		return fmt.Errorf("processes of a deployer are left: %v", pids)
	}
	for _, prefix := range w.workingFolders(id) {
		if folders, _ := filepath.Glob(prefix + "*"); len(folders) > 0 {
			return fmt.Errorf("working folders are left: %v", folders)
		}
	}
	return nil
}
