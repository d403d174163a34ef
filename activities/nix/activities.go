package nix

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/wire"
)

// heartbeatEvery is well below the heartbeat timeouts of the workflows, so
// that a worker that died is noticed within seconds.
const heartbeatEvery = time.Second

// Cache keeps what evaluations gave. The store implements it.
type Cache interface {
	// Evaluation returns neither a result nor a refusal for an unknown key.
	Evaluation(ctx context.Context, key string) (json.RawMessage, *wire.Refusal, error)
	KeepEvaluation(ctx context.Context, key string, result json.RawMessage, refusal *wire.Refusal) error
}

// Sources keeps what was evaluated from a snapshot. The store implements it.
type Sources interface {
	KeepSnapshot(ctx context.Context, snapshot deployment.SourceSnapshot) error
}

// Activities are the steps of workflows that need Nix.
type Activities struct {
	Evaluator *Evaluator
	Cache     Cache
	Sources   Sources
	// SystemsTimeout bounds the evaluation of the systems of all nodes of an
	// import together.
	SystemsTimeout time.Duration
	// Entry is the file of the module source that is evaluated.
	Entry string
	// Roots is the folder of the GC roots of snapshots and their deployers.
	// They stay: a queued build may still deploy an older snapshot.
	Roots string
}

// NamesInput is a configuration and the snapshot that it is evaluated with.
type NamesInput struct {
	Snapshot string
	// Configuration is canonical JSON without secrets.
	Configuration json.RawMessage
}

// CachedNames looks up what evaluating a configuration gave before. It is
// quick.
func (a *Activities) CachedNames(ctx context.Context, in NamesInput) (wire.Evaluated, error) {
	key, err := a.key(ctx, "names", in)
	if err != nil {
		return wire.Evaluated{}, err
	}
	return a.cached(ctx, key)
}

// Names evaluates a configuration, or says NoSlot at once when all slots of
// this process are in use. A refusal of the module is a result, not an error.
func (a *Activities) Names(ctx context.Context, in NamesInput) (wire.Evaluated, error) {
	defer heartbeat(ctx)()
	key, err := a.key(ctx, "names", in)
	if err != nil {
		return wire.Evaluated{}, err
	}
	if evaluated, err := a.cached(ctx, key); err != nil || !evaluated.Missing {
		return evaluated, err
	}
	release, ok := a.Evaluator.TryAcquire()
	if !ok {
		return wire.Evaluated{NoSlot: true}, nil
	}
	names, err := a.names(ctx, in)
	release()
	var failure *Failure
	if errors.As(err, &failure) {
		refusal := refusalOf(failure)
		if failure.Lasting() {
			if err := a.Cache.KeepEvaluation(ctx, key, nil, refusal); err != nil {
				return wire.Evaluated{}, err
			}
		}
		return wire.Evaluated{Refusal: refusal}, nil
	}
	if err != nil {
		return wire.Evaluated{}, err
	}
	if err := a.Cache.KeepEvaluation(ctx, key, names, nil); err != nil {
		return wire.Evaluated{}, err
	}
	return wire.Evaluated{Key: key}, nil
}

func (a *Activities) names(ctx context.Context, in NamesInput) (json.RawMessage, error) {
	result, err := a.Evaluator.Evaluate(ctx, Request{
		Snapshot: in.Snapshot, Entry: a.Entry, Attribute: "names", Configuration: in.Configuration,
	})
	if err != nil {
		return nil, err
	}
	names, err := DecodeNames(result)
	if err != nil {
		return nil, err
	}
	return json.Marshal(names)
}

func (a *Activities) cached(ctx context.Context, key string) (wire.Evaluated, error) {
	result, refusal, err := a.Cache.Evaluation(ctx, key)
	switch {
	case err != nil:
		return wire.Evaluated{}, err
	case refusal != nil:
		return wire.Evaluated{Refusal: refusal}, nil
	case result != nil:
		return wire.Evaluated{Key: key}, nil
	default:
		return wire.Evaluated{Missing: true}, nil
	}
}

