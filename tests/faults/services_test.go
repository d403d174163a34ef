package faults

import (
	"errors"
	"io"
	"net/http"
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
	w := enter(t)
	s := w.newSubject(t, "submit")
	key, request := uuid.NewString(), configuration(`"evaluate":"slow","work":3,"note":"api"`)
	s.asked = 1
	once, err := w.client(-1)
	require.NoError(t, err)
	first := make(chan error, 1)
	go func() {
		for {
			_, err := once.Submit(t.Context(), s.id, request, key)
			if refused := new(client.Error); !errors.As(err, &refused) || refused.Status != 503 {
				first <- err
				return
			}
		}
	}()
	await(t, trueWithin, func() error {
		if len(w.evaluators()) == 0 {
			return errors.New("no evaluation has begun")
		}
		return nil
	})
	w.kill(t, stand.API)
	require.ErrorAs(t, <-first, new(*client.ConnectionError))
	up := w.start(t, stand.API)
	for range 3 {
		submitted, err := w.api.Submit(t.Context(), s.id, request, key)
		require.NoError(t, err)
		require.EqualValues(t, 1, submitted.Build)
	}
	s.promised[1] = deployment.ActionDeploy
	sound(t, up, s)
	s.ended(t, 1, deployment.StatusSucceeded)
	usable(t, s)
}

// PostgreSQL is away for less time than a fence lives, which deployers do not
// notice, and then for more: a deployer must not run when its supervisor cannot
// renew the fence.
func TestPostgresKilled(t *testing.T) {
	w := enter(t)
	p := w.newPhases(t, true)
	w.kill(t, stand.Postgres)
	away := time.Now()
	time.Sleep(long(3*time.Second, time.Second))
	w.start(t, stand.Postgres)
	// The newest renewal was up to 5 s old, and the next try takes up to 1 s.
	// A machine that is slower than that loses deployers in earnest.
	if time.Since(away) < 8*time.Second {
		p.queued.openGate(t)
		await(t, trueWithin, func() error { return p.queued.has(t.Context(), 1, deployment.StatusSucceeded) })
		await(t, trueWithin, func() error { return p.accepted.has(t.Context(), 1, deployment.StatusSucceeded) })
		for _, s := range []*subject{p.deploying, p.daemon, p.hauling} {
			require.NotEmpty(t, s.deployers(s.id))
		}
	}

	w.kill(t, stand.Postgres)
	for _, s := range []*subject{p.deploying, p.daemon, p.hauling} {
		s.gone(t, 20*time.Second)
	}
	time.Sleep(long(30*time.Second, 0))
	up := w.start(t, stand.Postgres)
	p.finish(t, up)
	for s, number := range map[*subject]int64{p.deploying: 1, p.daemon: 1, p.hauling: 2} {
		s.ended(t, number, deployment.StatusFailed)
		require.Equal(t, "the deployer was killed because the database could not be reached for 15s", s.build(t, number).Reason)
	}
	usable(t, p.all()...)
}

// Temporal dies; a deployer ends while it is away.
func TestTemporalKilled(t *testing.T) {
	w := enter(t)
	p := w.newPhases(t, true)
	ended := w.newSubject(t, "ended")
	must(t)(ended.submit(t.Context(), `"deploy":"gate"`))
	ended.noted(t, "start deploy 1")
	w.kill(t, stand.Temporal)
	ended.openGate(t)
	ended.staged(t, 1)
	// Its Service keeps the API, and reads go on.
	response, err := http.Get(w.Readyz(stand.API))
	require.NoError(t, err)
	said, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	require.Equal(t, http.StatusOK, response.StatusCode, string(said))
	require.Regexp(t, `"problems":\["Temporal: `, string(said))
	require.Equal(t, deployment.StatusRunning, ended.build(t, 1).Status)
	time.Sleep(long(40*time.Second, 0))
	up := w.start(t, stand.Temporal)
	p.goesOn(t)
	p.finish(t, up)
	sound(t, up, ended)
	ended.ended(t, 1, deployment.StatusSucceeded)
	p.wentOn(t)
	usable(t, append(p.all(), ended)...)
}

// The machine went down, and comes up again.
func TestAllKilled(t *testing.T) {
	w := enter(t)
	p := w.newPhases(t, soakTime > 0)
	w.kill(t, stand.Worker, stand.API, stand.Temporal, stand.Postgres)
	for _, s := range p.all() {
		s.gone(t, gone)
	}
	up := w.start(t, stand.Postgres, stand.Temporal, stand.Worker, stand.API)
	p.finish(t, up)
	for s, number := range p.atGate() {
		want := deployment.StatusFailed
		if s == p.hauling { // a destroy is repeated
			want = deployment.StatusSucceeded
		}
		s.ended(t, number, want)
	}
	usable(t, p.all()...)
}
