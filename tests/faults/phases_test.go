package faults

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
)

// phases are deployments, each in another phase of its life, that a fault
// meets at once.
type phases struct {
	// evaluating: its submit evaluates, and has no answer. answered gets it.
	evaluating *subject
	answered   chan error
	// accepted: its submit was answered a moment ago.
	accepted *subject
	// queued: build 1 waits at the gate, build 2 for its turn.
	queued *subject
	// deploying: the deployer of build 1 waits at the gate. The one of daemon
	// has started a daemon that ignores SIGTERM.
	deploying, daemon *subject
	// hauling: build 1 is up, the deployer of the destroy waits at the gate.
	// It is nil in a short version: a destroy whose worker was lost is tried
	// again after 30 s, which TestWorkerKilled looks at.
	hauling *subject
}

// newPhases brings deployments into their phases.
func (w *world) newPhases(t *testing.T, hauls bool) *phases {
	t.Helper()
	p := &phases{
		evaluating: w.newSubject(t, "evaluating"), answered: make(chan error, 1),
		accepted: w.newSubject(t, "accepted"), queued: w.newSubject(t, "queued"),
		deploying: w.newSubject(t, "deploying"), daemon: w.newSubject(t, "daemon"),
	}
	members := map[*subject]string{
		p.queued: `"deploy":"gate"`, p.deploying: `"deploy":"gate"`, p.daemon: `"deploy":"daemon-gate"`,
	}
	if hauls {
		p.hauling = w.newSubject(t, "hauling")
		members[p.hauling] = `"destroy":"gate"`
	}
	together(t, slices.Collect(maps.Keys(members)), func(s *subject) error {
		_, err := s.submit(t.Context(), members[s])
		return err
	})
	p.queued.noted(t, "start deploy 1")
	p.deploying.noted(t, "start deploy 1")
	p.daemon.noted(t, "start deploy 1")
	p.daemon.hasDaemon(t)
	if hauls {
		require.NoError(t, p.hauling.becomes(t.Context(), deployment.StateActive, 1))
		require.EqualValues(t, 2, must(t)(p.hauling.destroy(t.Context())))
		p.hauling.noted(t, "start destroy 2")
	}
	require.EqualValues(t, 2, must(t)(p.queued.submit(t.Context(), "")))

	before := len(w.evaluators())
	go func() {
		// Its own text, so that no earlier evaluation is in the cache.
		_, err := p.evaluating.submit(t.Context(), fmt.Sprintf(`"evaluate":"slow","work":4,"note":%q`, t.Name()))
		p.answered <- err
	}()
	await(t, trueWithin, func() error {
		if len(w.evaluators()) <= before {
			return errors.New("no evaluation has begun")
		}
		return nil
	})
	require.EqualValues(t, 1, must(t)(p.accepted.submit(t.Context(), "")))
	return p
}

func (p *phases) all() []*subject {
	return append(p.recorded(), p.evaluating)
}

// recorded are those that have a build.
func (p *phases) recorded() []*subject {
	return append(slices.Collect(maps.Keys(p.atGate())), p.accepted)
}

// atGate are the builds whose deployers wait at the gate.
func (p *phases) atGate() map[*subject]int64 {
	builds := map[*subject]int64{p.queued: 1, p.deploying: 1, p.daemon: 1}
	if p.hauling != nil {
		builds[p.hauling] = 2
	}
	return builds
}

// finish opens the gates, and asserts what must hold in any case. up is when
// all of slipway ran again.
func (p *phases) finish(t *testing.T, up time.Time) {
	t.Helper()
	for _, s := range p.all() {
		s.openGate(t)
	}
	sound(t, up, p.recorded()...)
	// An evaluation takes its time, and nothing is promised before.
	require.NoError(t, <-p.answered)
	sound(t, time.Now(), p.evaluating)
	p.evaluating.ended(t, 1, deployment.StatusSucceeded)
	p.queued.ended(t, 2, deployment.StatusSucceeded)
}

// goesOn asserts that the deployers run that the phases began with.
func (p *phases) goesOn(t *testing.T) {
	t.Helper()
	for s, number := range p.atGate() {
		require.NotEmpty(t, s.deployers(s.id), s.id)
		s.ended(t, number, deployment.StatusRunning)
	}
}

// wentOn asserts that they came to their end, each in one go.
func (p *phases) wentOn(t *testing.T) {
	t.Helper()
	for s, number := range p.atGate() {
		s.ended(t, number, deployment.StatusSucceeded)
		lines, err := s.note()
		require.NoError(t, err)
		build := s.build(t, number)
		require.Equal(t, 1, count(lines, fmt.Sprintf("start %s %d", build.Action, number)), "%q", lines)
	}
}
