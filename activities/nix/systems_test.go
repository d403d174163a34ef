package nix

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"slipway.dev/slipway/schema/wire"
)

// memory is a cache.
type memory struct {
	mu      sync.Mutex
	results map[string]json.RawMessage
	refused map[string]*wire.Refusal
	kept    int
}

func (m *memory) Evaluation(_ context.Context, key string) (json.RawMessage, *wire.Refusal, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.results[key], m.refused[key], nil
}

func (m *memory) KeepEvaluation(_ context.Context, key string, result json.RawMessage, refusal *wire.Refusal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept++
	if refusal != nil {
		m.refused[key] = refusal
	} else {
		m.results[key] = result
	}
	return nil
}

// controlled are activities on the controlled source of the tests of the whole.
func controlled(t *testing.T) (*Activities, *memory, string) {
	t.Helper()
	source, err := filepath.Abs("../../tests/sources/controlled")
	require.NoError(t, err)
	e := newEvaluator(t)
	cache := &memory{results: map[string]json.RawMessage{}, refused: map[string]*wire.Refusal{}}
	return &Activities{Evaluator: e, Cache: cache, Entry: "slipway.nix", SystemsTimeout: time.Minute}, cache, source
}

// do runs an activity in an environment of its own.
func do[T any](t *testing.T, a *Activities, activity, in any) (out T) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetTestTimeout(2 * time.Minute)
	env.RegisterActivity(a)
	value, err := env.ExecuteActivity(activity, in)
	require.NoError(t, err)
	require.NoError(t, value.Get(&out))
	requireNothingLeft(t, a.Evaluator)
	return out
}

// systems evaluates the names of a configuration, then the systems.
func systems(t *testing.T, a *Activities, snapshot, configuration string) wire.SystemsEvaluated {
	t.Helper()
	names := NamesInput{Snapshot: snapshot, Configuration: json.RawMessage(configuration)}
	evaluated := do[wire.Evaluated](t, a, a.Names, names)
	require.NotEmpty(t, evaluated.Key, "%+v", evaluated.Refusal)
	return do[wire.SystemsEvaluated](t, a, a.Systems, SystemsInput{NamesInput: names, Key: evaluated.Key})
}

func TestSystems(t *testing.T) {
	t.Parallel()
	a, cache, snapshot := controlled(t)
	require.Equal(t, wire.SystemsEvaluated{}, systems(t, a, snapshot, `{"test":{"domain":"a.example","systems":{"db":"good"}}}`))

	const broken = `{"test":{"domain":"a.example","systems":{"a":"refuse","b":"good","c":"shape","d":"missing"}}}`
	want := []wire.NodeProblem{
		{Node: "a", Refusal: wire.Refusal{Type: wire.ErrorInvalidConfiguration, Message: "the node a has no disk"}},
		{Node: "c", Refusal: wire.Refusal{Type: wire.ErrorEvaluationFailed, Message: "systems.c must be the path of a derivation (its drvPath), it is an attribute set"}},
		{Node: "d", Refusal: wire.Refusal{Type: wire.ErrorEvaluationFailed, Message: `the source has no attribute "systems.d"`}},
	}
	require.Equal(t, wire.SystemsEvaluated{Problems: want, Broken: 3}, systems(t, a, snapshot, broken), "each node has its own error")
	kept := cache.kept
	require.Equal(t, want, systems(t, a, snapshot, broken).Problems)
	require.Equal(t, kept, cache.kept, "nothing was evaluated again")

	release, err := a.Evaluator.Acquire(t.Context())
	require.NoError(t, err)
	defer release()
	other, ok := a.Evaluator.TryAcquire()
	require.True(t, ok)
	defer other()
	const known = `{"test":{"domain":"a.example","systems":{"db":"good"}}}`
	require.Equal(t, wire.SystemsEvaluated{NoSlot: true}, systems(t, a, snapshot, known))
}

// The time is for all nodes together.
func TestSystemsTimeout(t *testing.T) {
	t.Parallel()
	a, cache, snapshot := controlled(t)
	a.SystemsTimeout = 4 * time.Second
	out := systems(t, a, snapshot, `{"test":{"domain":"a.example","systems":{"a":"good","b":"slow"}}}`)
	tooLong := wire.Refusal{Type: wire.ErrorEvaluationFailed, Message: "the systems of all nodes together took more than their limit of 4 s"}
	require.Equal(t, []wire.NodeProblem{{Node: "b", Refusal: tooLong}, {Node: "web", Refusal: tooLong}}, out.Problems)
	require.Empty(t, cache.refused, "time is not remembered")
}

func TestProblemsAreBounded(t *testing.T) {
	t.Parallel()
	broken := func(nodes int, name string) (problems []wire.NodeProblem) {
		for i := range nodes {
			problems = append(problems, wire.NodeProblem{
				Node: fmt.Sprintf(name, i), Refusal: wire.Refusal{Type: wire.ErrorEvaluationFailed, Message: strings.Repeat("ä", messageLimit/2)},
			})
		}
		problems[nodes-1].Type = wire.ErrorInvalidConfiguration
		return problems
	}
	const long, short = "node-%0120d", "node-%04d"
	for _, c := range []struct {
		nodes      int
		name       string
		told, more int    // with a message of their own, and those without that are named
		last       string // what the last problem says
	}{
		{1, long, 1, 0, ""},
		{10, long, 10, 0, ""},
		{81, long, 81, 0, ""},
		{82, short, 81, 1, "the system of 1 more node does not evaluate: node-0081"},
		{100, long, 77, 23, "the systems of 23 more nodes do not evaluate: "},
		{100, short, 81, 19, "the systems of 19 more nodes do not evaluate: node-0081, node-0082, "},
		{1000, short, 64, 936, "the systems of 936 more nodes do not evaluate: "},
		{1000, long, 40, 193, " and 767 others"},
		{9000, short, 40, 2234, " and 6726 others"},
	} {
		problems := broken(c.nodes, c.name)
		out := bounded(problems)
		text, err := json.Marshal(out)
		require.NoError(t, err)
		require.Less(t, len(text), wire.MaxProblemBytes+2048)
		require.True(t, utf8.Valid(text))
		require.Equal(t, wire.ErrorInvalidConfiguration, out[len(out)-1].Type, "a refusal of the module outweighs a limit")
		if c.last != "" {
			require.Empty(t, out[len(out)-1].Node)
			require.Contains(t, out[len(out)-1].Message, c.last)
		}
		require.Len(t, out, c.told+min(c.more, 1), "%d", c.nodes)
		for i, p := range problems[:c.told] {
			require.Equal(t, p.Node, out[i].Node)
			require.Greater(t, len(out[i].Message), 250)
		}
		for _, p := range problems[c.told : c.told+c.more] {
			require.Contains(t, out[len(out)-1].Message, p.Node)
		}
		require.Equal(t, broken(c.nodes, c.name), problems)
	}
	one := []wire.NodeProblem{{Node: "a", Refusal: wire.Refusal{Message: "short"}}}
	require.Equal(t, one, bounded(one))
	require.Nil(t, bounded(nil))
}
