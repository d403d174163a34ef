package tests

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "slipway.dev/slipway"

// rule says what files below a folder may not import, and why. Tests of a
// folder are free: they may use anything that helps to test it.
type rule struct {
	room string
	// not are import paths, each with everything below it, except those that
	// are listed in but.
	not, but []string
	reason   string
}

var clients = []string{
	"database/sql", "github.com/jackc", "k8s.io/client-go", "github.com/openbao", "go.temporal.io/sdk/client",
}

var rules = []rule{
	{
		room: "schema", not: append([]string{module, "net/http", "os", "os/exec", "go.temporal.io"}, clients...),
		but: []string{module + "/schema"}, reason: "schema is the leaf: shapes and pure rules, no I/O, no clients, no other room",
	},
	{
		room: "workflows", not: append([]string{"net", "os", "math/rand", "io/ioutil", module}, clients...),
		but:    []string{module + "/schema", module + "/activities"},
		reason: "a workflow decides and never does: effects are activities, of which it needs only the references",
	},
	{
		room: "api", not: append([]string{module}, slices.Delete(slices.Clone(clients), 4, 5)...),
		but:    []string{module + "/schema", module + "/api"},
		reason: "the API sees the database through narrow interfaces of its own and shares no code with activities",
	},
	{
		room: "worker", not: append([]string{module, "os/exec", "net/http"}, slices.Delete(slices.Clone(clients), 4, 5)...),
		but:    []string{module + "/schema", module + "/workflows", module + "/activities"},
		reason: "the worker registers workflows and activities; clients are built by cmd",
	},
	{
		room: "cmd/slipway", not: []string{"go.temporal.io/server", "github.com/temporalio/ui-server", module + "/cmd/slipway-dev", module + "/tests"},
		reason: "production does not link the Temporal server or anything of development and tests",
	},
	{
		room: "cmd/slipway-dev", not: []string{module},
		but:    []string{module + "/cmd/slipway-dev", module + "/schema"},
		reason: "slipway-dev runs the real program beside the servers, so that it does not have to be linked again with them",
	},
	{
		room: "", not: []string{module + "/deploy"},
		reason: "deploy is for installers; no Go code depends on it",
	},
}

// activityRooms may not import each other.
const activityRooms = "activities"

func TestRoomsKeepToTheirImports(t *testing.T) {
	root := ".."
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata" || isModule(path)) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		seen++
		check(t, path, strings.TrimPrefix(filepath.ToSlash(path), "../"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 50 {
		t.Fatalf("only %d files were looked at", seen)
	}
}

func isModule(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}

func check(t *testing.T, path, file string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, r := range rules {
			if within(file, r.room) && matches(imported, r.not) && !matches(imported, r.but) {
				t.Errorf("%s imports %s: %s", file, imported, r.reason)
			}
		}
		if within(file, activityRooms) && matches(imported, []string{module}) {
			own := module + "/" + strings.Join(strings.SplitN(file, "/", 3)[:2], "/")
			if !matches(imported, []string{own, module + "/schema"}) {
				t.Errorf("%s imports %s: activities of one system know no other system and no workflow", file, imported)
			}
		}
	}
}

func within(file, room string) bool { return room == "" || strings.HasPrefix(file, room+"/") }

func matches(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		return path == prefix || strings.HasPrefix(path, prefix+"/")
	})
}
