package main

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersionSaysWhichCommitAndWhen(t *testing.T) {
	stamped := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123abc"}, {Key: "vcs.time", Value: "2026-11-30T12:00:00Z"}, {Key: "vcs.modified", Value: "false"},
	}}
	require.Equal(t, "slipway v1.2.3 (commit 0123abc, date 2026-11-30T12:00:00Z, "+runtime.Version()+")", versionLine(stamped))
	stamped.Settings[2].Value = "true"
	require.Contains(t, versionLine(stamped), "commit 0123abc with changes,")
	require.Equal(t, "slipway development (commit unknown, date unknown, "+runtime.Version()+")",
		versionLine(&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}))
	require.Equal(t, versionLine(&debug.BuildInfo{}), versionLine(nil))
}
