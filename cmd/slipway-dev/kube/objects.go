package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"slipway.dev/slipway/schema/crds"
	"slipway.dev/slipway/schema/rbac"
)

// What schema/rbac gives its rights to.
const (
	// Namespace is where slipway would run, and ServiceAccount as whom.
	Namespace      = "slipway"
	ServiceAccount = "slipway"
)

// The example: a group with a database, and who may deploy to it.
const (
	exampleNamespace = "bloodraven"
	// ExampleGroup and ExampleDatabase are what a first request names.
	ExampleGroup    = "orders"
	ExampleDatabase = "orders-app"
)

var exampleClient = Client{Namespace: "application", ServiceAccount: "application-deploy"}

// manager is the field manager of what is applied, and ours the label of it.
const (
	manager   = "slipway-dev"
	ours      = "app.kubernetes.io/managed-by"
	oursValue = "slipway"
)

// settleTime is how long the API server has until it acts on what was applied.
const settleTime = 30 * time.Second

// Client is a ServiceAccount that may deploy to a database.
type Client struct{ Namespace, ServiceAccount string }

// Setup applies the CRDs, slipway's namespace, its ServiceAccount and its
// rights (see the package), and returns when the API server acts on them.
func (s *Server) Setup(ctx context.Context) error {
	if err := s.setup(ctx); err != nil {
		return fmt.Errorf("kube: set up: %w", err)
	}
	return nil
}

func (s *Server) setup(ctx context.Context) error {
	client, err := dynamic.NewForConfig(s.Admin())
	if err != nil {
		return err
	}
	definitions, err := objects(crds.Files)
	if err != nil {
		return err
	}
	for _, crd := range definitions {
		if err := applyCRD(ctx, client, crd); err != nil {
			return err
		}
	}
	rights, err := objects(rbac.Files)
	if err != nil {
		return err
	}
	for _, object := range append([]*unstructured.Unstructured{NewNamespace(Namespace), NewServiceAccount(Namespace, ServiceAccount)}, rights...) {
		if err := apply(ctx, client, object); err != nil {
			return err
		}
	}
	for _, crd := range definitions {
		if err := served(ctx, client, crd); err != nil {
			return err
		}
	}
	return s.granted(ctx)
}

// Example makes the example where it is absent: the group orders, its database
// orders-app and the ServiceAccount application/application-deploy.
func (s *Server) Example(ctx context.Context) error {
	client, err := dynamic.NewForConfig(s.Admin())
	if err != nil {
		return fmt.Errorf("kube: example: %w", err)
	}
	for _, object := range []*unstructured.Unstructured{
		NewNamespace(exampleNamespace), NewNamespace(exampleClient.Namespace),
		NewServiceAccount(exampleClient.Namespace, exampleClient.ServiceAccount),
		NewGroup(exampleNamespace, ExampleGroup),
		NewDatabase(exampleNamespace, ExampleDatabase, ExampleGroup, exampleClient),
	} {
		if _, err := Create(ctx, client, object); err != nil {
			return fmt.Errorf("kube: example: %w", err)
		}
	}
	return nil
}

