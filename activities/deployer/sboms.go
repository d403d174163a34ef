package deployer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/sbom"
)

// sbomFolder is SBOM_OUT_DIR in the working folder.
const sbomFolder = "sbom"

// stageSBOMs hands the SBOMs that a deploy left to the journal. No process of
// the deployer is left, so nobody changes the files meanwhile. Whatever is wrong
// with a file is the problem of its node, and whatever is wrong with the list a
// line of the log: the deploy has succeeded all the same.
func (s *supervisor) stageSBOMs(ctx context.Context) {
	folder, err := os.OpenFile(s.order.Folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err == nil {
		defer func() { _ = folder.Close() }()
		folder, err = openAt(folder, sbomFolder, unix.O_DIRECTORY)
	}
	if err != nil {
		s.log.note("no SBOM changes: SBOM_OUT_DIR cannot be opened: %s", err)
		return
	}
	defer func() { _ = folder.Close() }()
	list, err := readFile(folder, sbom.ListFile, sbom.MaxListSize)
	if errors.Is(err, sbom.ErrMissing) {
		return
	}
	var entries []sbom.Entry
	if err == nil {
		entries, err = sbom.DecodeList(list)
	}
	if err != nil {
		s.log.note("no SBOM changes: %s: %s", sbom.ListFile, err)
		return
	}
	reader := sbom.NewReader()
	for i := range entries {
		e := &entries[i]
		if e.File == "" {
			continue
		}
		if err := s.stageSBOM(ctx, folder, *e, reader); err != nil {
			e.Problem = err.Error()
			s.log.note("node %s has no SBOM: %s: %s", e.Node, e.File, err)
		}
	}
	err = s.persist(ctx, s.order.Limits.Call, func(ctx context.Context) error {
		return s.fence.journal.StageSBOMs(ctx, s.fence.ref, s.fence.id, entries)
	})
	if err != nil {
		s.log.note("no SBOM changes: %s", err)
	}
}

// errNotStored does not tell what the database said, which is not for the users
// of a deployment.
var errNotStored = errors.New("slipway could not store the SBOM")

func (s *supervisor) stageSBOM(ctx context.Context, folder *os.File, e sbom.Entry, reader *sbom.Reader) error {
	text, err := readFile(folder, e.File, sbom.MaxSize)
	if err != nil {
		return err
	}
	document, err := reader.Read(text)
	if err != nil {
		return err
	}
	err = s.persist(ctx, s.order.Limits.StageSBOM, func(ctx context.Context) error {
		return s.fence.journal.StageSBOM(ctx, s.fence.ref, s.fence.id, e.Node, document)
	})
	if err != nil {
		return errNotStored
	}
	return nil
}

// persist makes a call of the journal until it succeeds. It gives up where the
// build is another's, when ctx ends, and, like the log, when the database
// answers otherwise.
func (s *supervisor) persist(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	since := time.Now()
	for {
		call, cancel := context.WithTimeout(ctx, limit)
		err := do(call)
		cancel()
		if err == nil || errors.Is(err, deployment.ErrFenced) {
			return err
		}
		if time.Since(since) > s.order.Limits.LogPatience && s.fence.held() || pause(ctx, retryDelay) != nil {
			return err
		}
	}
}

// openAt opens what is in a folder itself, without waiting for the other end of
// a pipe or a device.
func openAt(folder *os.File, name string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Openat(int(folder.Fd()), name, flags|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// readFile reads a regular file of a folder that has at most limit bytes. Its
// errors are for a person.
func readFile(folder *os.File, name string, limit int) ([]byte, error) {
	// What it is comes before it is opened: opening a device can do something.
	var stat unix.Stat_t
	err := unix.Fstatat(int(folder.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, sbom.ErrMissing
	case err != nil:
		return nil, fmt.Errorf("the file cannot be read: %w", err)
	case stat.Mode&unix.S_IFMT == unix.S_IFLNK:
		return nil, sbom.ErrSymlink
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, sbom.ErrNotAFile
	case stat.Size > int64(limit):
		return nil, tooLarge(limit)
	}
	file, err := openAt(folder, name, 0)
	if err != nil {
		return nil, fmt.Errorf("the file cannot be read: %w", err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("the file cannot be read: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, sbom.ErrNotAFile
	}
	if info.Size() > int64(limit) {
		return nil, tooLarge(limit)
	}
	text := make([]byte, info.Size()+1) // one more than it has, to see its end
	n, err := io.ReadFull(file, text)
	switch {
	case err == nil:
		return nil, errors.New("the file grew while it was read")
	case !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("the file cannot be read: %w", err)
	}
	return text[:n], nil
}

func tooLarge(limit int) error {
	if limit == sbom.MaxSize {
		return sbom.ErrTooLarge
	}
	return fmt.Errorf("the file is larger than %d MiB", limit>>20)
}
