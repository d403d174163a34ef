package chart

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/activities/kube"
	stand "slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/rbac"
	"slipway.dev/slipway/schema/wire"
)

// Every other test that has a Kubernetes API server runs with schema/rbac.
func TestRightsAreThoseThatAllTestsRunWith(t *testing.T) {
	t.Parallel()
	file, err := rbac.Files.Open("slipway.yaml")
	require.NoError(t, err)
	tested := objects(t, file)
	require.NoError(t, file.Close())
	rendered := render(t, "slipway", least, coordinated)

	require.Equal(t, find[rbacv1.ClusterRole](t, tested, "ClusterRole", "slipway").Rules,
		find[rbacv1.ClusterRole](t, rendered, "ClusterRole", "slipway-slipway").Rules)
	require.Equal(t, find[rbacv1.Role](t, tested, "Role", "slipway").Rules,
		find[rbacv1.Role](t, rendered, "Role", "slipway").Rules)

	for _, kind := range []string{"ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"} {
		require.Len(t, all[unstructured.Unstructured](t, rendered, kind), 1, kind)
	}
	api := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "slipway-api", Namespace: "slipway"}}
	cluster := find[rbacv1.ClusterRoleBinding](t, rendered, "ClusterRoleBinding", "slipway-slipway")
	require.Equal(t, api, cluster.Subjects, "the API alone")
	require.Equal(t, "slipway-slipway", cluster.RoleRef.Name)
	own := find[rbacv1.RoleBinding](t, rendered, "RoleBinding", "slipway")
	require.Equal(t, api, own.Subjects, "the API alone")
	require.Equal(t, "slipway", own.Namespace)
}

// With rights in some namespaces, leases are granted there, and the process
// neither needs nor has anything elsewhere.
func TestRightsInListedNamespaces(t *testing.T) {
	t.Parallel()
	home, orders, billing, elsewhere := kubernetes.Namespace(t), kubernetes.Namespace(t), kubernetes.Namespace(t), kubernetes.Namespace(t)
	r := render(t, home, least, coordinated, "rights: {namespaces: ["+orders+", "+billing+"]}")
	rights := slices.DeleteFunc(slices.Clone(r), func(o *unstructured.Unstructured) bool {
		return o.GetKind() != "ServiceAccount" && !strings.HasPrefix(o.GetAPIVersion(), "rbac.")
	})
	require.Equal(t, []rbacv1.PolicyRule{{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}}},
		all[rbacv1.ClusterRole](t, rights, "ClusterRole")[0].Rules, "what belongs to no namespace")
	for _, o := range rights {
		require.NoError(t, create(t, o, false))
	}
	for _, namespace := range []string{orders, billing, elsewhere} {
		kubernetes.Group(t, namespace, "orders")
		kubernetes.Database(t, namespace, "orders-app", "orders", stand.Client{Namespace: "application", ServiceAccount: "deploy"})
	}

	access := kubernetes.Kube.Config(kubernetes.ServiceAccountToken(t, home, "slipway-api"))
	cluster, err := kube.Connect(access, orders, billing)
	require.NoError(t, err)
	settled(t, func(ctx context.Context) error {
		_, err := cluster.Databases(ctx)
		return err
	})
	databases, err := cluster.Databases(t.Context())
	require.NoError(t, err)
	var seen []string
	for _, d := range databases {
		seen = append(seen, d.Namespace)
	}
	require.ElementsMatch(t, []string{orders, billing}, seen)

	metrics, err := kube.NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	now := func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
	leases := &kube.Leases{Cluster: cluster, Now: now, Metrics: metrics, Log: zaptest.NewLogger(t), Revoked: func(lease.Group, lease.Record) {}}
	grant := func(namespace string) (wire.LeaseAnswer, error) {
		return leases.Grant(t.Context(), wire.LeaseRef{Namespace: namespace, Group: "orders", Kind: lease.KindMigration, OperationID: "first"}, wire.GrantRequest{
			Holder:    lease.Holder{OperationID: "first", Instance: "orders-app", Namespace: "application", ServiceAccount: "deploy"},
			TokenHash: lease.HashToken(t.Name()), TTL: time.Minute,
		})
	}
	for _, namespace := range []string{orders, billing} {
		answer, err := grant(namespace)
		require.NoError(t, err)
		require.Equal(t, lease.VerdictGrant, answer.Kind)
	}
	_, err = grant(elsewhere)
	require.True(t, apierrors.IsForbidden(err), "%v", err)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch, err := cluster.Watch()
	require.NoError(t, err)
	go watch.Run(ctx)
	ready, stop := context.WithTimeout(ctx, settleTime)
	defer stop()
	require.True(t, watch.Ready(ready))
	require.True(t, watch.Known("orders"))
	held := map[string]bool{}
	for ref := range watch.Records() {
		held[ref.Namespace] = true
	}
	require.Equal(t, map[string]bool{orders: true, billing: true}, held)

	// Leader election needs its own namespace.
	led := make(chan struct{})
	election := &kube.Election{Cluster: cluster, Namespace: home, Identity: t.Name(), Log: zaptest.NewLogger(t)}
	over := make(chan error, 1)
	go func() {
		over <- election.Run(ctx, func(ctx context.Context) error { close(led); <-ctx.Done(); return nil })
	}()
	select {
	case <-led:
	case <-time.After(settleTime):
		t.Error("it never led")
	}
	cancel()
	require.NoError(t, <-over)

	// Without the list it would need rights everywhere.
	everywhere, err := kube.Connect(access)
	require.NoError(t, err)
	_, err = everywhere.Databases(t.Context())
	require.True(t, apierrors.IsForbidden(err), "%v", err)

	// The worker may do nothing at all.
	worker, err := kube.Connect(kubernetes.Kube.Config(kubernetes.ServiceAccountToken(t, home, "slipway-worker")), orders)
	require.NoError(t, err)
	_, err = worker.Databases(t.Context())
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	_, _, err = worker.Review(t.Context(), "token", "audience")
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

// settled tries until it succeeds: the API server learns of rights by a watch of
// its own.
func settled(t *testing.T, try func(ctx context.Context) error) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool { err = try(t.Context()); return err == nil }, settleTime, 50*time.Millisecond, "%v", err)
}
