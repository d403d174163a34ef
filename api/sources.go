package api

import (
	"context"
	"encoding/json"
	"errors"

	"k8s.io/utils/lru"

	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
)

// keptSources is how many snapshots of the module source are kept compiled:
// those that deployments were recorded with of late.
const keptSources = 64

// sources are the snapshots of the module source that builds were recorded
// with. A snapshot never changes.
type sources struct {
	reader Reader
	kept   *lru.Cache // store path → *configuration.Source
}

func newSources(reader Reader) *sources { return &sources{reader, lru.New(keptSources)} }

// of is the snapshot at a store path; nil where nothing can be read by it.
func (s *sources) of(ctx context.Context, storePath string) (*configuration.Source, error) {
	if source, ok := s.known(storePath); ok {
		return source, nil
	}
	snapshot, err := s.reader.SourceSnapshot(ctx, storePath)
	if errors.Is(err, deployment.ErrUnknown) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	schema, err := configuration.Compile(snapshot.Schema)
	if err != nil {
		return nil, nil // no build was ever recorded with it
	}
	source := &configuration.Source{Schema: schema, Method: snapshot.Method, Methods: snapshot.Methods}
	s.kept.Add(storePath, source)
	return source, nil
}

// known is the snapshot at a store path where it was read before.
func (s *sources) known(storePath string) (source *configuration.Source, ok bool) {
	kept, ok := s.kept.Get(storePath)
	source, _ = kept.(*configuration.Source)
	return source, ok
}

// current is the module source that submits are checked against.
type current struct {
	configuration.Source
	snapshot string
	renames  configuration.Renames
}

func (a *api) current(ctx context.Context) (current, error) {
	source, err := a.source(ctx)
	if err != nil {
		return current{}, err
	}
	c := current{Source: configuration.Source{Method: source.Method, Methods: source.Methods}, snapshot: source.Snapshot}
	c.Schema, err = a.schemas.compile(source.Schema)
	if err == nil && len(source.Renames) > 0 {
		err = json.Unmarshal(source.Renames, &c.renames)
	}
	if err != nil {
		return current{}, notEvaluated(err)
	}
	return c, nil
}
