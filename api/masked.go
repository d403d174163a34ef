package api

import (
	"context"

	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/deployment"
)

// masked is a Reader of what is shown. A configuration that was recorded with an
// older module source may hold a value that is a secret by today's schema (seed
// B, "Secrets of the operator"); the stored one keeps it, for the next submit to
// move.
type masked struct {
	Reader
	schemas *schemas
}

func (m masked) Deployment(ctx context.Context, id string) (deployment.Deployment, error) {
	d, err := m.Reader.Deployment(ctx, id)
	if err == nil && d.Older {
		err = m.mask(ctx, &d)
	}
	return d, err
}

func (m masked) Snapshot(ctx context.Context, id string) (deployment.Snapshot, error) {
	d, err := m.Reader.Snapshot(ctx, id)
	if err == nil && d.Older {
		err = m.mask(ctx, &d.Deployment)
	}
	return d, err
}

func (m masked) Deployments(ctx context.Context, ids []string, yield func(deployment.Deployment) error) error {
	// Before the first row, so that one request never needs two connections.
	schema, err := m.schema(ctx)
	if err != nil {
		return err
	}
	return m.Reader.Deployments(ctx, ids, func(d deployment.Deployment) error {
		if d.Older && schema != nil {
			if d.Configuration, err = schema.Mask(d.Configuration); err != nil {
				return err
			}
		}
		return yield(d)
	})
}

func (m masked) Build(ctx context.Context, ref deployment.Ref) (deployment.Build, error) {
	b, err := m.Reader.Build(ctx, ref)
	if err != nil || !b.Older || b.Configuration == nil {
		return b, err
	}
	schema, err := m.schema(ctx)
	if err == nil && schema != nil {
		b.Configuration, err = schema.Mask(b.Configuration)
	}
	return b, err
}

func (m masked) mask(ctx context.Context, d *deployment.Deployment) error {
	schema, err := m.schema(ctx)
	if err == nil && schema != nil {
		d.Configuration, err = schema.Mask(d.Configuration)
	}
	return err
}

// schema is that of today; nil where there is none that marks anything.
func (m masked) schema(ctx context.Context) (*configuration.Schema, error) {
	source, err := m.Source(ctx)
	if err != nil || len(source.Schema) == 0 {
		return nil, err
	}
	// One that does not compile marks nothing; submits say so.
	schema, _ := m.schemas.compile(source.Schema)
	return schema, nil
}
