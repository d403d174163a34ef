package nix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Realise gives the path of the deployer of a source: a file of the snapshot,
// or what a derivation builds (an executable, or a folder with one in bin/).
// What it builds is kept by GC roots that begin with gcRootPrefix, as Keep
// makes them. The error is a *Failure or a *SourceError where the source is at
// fault. Only the evaluation has a time limit of its own; a build takes as
// long as the context lets it, and evaluated is called before, so that it keeps
// no slot.
func (e *Evaluator) Realise(ctx context.Context, snapshot, entry, gcRootPrefix string, evaluated func()) (deployerPath string, err error) {
	home, err := os.MkdirTemp(e.evaluations, scratch)
	if err != nil {
		return "", fmt.Errorf("realise deployer: %w", err)
	}
	defer func() { _ = os.RemoveAll(home) }()
	raw, err := e.evaluate(ctx, evaluation{
		snapshot: snapshot, entry: entry, folder: home, timeout: e.config.Timeout,
		options: []string{"--argstr", "entry", entry}, expression: deployerExpression,
	})
	if err != nil {
		return "", err
	}
	var deployer struct {
		Path               string
		Derivation, Output string
		Program            *string
	}
	if err := json.Unmarshal(raw, &deployer); err != nil {
		return "", &Failure{Kind: KindWrongShape, Message: fmt.Sprintf("deployer: %v", err)}
	}
	if deployer.Derivation == "" {
		path := filepath.Clean(deployer.Path)
		if !strings.HasPrefix(path, snapshot+"/") {
			return "", &Failure{Kind: KindWrongShape, Message: "deployer is not a path inside the source"}
		}
		return executable(path, shortNames(snapshot, home))
	}
	if err := e.build(ctx, snapshot, entry, home, gcRootPrefix, evaluated); err != nil {
		return "", err
	}
	program, err := programOf(deployer.Output, deployer.Program)
	if err != nil {
		return "", err
	}
	return executable(program, shortNames(snapshot, home))
}

// build instantiates and builds the deployer. It evaluates a second time,
// since an evaluation as Evaluate has it writes no derivations, and the roots
// must be there before anybody collects garbage.
func (e *Evaluator) build(ctx context.Context, snapshot, entry, home, gcRootPrefix string, evaluated func()) error {
	if err := os.MkdirAll(filepath.Dir(gcRootPrefix), 0o755); err != nil {
		return fmt.Errorf("realise deployer: %w", err)
	}
	derivation := filepath.Join(home, "derivation")
	args := append([]string{e.nixInstantiate}, restricted(snapshot)...)
	out, err := e.offline.run(ctx, command{
		args: append(args, "--expr", `{ entry }: builtins.trace "slipway begins" (import (<slipway> + "/${entry}")).deployer`,
			"--argstr", "entry", entry, "--add-root", derivation),
		dir: home, env: e.env(home), timeout: e.config.Timeout, memory: e.config.MemoryBytes, stdout: maxOutput,
	})
	switch {
	case errors.Is(err, errTimeLimit):
		return timeout(e.config.Timeout)
	case err != nil:
		return fmt.Errorf("instantiate deployer: %w", err)
	case !out.state.Success():
		return classify(out, e.config.MemoryBytes, shortNames(snapshot, home))
	}
	target, err := os.Readlink(derivation)
	if err != nil {
		return fmt.Errorf("instantiate deployer: %w", err)
	}
	evaluated()
	out, err = e.store(ctx, home, "--realise", target, "--add-root", gcRootPrefix)
	if err != nil {
		return fmt.Errorf("build deployer: %w", err)
	}
	if !out.state.Success() {
		return &Failure{
			Kind:    KindBuildFailed,
			Message: "the deployer does not build: " + shown(problem(out), shortNames(snapshot, home)),
			Output:  tail(clean(out.stderr), outputLimit),
		}
	}
	return nil
}

