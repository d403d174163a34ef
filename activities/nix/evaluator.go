package nix

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxOutput is the most that an evaluation may print, in bytes.
	maxOutput = 8 << 20
	// abandoned is the age at which the private folder of an evaluation can
	// only be left over from a worker that was killed.
	abandoned = 24 * time.Hour
	// versionTimeout bounds what takes milliseconds.
	versionTimeout = 30 * time.Second
)

var (
	//go:embed evaluate.nix
	evaluateExpression string
	//go:embed deployer.nix
	deployerExpression string
)

// Config is how to evaluate. All but BinDir, CAFile, Env and Registerer must be
// set.
type Config struct {
	// BinDir is the folder of Nix's programs; empty looks them up in the PATH.
	BinDir string
	// Timeout and MemoryBytes are the limits of one evaluation: its time, and
	// its address space. Nix alone takes about 600 MiB of address space, most
	// of it never touched.
	Timeout     time.Duration
	MemoryBytes int64
	// Slots is how many evaluations may run at once.
	Slots int
	// StateDir is a folder of our own: fetched sources, and the private
	// folders of running evaluations. Git looks there for a .gitconfig and a
	// .netrc.
	StateDir string
	// CAFile is a file with the certificates (PEM) that the server of a git
	// source is trusted by; empty: those of the system.
	CAFile string
	// Env is what Nix itself needs to find its store where that is not the
	// usual one, such as NIX_REMOTE or NIX_STATE_DIR, as NAME=value.
	Env []string
	// Registerer gets the metrics; nil: nobody does.
	Registerer prometheus.Registerer
}

// Evaluator runs Nix. Its methods may be used by many at once.
type Evaluator struct {
	config                   Config
	nixInstantiate, nixStore string
	evaluations, sources     string
	// offline runs evaluations, online what may need the network.
	offline, online *launcher
	slots           chan struct{}
	metrics         metrics
	fetching        sync.Mutex

	versionMu sync.Mutex
	version   string
}

// New finds Nix and prepares StateDir. Close frees what it holds.
func New(config Config) (*Evaluator, error) {
	switch {
	case config.Timeout <= 0:
		return nil, errors.New("nix: the timeout must be positive")
	case config.MemoryBytes <= 0:
		return nil, errors.New("nix: the memory limit must be positive")
	case config.Slots <= 0:
		return nil, errors.New("nix: there must be at least one slot")
	case config.StateDir == "":
		return nil, errors.New("nix: no state folder")
	}
	e := &Evaluator{config: config, slots: make(chan struct{}, config.Slots)}
	for name, path := range map[string]*string{"nix-instantiate": &e.nixInstantiate, "nix-store": &e.nixStore} {
		var err error
		if *path, err = exec.LookPath(filepath.Join(config.BinDir, name)); err != nil {
			where := "in the PATH"
			if config.BinDir != "" {
				where = "in " + config.BinDir
			}
			return nil, fmt.Errorf("%s is not %s: install Nix 2.8 or later, or Lix (on Debian: apt-get install nix-bin): %w", name, where, err)
		}
	}
	if err := e.prepare(); err != nil {
		return nil, fmt.Errorf("nix: prepare state folder: %w", err)
	}
	var err error
	if e.metrics, err = newMetrics(config.Registerer, e); err != nil {
		return nil, err
	}
	e.offline, e.online = newLauncher(true), newLauncher(false)
	return e, nil
}