// objects reads the objects of YAML files.
func objects(files fs.FS) ([]*unstructured.Unstructured, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, name := range names {
		file, err := files.Open(name)
		if err != nil {
			return nil, err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(file, 4096)
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(&object.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", name, err), file.Close())
			}
			if object.Object != nil {
				all = append(all, object)
			}
		}
		if err := file.Close(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// resource is where objects of the kind of object are.
func resource(client dynamic.Interface, object *unstructured.Unstructured) dynamic.ResourceInterface {
	plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	if object.GetNamespace() == "" {
		return client.Resource(plural)
	}
	return client.Resource(plural).Namespace(object.GetNamespace())
}

func apply(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured) error {
	_, err := resource(client, object).Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: manager, Force: true})
	if err != nil {
		return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

func applyCRD(ctx context.Context, client dynamic.Interface, crd *unstructured.Unstructured) error {
	there, err := resource(client, crd).Get(ctx, crd.GetName(), metav1.GetOptions{})
	switch {
	case err == nil && there.GetLabels()[ours] != oursValue:
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("CRD %s: %w", crd.GetName(), err)
	}
	crd.SetLabels(map[string]string{ours: oursValue})
	return apply(ctx, client, crd)
}

// served waits until the resources of a CRD can be used.
func served(ctx context.Context, client dynamic.Interface, crd *unstructured.Unstructured) error {
	group, _, err := unstructured.NestedString(crd.Object, "spec", "group")
	if err != nil {
		return err
	}
	plural, _, err := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	if err != nil {
		return err
	}
	resources := client.Resource(schema.GroupVersionResource{Group: group, Version: apiVersion, Resource: plural})
	return settled(ctx, func(ctx context.Context) error {
		_, err := resources.List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
}

// granted waits until slipway's ServiceAccount has its rights: the API server
// learns of them by a watch of its own.
func (s *Server) granted(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.Admin())
	if err != nil {
		return err
	}
	for _, last := range []authorization.ResourceAttributes{
		{Verb: "create", Resource: "events", Namespace: Namespace},
		{Verb: "patch", Resource: "pods", Namespace: Namespace},
	} {
		review := &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + Namespace + ":" + ServiceAccount, ResourceAttributes: &last,
		}}
		err := settled(ctx, func(ctx context.Context) error {
			answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err == nil && !answer.Status.Allowed {
				err = fmt.Errorf("%s may not %s %s: %s", review.Spec.User, last.Verb, last.Resource, answer.Status.Reason)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// settled tries done until it succeeds.
func settled(ctx context.Context, done func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		err := done(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Create creates an object, and its status where it has one, and returns it as
// it is then. One that exists is left as it is, but for a status that it lacks:
// who was to write it may have been interrupted.
func Create(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	failed := func(err error) (*unstructured.Unstructured, error) {
		return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	resources := resource(client, object)
	made, err := resources.Create(ctx, object, metav1.CreateOptions{FieldManager: manager})
	if apierrors.IsAlreadyExists(err) {
		made, err = resources.Get(ctx, object.GetName(), metav1.GetOptions{})
	}
	if err != nil {
		return failed(err)
	}
	status, wanted := object.Object["status"]
	if _, there := made.Object["status"]; there || !wanted {
		return made, nil
	}
	made.Object["status"] = status
	if made, err = resources.UpdateStatus(ctx, made, metav1.UpdateOptions{FieldManager: manager}); err != nil {
		return failed(err)
	}
	return made, nil
}

// apiVersion is the version of the operator's resources (group shipstream.io).
const apiVersion = "v1alpha1"

// NewNamespace is an object for Create.
func NewNamespace(name string) *unstructured.Unstructured {
	return object("v1", "Namespace", "", name)
}

// NewServiceAccount is an object for Create.
func NewServiceAccount(namespace, name string) *unstructured.Unstructured {
	return object("v1", "ServiceAccount", namespace, name)
}

// NewGroup is a MysqlFailoverGroup for Create that is stable: the sites iad,
// which is active, and pdx, both healthy, and topology generation 17.
func NewGroup(namespace, name string) *unstructured.Unstructured {
	group := object("shipstream.io/"+apiVersion, "MysqlFailoverGroup", namespace, name)
	group.Object["spec"] = map[string]any{
		"sites": []any{map[string]any{"name": "iad"}, map[string]any{"name": "pdx"}},
	}
	group.Object["status"] = map[string]any{
		"activeSite":         "iad",
		"topologyGeneration": int64(17),
		"conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "AllSitesHealthy", "message": "",
			"lastTransitionTime": "2026-01-01T00:00:00Z",
		}},
		"sites": []any{
			map[string]any{"name": "iad", "state": "writable", "replicating": false, "sourceConvergenceState": "Converged"},
			map[string]any{
				"name": "pdx", "state": "read-only", "replicating": true, "secondsBehindSource": int64(0),
				"sourceConvergenceState": "Converged",
			},
		},
	}
	return group
}

// NewDatabase is a MysqlDatabase for Create, of a group in its namespace.
func NewDatabase(namespace, name, group string, clients ...Client) *unstructured.Unstructured {
	database := object("shipstream.io/"+apiVersion, "MysqlDatabase", namespace, name)
	allowed := make([]any, 0, len(clients))
	for _, client := range clients {
		allowed = append(allowed, map[string]any{"namespace": client.Namespace, "serviceAccount": client.ServiceAccount})
	}
	database.Object["spec"] = map[string]any{"groupRef": map[string]any{"name": group}, "deploymentClients": allowed}
	return database
}

func object(version, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}
