package nix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// snapshots keeps what was evaluated from snapshots.
type snapshots struct{ kept []deployment.SourceSnapshot }

func (s *snapshots) KeepSnapshot(_ context.Context, snapshot deployment.SourceSnapshot) error {
	s.kept = append(s.kept, snapshot)
	return nil
}

// buildSchema runs the activity on a source whose deployer is the expression.
func buildSchema(t *testing.T, a *Activities, deployer string) error {
	t.Helper()
	folder := t.TempDir()
	a.Roots = filepath.Join(t.TempDir(), "roots")
	write(t, folder, map[string]string{"slipway.nix": fmt.Sprintf(`{
		schema.type = "object"; method = null; methods = [ "vm" ]; renames = { }; deployer = %s;
	}`, deployer)})
	snapshot, err := a.Evaluator.Snapshot(t.Context(), folder, filepath.Join(a.Roots, "newest"))
	require.NoError(t, err)
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(2 * time.Minute)
	env.RegisterActivity(a)
	_, err = env.ExecuteActivity(a.BuildSchema, wire.SchemaBuildInput{Snapshot: snapshot, Entry: "slipway.nix"})
	requireNothingLeft(t, a.Evaluator)
	return err
}

// built is a derivation that the script builds.
func built(script string) string {
	return fmt.Sprintf(`derivation {
		name = "deployer"; system = builtins.currentSystem; builder = "/bin/sh"; PATH = "/usr/bin:/bin"; args = [ "-euc" %q ];
	}`, script)
}

// A deployer that takes long to build keeps nobody from evaluating.
func TestBuildingTakesNoSlot(t *testing.T) {
	t.Parallel()
	sources := &snapshots{}
	a := &Activities{Evaluator: newEvaluator(t), Sources: sources}
	folder := t.TempDir()
	begun, goOn := filepath.Join(folder, "begun"), filepath.Join(folder, "go-on")
	looked := make(chan error, 1)
	go func() {
		defer func() { _ = os.WriteFile(goOn, nil, 0o644) }()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(begun); err == nil {
				break
			}
			if time.Now().After(deadline) {
				looked <- errors.New("the build does not begin")
				return
			}
		}
		if n := a.Evaluator.InUse(); n != 0 {
			looked <- fmt.Errorf("%d slots are in use", n)
			return
		}
		looked <- nil
	}()
	require.NoError(t, buildSchema(t, a, built(fmt.Sprintf(
		`: > %s; while [ ! -e %s ]; do sleep 0.05; done; echo '#!/bin/sh' > $out; chmod 755 $out`, begun, goOn))))
	require.NoError(t, <-looked)
	require.Len(t, sources.kept, 1)
	require.FileExists(t, sources.kept[0].Deployer)
	require.Zero(t, a.Evaluator.InUse())
}

// A source that fails does so at once, with a reason for the operator; the type
// of the error says whether the same source need fail again.
func TestBuildSchemaFails(t *testing.T) {
	t.Parallel()
	sources := &snapshots{}
	a := &Activities{Evaluator: newEvaluator(t), Sources: sources}
	for _, c := range []struct {
		deployer, errorType, want string
		timeout                   time.Duration
	}{
		{`throw "it has no deployer"`, wire.ErrorSourceFailed, "it has no deployer", time.Minute},
		{built(`echo "no rope" >&2; exit 3`), wire.ErrorSourceMayPass, "the deployer does not build: ", time.Minute},
		{`builtins.genericClosure { startSet = [ { key = 0; } ]; operator = x: [ { key = x.key + 1; } ]; }`, wire.ErrorSourceMayPass, "limit of 2 s", 2 * time.Second},
	} {
		a.Evaluator.config.Timeout = c.timeout
		err := buildSchema(t, a, c.deployer)
		var application *temporal.ApplicationError
		require.ErrorAs(t, err, &application)
		require.Equal(t, c.errorType, application.Type())
		require.True(t, application.NonRetryable())
		require.Contains(t, application.Message(), c.want)
	}
	require.Empty(t, sources.kept)
}
