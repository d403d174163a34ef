package leases

import (
	"fmt"
	"os"

	"slipway.dev/slipway/cmd/slipway/exit"
)

// boundary is the file that tells whether DDL has begun.
type boundary struct {
	path      string
	temporary bool
}

// newBoundary makes the file, empty; a temporary one when there is no path. A
// file that has something in it is the mark of an earlier run, and refused.
func newBoundary(path string) (boundary, error) {
	if path == "" {
		file, err := os.CreateTemp("", "slipway-lease-boundary-")
		if err != nil {
			return boundary{}, fmt.Errorf("boundary file: %w", err)
		}
		return boundary{file.Name(), true}, file.Close()
	}
	b := boundary{path: path}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return b, exit.Misuse("boundary file: %v", err)
	}
	if err := file.Close(); err != nil {
		return b, fmt.Errorf("boundary file: %w", err)
	}
	if b.begun() {
		return b, exit.Misuse("boundary file: %s is not empty: an earlier run has begun DDL. Verify the schema by hand, then remove the file", path)
	}
	return b, nil
}

// begun says whether the command has written to the file. One that cannot be
// read any more may have been written to.
func (b boundary) begun() bool {
	info, err := os.Stat(b.path)
	return err != nil || info.Size() > 0
}

// remove removes a temporary file.
func (b boundary) remove() {
	if b.temporary {
		_ = os.Remove(b.path) // in the temporary folder, and empty or a few bytes
	}
}
