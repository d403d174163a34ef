package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// debianBinaries is where Debian keeps the binaries of each major version, out
// of the PATH.
const debianBinaries = "/usr/lib/postgresql/*/bin"

// binaries is a folder with postgres and initdb.
type binaries struct {
	folder string
	major  int
}

// findBinaries returns the binaries of a major version, or, for version 0,
// those on the PATH, else the newest that Debian has.
func findBinaries(ctx context.Context, major int) (binaries, error) {
	var folders []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// initdb and postgres must come from the same folder; a link on the PATH
		// leads to it.
		if path, err = filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(path))
		}
	}
	debian, err := filepath.Glob(debianBinaries)
	if err != nil {
		return binaries{}, err
	}
	slices.SortFunc(debian, func(a, b string) int {
		return cmp.Compare(version(filepath.Base(filepath.Dir(b))), version(filepath.Base(filepath.Dir(a))))
	})
	var found []string
	for _, folder := range append(folders, debian...) {
		if _, err := os.Stat(filepath.Join(folder, "initdb")); err != nil {
			continue
		}
		out, err := exec.CommandContext(ctx, filepath.Join(folder, "postgres"), "--version").Output()
		if err != nil {
			continue
		}
		// "postgres (PostgreSQL) 15.8 (Debian 15.8-0+deb12u1)"
		_, rest, _ := strings.Cut(string(out), "(PostgreSQL) ")
		is := version(rest)
		if is == 0 {
			continue
		}
		if major == 0 || is == major {
			return binaries{folder, is}, nil
		}
		found = append(found, strconv.Itoa(is))
	}
	if major == 0 {
		return binaries{}, errors.New("PostgreSQL is not installed: neither postgres and initdb on the PATH, nor " +
			debianBinaries + "; on Debian: apt-get install postgresql")
	}
	return binaries{}, fmt.Errorf("the data was made by PostgreSQL %d, and only these are installed: %s; "+
		"install that version or wipe the data", major, strings.Join(found, ", "))
}

// version is the major version at the start of a text, 0 where there is none.
func version(text string) int {
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(text)
	}
	n, err := strconv.Atoi(text[:end])
	if err != nil {
		return 0
	}
	return n
}
