package chart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"slipway.dev/slipway/tests/kubestand"
)

var kubernetes *kubestand.Stand

func TestMain(m *testing.M) { kubestand.Main(m, &kubernetes) }

const (
	helmProgram = "../../bin/helm"
	chartFolder = "../../deploy/chart"
	// limit is how long one run of helm may take, on a machine that has more to do.
	limit = 2 * time.Minute
	// settleTime is how long the API server has to act on what it was given.
	settleTime = 30 * time.Second
)

// least is what every installation has to say.
const least = `
image: {repository: registry.example/slipway}
database: {existingSecret: slipway-database}
temporal: {address: "temporal-frontend.temporal:7233"}
issuers: [{issuer: "https://issuer.example", audience: slipway, jwks: '{"keys":[]}'}]
worker: {source: "git+https://git.example/source?rev=0123456789012345678901234567890123456789"}
api: {plainText: true}
`

// coordinated serves the deployment coordination API besides.
const coordinated = `
auxiliary:
  escrowTLS: {enabled: true, existingSecret: bloodraven-auxiliary-tls}
  deployAPI: {enabled: true, networkPolicy: {enabled: true}}
`

// helm runs helm with values, each a YAML document that goes over those before.
func helm(t *testing.T, args []string, values ...string) (string, error) {
	t.Helper()
	folder := t.TempDir()
	for i, v := range values {
		file := filepath.Join(folder, fmt.Sprintf("values-%d.yaml", i))
		require.NoError(t, os.WriteFile(file, []byte(v), 0o600))
		args = append(args, "-f", file)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, helmProgram, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(os.Environ(), "HELM_CONFIG_HOME="+folder, "HELM_CACHE_HOME="+folder, "HELM_DATA_HOME="+folder,
		"KUBECONFIG="+kubernetes.Kube.File("kubeconfig"))
	if err := cmd.Run(); err != nil {
		if exit := new(exec.ExitError); !errors.As(err, &exit) {
			t.Fatalf("helm (make helm builds it): %v", err)
		}
		return stdout.String(), fmt.Errorf("helm %s: %s", args[0], stderr.String())
	}
	return stdout.String(), nil
}

// release is what one set of values renders to.
type release []*unstructured.Unstructured

// render renders the chart as the release slipway of a namespace.
func render(t *testing.T, namespace string, values ...string) release {
	t.Helper()
	out, err := helm(t, []string{"template", "slipway", chartFolder, "-n", namespace}, values...)
	require.NoError(t, err)
	return objects(t, strings.NewReader(out))
}

func objects(t *testing.T, r io.Reader) release {
	t.Helper()
	var all release
	for decoder := yaml.NewYAMLOrJSONDecoder(r, 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if object.Object != nil {
			all = append(all, object)
		}
	}
}

// has reports whether there is an object of the kind.
func (r release) has(kind string) bool {
	return slices.ContainsFunc(r, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
}

// find is the one object of a kind and a name, as the type A.
func find[A any](t *testing.T, r release, kind, name string) *A {
	t.Helper()
	var found *A
	for _, o := range r {
		if o.GetKind() == kind && o.GetName() == name {
			require.Nil(t, found, "two of %s %s", kind, name)
			found = as[A](t, o)
		}
	}
	require.NotNil(t, found, "no %s %s", kind, name)
	return found
}

// all are the objects of a kind, as the type A.
func all[A any](t *testing.T, r release, kind string) []*A {
	t.Helper()
	var found []*A
	for _, o := range r {
		if o.GetKind() == kind {
			found = append(found, as[A](t, o))
		}
	}
	return found
}

func as[A any](t *testing.T, o *unstructured.Unstructured) *A {
	t.Helper()
	typed := new(A)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed), "%s %s", o.GetKind(), o.GetName())
	return typed
}

// admin may do everything on the API server.
func admin(t *testing.T) dynamic.Interface {
	t.Helper()
	client, err := dynamic.NewForConfig(kubernetes.Admin())
	require.NoError(t, err)
	return client
}

// create creates an object, or, with dryRun, has the API server only say what
// it thinks of it. A field that it does not know is an error.
func create(t *testing.T, o *unstructured.Unstructured, dryRun bool) error {
	t.Helper()
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	var resources dynamic.ResourceInterface = admin(t).Resource(plural)
	if o.GetNamespace() != "" {
		resources = admin(t).Resource(plural).Namespace(o.GetNamespace())
	}
	options := metav1.CreateOptions{FieldManager: "helm", FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err := resources.Create(t.Context(), o, options)
	return err
}

// installMonitoring installs the CRDs of the Prometheus operator that the chart
// knows, and waits until they are served.
func installMonitoring(t *testing.T) {
	t.Helper()
	for kind, spec := range map[string]map[string]any{
		"ServiceMonitor": {"selector": map[string]any{}, "endpoints": []any{}},
		"PrometheusRule": {},
	} {
		file, err := os.Open("testdata/" + strings.ToLower(kind) + ".yaml")
		require.NoError(t, err)
		crds := objects(t, file)
		require.NoError(t, file.Close())
		for _, crd := range crds {
			if err := create(t, crd, false); !apierrors.IsAlreadyExists(err) {
				require.NoError(t, err)
			}
		}
		probe := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "monitoring.coreos.com/v1", "kind": kind,
			"metadata": map[string]any{"name": "probe", "namespace": "default"}, "spec": spec,
		}}
		require.Eventually(t, func() bool { return create(t, probe, true) == nil }, settleTime, 50*time.Millisecond)
	}
}
