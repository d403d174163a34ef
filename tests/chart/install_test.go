package chart

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientset "k8s.io/client-go/kubernetes"
)

// A Service that deploy jobs or MySQL sidecars use already is the operator's:
// nothing of slipway may be put behind its name by accident.
func TestAServiceOfSomebodyElseIsNotTakenOver(t *testing.T) {
	t.Parallel()
	namespace := kubernetes.Namespace(t)
	theirs := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": "bloodraven", "namespace": namespace},
		"spec":     map[string]any{"ports": []any{map[string]any{"port": int64(8443)}}},
	}}
	require.NoError(t, create(t, theirs, false))
	install := []string{"install", "slipway", chartFolder, "-n", namespace, "--no-hooks"}

	for _, how := range []string{"--dry-run=server", "--take-ownership"} {
		_, err := helm(t, append(install, how), least, coordinated)
		require.ErrorContains(t, err, "slipway does not take it over", how)
	}
	_, err := helm(t, append(install, "--dry-run=server"), least, coordinated, "auxiliary: {service: {name: leases}}")
	require.NoError(t, err)
}

// Installed for real, on an API server that runs no pods, and upgraded.
func TestInstallUpgradeUninstall(t *testing.T) {
	t.Parallel()
	namespace := kubernetes.Namespace(t)
	typed, err := clientset.NewForConfig(kubernetes.Admin())
	require.NoError(t, err)
	ports := func() []corev1.ServicePort {
		service, err := typed.CoreV1().Services(namespace).Get(t.Context(), "bloodraven", metav1.GetOptions{})
		require.NoError(t, err)
		return service.Spec.Ports
	}
	_, err = helm(t, []string{"install", "slipway", chartFolder, "-n", namespace, "--no-hooks", "--wait=hookOnly"}, least)
	require.NoError(t, err)
	require.Len(t, ports(), 1)

	_, err = helm(t, []string{"upgrade", "slipway", chartFolder, "-n", namespace, "--no-hooks", "--wait=hookOnly"}, least, coordinated)
	require.NoError(t, err, "its own Service is no other's")
	require.Len(t, ports(), 2)

	_, err = helm(t, []string{"uninstall", "slipway", "-n", namespace, "--no-hooks", "--wait=hookOnly"})
	require.NoError(t, err)
	claims, err := typed.CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, claims.Items, 1, "the store with the deployers of what is deployed stays")
	roles, err := typed.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=slipway"})
	require.NoError(t, err)
	for _, role := range roles.Items {
		require.NotEqual(t, namespace+"-slipway", role.Name)
	}
}
