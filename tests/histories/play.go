package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	temporalclient "go.temporal.io/sdk/client"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/kubestand"
	"slipway.dev/slipway/tests/stand"
)

// player brings a stand to have one run of every kind.
type player struct {
	*stand.Stand
	api      *client.Client
	temporal temporalclient.Client
	// frontEnd is the URL of a front-end that is called back.
	frontEnd string
}

func (p player) play(ctx context.Context) error {
	for _, act := range []func(context.Context) error{p.callBack, p.succeed, p.refuse, p.imports, p.fail, p.cancel, p.cancelByOperator} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// succeed deploys, supersedes, joins a destroy and finds a deployment idle.
func (p player) succeed(ctx context.Context) error {
	const id = "histories"
	if err := p.submit(ctx, id, "quick", 1, deployment.StatusSucceeded); err != nil {
		return err
	}
	if _, err := p.api.Preview(ctx, id, configuration("quick", "example.org")); err != nil {
		return err
	}
	if err := p.submit(ctx, id, "gate", 2, deployment.StatusRunning); err != nil {
		return err
	}
	if err := p.submit(ctx, id, "quick", 3, deployment.StatusQueued); err != nil {
		return err
	}
	for range 2 { // the second joins the first
		if _, err := p.api.Destroy(ctx, id); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(p.Record, id+".open"), nil, 0o644); err != nil {
		return err
	}
	if err := p.await(ctx, id, 4, deployment.StatusSucceeded); err != nil {
		return err
	}
	_, err := p.api.Destroy(ctx, id)
	return err
}

// callBack hauls out and has a front-end told.
func (p player) callBack(ctx context.Context) error {
	const id = "called-back"
	if err := p.submit(ctx, id, "quick", 1, deployment.StatusSucceeded); err != nil {
		return err
	}
	if _, err := p.api.DestroyAndCallBack(ctx, id, p.frontEnd, "token"); err != nil {
		return err
	}
	return p.await(ctx, id, 2, deployment.StatusSucceeded)
}

func (p player) refuse(ctx context.Context) error {
	_, err := p.api.Submit(ctx, "refused", json.RawMessage(`{"test":{"domain":"example.org","evaluate":"refuse"}}`), "")
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Code != "invalid_configuration" {
		return fmt.Errorf("a submit that should be refused: %w", err)
	}
	return nil
}

// imports has an import that deploys, one that only stores, and one with a node
// whose system does not evaluate.
func (p player) imports(ctx context.Context) error {
	for i, deploy := range []bool{true, false} {
		if _, err := p.api.Import(ctx, fmt.Sprintf("imported-%d", i), configuration("quick", "example.org"), deploy, ""); err != nil {
			return err
		}
	}
	if err := p.await(ctx, "imported-0", 1, deployment.StatusSucceeded); err != nil {
		return err
	}
	_, err := p.api.Import(ctx, "imported-2", json.RawMessage(`{"test":{"domain":"example.org","systems":{"web":"refuse"}}}`), true, "")
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Code != "invalid_configuration" {
		return fmt.Errorf("an import that should be refused: %w", err)
	}
	return nil
}

func (p player) fail(ctx context.Context) error {
	return p.submit(ctx, "failed", "fail", 1, deployment.StatusFailed)
}

func (p player) cancel(ctx context.Context) error {
	if err := p.submit(ctx, "cancelled", "sleep-60", 1, deployment.StatusRunning); err != nil {
		return err
	}
	if _, err := p.api.Cancel(ctx, deployment.Ref{Deployment: "cancelled", Build: 1}); err != nil {
		return err
	}
	return p.await(ctx, "cancelled", 1, deployment.StatusCancelled)
}

func (p player) cancelByOperator(ctx context.Context) error {
	if err := p.submit(ctx, "operator", "sleep-60", 1, deployment.StatusRunning); err != nil {
		return err
	}
	build, err := p.api.Build(ctx, deployment.Ref{Deployment: "operator", Build: 1})
	if err != nil {
		return err
	}
	if err := p.temporal.CancelWorkflow(ctx, build.WorkflowID, ""); err != nil {
		return err
	}
	return p.await(ctx, "operator", 1, deployment.StatusCancelled)
}

func configuration(deploy, domain string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"test":{"domain":%q,"deploy":%q}}`, domain, deploy))
}

// submit submits and waits until the build has a status. A running one has a
// deployer that runs.
func (p player) submit(ctx context.Context, id, deploy string, build int64, status deployment.Status) error {
	if _, err := p.api.Submit(ctx, id, configuration(deploy, "example.org"), ""); err != nil {
		return err
	}
	if err := p.await(ctx, id, build, status); err != nil || status != deployment.StatusRunning {
		return err
	}
	log, err := p.api.Log(ctx, deployment.Ref{Deployment: id, Build: build}, 0, true)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	_, err = log.Read(make([]byte, 1)) // the first line of the deployer
	return err
}

func (p player) await(ctx context.Context, id string, number int64, status deployment.Status) error {
	for {
		build, err := p.api.Build(ctx, deployment.Ref{Deployment: id, Build: number})
		if err != nil || build.Status == status {
			return err
		}
		if build.Status.Ended() {
			return fmt.Errorf("build %d of %s is %s (%s), not %s", number, id, build.Status, build.Reason, status)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("build %d of %s is %s, not %s: %w", number, id, build.Status, status, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// record plays on a stand of its own and saves what Temporal has then.
func record(ctx context.Context, save func(address string) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	kubernetes, err := kubestand.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kubernetes.Close()) }()
	frontEnd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer frontEnd.Close()
	s, err := stand.New(stand.Options{Kube: kubernetes, Env: []string{
		"SLIPWAY_DEPLOYER_GRACE=1s", "SLIPWAY_CORS_ORIGINS=" + frontEnd.URL,
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	api, err := s.Client()
	if err != nil {
		return err
	}
	temporal, err := s.TemporalClient()
	if err != nil {
		return err
	}
	defer temporal.Close()
	if err := (player{s, api, temporal, frontEnd.URL}).play(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, s.Logs())
	}
	if err := playLeases(ctx, s, kubernetes, temporal); err != nil {
		return fmt.Errorf("%w\n%s", err, s.Logs())
	}
	// Which workflows have ended is known to queries a moment later.
	select {
	case <-ctx.Done():
	case <-time.After(3 * time.Second):
	}
	return save(s.TemporalAddress)
}
