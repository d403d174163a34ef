package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/stand"
)

// The API dies while a submit evaluates. The caller sends it again.
func TestAPIKilled(t *testing.T) {
	s := newSubject(t, "submit")
	key, request := uuid.NewString(), configuration(`"evaluate":"slow","work":3,"note":"api"`)
	s.asked = 1
	once, err := client.New(slipway.URL, token, client.Options{Patience: -1})
	require.NoError(t, err)
	first := make(chan error, 1)
	go func() {
		_, err := once.Submit(t.Context(), s.id, request, key)
		first <- err
	}()
	await(t, trueWithin, func() error {
		if len(evaluators()) == 0 {
			return fmt.Errorf("no evaluation has begun")
		}
		return nil
	})
	kill(t, stand.API)
	require.Error(t, <-first, "the connection broke")
	up := start(t, stand.API)
	for range 3 {
		submitted, err := api.Submit(t.Context(), s.id, request, key)
		require.NoError(t, err)
		require.EqualValues(t, 1, submitted.Build)
	}
	s.promised[1] = deployment.ActionDeploy
	sound(t, up, s)
	s.ended(t, 1, deployment.StatusSucceeded)
	usable(t, s)
}

func TestPostgresRestarted(t *testing.T) {
	p := newPhases(t)
	kill(t, stand.Postgres)
	time.Sleep(5 * time.Second) // so long it is away
	up := start(t, stand.Postgres)
	p.finish(t, up)
	// Shorter than the life of a fence: the deployers noticed nothing.
	p.hauling.ended(t, 2, deployment.StatusSucceeded)
	for _, s := range []*subject{p.queued, p.deploying, p.daemon} {
		s.ended(t, 1, deployment.StatusSucceeded)
	}
	usable(t, p.all()...)
}

// A deployer must not run when its supervisor cannot renew the fence.
func TestPostgresAwayForLong(t *testing.T) {
	p := newPhases(t)
	kill(t, stand.Postgres)
	for _, s := range []*subject{p.queued, p.deploying, p.daemon, p.hauling} {
		s.gone(t, 20*time.Second)
	}
	time.Sleep(long(20*time.Second, 0))
	up := start(t, stand.Postgres)
	p.finish(t, up)
	for _, s := range []*subject{p.queued, p.deploying, p.daemon} {
		s.ended(t, 1, deployment.StatusFailed)
		require.Contains(t, s.build(t, 1).Reason, "the database could not be reached for 15s")
	}
	usable(t, p.all()...)
}

func TestTemporalRestarted(t *testing.T) {
	p := newPhases(t)
	kill(t, stand.Temporal)
	up := start(t, stand.Temporal)
	p.finish(t, up)
	usable(t, p.all()...)
}

// Temporal is away for longer than a worker may be silent.
func TestTemporalAwayForLong(t *testing.T) {
	p := newPhases(t)
	ended := newSubject(t, "ended")
	must(t)(ended.submit(t.Context(), `"deploy":"gate"`))
	ended.noted(t, "start deploy 1")
	kill(t, stand.Temporal)
	ended.openGate(t)
	ended.staged(t, 1)
	time.Sleep(long(40*time.Second, 12*time.Second))
	up := start(t, stand.Temporal)
	p.finish(t, up)
	sound(t, up, ended)
	ended.ended(t, 1, deployment.StatusSucceeded)
	usable(t, append(p.all(), ended)...)
}

// The machine went down, and comes up again.
func TestAllKilled(t *testing.T) {
	p := newPhases(t)
	kill(t, stand.Worker, stand.API, stand.Temporal, stand.Postgres)
	for _, s := range p.all() {
		s.gone(t, gone)
	}
	up := start(t, stand.Postgres, stand.Temporal, stand.Worker, stand.API)
	p.finish(t, up)
	for _, s := range []*subject{p.queued, p.deploying, p.daemon} {
		s.ended(t, 1, deployment.StatusFailed)
	}
	usable(t, p.all()...)
}
