package kubestand_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/tests/kubestand"
)

var kubernetes *kubestand.Stand

func TestMain(m *testing.M) { kubestand.Main(m, &kubernetes) }

func TestWhatATestMakesIsSeenBySlipwayAndSurvivesAKill(t *testing.T) {
	namespace := kubernetes.Namespace(t)
	require.NotEqual(t, namespace, kubernetes.Namespace(t))
	group := kubernetes.Group(t, namespace, "orders", func(group *unstructured.Unstructured) {
		require.NoError(t, unstructured.SetNestedField(group.Object, "Draining", "status", "plannedFailover", "phase"))
	})
	require.NotEmpty(t, group.GetUID())
	client := kubernetes.ServiceAccount(t, namespace, "deploy")
	kubernetes.Database(t, namespace, "orders-app", "orders", client)
	require.NotEmpty(t, kubernetes.ServiceAccountToken(t, namespace, "deploy", kube.Audience))
	kubernetes.ChangeGroup(t, namespace, "orders", func(group *unstructured.Unstructured) {
		group.SetAnnotations(map[string]string{"a": "b"})
		require.NoError(t, unstructured.SetNestedField(group.Object, "pdx", "status", "activeSite"))
	})

	kubernetes.Kill()
	kubernetes.Start(t)

	slipway, err := dynamic.NewForConfig(kubernetes.Slipway())
	require.NoError(t, err)
	resources := func(name string) dynamic.ResourceInterface {
		return slipway.Resource(schema.GroupVersionResource{Group: "shipstream.io", Version: "v1alpha1", Resource: name}).Namespace(namespace)
	}
	group, err = resources("mysqlfailovergroups").Get(t.Context(), "orders", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "b", group.GetAnnotations()["a"])
	status := group.Object["status"].(map[string]any)
	require.Equal(t, "pdx", status["activeSite"])
	require.Equal(t, map[string]any{"phase": "Draining"}, status["plannedFailover"])
	databases, err := resources("mysqldatabases").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, databases.Items, 1)
	clients, _, err := unstructured.NestedSlice(databases.Items[0].Object, "spec", "deploymentClients")
	require.NoError(t, err)
	require.Equal(t, []any{map[string]any{"namespace": namespace, "serviceAccount": "deploy"}}, clients)
}
