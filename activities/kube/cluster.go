package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/schema/lease"
)

// The custom resources, as the operator defines them.
var (
	groupVersion = schema.GroupVersion{Group: "shipstream.io", Version: "v1alpha1"}
	groups       = groupVersion.WithResource("mysqlfailovergroups")
)

const (
	groupKind = "MysqlFailoverGroup"
	databases = "mysqldatabases"
)

// page is how many objects one answer of a list has at most.
const page = 500

// Cluster is the Kubernetes API server, as far as slipway uses it.
type Cluster struct {
	config     *rest.Config
	namespaces []string // metav1.NamespaceAll alone where it is not limited
	custom     rest.Interface
	databases  *shared[[]lease.Database]
	leases     coordinationclient.LeasesGetter
	core       coreclient.CoreV1Interface
	reviews    authenticationclient.TokenReviewInterface
}

// Connect makes the clients. It does not ask the server anything. Requests are
// not limited by the client: the server has its own fairness, and a renewal
// must not wait for a list.
//
// Groups and databases are looked for in the namespaces, each named once; in
// all where none is named, which needs rights in all.
func Connect(config *rest.Config, namespaces ...string) (*Cluster, error) {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "slipway"
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("client of the Kubernetes API server: %w", err)
	}
	c := &Cluster{config: config, namespaces: namespaces}
	c.databases = &shared[[]lease.Database]{read: c.listDatabases}
	if c.custom, err = customClient(config, httpClient); err != nil {
		return nil, fmt.Errorf("client of %s: %w", groupVersion, err)
	}
	// The server's own types need no JSON.
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	coordination, err := coordinationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client of leases: %w", err)
	}
	core, err := coreclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client of events: %w", err)
	}
	authentication, err := authenticationclient.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client of token reviews: %w", err)
	}
	c.leases, c.core, c.reviews = coordination, core, authentication.TokenReviews()
	return c, nil
}

// Check asks the server whether it is ready, which anybody may whom it knows.
func (c *Cluster) Check(ctx context.Context) error {
	if err := c.custom.Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("ask the Kubernetes API server whether it is ready: %w", err)
	}
	return nil
}

func customClient(config *rest.Config, httpClient *http.Client) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &groupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return rest.RESTClientForConfigAndClient(config, httpClient)
}

// Databases lists the MysqlDatabases (of all namespaces where Connect named
// none), as they are on the server after the call began. Who may call is decided by them. Calls that come
// at the same time share a list, which is not to be changed: it is the most
// costly read of a renewal, and has the same answer for all.
func (c *Cluster) Databases(ctx context.Context) ([]lease.Database, error) {
	return c.databases.get(ctx)
}

func (c *Cluster) listDatabases(ctx context.Context) ([]lease.Database, error) {
	var all []lease.Database
	for _, namespace := range c.namespaces {
		for next := ""; ; {
			raw, err := c.custom.Get().Namespace(namespace).Resource(databases).
				Param("limit", fmt.Sprint(page)).Param("continue", next).DoRaw(ctx)
			if err != nil {
				return nil, fmt.Errorf("list the databases: %w", err)
			}
			var list struct {
				Metadata struct{ Continue string }
				Items    []json.RawMessage
			}
			if err := json.Unmarshal(raw, &list); err != nil {
				return nil, fmt.Errorf("list the databases: %w", err)
			}
			for _, item := range list.Items {
				database, err := lease.ParseDatabase(item)
				if err != nil {
					continue // it gives nobody any right
				}
				all = append(all, database)
			}
			if next = list.Metadata.Continue; next == "" {
				break
			}
		}
	}
	return all, nil
}

// ErrNoGroup: there is no such group, or it is being deleted.
var ErrNoGroup = errors.New("there is no such group")

// Group reads a group from the server.
func (c *Cluster) Group(ctx context.Context, namespace, name string) (lease.Group, error) {
	raw, err := c.custom.Get().Namespace(namespace).Resource(groups.Resource).Name(name).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return lease.Group{}, fmt.Errorf("%w: %s/%s", ErrNoGroup, namespace, name)
	}
	if err != nil {
		return lease.Group{}, fmt.Errorf("read the group %s/%s: %w", namespace, name, err)
	}
	group, err := lease.ParseGroup(raw)
	if err != nil {
		return group, fmt.Errorf("read the group %s/%s: %w", namespace, name, err)
	}
	if group.Deleting {
		return group, fmt.Errorf("%w: %s/%s is being deleted", ErrNoGroup, namespace, name)
	}
	return group, nil
}

// patchGroup changes a group, on the condition that nobody else has changed it
// since it was read, and returns it as it is then. subresource is "" or
// "status"; a nil in fields removes.
func (c *Cluster) patchGroup(ctx context.Context, g lease.Group, subresource string, fields map[string]any) (lease.Group, error) {
	metadata, _ := fields["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["resourceVersion"], metadata["uid"] = g.ResourceVersion, g.UID
	fields["metadata"] = metadata
	patch, err := json.Marshal(fields)
	if err != nil {
		return g, err
	}
	request := c.custom.Patch(types.MergePatchType).Namespace(g.Namespace).Resource(groups.Resource).Name(g.Name)
	if subresource != "" {
		request = request.SubResource(subresource)
	}
	raw, err := request.Body(patch).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return g, fmt.Errorf("%w: %s/%s", ErrNoGroup, g.Namespace, g.Name)
	}
	if err != nil {
		return g, fmt.Errorf("patch the group %s/%s: %w", g.Namespace, g.Name, err)
	}
	return lease.ParseGroup(raw)
}

// annotate sets annotations of a group; nil removes one.
func (c *Cluster) annotate(ctx context.Context, g lease.Group, annotations map[string]any) (lease.Group, error) {
	return c.patchGroup(ctx, g, "", map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// event tells of a group, once for each key: a second event of the same key is
// dropped.
func (c *Cluster) event(ctx context.Context, g lease.Group, key, eventType, reason, message string, now time.Time) error {
	at := metav1.NewTime(now)
	_, err := c.core.Events(g.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name + "." + digest(reason, g.UID, key)},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: groupVersion.String(), Kind: groupKind,
			Namespace: g.Namespace, Name: g.Name, UID: types.UID(g.UID), ResourceVersion: g.ResourceVersion,
		},
		Reason: reason, Message: message, Type: eventType, Count: 1,
		FirstTimestamp: at, LastTimestamp: at,
		Source:              corev1.EventSource{Component: "slipway"},
		ReportingController: "slipway",
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("event %s of %s/%s: %w", reason, g.Namespace, g.Name, err)
	}
	return nil
}

// Review asks the API server whose token it is, for an audience. ok is false for
// a token that is not accepted; an error says nothing about the token.
func (c *Cluster) Review(ctx context.Context, token, audience string) (username string, ok bool, err error) {
	review, err := c.reviews.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", false, fmt.Errorf("review a token: %w", err)
	}
	status := review.Status
	ok = status.Authenticated && status.Error == "" && slices.Contains(status.Audiences, audience)
	return status.User.Username, ok, nil
}

// conflict reports whether another one wrote meanwhile.
func conflict(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
