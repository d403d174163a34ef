package nix

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

//go:embed snapshot.nix
var snapshotExpression string

// snapshotTries is how often a snapshot is made again after a garbage
// collection took it before it had a root.
const snapshotTries = 3

// A fetch ends when the server sends fewer than stalledBytes a second for
// stalledSeconds, and in any case after fetchTimeout.
const (
	stalledBytes   = "100"
	stalledSeconds = "30"
	fetchTimeout   = 15 * time.Minute
)

// leftOut tells whether an entry of a source is not part of a snapshot, as
// snapshot.nix has it.
func leftOut(name string) bool { return name == ".git" || name == ".slipway" }

// commit is a full commit ID of git.
var commit = regexp.MustCompile(`^[0-9a-f]{40}$`)

// Snapshot copies the source, a folder or git+https://…?rev=<commit>, into the
// Nix store and gives its path. The path depends on the content alone. The
// link gcRoot is made to it, which keeps it from garbage collection. A pinned
// source is fetched once. The error is a *SourceError where the source is at
// fault.
func (e *Evaluator) Snapshot(ctx context.Context, source, gcRoot string) (storePath string, err error) {
	folder := source
	if strings.HasPrefix(source, "git+") {
		if folder, err = e.fetch(ctx, source); err != nil {
			return "", err
		}
	}
	if folder, err = sourceFolder(source, folder); err != nil {
		return "", err
	}
	for try := 1; ; try++ {
		if storePath, err = e.copyToStore(ctx, source, folder); err != nil {
			return "", err
		}
		if err = e.Keep(ctx, gcRoot, storePath); err == nil || ctx.Err() != nil || try == snapshotTries {
			return storePath, err
		}
	}
}

// sourceFolder is the folder without symbolic links, which Nix would copy as
// links.
func sourceFolder(source, folder string) (string, error) {
	resolved, err := filepath.EvalSymlinks(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &SourceError{Source: source, Reason: "there is no such folder", Err: err}
	}
	if err == nil {
		resolved, err = filepath.Abs(resolved)
	}
	if err != nil {
		return "", &SourceError{Source: source, Reason: "it cannot be read", Err: err}
	}
	if info, err := os.Stat(resolved); err != nil || !info.IsDir() {
		return "", &SourceError{Source: source, Reason: "it is not a folder", Err: err}
	}
	return resolved, nil
}

// copyToStore adds the folder to the store.
func (e *Evaluator) copyToStore(ctx context.Context, source, folder string) (string, error) {
	home, err := os.MkdirTemp(e.evaluations, scratch)
	if err != nil {
		return "", fmt.Errorf("snapshot: %w", err)
	}
	defer func() { _ = os.RemoveAll(home) }()
	out, err := e.online.run(ctx, command{
		args: []string{
			e.nixInstantiate, "--eval", "--json", "--read-write-mode",
			"--expr", snapshotExpression, "--argstr", "path", folder,
		},
		dir: home, env: e.env(home), stdout: maxOutput,
	})
	if err != nil {
		return "", fmt.Errorf("snapshot: %w", err)
	}
	if !out.state.Success() {
		return "", &SourceError{Source: source, Reason: "it cannot be copied to the Nix store: " + problem(out)}
	}
	var storePath string
	if err := json.Unmarshal(out.stdout, &storePath); err != nil {
		return "", fmt.Errorf("snapshot: read store path: %w", err)
	}
	return storePath, nil
}

// problem is what a program of Nix that failed says about it.
func problem(out output) string {
	stderr := clean(out.stderr)
	if message, found := lastError(stderr); found && message != "" {
		return message
	}
	return fmt.Sprintf("%s: %s", out.state, tail(stderr, 1024))
}

