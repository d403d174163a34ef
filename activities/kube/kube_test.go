package kube

import (
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/tests/kubestand"
)

var kubernetes *kubestand.Stand

func TestMain(m *testing.M) { kubestand.Main(m, &kubernetes) }

// clock is a clock that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// scene is a stable group of its own, with the leases of slipway's own rights.
type scene struct {
	*Leases
	clock     *clock
	namespace string
	revoked   chan lease.Record
	admin     *Cluster
}

const groupName = "orders"

func newScene(t *testing.T, change ...func(*unstructured.Unstructured)) *scene {
	t.Helper()
	t.Parallel()
	cluster, err := Connect(kubernetes.Slipway())
	require.NoError(t, err)
	admin, err := Connect(kubernetes.Admin())
	require.NoError(t, err)
	metrics, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	s := &scene{
		clock: &clock{at: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}, namespace: kubernetes.Namespace(t),
		revoked: make(chan lease.Record, 1000), admin: admin,
	}
	s.Leases = &Leases{
		Cluster: cluster, Now: s.clock.now, Metrics: metrics, Log: zaptest.NewLogger(t),
		Revoked: func(_ lease.Group, r lease.Record) { s.revoked <- r },
	}
	kubernetes.Group(t, s.namespace, groupName, change...)
	return s
}

func (s *scene) group(t *testing.T) lease.Group {
	t.Helper()
	g, err := s.Cluster.Group(t.Context(), s.namespace, groupName)
	require.NoError(t, err)
	return g
}

func (s *scene) change(t *testing.T, change func(g *unstructured.Unstructured)) {
	t.Helper()
	kubernetes.ChangeGroup(t, s.namespace, groupName, change)
}

func (s *scene) ref(kind lease.Kind, operation string) wire.LeaseRef {
	return wire.LeaseRef{Namespace: s.namespace, Group: groupName, Kind: kind, OperationID: operation}
}

const ttl = 30 * time.Second

func holder(operation string) lease.Holder {
	return lease.Holder{OperationID: operation, Instance: "orders-app", Namespace: "application", ServiceAccount: "deploy"}
}

var caller = lease.Caller{Namespace: "application", ServiceAccount: "deploy", Instances: []string{"orders-app"}}

// token is the hash of a token that no other call has.
func token(t testing.TB, name string) string { return lease.HashToken(t.Name() + name) }

func (s *scene) grant(t *testing.T, kind lease.Kind, operation, tokenHash string) wire.LeaseAnswer {
	t.Helper()
	answer, err := s.Grant(t.Context(), s.ref(kind, operation), wire.GrantRequest{Holder: holder(operation), TokenHash: tokenHash, TTL: ttl})
	require.NoError(t, err)
	return answer
}

func (s *scene) granted(t *testing.T, kind lease.Kind, operation string) {
	t.Helper()
	require.Equal(t, lease.VerdictGrant, s.grant(t, kind, operation, token(t, operation)).Kind)
}

func (s *scene) renew(t *testing.T, kind lease.Kind, operation, tokenHash string) wire.LeaseAnswer {
	t.Helper()
	answer, err := s.Renew(t.Context(), s.group(t), s.ref(kind, operation), caller, tokenHash, ttl)
	require.NoError(t, err)
	return answer
}

func (s *scene) release(t *testing.T, kind lease.Kind, operation, tokenHash string) lease.VerdictKind {
	t.Helper()
	answer, err := s.Release(t.Context(), s.group(t), s.ref(kind, operation), wire.ReleaseRequest{Caller: caller, TokenHash: tokenHash})
	require.NoError(t, err)
	return answer.Kind
}

func (s *scene) object(t *testing.T, name string) *coordinationv1.Lease {
	t.Helper()
	object, err := s.admin.leases.Leases(s.namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return object
}

func (s *scene) record(t *testing.T, name string) lease.Record {
	t.Helper()
	record, err := lease.ParseRecord(s.object(t, name).Annotations[lease.AnnotationRecord])
	require.NoError(t, err)
	return record
}

func (s *scene) edit(t *testing.T, name string, edit func(*coordinationv1.Lease)) {
	t.Helper()
	object := s.object(t, name)
	edit(object)
	_, err := s.admin.leases.Leases(s.namespace).Update(t.Context(), object, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func (s *scene) events(t *testing.T, reason string) []corev1.Event {
	t.Helper()
	all, err := s.admin.core.Events(s.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
	require.NoError(t, err)
	return all.Items
}

func moveTo(site string, generation int64) func(*unstructured.Unstructured) {
	return func(g *unstructured.Unstructured) {
		status := g.Object["status"].(map[string]any)
		status["activeSite"] = site
		if generation != 0 {
			status["topologyGeneration"] = generation
		}
		for _, one := range status["sites"].([]any) {
			site1 := one.(map[string]any)
			site1["state"], site1["replicating"] = "read-only", true
			if site1["name"] == site {
				site1["state"], site1["replicating"] = "writable", false
			}
		}
	}
}

func marked(name, value string) func(*unstructured.Unstructured) {
	return func(g *unstructured.Unstructured) {
		annotations := g.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[name] = value
		g.SetAnnotations(annotations)
	}
}

// mutex is the name of the mutex of the scene's group.
var mutex = lease.MutexName(groupName)

func tombstone(operation string) string {
	return lease.OperationName(groupName, lease.KindMigration, operation)
}

func hold(operation string) string { return lease.OperationName(groupName, lease.KindHold, operation) }

// together does n things at once, and returns an error of one of them.
func together(n int, do func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- do(i) }()
	}
	var first error
	for range n {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}
