package postgres

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that PostgreSQL runs as.
type account struct {
	name     string
	uid, gid uint32
	// credential is nil where the account is the caller's own.
	credential *syscall.Credential
}

// chooseAccount is the caller, or, for root, an unprivileged user.
func chooseAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{name: "the current user", uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}, nil
	}
	var found *user.User
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			found = u
			break
		}
	}
	if found == nil {
		return account{}, fmt.Errorf("PostgreSQL does not run as root, and there is neither a user postgres nor nobody to run it as")
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("user %s: %w", found.Username, err)
	}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("user %s: %w", found.Username, err)
	}
	return account{
		name: "user " + found.Username, uid: uint32(uid), gid: uint32(gid),
		credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
	}, nil
}

// closed is the first folder, from the root down to path, that the account may
// not enter, or "". It judges by owner, group and mode; where an access list
// allows more, the answer errs towards closed.
func (a account) closed(path string) (string, error) {
	if a.credential == nil {
		return "", nil
	}
	for _, folder := range parents(path) {
		info, err := os.Stat(folder)
		if err != nil {
			return "", err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return "", fmt.Errorf("no owner known of %s", folder)
		}
		enter := stat.Mode & 0o001
		switch {
		case stat.Uid == a.uid:
			enter = stat.Mode & 0o100
		case stat.Gid == a.gid:
			enter = stat.Mode & 0o010
		}
		if enter == 0 {
			return folder, nil
		}
	}
	return "", nil
}

// parents are the folders on the way to an absolute path, and the path itself,
// from the root down.
func parents(path string) []string {
	path = filepath.Clean(path)
	if path == "/" {
		return []string{"/"}
	}
	return append(parents(filepath.Dir(path)), path)
}
