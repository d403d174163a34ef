package rolling

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/api/leaseclient"
	"slipway.dev/slipway/tests/stand"
)

// subjects are the deployments that are deployed all the time, and what each
// submit of them says.
var subjects = []struct {
	id, members string
	queue       bool
}{
	{id: "quick", members: `"deploy":"quick"`},
	{id: "long", members: `"deploy":"sleep-2"`},
	{id: "queued", members: `"deploy":"slow-lines-60"`, queue: true},
}

// evaluated is the deployment that is submitted just before each SIGTERM, so that
// one meets an evaluation.
const evaluated = "evaluated"

func TestRolls(t *testing.T) {
	l := &load{t: t, world: all, over: make(chan struct{}), again: map[string]int{}, slowest: map[string]string{}, longest: map[string]time.Duration{}}
	l.now("before")
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	go l.followLeader(watching)
	require.NoError(t, l.awaitLeader())

	var followers []*follower
	setUp := l.caller(true)
	setUp.finished(evaluated, setUp.submit(evaluated, 1, `"deploy":"quick"`))
	ids := []string{evaluated}
	for i, s := range subjects {
		ids = append(ids, s.id)
		setUp.finished(s.id, setUp.submit(s.id, 1, s.members))
		followers = append(followers, l.follower(true, s.id, i%2 == 0), l.follower(false, s.id, i%2 == 1))
	}
	require.False(t, t.Failed(), "the load does not work without a roll")
	session := l.session()

	var clients, listeners sync.WaitGroup
	for _, f := range followers {
		listeners.Go(f.follows)
	}
	for i, s := range subjects {
		c := l.caller(i%2 == 0)
		clients.Go(func() { c.submits(s.id, s.members, s.queue) })
	}
	for _, keep := range []bool{true, false} {
		reader, renewer, taker := l.caller(keep), l.migrator(keep), l.migrator(keep)
		clients.Go(func() { reader.reads(ids) })
		clients.Go(renewer.renews)
		clients.Go(taker.takes)
	}
	time.Sleep(time.Second)

	began := time.Now()
	l.roll("first, API", stand.API, stand.OtherAPI)
	l.roll("first, worker", stand.Worker, stand.Second)
	// As an upgrade of the chart does it.
	var both sync.WaitGroup
	both.Go(func() { l.roll("second, both", stand.OtherAPI, stand.API) })
	both.Go(func() { l.roll("second, both", stand.Second, stand.Worker) })
	both.Wait()
	rolled := time.Since(began)
	l.now("after")
	time.Sleep(500 * time.Millisecond)
	close(l.over)
	clients.Wait()

	t.Logf("rolled for %s, %d requests, a second time:", rolled.Round(100*time.Millisecond), l.requests.Load())
	for what, times := range l.again {
		t.Logf("%4d  %s", times, what)
	}
	for method, took := range l.longest {
		t.Logf("slowest %s: %s, begun %q", method, took.Round(time.Millisecond), l.slowest[method])
	}
	require.NoError(t, session.Err(), "a lease was lost")
	require.NoError(t, session.Release(t.Context()))
	require.Equal(t, 5, l.deployedOnce(evaluated))
	builds := map[string]int{}
	for _, s := range subjects {
		builds[s.id] = l.deployedOnce(s.id)
		require.Greater(t, builds[s.id], 2)
	}
	t.Logf("builds: %v", builds)
	for _, f := range followers {
		f.awaits(builds[f.id] - 1) // of those since it listens
	}
	listeners.Wait()
	for _, f := range followers {
		f.told(builds[f.id])
	}
}

// roll replaces one pod by another. They may be of the API or workers.
func (l *load) roll(name, from, to string) {
	api := from == stand.API || from == stand.OtherAPI
	l.now("%s: %s starts", name, to)
	if !l.require(l.Start(to)) || !l.require(l.ready(l.t.Context(), to)) {
		return
	}
	if api {
		time.Sleep(propagation)
		l.deployments.add(l.Address(to))
	}
	var submit sync.WaitGroup
	defer submit.Wait()
	submit.Go(func() {
		c := l.caller(true)
		c.finished(evaluated, c.submit(evaluated, int(l.evaluations.Add(1))+1, `"deploy":"quick"`))
	})
	time.Sleep(50 * time.Millisecond)
	process := l.Process(from)
	// Nothing that is done here takes as long as the timeout, so whoever waits for
	// that waits for something that does not end.
	began, limit := time.Now(), shutdown
	l.now("%s: %s got SIGTERM", name, from)
	l.require(l.Signal(from, syscall.SIGTERM))
	if api {
		limit += drain
		time.Sleep(removal / 2)
		status, err := l.probe(l.t.Context(), from)
		if status != http.StatusServiceUnavailable {
			l.t.Errorf("%s is still an endpoint and its /readyz is %d, %v", from, status, err)
		}
		time.Sleep(removal / 2)
		l.deployments.remove(l.Address(from))
		l.now("%s: %s is no endpoint any more", name, from)
	}
	select {
	case <-process.Done():
		l.t.Logf("%s: %s ended after %s", name, from, time.Since(began).Round(10*time.Millisecond))
		l.require(process.Err())
	case <-time.After(limit):
		l.t.Errorf("%s has not ended %s after SIGTERM", from, limit)
	}
	l.require(l.Stop(from))
}