// prepare makes the folders, and removes what a killed worker left.
func (e *Evaluator) prepare() error {
	if err := os.MkdirAll(e.config.StateDir, 0o700); err != nil {
		return err
	}
	// Nix refuses to look through symbolic links in an evaluation.
	state, err := filepath.EvalSymlinks(e.config.StateDir)
	if err != nil {
		return err
	}
	if state, err = filepath.Abs(state); err != nil {
		return err
	}
	e.config.StateDir = state
	e.evaluations, e.sources = filepath.Join(state, "evaluations"), filepath.Join(state, "sources")
	for _, folder := range []string{e.evaluations, e.sources} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		entries, err := os.ReadDir(folder)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			info, err := entry.Info()
			if err != nil || !strings.HasPrefix(entry.Name(), scratch) || time.Since(info.ModTime()) < abandoned {
				continue
			}
			if err := os.RemoveAll(filepath.Join(folder, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close ends the evaluations that still run. Later ones fail.
func (e *Evaluator) Close() {
	e.offline.close()
	e.online.close()
}

// Isolated tells whether evaluations run without any network interface. They
// are kept from the network by Nix's restricted mode in any case.
func (e *Evaluator) Isolated() bool { return e.offline.isolated }

// TryAcquire takes a slot if one is free. release gives it back, once.
func (e *Evaluator) TryAcquire() (release func(), ok bool) {
	select {
	case e.slots <- struct{}{}:
		return e.releaser(), true
	default:
		e.metrics.refused.Inc()
		return nil, false
	}
}

// Acquire waits for a slot. The error is the context's.
func (e *Evaluator) Acquire(ctx context.Context) (release func(), err error) {
	select {
	case e.slots <- struct{}{}:
		return e.releaser(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// InUse is how many slots are taken.
func (e *Evaluator) InUse() int { return len(e.slots) }

func (e *Evaluator) releaser() func() {
	return sync.OnceFunc(func() { <-e.slots })
}

// Version is the name and version of Nix, such as "Nix 2.8.0".
func (e *Evaluator) Version(ctx context.Context) (string, error) {
	e.versionMu.Lock()
	defer e.versionMu.Unlock()
	if e.version != "" {
		return e.version, nil
	}
	out, err := e.online.run(ctx, command{
		args: []string{e.nixInstantiate, "--version"}, env: e.env(e.config.StateDir), timeout: versionTimeout, stdout: 4096,
	})
	if err != nil {
		return "", fmt.Errorf("version of nix: %w", err)
	}
	// "nix-instantiate (Nix) 2.8.0", "nix-instantiate (Lix, like Nix) 2.91.1"
	line, _, _ := strings.Cut(string(out.stdout), "\n")
	version := strings.NewReplacer("(", "", ")", "").Replace(strings.TrimPrefix(line, "nix-instantiate "))
	if !out.state.Success() || version == "" {
		return "", fmt.Errorf("version of nix: %s: %s", out.state, tail(clean(out.stderr), 1024))
	}
	e.version = version
	return version, nil
}

// Request is what to evaluate.
type Request struct {
	// Snapshot is a folder, as Snapshot gives it, and Entry the path of the
	// file in it that is the source.
	Snapshot, Entry string
	// Attribute is the name of an attribute of the source.
	Attribute string
	// Configuration is what the attribute, a function, is applied to, as
	// JSON. With nil the attribute itself is the result.
	Configuration []byte
	// Select, if set, picks one attribute of the result; the others are not
	// evaluated.
	Select string
	// Closed makes it an error that the source looks at the environment, the
	// time or NIX_PATH, which it could in part. Slower.
	Closed bool
	// Timeout, if set, is the time limit instead of that of the Config.
	Timeout time.Duration
}

// Evaluate gives the attribute as JSON (valid UTF-8, at most 8 MiB). The error
// is a *Failure or a *SourceError where the source is at fault, and the
// context's when it is done. Store paths in the result are names of what could
// be built: nothing may assume that they exist.
func (e *Evaluator) Evaluate(ctx context.Context, r Request) (json.RawMessage, error) {
	timeout := r.Timeout
	if timeout == 0 {
		timeout = e.config.Timeout
	}
	folder, remove, err := e.privateFolder(r)
	if err != nil {
		return nil, err
	}
	defer remove()
	return e.evaluate(ctx, evaluation{
		snapshot: r.Snapshot, entry: r.Entry, folder: folder, timeout: timeout,
		options: []string{"-I", "configuration=" + folder}, expression: evaluateExpression,
	})
}

// scratch begins the names of folders that are removed after use.
const scratch = "scratch-"

// privateFolder is the folder that an evaluation sees as <configuration>, and
// its home.
func (e *Evaluator) privateFolder(r Request) (folder string, remove func(), err error) {
	configuration := r.Configuration
	if configuration == nil {
		configuration = []byte("null")
	}
	request, err := json.Marshal(map[string]any{
		"entry": r.Entry, "attribute": r.Attribute, "select": r.Select, "call": r.Configuration != nil,
		"closed": r.Closed,
	})
	if err != nil {
		return "", nil, fmt.Errorf("evaluation request: %w", err)
	}
	if folder, err = os.MkdirTemp(e.evaluations, scratch); err != nil {
		return "", nil, fmt.Errorf("folder of an evaluation: %w", err)
	}
	remove = func() { _ = os.RemoveAll(folder) }
	for name, content := range map[string][]byte{"request.json": request, "configuration.json": configuration} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			remove()
			return "", nil, fmt.Errorf("folder of an evaluation: %w", err)
		}
	}
	return folder, remove, nil
}

// evaluation is one run of nix-instantiate on an expression of ours that says
// what it found as evaluate.nix does.
type evaluation struct {
	snapshot, entry, folder string
	timeout                 time.Duration
	options                 []string
	expression              string
}

// evaluate runs the evaluation and unpacks what the expression said.
func (e *Evaluator) evaluate(ctx context.Context, v evaluation) (value json.RawMessage, err error) {
	begin := time.Now()
	defer func() { e.metrics.evaluated(time.Since(begin), err) }()
	if err := checkEntry(v.snapshot, v.entry); err != nil {
		return nil, err
	}
	args := append([]string{e.nixInstantiate, "--eval", "--strict", "--json"}, restricted(v.snapshot)...)
	args = append(append(args, v.options...), "--expr", v.expression)
	out, err := e.offline.run(ctx, command{
		args: args, dir: v.folder, env: e.env(v.folder),
		timeout: v.timeout, memory: e.config.MemoryBytes, stdout: maxOutput,
	})
	switch {
	case errors.Is(err, errTimeLimit):
		return nil, timeout(v.timeout)
	case errors.Is(err, errOutputLimit):
		return nil, outputTooLarge(maxOutput)
	case err != nil:
		return nil, err
	case !out.state.Success():
		return nil, classify(out, e.config.MemoryBytes, shortNames(v.snapshot, v.folder))
	}
	return unpack(out.stdout)
}

// unpack reads what evaluate.nix says.
func unpack(stdout []byte) (json.RawMessage, error) {
	var found struct {
		Value          json.RawMessage
		Missing, Wrong *string
	}
	if !utf8.Valid(stdout) {
		return nil, &Failure{Kind: KindWrongShape, Message: "the result has text that is not UTF-8"}
	}
	// Nix prints numbers that JSON has not, and JSON that is nested more
	// deeply than anybody reads it.
	if err := json.Unmarshal(stdout, &found); err != nil {
		return nil, &Failure{Kind: KindWrongShape, Message: fmt.Sprintf("the result is not JSON: %v", err)}
	}
	switch {
	case found.Missing != nil:
		return nil, &Failure{Kind: KindNoSuchAttribute, Message: fmt.Sprintf("the source has no attribute %q", *found.Missing)}
	case found.Wrong != nil:
		return nil, &Failure{Kind: KindWrongShape, Message: *found.Wrong}
	}
	return found.Value, nil
}

// checkEntry says what Nix would, in words that an operator can act on.
func checkEntry(snapshot, entry string) error {
	if !filepath.IsLocal(entry) {
		return &SourceError{Source: snapshot, Reason: fmt.Sprintf("the entry %q is not a path inside the source", entry)}
	}
	info, err := os.Stat(filepath.Join(snapshot, entry))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, gone := os.Stat(snapshot); gone != nil {
			return &SourceError{Source: snapshot, Reason: "it does not exist (any more)", Err: gone}
		}
		return &SourceError{Source: snapshot, Reason: fmt.Sprintf("it has no file %s", entry), Err: err}
	case err != nil:
		return &SourceError{Source: snapshot, Reason: "its entry cannot be read", Err: err}
	case info.IsDir():
		return &SourceError{Source: snapshot, Reason: fmt.Sprintf("%s is a folder, not a file", entry)}
	}
	return nil
}

// restricted are the options that keep an evaluation inside the snapshot.
func restricted(snapshot string) []string {
	return []string{
		"--option", "restrict-eval", "true",
		"--option", "allowed-uris", "",
		"--option", "allow-import-from-derivation", "false",
		"-I", "slipway=" + snapshot,
	}
}

// env is the whole environment of Nix. It looks for settings below HOME, and
// has its temporary files there.
func (e *Evaluator) env(home string) []string {
	return append([]string{"HOME=" + home, "TMPDIR=" + home, "NIX_PATH=", "LC_ALL=C.UTF-8"}, e.config.Env...)
}

// shortNames shows the files of the snapshot and of the private folder by
// their names.
func shortNames(snapshot, folder string) *strings.Replacer {
	return strings.NewReplacer(folder+"/", "", snapshot+"/", "", snapshot, "the source")
}