// key names an evaluation by everything that its result depends on.
func (a *Activities) key(ctx context.Context, attribute string, in NamesInput) (string, error) {
	version, err := a.Evaluator.Version(ctx)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, part := range []string{in.Snapshot, a.Entry, version, attribute, string(in.Configuration)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// refusalOf is what the caller of a submit hears of a failed evaluation.
func refusalOf(f *Failure) *wire.Refusal {
	if f.Kind == KindRefused {
		return &wire.Refusal{Type: wire.ErrorInvalidConfiguration, Message: f.Message}
	}
	return &wire.Refusal{Type: wire.ErrorEvaluationFailed, Message: f.Error()}
}

// BuildSchema evaluates what is evaluated once from a snapshot, builds its
// deployer and keeps both. Whether the snapshot is used is for the keeper of the
// source to say, for which the source may have changed meanwhile. A snapshot
// that fails does so with wire.ErrorSourceFailed or wire.ErrorSourceMayPass,
// without another try, so that the keeper hears of it at once. The evaluations
// wait for a slot; the build, which may take long, has none.
func (a *Activities) BuildSchema(ctx context.Context, in wire.SchemaBuildInput) error {
	defer heartbeat(ctx)()
	release, err := a.Evaluator.Acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	snapshot, err := a.sourceSnapshot(ctx, in, release)
	var failure *Failure
	switch {
	case IsSourceFailure(err):
		return temporal.NewNonRetryableApplicationError(err.Error(), wire.ErrorSourceFailed, nil)
	case errors.As(err, &failure):
		return temporal.NewNonRetryableApplicationError(failure.Error(), wire.ErrorSourceMayPass, nil)
	case err != nil:
		return err
	}
	return a.Sources.KeepSnapshot(ctx, snapshot)
}

// IsSourceFailure reports whether the module source is at fault, so that only
// a change of it helps.
func IsSourceFailure(err error) bool {
	var failure *Failure
	var source *SourceError
	return errors.As(err, &failure) && failure.Lasting() || errors.As(err, &source) && !source.MayPass
}

// sourceSnapshot calls evaluated when it needs its slot no more.
func (a *Activities) sourceSnapshot(ctx context.Context, in wire.SchemaBuildInput, evaluated func()) (deployment.SourceSnapshot, error) {
	out := deployment.SourceSnapshot{StorePath: in.Snapshot}
	for _, attribute := range []struct {
		name string
		into any
	}{{"schema", &out.Schema}, {"method", &out.Method}, {"methods", &out.Methods}, {"renames", &out.Renames}} {
		result, err := a.Evaluator.Evaluate(ctx, Request{Snapshot: in.Snapshot, Entry: in.Entry, Attribute: attribute.name})
		if err != nil {
			return out, err
		}
		if err := json.Unmarshal(result, attribute.into); err != nil {
			return out, &Failure{Kind: KindWrongShape, Message: fmt.Sprintf("the attribute %s has the wrong type: %v", attribute.name, err)}
		}
	}
	if _, err := configuration.Compile(out.Schema); err != nil {
		return out, &Failure{Kind: KindWrongShape, Message: err.Error()}
	}
	root := filepath.Join(a.Roots, filepath.Base(in.Snapshot))
	if err := a.Evaluator.Keep(ctx, root, in.Snapshot); err != nil {
		return out, err
	}
	var err error
	out.Deployer, err = a.Evaluator.Realise(ctx, in.Snapshot, in.Entry, root+"-deployer", evaluated)
	return out, err
}

// heartbeat tells Temporal that this worker lives until the returned function
// is called.
func heartbeat(ctx context.Context) (stop func()) {
	return heartbeatWith(ctx, func() []any { return nil })
}

// heartbeatWith also tells how far the activity is.
func heartbeatWith(ctx context.Context, progress func() []any) (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(heartbeatEvery)
		defer tick.Stop()
		for {
			activity.RecordHeartbeat(ctx, progress()...)
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}
