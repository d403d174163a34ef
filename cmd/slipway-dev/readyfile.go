package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// readyFile is a file that appears, whole, when a server can be used; none when
// its path is empty.
type readyFile struct{ path string }

func (f readyFile) remove() error {
	if f.path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return fmt.Errorf("ready file: %w", err)
	}
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ready file: %w", err)
	}
	return nil
}

func (f readyFile) write(text string) error {
	if f.path == "" {
		return nil
	}
	if err := os.WriteFile(f.path+".new", []byte(text), 0o600); err != nil {
		return fmt.Errorf("ready file: %w", err)
	}
	if err := os.Rename(f.path+".new", f.path); err != nil {
		return fmt.Errorf("ready file: %w", err)
	}
	return nil
}