func (l *load) require(err error) bool {
	if err != nil {
		l.t.Errorf("%q: %v", *l.phase.Load(), err)
	}
	return err == nil
}

func (l *load) awaitLeader() error {
	deadline := time.Now().Add(time.Minute)
	for {
		l.leases.mu.Lock()
		endpoints := len(l.leases.endpoints)
		l.leases.mu.Unlock()
		if endpoints == 1 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("there are %d leaders", endpoints)
		}
		time.Sleep(probes)
	}
}

func (l *load) roots() *tls.Config {
	ca, err := os.ReadFile(l.kube.Kube.File("lease-ca.crt"))
	require.NoError(l.t, err)
	roots := x509.NewCertPool()
	require.True(l.t, roots.AppendCertsFromPEM(ca))
	return &tls.Config{RootCAs: roots}
}

// session holds a migration lease and a hold as a deploy job does.
func (l *load) session() *leaseclient.Session {
	m := l.migrator(true)
	token := filepath.Join(l.t.TempDir(), "token")
	require.NoError(l.t, os.WriteFile(token, []byte(m.token), 0o600))
	api, err := leaseclient.New(leaseclient.Options{URL: "https://" + l.leases.address(), CAFile: l.kube.Kube.File("lease-ca.crt"), TokenFile: token})
	require.NoError(l.t, err)
	session, err := leaseclient.Acquire(l.t.Context(), api,
		leaseclient.Config{Group: m.group, Instance: "orders-app", OperationID: "job", TTL: 15 * time.Second})
	require.NoError(l.t, err)
	return session
}

// deployedOnce requires that each build of a deployment succeeded, and that its
// deployer ran once and alone. It returns how many there are.
func (l *load) deployedOnce(id string) int {
	client, err := l.Client()
	require.NoError(l.t, err)
	builds, err := client.Builds(l.t.Context(), id, 100, 0)
	require.NoError(l.t, err)
	record, err := os.ReadFile(filepath.Join(l.Record, id))
	require.NoError(l.t, err)
	runs := map[string]int{}
	for line := range strings.Lines(string(record)) {
		runs[strings.Join(strings.Fields(line)[:3], " ")]++
	}
	want := map[string]int{}
	for _, build := range builds {
		require.EqualValues(l.t, "succeeded", build.Status, "build %s/%d: %s", id, build.Number, build.Reason)
		want[fmt.Sprintf("start deploy %d", build.Number)] = 1
		want[fmt.Sprintf("end deploy %d", build.Number)] = 1
	}
	require.Equal(l.t, want, runs)
	return len(builds)
}

// awaits waits until the channel has told that so many builds succeeded, and ends
// it.
func (f *follower) awaits(succeeded int) {
	defer close(f.enough)
	for deadline := time.Now().Add(30 * time.Second); f.succeeded.Load() != int64(succeeded); time.Sleep(probes) {
		if time.Now().After(deadline) {
			f.t.Errorf("the channel of %s told that %d builds succeeded, not %d", f.id, f.succeeded.Load(), succeeded)
			return
		}
	}
}

// told requires that a channel told the end of each build, and all of the logs of
// those that began after it was opened.
func (f *follower) told(builds int) {
	l := f.load
	require.Greater(l.t, f.streams, 2, "the channel of %s was not ended by the rolls", f.id)
	for build := int64(2); build <= int64(builds); build++ {
		require.Equal(l.t, "succeeded", f.statuses[build], "what the channel of %s told of build %d", f.id, build)
		if f.log {
			_, text, err := l.Do(l.t.Context(), http.MethodGet, fmt.Sprintf("/deployments/%s/builds/%d/log", f.id, build), nil, nil)
			require.NoError(l.t, err)
			require.Equal(l.t, string(text), f.logs[build], "what the channel of %s told of the log of build %d", f.id, build)
		}
	}
	l.t.Logf("channel of %s: %d events over %d streams", f.id, f.events, f.streams)
}