// store runs nix-store.
func (e *Evaluator) store(ctx context.Context, home string, args ...string) (output, error) {
	options := []string{e.nixStore}
	if os.Geteuid() == 0 {
		// Root builds as itself: build users and sandboxes want a machine that
		// is set up for them, and a container of a worker is not.
		options = append(options, "--option", "sandbox", "false", "--option", "build-users-group", "")
	}
	return e.online.run(ctx, command{
		args: append(options, args...), dir: home, env: e.env(home), stdout: maxOutput, graceful: true,
	})
}

// programOf is the program in the output of a derivation: the output itself, or
// what is in its bin/, where main names one of several.
func programOf(output string, main *string) (string, error) {
	info, err := os.Stat(output)
	if err != nil {
		return "", fmt.Errorf("deployer: %w", err)
	}
	if !info.IsDir() {
		return output, nil
	}
	bin := filepath.Join(output, "bin")
	if main != nil {
		if !filepath.IsLocal(*main) {
			return "", &Failure{Kind: KindWrongShape, Message: "deployer.meta.mainProgram is not the name of a program"}
		}
		return filepath.Join(bin, *main), nil
	}
	entries, err := os.ReadDir(bin)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("deployer: %w", err)
	}
	if len(entries) != 1 {
		return "", &Failure{Kind: KindWrongShape, Message: fmt.Sprintf(
			"deployer builds a folder with %d programs in bin/: it must have one, or meta.mainProgram must name one", len(entries))}
	}
	return filepath.Join(bin, entries[0].Name()), nil
}

// executable checks that the path can be run.
func executable(path string, names *strings.Replacer) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", &Failure{Kind: KindWrongShape, Message: fmt.Sprintf("deployer: there is no file %s", shown(path, names))}
	case err != nil:
		return "", fmt.Errorf("deployer: %w", err)
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return "", &Failure{Kind: KindWrongShape, Message: fmt.Sprintf("deployer: %s is not an executable file", shown(path, names))}
	}
	return path, nil
}

// Keep makes GC roots for store paths that exist: the links gcRootPrefix,
// gcRootPrefix-2 and so on, in order. Roots of the same prefix that were there
// before are replaced.
func (e *Evaluator) Keep(ctx context.Context, gcRootPrefix string, paths ...string) error {
	if len(paths) > 0 {
		if err := os.MkdirAll(filepath.Dir(gcRootPrefix), 0o755); err != nil {
			return fmt.Errorf("keep store paths: %w", err)
		}
		home, err := os.MkdirTemp(e.evaluations, scratch)
		if err != nil {
			return fmt.Errorf("keep store paths: %w", err)
		}
		defer func() { _ = os.RemoveAll(home) }()
		args := append([]string{"--option", "substitute", "false", "--realise"}, paths...)
		out, err := e.store(ctx, home, append(args, "--add-root", gcRootPrefix)...)
		if err != nil {
			return fmt.Errorf("keep store paths: %w", err)
		}
		if !out.state.Success() {
			return fmt.Errorf("keep store paths: %s", problem(out))
		}
	}
	return drop(gcRootPrefix, len(paths)+1)
}

// Drop removes the GC roots of a prefix. That there are none is no error.
func (e *Evaluator) Drop(gcRootPrefix string) error { return drop(gcRootPrefix, 1) }

// drop removes the roots of the prefix that are numbered from on.
func drop(gcRootPrefix string, from int) error {
	entries, err := os.ReadDir(filepath.Dir(gcRootPrefix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("drop roots: %w", err)
	}
	base := filepath.Base(gcRootPrefix)
	for _, entry := range entries {
		number := 1
		if entry.Name() != base {
			suffix, ok := strings.CutPrefix(entry.Name(), base+"-")
			if number, err = strconv.Atoi(suffix); !ok || err != nil || number < 2 {
				continue
			}
		}
		if number < from || entry.Type()&fs.ModeSymlink == 0 {
			continue
		}
		if err := os.Remove(filepath.Join(filepath.Dir(gcRootPrefix), entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("drop roots: %w", err)
		}
	}
	return nil
}
