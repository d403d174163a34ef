package postgres

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClosedNamesTheFirstFolderThatTheAccountMayNotEnter(t *testing.T) {
	// t.TempDir is below a folder of mode 0700.
	private := filepath.Dir(t.TempDir())
	folder := filepath.Join(private, "a", "b")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	info, err := os.Stat(folder)
	require.NoError(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	other := account{uid: owner.Uid + 1, gid: owner.Gid + 1, credential: &syscall.Credential{}}

	require.NoError(t, os.Chmod(private, 0o700))
	closed, err := other.closed(folder)
	require.NoError(t, err)
	require.Equal(t, private, closed)

	// Entering needs no right to list.
	require.NoError(t, os.Chmod(private, 0o711))
	closed, err = other.closed(folder)
	require.NoError(t, err)
	require.Empty(t, closed)

	// Group and owner have only their own rights.
	require.NoError(t, os.Chmod(private, 0o701))
	member := account{uid: owner.Uid + 1, gid: owner.Gid, credential: &syscall.Credential{}}
	closed, err = member.closed(folder)
	require.NoError(t, err)
	require.Equal(t, private, closed)

	// Whoever runs as itself is not judged.
	closed, err = account{}.closed(folder)
	require.NoError(t, err)
	require.Empty(t, closed)
}

func TestVersion(t *testing.T) {
	for text, want := range map[string]int{
		"15.8 (Debian 15.8-0+deb12u1)\n": 15, "17": 17, "17\n": 17, "18beta1": 18, "devel": 0, "": 0,
	} {
		require.Equal(t, want, version(text), "%q", text)
	}
}
