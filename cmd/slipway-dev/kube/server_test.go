package kube_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/cmd/slipway-dev/ports"
)

var groups = schema.GroupVersionResource{Group: "shipstream.io", Version: "v1alpha1", Resource: "mysqlfailovergroups"}

func options(t *testing.T) kube.Options {
	t.Helper()
	program, err := filepath.Abs("../../../bin/kube-apiserver")
	require.NoError(t, err)
	free, err := ports.Free(3)
	require.NoError(t, err)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(func() {
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			lines := strings.Split(string(text), "\n")
			t.Log(strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
		require.NoError(t, log.Close())
	})
	return kube.Options{
		Folder: filepath.Join(t.TempDir(), "kube"), APIServer: program, ThrowAway: true, Output: log,
		API: ports.Use{For: "API", Port: free[0], Choose: "--kube-port"}, Etcd: ports.Use{For: "etcd", Port: free[1]}, EtcdPeer: ports.Use{For: "peers", Port: free[2]},
	}
}

func gone(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }

func clients(t *testing.T, config *rest.Config) (*kubernetes.Clientset, dynamic.Interface) {
	t.Helper()
	typed, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	untyped, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return typed, untyped
}

// TestServer is one story, since every start takes seconds.
func TestServer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o := options(t)
	s, err := kube.Start(ctx, o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.Setup(ctx))
	require.NoError(t, s.Example(ctx))
	_, admin := clients(t, s.Admin())

	t.Run("strangers", func(t *testing.T) {
		strangers(t, s, o)
	})
	own, err := s.Token(ctx, kube.Namespace, kube.ServiceAccount, time.Hour)
	require.NoError(t, err)
	t.Run("rights", func(t *testing.T) { rights(t, s.Config(own)) })
	t.Run("tokens", func(t *testing.T) { tokens(t, s, s.Config(own)) })
	t.Run("again", func(t *testing.T) { again(t, s, admin) })
	require.ErrorContains(t, s.StartAPIServer(ctx), "runs already")
	etcd, api := s.Processes()
	s.Close()
	require.True(t, gone(etcd))
	require.True(t, gone(api))

	t.Run("Run goes on with the folder", func(t *testing.T) { goesOn(t, o) })
}

// strangers have no access, to etcd neither.
func strangers(t *testing.T, s *kube.Server, o kube.Options) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for _, path := range []string{"/version", "/readyz", "/api/v1/namespaces"} {
		response, err := client.Get(s.URL() + path)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusUnauthorized, response.StatusCode, path)
	}
	_, err := client.Get("https://" + ports.Address(o.Etcd.Port) + "/version")
	require.ErrorContains(t, err, "certificate")
	for _, file := range []string{"tokens.csv", "kubeconfig", "service-account.key"} {
		info, err := os.Stat(s.File(file))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), file)
	}
}

// rights are those of schema/rbac, and no more.
func rights(t *testing.T, slipway *rest.Config) {
	ctx := t.Context()
	typed, _ := clients(t, slipway)
	const elsewhere = "bloodraven"
	for _, test := range []struct {
		group, resource, namespace string
		may, not                   string
	}{
		{"authentication.k8s.io", "tokenreviews", "", "create", "get list"},
		{"coordination.k8s.io", "leases", elsewhere, "get list watch create update patch delete", "deletecollection"},
		{"coordination.k8s.io", "leases", kube.Namespace, "get list watch create update patch delete", "deletecollection"},
		{"shipstream.io", "mysqldatabases", elsewhere, "get list watch", "create update patch delete"},
		{"shipstream.io", "mysqldatabases", "", "list watch", ""},
		{"shipstream.io", "mysqldatabases/status", elsewhere, "", "get update patch"},
		{"shipstream.io", "mysqlfailovergroups", elsewhere, "get list watch patch", "create update delete"},
		{"shipstream.io", "mysqlfailovergroups/status", elsewhere, "get patch", "update"},
		{"", "events", elsewhere, "create patch", "get list update delete"},
		{"", "pods", kube.Namespace, "patch", "get list create update delete"},
		{"", "pods", elsewhere, "", "get patch create"},
		{"", "secrets", kube.Namespace, "", "get list create"},
		{"", "serviceaccounts/token", elsewhere, "", "create"},
		{"", "nodes", "", "", "get list"},
		{"", "namespaces", "", "", "get list create"},
		{"rbac.authorization.k8s.io", "clusterroles", "", "", "get create bind escalate"},
		{"apiextensions.k8s.io", "customresourcedefinitions", "", "", "get create"},
	} {
		resource, subresource, _ := strings.Cut(test.resource, "/")
		for verbs, want := range map[string]bool{test.may: true, test.not: false} {
			for _, verb := range strings.Fields(verbs) {
				answer, err := typed.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorization.SelfSubjectAccessReview{
					Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorization.ResourceAttributes{
						Group: test.group, Resource: resource, Subresource: subresource, Namespace: test.namespace, Verb: verb,
					}},
				}, metav1.CreateOptions{})
				require.NoError(t, err)
				require.Equal(t, want, answer.Status.Allowed, "%s %s in %q", verb, test.resource, test.namespace)
			}
		}
	}

	_, err := typed.CoreV1().Secrets(kube.Namespace).Get(ctx, "any", metav1.GetOptions{})
	require.True(t, apierrors.IsForbidden(err), err)
	_, err = typed.CoreV1().Pods(kube.Namespace).Create(ctx, &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: "any"}}, metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), err)
	// Allowed, of a pod that is not there.
	_, err = typed.CoreV1().Pods(kube.Namespace).Patch(ctx, "any", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	require.True(t, apierrors.IsNotFound(err), err)
}

