package store_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"slipway.dev/slipway/activities/store"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/sbom"
)

// stormTime is how long builds store and drop SBOMs at once. SOAK is the long
// version.
func stormTime(t *testing.T) time.Duration {
	if text := os.Getenv("SOAK"); text != "" {
		d, err := time.ParseDuration(text)
		require.NoError(t, err)
		return d
	}
	return 20 * time.Second
}

// builder deploys and destroys one deployment, again and again.
type builder struct {
	*rand.Rand
	store *store.Store
	id    string
	up    bool
}

// document has components that others have too, in an order of its own.
func (b *builder) document() string {
	var components []string
	for range 1 + b.IntN(60) {
		n := b.IntN(150)
		components = append(components, fmt.Sprintf(`{"name":"p%d","version":"%d","x":"%s"}`, n, b.IntN(3), strings.Repeat("y", 10*n)))
	}
	return `{"bomFormat":"CycloneDX","specVersion":"1.6","components":[` + strings.Join(components, ", ") + `]}`
}

func (b *builder) build(ctx context.Context) error {
	request := uuid.NewString()
	ref := deployment.Ref{Deployment: b.id}
	destroy := b.up && b.IntN(4) == 0
	if destroy {
		recorded, err := b.store.RecordDestroy(ctx, store.Destroy{Deployment: b.id, Request: request, WorkflowID: request})
		if err != nil {
			return err
		}
		ref.Build = recorded.Build
	} else {
		recorded, err := b.store.Record(ctx, store.Submit{Deployment: b.id, Request: request, WorkflowID: request, Snapshot: snapshot, Configuration: []byte(`{}`)})
		if err != nil {
			return err
		}
		ref.Build = recorded.Build
	}
	if _, err := b.store.TakeTurn(ctx, ref); err != nil {
		return err
	}
	if _, err := b.store.Job(ctx, ref); err != nil {
		return err
	}
	fence := uuid.New()
	if _, err := b.store.AcquireFence(ctx, ref, fence); err != nil {
		return err
	}
	exit := deployment.Exit{}
	if !destroy {
		entries := []sbom.Entry{}
		for i := range b.IntN(4) {
			e := sbom.Entry{Node: fmt.Sprint("node", i), Changed: b.IntN(4) > 0}
			entries = append(entries, e)
			if !e.Changed {
				continue
			}
			d, err := sbom.NewReader().Read([]byte(b.document()))
			if err != nil {
				return err
			}
			if err := b.store.StageSBOM(ctx, ref, fence, e.Node, d); err != nil {
				return err
			}
		}
		if err := b.store.StageSBOMs(ctx, ref, fence, entries); err != nil {
			return err
		}
		if b.IntN(5) == 0 {
			exit = deployment.Exit{Code: 1, Reason: "it broke"}
		}
	}
	if err := b.store.StageExit(ctx, ref, fence, exit); err != nil {
		return err
	}
	ended, err := b.store.Finish(ctx, ref, store.End{})
	if err == nil && ended.Status != deployment.StatusSucceeded && exit.Code == 0 {
		err = fmt.Errorf("build %s %s", ref, ended.Status)
	}
	b.up = !destroy
	return err
}

// look reads an SBOM of any node.
func look(ctx context.Context, s *store.Store, builds int) (bool, error) {
	id, node := fmt.Sprint("d", rand.IntN(builds)), fmt.Sprint("node", rand.IntN(3))
	d, text, err := s.SBOMText(ctx, id, node)
	if errors.Is(err, deployment.ErrUnknown) || errors.Is(err, deployment.ErrNoSBOM) {
		return false, nil
	}
	if err == nil && (int64(len(text)) != d.Size || sha256.Sum256(text) != d.SHA256) {
		err = fmt.Errorf("the SBOM of %s of %s is not what was stored: %d of %d bytes", node, id, len(text), d.Size)
	}
	if err != nil {
		return false, err
	}
	if _, err := s.SBOMDiff(ctx, id, node); err != nil && !errors.Is(err, deployment.ErrUnknown) && !errors.Is(err, deployment.ErrNoSBOM) {
		return false, err
	}
	return true, nil
}

// Twenty builds with components in common store, replace and destroy at once,
// while garbage is collected and documents are read: no build sees an error, no
// document is short, and no orphan is left.
func TestSBOMStorm(t *testing.T) {
	const builds, collectors, readers = 20, 3, 4
	s, db := tables(t)
	until := time.Now().Add(stormTime(t))
	group, ctx := errgroup.WithContext(t.Context())
	var built, read, collected atomic.Int64
	builders := make([]*builder, builds)
	repeat := func(count *atomic.Int64, do func() (bool, error)) {
		group.Go(func() error {
			for time.Now().Before(until) && ctx.Err() == nil {
				done, err := do()
				if err != nil {
					return err
				}
				if done {
					count.Add(1)
				}
			}
			return nil
		})
	}
	for i := range builders {
		b := &builder{Rand: rand.New(rand.NewPCG(uint64(i), 5)), store: s, id: fmt.Sprint("d", i)}
		builders[i] = b
		repeat(&built, func() (bool, error) { return true, b.build(ctx) })
	}
	for range readers {
		repeat(&read, func() (bool, error) { return look(ctx, s, builds) })
	}
	for range collectors {
		repeat(&collected, func() (bool, error) { return true, s.CollectSBOMs(ctx) })
	}
	require.NoError(t, group.Wait())
	require.Greater(t, built.Load(), int64(builds), "builds")
	require.Positive(t, read.Load(), "documents read")
	require.Positive(t, collected.Load(), "collections")

	requireNoOrphans := func() {
		collect(t, s)
		var documents, uses, components, used, keys int
		require.NoError(t, db.QueryRow(t.Context(), `
			SELECT (SELECT count(*) FROM sbom_documents), (SELECT count(*) FROM sbom_document_components),
			       (SELECT count(*) FROM sbom_components),
			       (SELECT count(DISTINCT id) FROM sbom_document_components, unnest(components) AS u (id) JOIN sbom_components USING (id)),
			       (SELECT count(*) FROM sbom_component_keys JOIN sbom_components ON id = component_id)`).
			Scan(&documents, &uses, &components, &used, &keys))
		require.Equal(t, documents, uses)
		require.Equal(t, components, used)
		require.Equal(t, components, keys)
	}
	requireNoOrphans()
	for i := range builds {
		id := fmt.Sprint("d", i)
		nodes, err := s.SBOMs(t.Context(), id)
		require.NoError(t, err)
		for _, n := range nodes {
			if n.Status == deployment.SBOMReady {
				served(t, s, id, n.Node)
			}
		}
		if recorded := destroy(t, s, id); !recorded.Idle {
			run(t, s, id, recorded.Build, 0)
		}
	}
	requireNoOrphans()
	require.Equal(t, [5]int{}, counts(t, db))
	t.Logf("%d builds, %d documents read, %d collections", built.Load(), read.Load(), collected.Load())
}
