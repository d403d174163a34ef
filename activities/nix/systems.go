package nix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// SystemsInput is a configuration with what its names gave.
type SystemsInput struct {
	NamesInput
	// Key is where the evaluation cache has its names.
	Key string
}

// Progress is how far the evaluation of systems is, as a heartbeat tells it.
type Progress struct {
	Node string `json:"node"` // that is evaluated now
	Done int    `json:"done"`
	Of   int    `json:"of"`
}

// Systems evaluates the system of each node of a configuration, each alone, and
// says which do not evaluate. It takes one slot for all, or says NoSlot at once
// when all slots of this process are in use. What was evaluated is kept, so that
// a second try goes on where the first was.
func (a *Activities) Systems(ctx context.Context, in SystemsInput) (wire.SystemsEvaluated, error) {
	var progress atomic.Pointer[Progress]
	defer heartbeatWith(ctx, func() []any {
		if p := progress.Load(); p != nil {
			return []any{*p}
		}
		return nil
	})()
	result, _, err := a.Cache.Evaluation(ctx, in.Key)
	if err != nil {
		return wire.SystemsEvaluated{}, err
	}
	var names deployment.Names
	if err := json.Unmarshal(result, &names); err != nil {
		return wire.SystemsEvaluated{}, fmt.Errorf("read the nodes of the configuration: %w", err)
	}
	release, ok := a.Evaluator.TryAcquire()
	if !ok {
		return wire.SystemsEvaluated{NoSlot: true}, nil
	}
	defer release()
	var out wire.SystemsEvaluated
	deadline := time.Now().Add(a.SystemsTimeout)
	for i, node := range names.Nodes {
		progress.Store(&Progress{Node: node.Name, Done: i, Of: len(names.Nodes)})
		refusal, err := a.system(ctx, in.NamesInput, node.Name, time.Until(deadline))
		if err != nil {
			return wire.SystemsEvaluated{}, err
		}
		if refusal != nil {
			out.Problems = append(out.Problems, wire.NodeProblem{Node: node.Name, Refusal: *refusal})
		}
	}
	out.Broken, out.Problems = len(out.Problems), bounded(out.Problems)
	return out, nil
}

// system evaluates the system of one node within the time that is left; a
// refusal says why it does not evaluate.
func (a *Activities) system(ctx context.Context, in NamesInput, node string, left time.Duration) (*wire.Refusal, error) {
	key, err := a.key(ctx, "systems."+node, in)
	if err != nil {
		return nil, err
	}
	if known, err := a.cached(ctx, key); err != nil || !known.Missing {
		return known.Refusal, err
	}
	tooLong := &wire.Refusal{Type: wire.ErrorEvaluationFailed,
		Message: fmt.Sprintf("the systems of all nodes together took more than their limit of %g s", a.SystemsTimeout.Seconds())}
	if left <= 0 {
		return tooLong, nil
	}
	derivation, err := a.Evaluator.System(ctx, Request{
		Snapshot: in.Snapshot, Entry: a.Entry, Configuration: in.Configuration, Timeout: left,
	}, node)
	var failure *Failure
	switch {
	case errors.As(err, &failure) && failure.Kind == KindTimeout:
		return tooLong, nil
	case errors.As(err, &failure):
		refusal := refusalOf(failure)
		if failure.Lasting() {
			err = a.Cache.KeepEvaluation(ctx, key, nil, refusal)
		} else {
			err = nil
		}
		return refusal, err
	case err != nil:
		return nil, err
	}
	result, err := json.Marshal(derivation)
	if err != nil {
		return nil, err
	}
	return nil, a.Cache.KeepEvaluation(ctx, key, result, nil)
}

// System evaluates the system of one node alone and gives the path of its
// derivation. The request has the configuration and, if set, the time limit.
func (e *Evaluator) System(ctx context.Context, r Request, node string) (derivation string, err error) {
	r.Attribute, r.Select = "systems", node
	result, err := e.Evaluate(ctx, r)
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(result, &derivation); err != nil || !storeEntry.MatchString(derivation) || !strings.HasSuffix(derivation, ".drv") {
		return "", &Failure{Kind: KindWrongShape, Message: fmt.Sprintf(
			"systems.%s must be the path of a derivation (its drvPath), it is %s", node, kindOf(result))}
	}
	return derivation, nil
}

// bounded cuts the messages of problems so that all together stay within
// wire.MaxProblemBytes. Where not all can have one that says something, those
// of the first nodes do, and a last problem has the names of the others, as many
// as half of the room is for.
func bounded(problems []wire.NodeProblem) []wire.NodeProblem {
	if len(problems) == 0 {
		return nil
	}
	const (
		node  = 300 // bytes of a problem beside its message, and the least of that
		least = wire.MaxProblemBytes / (4 * node)
		comma = ", "
	)
	told, names := len(problems), 0 // names: bytes of those that are only named
	for told > least && told*2*node+names > wire.MaxProblemBytes {
		told--
		names += len(problems[told].Node) + len(comma)
	}
	names = min(names, wire.MaxProblemBytes/2)
	room := (wire.MaxProblemBytes-names)/told - node
	out := make([]wire.NodeProblem, told, told+1)
	for i, p := range problems[:told] {
		out[i] = p
		if len(p.Message) <= room {
			continue
		}
		const cut = "…"
		message := p.Message[:room-len(cut)]
		for !utf8.ValidString(message) {
			message = message[:len(message)-1]
		}
		out[i].Message = message + cut
	}
	if told == len(problems) {
		return out
	}
	var others []string
	last := wire.NodeProblem{Refusal: wire.Refusal{Type: wire.ErrorEvaluationFailed}}
	for _, p := range problems[told:] {
		if p.Type == wire.ErrorInvalidConfiguration {
			last.Type = p.Type
		}
		if names -= len(p.Node) + len(comma); names >= 0 {
			others = append(others, p.Node)
		}
	}
	what := "the system of 1 more node does not evaluate"
	if told < len(problems)-1 {
		what = fmt.Sprintf("the systems of %d more nodes do not evaluate", len(problems)-told)
	}
	last.Message = what + ": " + strings.Join(others, comma)
	if unnamed := len(problems) - told - len(others); unnamed > 0 {
		last.Message += fmt.Sprintf(" and %d others", unnamed)
	}
	return append(out, last)
}
