package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"slipway.dev/slipway/api/coordination"
	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/tests/kubestand"
	"slipway.dev/slipway/tests/stand"
)

// The example of slipway-dev, which the leases are of.
const (
	exampleNamespace = "bloodraven"
	clientNamespace  = "application"
	clientAccount    = "application-deploy"
)

// leasePlayer brings a stand to have leases and planned operations that ended in
// every way.
type leasePlayer struct {
	url      string
	client   *http.Client
	token    string
	temporal client.Client
	groups   dynamic.ResourceInterface
}

func playLeases(ctx context.Context, s *stand.Stand, kubernetes *kubestand.Stand, temporal client.Client) error {
	if err := kubernetes.Kube.Example(ctx); err != nil {
		return err
	}
	token, err := kubernetes.Kube.Token(ctx, clientNamespace, clientAccount, time.Hour, kube.Audience)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(kubernetes.Kube.File("lease-ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	custom, err := dynamic.NewForConfig(kubernetes.Admin())
	if err != nil {
		return err
	}
	p := leasePlayer{
		url:    s.LeaseURL(stand.API) + "/groups/" + kube.ExampleGroup,
		client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}},
		token:  token, temporal: temporal,
		groups: custom.Resource(schema.GroupVersionResource{Group: "shipstream.io", Version: "v1alpha1", Resource: "mysqlfailovergroups"}).Namespace(exampleNamespace),
	}
	if err := p.leads(ctx); err != nil {
		return err
	}
	for _, act := range []func(context.Context) error{p.release, p.expire, p.revoke, p.adopt, p.update, p.failOver} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// leads waits until somebody leads.
func (p leasePlayer) leads(ctx context.Context) error {
	for {
		_, err := p.call(ctx, http.MethodGet, "", "", "")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (p leasePlayer) release(ctx context.Context) error {
	token, err := p.grant(ctx, lease.KindMigration, "released", 60)
	if err != nil {
		return err
	}
	if _, err := p.call(ctx, http.MethodPut, "/leases/migration/released", "", fmt.Sprintf(`{"token":%q,"ttlSeconds":60}`, token)); err != nil {
		return err
	}
	if _, err := p.call(ctx, http.MethodDelete, "/leases/migration/released", token, ""); err != nil {
		return err
	}
	return p.ends(ctx, lease.KindMigration, "released", "released")
}

func (p leasePlayer) expire(ctx context.Context) error {
	if _, err := p.grant(ctx, lease.KindMigration, "expired", 5); err != nil {
		return err
	}
	return p.ends(ctx, lease.KindMigration, "expired", "expired")
}

func (p leasePlayer) revoke(ctx context.Context) error {
	if _, err := p.grant(ctx, lease.KindMigration, "revoked", 60); err != nil {
		return err
	}
	err := p.temporal.SignalWorkflow(ctx, wire.LeaseID(ref(lease.KindMigration, "revoked")), "", wire.SignalRevoke,
		wire.Revocation{Reason: lease.ReasonOperatorRevoked})
	if err != nil {
		return err
	}
	return p.ends(ctx, lease.KindMigration, "revoked", "revoked")
}

// adopt has an operator terminate a workflow, and revoke its lease after all.
func (p leasePlayer) adopt(ctx context.Context) error {
	if _, err := p.grant(ctx, lease.KindMigration, "adopted", 60); err != nil {
		return err
	}
	lost := ref(lease.KindMigration, "adopted")
	if err := p.temporal.TerminateWorkflow(ctx, wire.LeaseID(lost), "", "to be adopted"); err != nil {
		return err
	}
	if err := coordination.NewTemporal(p.temporal).Revoke(ctx, lost, lease.ReasonOperatorRevoked); err != nil {
		return err
	}
	return p.ends(ctx, lease.KindMigration, "adopted", "revoked")
}

// update has an ordered update that the operator reports and ends.
func (p leasePlayer) update(ctx context.Context) error {
	if err := p.plan(ctx, wire.PlannedRequest{Kind: lease.OrderedUpdate}, wire.PlannedAdmitted); err != nil {
		return err
	}
	if err := p.report(ctx, `"Updating"`); err != nil {
		return err
	}
	if err := p.planned(ctx); err != nil {
		return err
	}
	return p.report(ctx, `null`)
}

func (p leasePlayer) report(ctx context.Context, phase string) error {
	_, err := p.groups.Patch(ctx, kube.ExampleGroup, types.MergePatchType, []byte(`{"status":{"updatePhase":`+phase+`}}`), metav1.PatchOptions{}, "status")
	return err
}

// failOver has a planned failover that waits for a hold.
func (p leasePlayer) failOver(ctx context.Context) error {
	if _, err := p.grant(ctx, lease.KindMigration, "planned", 60); err != nil {
		return err
	}
	token, err := p.grant(ctx, lease.KindHold, "planned", 60)
	if err != nil {
		return err
	}
	if err := p.plan(ctx, wire.PlannedRequest{Kind: lease.PlannedFailover, Target: "pdx"}, wire.PlannedDeferred); err != nil {
		return err
	}
	if _, err := p.call(ctx, http.MethodDelete, "/leases/failover-hold/planned", token, ""); err != nil {
		return err
	}
	return p.planned(ctx)
}

func (p leasePlayer) plan(ctx context.Context, request wire.PlannedRequest, status string) error {
	answer, err := coordination.NewPlanner(p.temporal).Request(ctx, exampleNamespace, kube.ExampleGroup, request)
	if err == nil && answer.Status != status {
		err = fmt.Errorf("%s is %s (%s), not %s", request.Kind, answer.Status, answer.Reason, status)
	}
	return err
}

// planned waits for the end of the planned operation.
func (p leasePlayer) planned(ctx context.Context) error {
	return p.temporal.GetWorkflow(ctx, wire.PlannedID(exampleNamespace, kube.ExampleGroup), "").Get(ctx, nil)
}

// ends waits for the end of a lease.
func (p leasePlayer) ends(ctx context.Context, kind lease.Kind, operation, outcome string) error {
	var result wire.LeaseResult
	err := p.temporal.GetWorkflow(ctx, wire.LeaseID(ref(kind, operation)), "").Get(ctx, &result)
	if err == nil && result.Outcome != outcome {
		err = fmt.Errorf("the lease of %s ended as %s, not %s", operation, result.Outcome, outcome)
	}
	return err
}

func ref(kind lease.Kind, operation string) wire.LeaseRef {
	return wire.LeaseRef{Namespace: exampleNamespace, Group: kube.ExampleGroup, Kind: kind, OperationID: operation}
}

func (p leasePlayer) grant(ctx context.Context, kind lease.Kind, operation string, ttl int) (token string, err error) {
	body := fmt.Sprintf(`{"kind":%q,"operationId":%q,"instance":%q,"ttlSeconds":%d}`, kind, operation, kube.ExampleDatabase, ttl)
	text, err := p.call(ctx, http.MethodPost, "/leases", "", body)
	if err != nil {
		return "", err
	}
	var granted struct{ Token string }
	err = json.Unmarshal(text, &granted)
	return granted.Token, err
}

func (p leasePlayer) call(ctx context.Context, method, path, leaseToken, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+p.token)
	if leaseToken != "" {
		request.Header.Set("X-Lease-Token", leaseToken)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s %s", method, path, response.Status, text)
	}
	return text, err
}
