package bao

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/openbao/openbao/api/v2"

	"slipway.dev/slipway/schema/kvpolicy"
)

// Names of what Setup makes.
const (
	// Name is that of the policy, of the AppRole and of the role for
	// Kubernetes.
	Name = "slipway"
	// NodesName is that of the policy of nodes.
	NodesName = "slipway-nodes"
	// Audience is that of the ServiceAccount tokens which the role takes.
	Audience = "openbao"
	// KubernetesNamespace and KubernetesServiceAccount are whose.
	KubernetesNamespace      = "slipway"
	KubernetesServiceAccount = "slipway"
)

// TokenTime is how long slipway's token lasts without a renewal, and
// NodesTokenTime how long that of the nodes lasts, which nobody renews: the
// longest that the server gives.
const (
	TokenTime      = 24 * time.Hour
	NodesTokenTime = 32 * 24 * time.Hour
)

// Kubernetes is an API server that vouches for ServiceAccounts.
type Kubernetes struct {
	// URL is where it is reached, CA its certificate authority (PEM).
	URL string
	CA  []byte
}

// Setup makes the default mount, the policies and the auth methods (see the
// package) where they are absent; kubernetes is nil where there is none.
func (s *Server) Setup(ctx context.Context, kubernetes *Kubernetes) error {
	root, err := s.Root()
	if err != nil {
		return fmt.Errorf("bao: %w", err)
	}
	if err := MountKV(ctx, root, kvpolicy.Mount, 2); err != nil {
		return err
	}
	for name, policy := range map[string]string{
		Name:      kvpolicy.Policy(kvpolicy.Mount, kvpolicy.Root),
		NodesName: kvpolicy.NodePolicy(kvpolicy.Mount, kvpolicy.Root),
	} {
		if err := root.Sys().PutPolicyWithContext(ctx, name, policy); err != nil {
			return fmt.Errorf("bao: policy %s: %w", name, err)
		}
	}
	if err := enable(ctx, root, "approle"); err != nil {
		return err
	}
	role := map[string]any{"token_policies": []string{Name}, "token_no_default_policy": true, "token_period": TokenTime.String()}
	if _, err := root.Logical().WriteWithContext(ctx, "auth/approle/role/"+Name, role); err != nil {
		return fmt.Errorf("bao: AppRole: %w", err)
	}
	if kubernetes == nil {
		return nil
	}
	return s.setupKubernetes(ctx, root, *kubernetes)
}

func (s *Server) setupKubernetes(ctx context.Context, root *api.Client, kubernetes Kubernetes) error {
	if err := enable(ctx, root, "kubernetes"); err != nil {
		return err
	}
	// Without a token of its own the server has each token reviewed with that
	// token itself: slipway may review (schema/rbac).
	for path, data := range map[string]map[string]any{
		"auth/kubernetes/config": {"kubernetes_host": kubernetes.URL, "kubernetes_ca_cert": string(kubernetes.CA), "disable_local_ca_jwt": true},
		"auth/kubernetes/role/" + Name: {
			"bound_service_account_names": []string{KubernetesServiceAccount}, "bound_service_account_namespaces": []string{KubernetesNamespace},
			"token_policies": []string{Name}, "token_no_default_policy": true, "token_period": TokenTime.String(),
		},
	} {
		if _, err := root.Logical().WriteWithContext(ctx, path, data); err != nil {
			return fmt.Errorf("bao: Kubernetes auth: %w", err)
		}
	}
	return nil
}

func enable(ctx context.Context, root *api.Client, method string) error {
	enabled, err := root.Sys().ListAuthWithContext(ctx)
	if err == nil && enabled[method+"/"] == nil {
		err = root.Sys().EnableAuthWithOptionsWithContext(ctx, method, &api.EnableAuthOptions{Type: method})
	}
	if err != nil {
		return fmt.Errorf("bao: auth method %s: %w", method, err)
	}
	return nil
}

// MountKV mounts a KV engine of a version, where that path is not used yet, and
// returns when it can be used.
func MountKV(ctx context.Context, root *api.Client, path string, version int) error {
	mounted, err := root.Sys().ListMountsWithContext(ctx)
	if err == nil && mounted[path+"/"] == nil {
		err = root.Sys().MountWithContext(ctx, path, &api.MountInput{Type: "kv", Options: map[string]string{"version": fmt.Sprint(version)}})
	}
	if err != nil {
		return fmt.Errorf("bao: mount %s: %w", path, err)
	}
	if version != 2 {
		return nil
	}
	// It is upgraded to version 2 in the background, however empty.
	for {
		_, err := root.Logical().ReadWithContext(ctx, path+"/config")
		if err == nil {
			return nil
		}
		var answer *api.ResponseError
		if !errors.As(err, &answer) || answer.StatusCode != http.StatusBadRequest || !strings.Contains(answer.Error(), "pgrading") {
			return fmt.Errorf("bao: mount %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("bao: mount %s: %w", path, errors.Join(context.Cause(ctx), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TokenOptions says what a token is like.
type TokenOptions struct {
	Policies []string
	// TTL is how long it lasts. A period can be renewed without end.
	TTL, Period time.Duration
}

// Token makes a token that is no root token: without a parent, so that it
// outlives the one that made it, and without the default policy.
func Token(ctx context.Context, root *api.Client, o TokenOptions) (string, error) {
	renewable := true
	request := &api.TokenCreateRequest{
		Policies: o.Policies, NoDefaultPolicy: true, Renewable: &renewable, DisplayName: strings.Join(o.Policies, "-"),
	}
	if o.TTL > 0 {
		request.TTL = o.TTL.String()
	}
	if o.Period > 0 {
		request.Period = o.Period.String()
	}
	made, err := root.Auth().Token().CreateOrphanWithContext(ctx, request)
	if err != nil {
		return "", fmt.Errorf("bao: make a token: %w", err)
	}
	return made.Auth.ClientToken, nil
}

// AppRole is the role ID and a new secret ID of an AppRole.
func AppRole(ctx context.Context, root *api.Client, name string) (roleID, secretID string, err error) {
	read, err := root.Logical().ReadWithContext(ctx, "auth/approle/role/"+name+"/role-id")
	if err == nil && read == nil {
		err = errors.New("there is none of that name")
	}
	if err != nil {
		return "", "", fmt.Errorf("bao: AppRole %s: %w", name, err)
	}
	made, err := root.Logical().WriteWithContext(ctx, "auth/approle/role/"+name+"/secret-id", nil)
	if err != nil {
		return "", "", fmt.Errorf("bao: AppRole %s: %w", name, err)
	}
	roleID, _ = read.Data["role_id"].(string)
	secretID, _ = made.Data["secret_id"].(string)
	return roleID, secretID, nil
}
