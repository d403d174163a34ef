package workflows

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"slipway.dev/slipway/schema/deployment"
)

// options is every function of options.go that gives a step its options.
func options() (local, remote map[string]func(workflow.Context) workflow.Context) {
	type with = func(ctx workflow.Context, summary string) workflow.Context
	of := func(f with) func(workflow.Context) workflow.Context {
		return func(ctx workflow.Context) workflow.Context { return f(ctx, "summary") }
	}
	tries := func(n int32, again time.Duration) with {
		return func(ctx workflow.Context, summary string) workflow.Context { return deploying(ctx, n, again, summary) }
	}
	return map[string]func(workflow.Context) workflow.Context{
			"onRequest": of(onRequest),
			"atOnce":    of(atOnce),
		}, map[string]func(workflow.Context) workflow.Context{
			"calling":               of(calling),
			"lasting":               of(lasting),
			"waiting":               of(waiting),
			"evaluating":            of(evaluating),
			"evaluatingSystems":     of(evaluatingSystems),
			"buildingSchema":        of(buildingSchema),
			"deploying":             of(tries(deployTries, deployAgain)),
			"deploying for destroy": of(tries(destroyTries, destroyAgain)),
			"tending":               of(tending),
			"takingSecrets":         of(takingSecrets),
			"readingSecrets":        of(readingSecrets),
			"writingSecrets":        of(writingSecrets),
			"deletingSecrets":       of(deletingSecrets),
		}
}

// inWorkflow calls f with the context of a workflow. f must return, so it
// asserts and does not require.
func inWorkflow(t *testing.T, f func(ctx workflow.Context)) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.ExecuteWorkflow(func(ctx workflow.Context) error { f(ctx); return nil })
	require.NoError(t, env.GetWorkflowError())
}

// A step has an end whatever happens: a limit for everything, or one for each
// of a limited number of tries.
func TestOptionsAreBounded(t *testing.T) {
	local, remote := options()
	inWorkflow(t, func(ctx workflow.Context) {
		for name, with := range local {
			o := workflow.GetLocalActivityOptions(with(ctx))
			assert.NotNil(t, o.RetryPolicy, name)
			assert.Positive(t, o.StartToCloseTimeout, name)
			assert.Positive(t, o.RetryPolicy.MaximumAttempts, name)
			assert.Less(t, limit(o.ScheduleToCloseTimeout, o.StartToCloseTimeout, o.RetryPolicy.MaximumAttempts), 10*time.Second,
				"%s: a local activity ends within a workflow task", name)
			assert.Equal(t, "summary", o.Summary, name)
		}
		for name, with := range remote {
			o := workflow.GetActivityOptions(with(ctx))
			assert.NotNil(t, o.RetryPolicy, name)
			assert.Positive(t, o.StartToCloseTimeout, name)
			assert.Positive(t, limit(o.ScheduleToCloseTimeout, o.StartToCloseTimeout, o.RetryPolicy.MaximumAttempts), "%s has no end", name)
			assert.NotEmpty(t, o.TaskQueue, name)
			assert.Equal(t, "summary", o.Summary, name)
			if o.StartToCloseTimeout > time.Minute {
				assert.Positive(t, o.HeartbeatTimeout, "%s is long: a lost worker must be noticed", name)
			}
		}
	})
}

// limit is the longest that a step can run, pauses between tries left out; 0
// where there is no limit.
func limit(whole, each time.Duration, tries int32) time.Duration {
	all := each * time.Duration(tries)
	if whole > 0 && (all == 0 || whole < all) {
		return whole
	}
	return all
}

// Every step gets its options from a function of options.go, by name and at
// the call, and every such function is tested here.
func TestEveryStepHasOptions(t *testing.T) {
	local, remote := options()
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	used := map[string]bool{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			function, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			known := local
			switch function.Sel.Name {
			case "ExecuteActivity":
				known = remote
			case "ExecuteLocalActivity":
			case "WithActivityOptions", "WithLocalActivityOptions":
				require.Equal(t, "options.go", name)
				return true
			default:
				return true
			}
			with, ok := call.Args[0].(*ast.CallExpr)
			require.True(t, ok, "%s: a step without options", fset.Position(call.Pos()))
			option := with.Fun.(*ast.Ident).Name
			require.Contains(t, known, option, fset.Position(call.Pos()))
			used[option] = true
			return true
		})
	}
	for _, option := range slices.Concat(slices.Collect(maps.Keys(local)), slices.Collect(maps.Keys(remote))) {
		require.True(t, used[strings.Fields(option)[0]], "%s is not used", option)
	}
}

// A step that must happen is tried until it does, and a deployer that is asked
// to stop is waited for.
func TestOptionsThatTheStoryNeeds(t *testing.T) {
	inWorkflow(t, func(ctx workflow.Context) {
		assert.Zero(t, workflow.GetActivityOptions(lasting(ctx, "")).RetryPolicy.MaximumAttempts)
		assert.Zero(t, workflow.GetActivityOptions(waiting(ctx, "")).RetryPolicy.MaximumAttempts)
		deploy := workflow.GetActivityOptions(deploying(ctx, deployTries, deployAgain, ""))
		assert.EqualValues(t, 3, deploy.RetryPolicy.MaximumAttempts)
		assert.True(t, deploy.WaitForCancellation)
		destroy := workflow.GetActivityOptions(deploying(ctx, destroyTries, destroyAgain, ""))
		assert.EqualValues(t, 3, destroy.RetryPolicy.MaximumAttempts)
		assert.True(t, destroy.WaitForCancellation)
		assert.Greater(t, destroy.HeartbeatTimeout+destroy.RetryPolicy.InitialInterval, deployment.FenceLife,
			"the fence of a lost machine lapses before the next try")
	})
}