// tokens are reviewed by the audience that they were made for.
func tokens(t *testing.T, s *kube.Server, slipway *rest.Config) {
	ctx := t.Context()
	typed, _ := clients(t, slipway)
	for _, test := range []struct {
		name      string
		audiences []string
		want      []string
	}{
		{"right", []string{kube.Audience}, []string{kube.Audience}},
		{"several", []string{"other", kube.Audience}, []string{kube.Audience}},
		{"wrong", []string{"other"}, nil},
		{"that of the API server", nil, nil},
	} {
		token, err := s.Token(ctx, "application", "application-deploy", 10*time.Minute, test.audiences...)
		require.NoError(t, err)
		review, err := typed.AuthenticationV1().TokenReviews().Create(ctx, &authentication.TokenReview{
			Spec: authentication.TokenReviewSpec{Token: token, Audiences: []string{kube.Audience}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, test.want != nil, review.Status.Authenticated, test.name)
		require.Equal(t, test.want, review.Status.Audiences, test.name)
		if test.want != nil {
			require.Equal(t, "system:serviceaccount:application:application-deploy", review.Status.User.Username)
		}
	}
	_, err := s.Token(ctx, "application", "nobody", time.Hour)
	require.True(t, apierrors.IsNotFound(err), err)
}

func generation(t *testing.T, group *unstructured.Unstructured) int64 {
	t.Helper()
	n, found, err := unstructured.NestedInt64(group.Object, "status", "topologyGeneration")
	require.NoError(t, err)
	require.True(t, found)
	return n
}

// again applies everything a second time, after others have changed it.
func again(t *testing.T, s *kube.Server, admin dynamic.Interface) {
	ctx := t.Context()
	example := admin.Resource(groups).Namespace("bloodraven")
	group, err := example.Get(ctx, kube.ExampleGroup, metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 17, generation(t, group))
	_, err = example.Patch(ctx, kube.ExampleGroup, types.MergePatchType, []byte(`{"status":{"topologyGeneration":18}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)

	crds := admin.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	patch := func(name, patch string) {
		_, err := crds.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	const operators, own = "mysqldatabases.shipstream.io", "mysqlfailovergroups.shipstream.io"
	patch(operators, `{"metadata":{"labels":null},"spec":{"names":{"shortNames":["theirs"]}}}`)
	patch(own, `{"spec":{"names":{"shortNames":["changed"]}}}`)

	require.NoError(t, s.Setup(ctx))
	require.NoError(t, s.Example(ctx))

	group, err = example.Get(ctx, kube.ExampleGroup, metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 18, generation(t, group))
	for name, want := range map[string]string{operators: "theirs", own: "mfg"} {
		crd, err := crds.Get(ctx, name, metav1.GetOptions{})
		require.NoError(t, err)
		names, _, err := unstructured.NestedStringSlice(crd.Object, "spec", "names", "shortNames")
		require.NoError(t, err)
		require.Equal(t, []string{want}, names)
	}
}

// goesOn is Run on the folder of an earlier server.
func goesOn(t *testing.T, o kube.Options) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- kube.Run(ctx, o, func() error {
			close(ready)
			return nil
		})
	}()
	select {
	case <-ready:
	case err := <-done:
		require.NoError(t, err, "it did not start")
	}

	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(o.Folder, "kubeconfig"))
	require.NoError(t, err)
	_, admin := clients(t, config)
	group, err := admin.Resource(groups).Namespace("bloodraven").Get(ctx, kube.ExampleGroup, metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 18, generation(t, group))

	config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(o.Folder, "slipway.kubeconfig"))
	require.NoError(t, err)
	slipway, _ := clients(t, config)
	token, err := os.ReadFile(filepath.Join(o.Folder, "token"))
	require.NoError(t, err)
	review, err := slipway.AuthenticationV1().TokenReviews().Create(ctx, &authentication.TokenReview{
		Spec: authentication.TokenReviewSpec{Token: string(token), Audiences: []string{kube.Audience}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.True(t, review.Status.Authenticated)

	_, err = kube.Start(ctx, o)
	require.ErrorContains(t, err, "a server runs on")
	cancel()
	require.NoError(t, <-done)
	require.NoError(t, ports.Check([]ports.Use{o.API, o.Etcd, o.EtcdPeer}))
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	o := options(t)
	o.APIServer = filepath.Join(t.TempDir(), "nowhere")
	_, err := kube.Start(t.Context(), o)
	require.ErrorContains(t, err, "run `make kube-apiserver`")
	o.APIServer = "/bin/true"
	t.Setenv("PATH", t.TempDir())
	_, err = kube.Start(t.Context(), o)
	require.ErrorContains(t, err, "run `deploy/dev/install.sh kube`")
}

func TestAServerThatDoesNotStartSaysWhy(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.APIServer = filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(o.APIServer, []byte("#!/bin/sh\necho the reason\nexit 3\n"), 0o755))
	_, err := kube.Start(t.Context(), o)
	require.ErrorContains(t, err, "the Kubernetes API server did not start: exit status 3\n")
	require.ErrorContains(t, err, "\nthe reason\n")
	require.NoError(t, ports.Check([]ports.Use{o.API, o.Etcd, o.EtcdPeer}))
}
