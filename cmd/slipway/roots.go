package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"slipway.dev/slipway/activities/nix"
)

// roots keeps what deployments need from the garbage collector of Nix: a
// folder for each name, with the links in it.
type roots struct {
	evaluator *nix.Evaluator
	folder    string
}

func (r roots) Keep(ctx context.Context, name string, paths ...string) error {
	return r.evaluator.Keep(ctx, filepath.Join(r.folder, name, "root"), paths...)
}

func (r roots) Names(context.Context) ([]string, error) {
	entries, err := os.ReadDir(r.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, err
}

func (r roots) Drop(_ context.Context, name string) error {
	return os.RemoveAll(filepath.Join(r.folder, name))
}