// Fingerprint changes when the source changes: it is made of the place of the
// folder and of the names, sizes, modes, inodes and times of its files, without
// reading them. Inode and change time tell what a copy that keeps sizes and
// times (rsync -t, tar, a store whose files are all of 1970) has changed. It may
// also change when the source has not, and differs between machines, so it only
// says when to take a Snapshot. The error is a *SourceError where the source is
// at fault.
func (e *Evaluator) Fingerprint(source string) (string, error) {
	h := sha256.New()
	if strings.HasPrefix(source, "git+") {
		// Pinned: what it names never changes.
		fmt.Fprint(h, source)
		return hex.EncodeToString(h.Sum(nil)), nil
	}
	folder, err := sourceFolder(source, source)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(h, "%q\n", folder)
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if leftOut(entry.Name()) && path != folder {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %v", path[len(folder):], info.Mode())
		switch {
		case info.Mode().IsRegular():
			fmt.Fprintf(h, " %d %d", info.Size(), info.ModTime().UnixNano())
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				fmt.Fprintf(h, " %d %d", stat.Ino, stat.Ctim.Nano())
			}
		case info.Mode().Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, " %q", target)
		}
		fmt.Fprintln(h)
		return nil
	})
	if err != nil {
		return "", &SourceError{Source: source, Reason: "it cannot be read", Err: err}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// fetch gives the folder of a pinned git source, which it fetches if it is not
// there yet.
func (e *Evaluator) fetch(ctx context.Context, source string) (string, error) {
	repository, revision, err := parseGit(source)
	if err != nil {
		return "", &SourceError{Source: source, Reason: err.Error()}
	}
	e.fetching.Lock()
	defer e.fetching.Unlock()
	digest := sha256.Sum256([]byte(repository + "\n" + revision))
	folder := filepath.Join(e.sources, hex.EncodeToString(digest[:16]))
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return "", fmt.Errorf("git is not in the PATH, and the source needs it: %w", err)
	}
	temporary, err := os.MkdirTemp(e.sources, scratch)
	if err != nil {
		return "", fmt.Errorf("fetch source: %w", err)
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	environment := []string{
		"HOME=" + e.config.StateDir, "PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8", "GIT_TERMINAL_PROMPT=0",
		"GIT_HTTP_LOW_SPEED_LIMIT=" + stalledBytes, "GIT_HTTP_LOW_SPEED_TIME=" + stalledSeconds,
	}
	if e.config.CAFile != "" {
		ca, err := filepath.Abs(e.config.CAFile)
		if err != nil {
			return "", fmt.Errorf("fetch source: %w", err)
		}
		environment = append(environment, "GIT_SSL_CAINFO="+ca)
	}
	cannot := func(reason string) error { return &SourceError{Source: source, Reason: reason, MayPass: true} }
	run := func(args ...string) error {
		out, err := e.online.run(ctx, command{
			args: append([]string{
				git, "-c", "protocol.allow=never", "-c", "protocol.https.allow=always", "-c", "protocol.file.allow=always",
				"-c", "core.hooksPath=/dev/null", "-c", "core.autocrlf=false", "-c", "advice.detachedHead=false",
			}, args...),
			dir: temporary, env: environment, timeout: fetchTimeout,
		})
		if errors.Is(err, errTimeLimit) {
			return cannot(fmt.Sprintf("git cannot fetch it within %s", fetchTimeout))
		}
		if err != nil {
			return fmt.Errorf("fetch source: %w", err)
		}
		said := tail(clean(out.stderr), 1024)
		switch {
		case out.state.Success():
			return nil
		case strings.Contains(said, "certificate"):
			return cannot("the certificate of its server is not trusted (SLIPWAY_SOURCE_CA_FILE names the certificates to trust): " + said)
		}
		return cannot("git cannot fetch it: " + said)
	}
	if err := run("init", "--quiet"); err != nil {
		return "", err
	}
	// Not every server gives a commit that it is asked for by its ID.
	if run("fetch", "--quiet", "--depth", "1", repository, revision) != nil {
		if err := run("fetch", "--quiet", repository, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"); err != nil {
			return "", err
		}
	}
	var missing *SourceError
	if err := run("cat-file", "-e", revision+"^{commit}"); errors.As(err, &missing) {
		return "", cannot("the repository has no commit " + revision + " on a branch or tag")
	} else if err != nil {
		return "", err
	}
	if err := run("checkout", "--quiet", "--detach", revision); err != nil {
		return "", err
	}
	if err := os.RemoveAll(filepath.Join(temporary, ".git")); err != nil {
		return "", fmt.Errorf("fetch source: %w", err)
	}
	if err := os.Rename(temporary, folder); err != nil {
		if _, there := os.Stat(folder); there != nil {
			return "", fmt.Errorf("fetch source: %w", err)
		}
		// Another process was faster, with the same commit.
	}
	return folder, nil
}

// parseGit reads git+https://host/path?rev=<commit>. git+file is for
// repositories on this machine.
func parseGit(source string) (repository, revision string, err error) {
	u, err := url.Parse(strings.TrimPrefix(source, "git+"))
	if err != nil {
		return "", "", errors.New("it is not a URL")
	}
	if u.Scheme != "https" && u.Scheme != "file" {
		return "", "", errors.New("it must be a folder or begin with git+https://")
	}
	if u.User != nil {
		return "", "", errors.New("it must not contain a user or a password: they belong in the .netrc of the state folder")
	}
	query := u.Query()
	revision = query.Get("rev")
	if len(query) != 1 || len(query["rev"]) != 1 || !commit.MatchString(revision) || u.Fragment != "" {
		return "", "", errors.New("it must be pinned by ?rev= with a full commit ID, and nothing else")
	}
	u.RawQuery = ""
	return u.String(), revision, nil
}
