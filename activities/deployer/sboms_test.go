package deployer

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/sbom"
)

const goodSBOM = `{ "bomFormat":"CycloneDX", "specVersion":"1.6", "components":[ {"name":"a","n":1.0} ] }`

func TestSBOMsAreStaged(t *testing.T) {
	h := newHarness(t)
	b := h.ended(t, h.activities(), deploy(`
		cd $SBOM_OUT_DIR
		echo '{"nodes":[{"name":"web","changed":true,"sbom":"web.cdx.json","reason":null},
			{"name":"db","changed":false,"sbom":null},{"name":"mail","changed":true,"sbom":null,"reason":"the SBOM timed out"}]}' > nodes.json
		printf '%s' '`+goodSBOM+`' > web.cdx.json`))
	require.Equal(t, deployment.Exit{}, *b.exit)
	require.Equal(t, map[string][]byte{"web": []byte(goodSBOM)}, b.sboms)
	require.Equal(t, []sbom.Entry{
		{Node: "web", Changed: true, File: "web.cdx.json"}, {Node: "db"}, {Node: "mail", Changed: true, Problem: "the SBOM timed out"},
	}, b.entries)
	require.Empty(t, string(b.log))
}

// Every way in which a file is no SBOM is the reason of its node, the rest is
// staged, and the deploy succeeds.
func TestBadFilesAreReasons(t *testing.T) {
	h := newHarness(t)
	outside := filepath.Join(h.out, "outside.json")
	require.NoError(t, os.WriteFile(outside, []byte(goodSBOM), 0o644))
	files := []struct{ node, make, file, want string }{
		{"good", `printf '%s' '` + goodSBOM + `' > good`, "good", ""},
		{"missing", "", "missing", sbom.ErrMissing.Error()},
		{"large", "truncate -s 67108865 large", "large", sbom.ErrTooLarge.Error()},
		{"text", "echo hello > text", "text", sbom.ErrNotJSON.Error()},
		{"empty", ": > empty", "empty", sbom.ErrNotJSON.Error()},
		{"spdx", `echo '{"spdxVersion":"SPDX-2.3"}' > spdx`, "spdx", sbom.ErrNotCycloneDX.Error()},
		{"mistyped", `echo '{"bomFormat":"CycloneDX","specVersion":"1.6","components":{}}' > mistyped`, "mistyped", sbom.ErrNotCycloneDX.Error()},
		{"version", `echo '{"bomFormat":"CycloneDX","specVersion":"9.0"}' > version`, "version", sbom.ErrVersion.Error()},
		{"parent", "", "../configuration.json", sbom.ErrOutside.Error()},
		{"absolute", "", outside, sbom.ErrOutside.Error()},
		{"below", "mkdir below; cp good below/", "below/good", sbom.ErrOutside.Error()},
		{"link", "ln -s " + outside + " link", "link", sbom.ErrSymlink.Error()},
		{"inner", "ln -s good inner", "inner", sbom.ErrSymlink.Error()},
		{"folder", "mkdir folder", "folder", sbom.ErrNotAFile.Error()},
		{"pipe", "mkfifo pipe", "pipe", sbom.ErrNotAFile.Error()},
		{"socket", `python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")' || mkfifo socket`, "socket", sbom.ErrNotAFile.Error()},
	}
	if os.Getuid() == 0 {
		files = append(files, struct{ node, make, file, want string }{"device", "mknod device c 1 5 || mkfifo device", "device", sbom.ErrNotAFile.Error()})
	}
	script, list := "cd $SBOM_OUT_DIR\n", ""
	for i, f := range files {
		script += f.make + "\n"
		if i > 0 {
			list += ","
		}
		list += `{"name":"` + f.node + `","changed":true,"sbom":"` + f.file + `"}`
	}
	b := h.ended(t, h.activities(), deploy(script+"echo '{\"nodes\":["+list+"]}' > nodes.json"))
	require.Equal(t, deployment.Exit{}, *b.exit)
	require.Equal(t, map[string][]byte{"good": []byte(goodSBOM)}, b.sboms)
	require.Len(t, b.entries, len(files))
	for i, f := range files {
		require.Equal(t, f.node, b.entries[i].Node)
		if f.want == "" {
			require.Empty(t, b.entries[i].Problem)
			continue
		}
		require.Contains(t, b.entries[i].Problem, f.want, f.node)
	}
	require.Contains(t, string(b.log), "[node pipe has no SBOM: pipe: "+sbom.ErrNotAFile.Error()+"]\n")
}

