package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"k8s.io/utils/lru"

	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
)

// shown is a Reader of what is shown: with the facts of each deployment (seed B,
// "What a configuration serves"), and without values that are secret today. A
// configuration that was recorded with an older module source may hold a value
// that is a secret by today's schema (seed B, "Secrets of the operator"); the
// stored one keeps it, for the next submit to move. Its facts are those by the
// schema that it was recorded with.
type shown struct {
	Reader
	schemas *schemas
	sources *sources
	facts   facts
}

func (s shown) Deployment(ctx context.Context, id string) (deployment.Deployment, error) {
	d, err := s.Reader.Deployment(ctx, id)
	if err == nil {
		err = s.complete(ctx, &d)
	}
	return d, err
}

func (s shown) Snapshot(ctx context.Context, id string) (deployment.Snapshot, error) {
	d, err := s.Reader.Snapshot(ctx, id)
	if err == nil {
		err = s.complete(ctx, &d.Deployment)
	}
	return d, err
}

func (s shown) complete(ctx context.Context, d *deployment.Deployment) error {
	used := map[string]*configuration.Source{}
	for _, snapshot := range recordedWith(*d) {
		source, err := s.sources.of(ctx, snapshot)
		if err != nil {
			return err
		}
		used[snapshot] = source
	}
	if err := s.describe(d, used); err != nil || !d.Older {
		return err
	}
	schema, err := s.schema(ctx)
	if err == nil && schema != nil {
		d.Configuration, err = schema.Mask(d.Configuration)
	}
	return err
}

// errNotRead: a row needs a snapshot that was not read yet.
var errNotRead = errors.New("the snapshot of a deployment was not read yet")

// Deployments reads the snapshots that the rows need between two reads of rows,
// and never within one: a request that needed two connections at once could
// wait for itself.
func (s shown) Deployments(ctx context.Context, ids []string, yield func(deployment.Deployment) error) error {
	schema, err := s.schema(ctx)
	if err != nil {
		return err
	}
	used := map[string]*configuration.Source{}
	for {
		next, missing := 0, ""
		err := s.Reader.Deployments(ctx, ids, func(d deployment.Deployment) error {
			for _, snapshot := range recordedWith(d) {
				if _, ok := used[snapshot]; ok {
					continue
				}
				source, ok := s.sources.known(snapshot)
				if !ok {
					missing = snapshot
					return errNotRead
				}
				used[snapshot] = source
			}
			if err := s.describe(&d, used); err != nil {
				return err
			}
			if d.Older && schema != nil {
				var err error
				if d.Configuration, err = schema.Mask(d.Configuration); err != nil {
					return err
				}
			}
			for ids[next] != d.ID { // rows keep the order of ids
				next++
			}
			next++
			return yield(d)
		})
		if !errors.Is(err, errNotRead) {
			return err
		}
		if used[missing], err = s.sources.of(ctx, missing); err != nil {
			return err
		}
		ids = ids[next:]
	}
}

func (s shown) Build(ctx context.Context, ref deployment.Ref) (deployment.Build, error) {
	b, err := s.Reader.Build(ctx, ref)
	if err != nil || !b.Older || b.Configuration == nil {
		return b, err
	}
	schema, err := s.schema(ctx)
	if err == nil && schema != nil {
		b.Configuration, err = schema.Mask(b.Configuration)
	}
	return b, err
}

// schema is that of today; nil where there is none that marks anything.
func (s shown) schema(ctx context.Context) (*configuration.Schema, error) {
	source, err := s.Source(ctx)
	if err != nil || len(source.Schema) == 0 {
		return nil, err
	}
	// One that does not compile marks nothing; submits say so.
	schema, _ := s.schemas.compile(source.Schema)
	return schema, nil
}

// recordedWith are the snapshots that the configurations of a deployment are
// read by.
func recordedWith(d deployment.Deployment) []string {
	var snapshots []string
	if d.Configuration != nil {
		snapshots = append(snapshots, d.Snapshot)
	}
	if d.Deployed != nil {
		snapshots = append(snapshots, d.Deployed.Snapshot)
	}
	return snapshots
}

// describe fills in the facts of a deployment.
func (s shown) describe(d *deployment.Deployment, sources map[string]*configuration.Source) error {
	var submitted configuration.Facts
	var err error
	if d.Configuration != nil {
		if submitted, err = s.facts.of(sources[d.Snapshot], d.Snapshot, d.Configuration); err != nil {
			return err
		}
	}
	d.Domain, d.Method, d.Instances.Submitted = submitted.Domain, submitted.Method, submitted.Instances
	switch deployed := d.Deployed; {
	case deployed == nil:
	case deployed.Snapshot == d.Snapshot && bytes.Equal(deployed.Configuration, d.Configuration):
		d.Instances.Deployed = submitted.Instances
	default:
		facts, err := s.facts.of(sources[deployed.Snapshot], deployed.Snapshot, deployed.Configuration)
		if err != nil {
			return err
		}
		d.Instances.Deployed = facts.Instances
	}
	return nil
}

// keptFacts is for how many configurations the facts are kept: lists are asked
// for again and again, and reading the facts takes longer than reading the rows.
// There are as many instances as the schema knows at most.
const keptFacts = 4096

// facts keeps what configurations serve, by snapshot and text. Nobody changes
// what it gives.
type facts struct{ kept *lru.Cache } // SHA-256 → configuration.Facts

func newFacts() facts { return facts{lru.New(keptFacts)} }

func (f facts) of(source *configuration.Source, snapshot string, stored []byte) (configuration.Facts, error) {
	if source == nil {
		return configuration.Facts{}, nil
	}
	key := sha256.Sum256(slices.Concat([]byte(snapshot), []byte{0}, stored))
	if kept, ok := f.kept.Get(key); ok {
		known, _ := kept.(configuration.Facts)
		return known, nil
	}
	value, err := configuration.Decode(stored)
	if err != nil {
		return configuration.Facts{}, fmt.Errorf("read a stored configuration: %w", err)
	}
	known := source.Facts(value)
	f.kept.Add(key, known)
	return known, nil
}