func TestNothingIsStaged(t *testing.T) {
	for name, test := range map[string]struct{ script, log string }{
		"no list":                 {`echo '` + goodSBOM + `' > web.json`, ""},
		"a failed deploy":         {`echo '{"nodes":[]}' > nodes.json; exit 1`, ""},
		"a list that is bad":      {`echo '{"nodes":[{}]}' > nodes.json`, "[no SBOM changes: nodes.json: nodes[0] has no name]\n"},
		"a list that is a link":   {`echo '{"nodes":[]}' > x; ln -s x nodes.json`, "[no SBOM changes: nodes.json: " + sbom.ErrSymlink.Error() + "]\n"},
		"a list that is large":    {`truncate -s 1048577 nodes.json`, "[no SBOM changes: nodes.json: the file is larger than 1 MiB]\n"},
		"a list that is a pipe":   {`mkfifo nodes.json`, "[no SBOM changes: nodes.json: " + sbom.ErrNotAFile.Error() + "]\n"},
		"a folder that is a link": {`echo '{"nodes":[]}' > $OUT/nodes.json; rm -r $SBOM_OUT_DIR; ln -s $OUT $SBOM_OUT_DIR`, "[no SBOM changes: SBOM_OUT_DIR cannot be opened: not a directory]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			b := h.ended(t, h.activities(), deploy("cd $SBOM_OUT_DIR\n"+test.script))
			require.Nil(t, b.entries)
			require.Empty(t, b.sboms)
			require.Equal(t, test.log, string(b.log))
		})
	}
	t.Run("a destroy", func(t *testing.T) {
		h := newHarness(t)
		h.memory.builds[ref] = &memoryBuild{action: deployment.ActionDestroy}
		job := deploy(`echo '{"nodes":[]}' > $SBOM_OUT_DIR/nodes.json`)
		job.Action = deployment.ActionDestroy
		require.Nil(t, h.ended(t, h.activities(), job).entries)
	})
	t.Run("an empty list is one", func(t *testing.T) {
		h := newHarness(t)
		b := h.ended(t, h.activities(), deploy(`echo '{"nodes":[]}' > $SBOM_OUT_DIR/nodes.json`))
		require.Equal(t, []sbom.Entry{}, b.entries)
	})
}

const withSBOM = `
	echo '{"nodes":[{"name":"web","changed":true,"sbom":"web"}]}' > $SBOM_OUT_DIR/nodes.json
	printf '%s' '` + goodSBOM + `' > $SBOM_OUT_DIR/web
	`

// The database loses answers, and is away when the deployer has ended.
func TestSBOMsOutliveAnAbsentDatabase(t *testing.T) {
	h := newHarness(t)
	h.memory.loses = 3
	a := h.activities()
	wait := h.started(t, t.Context(), a, deploy(withSBOM+`touch $OUT/ready; until test -e $OUT/go; do sleep 0.02; done`))
	h.memory.goAway(2 * time.Second)
	require.NoError(t, os.WriteFile(h.path("go"), nil, 0o644))
	require.NoError(t, wait())
	b := h.memory.build(ref)
	require.Equal(t, deployment.Exit{}, *b.exit)
	require.True(t, bytes.Equal([]byte(goodSBOM), b.sboms["web"]))
	require.Len(t, b.entries, 1)
}

// A database that answers and does not take the SBOM does not hold up the end.
func TestSBOMThatCannotBeStoredIsAReason(t *testing.T) {
	h := newHarness(t)
	h.memory.refused = errors.New("a secret of the database")
	a := h.activities()
	a.Limits.LogPatience = 200 * time.Millisecond
	b := h.ended(t, a, deploy(withSBOM))
	require.Equal(t, deployment.Exit{}, *b.exit)
	require.Equal(t, []sbom.Entry{{Node: "web", Changed: true, File: "web", Problem: errNotStored.Error()}}, b.entries)
}

// When the worker dies and its deployer succeeds, the SBOMs are staged all the
// same, and before the exit.
func TestSBOMsAreStagedWithoutTheWorker(t *testing.T) {
	h := newHarness(t)
	h.killWorker(t, withSBOM+`trap 'exit 0' TERM; touch $OUT/ready; while :; do sleep 0.01; done`)
	require.Eventually(t, func() bool { return h.memory.build(ref).exit != nil }, 20*time.Second, 10*time.Millisecond)
	b := h.memory.build(ref)
	require.Equal(t, deployment.Exit{}, *b.exit)
	require.Contains(t, b.sboms, "web")
	require.Len(t, b.entries, 1)
}
