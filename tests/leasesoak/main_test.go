package leasesoak

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	temporalclient "go.temporal.io/sdk/client"

	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/tests/kubestand"
	"slipway.dev/slipway/tests/stand"
)

var (
	// soakTime is how long the soak lasts; 0 when SOAK is not set.
	soakTime time.Duration
	// seed of all choices.
	seed uint64
	// slipway is one with two replicas of the API, for all tests.
	slipway *world
)

func TestMain(m *testing.M) {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if code != 0 {
		fmt.Fprintln(os.Stderr, slipway.Logs())
	}
	if err := slipway.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func prepare() (err error) {
	if text := os.Getenv("SOAK"); text != "" {
		if soakTime, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("SOAK: %w", err)
		}
	}
	seed = uint64(time.Now().UnixNano())
	if text := os.Getenv("SOAK_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			return fmt.Errorf("SOAK_SEED: %w", err)
		}
	}
	fmt.Printf("leasesoak: SOAK_SEED=%d\n", seed)
	slipway, err = newWorld()
	return err
}

// long is for the long version of the tests, and otherwise.
func long[A any](soaking, otherwise A) A {
	if soakTime > 0 {
		return soaking
	}
	return otherwise
}

func random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// world is a slipway with two replicas of the API.
type world struct {
	*stand.Stand
	kube     *kubestand.Stand
	temporal temporalclient.Client
	http     *http.Client
}

var replicas = [...]string{stand.API, stand.OtherAPI}

// patience is how long a caller waits for an answer.
const patience = 4 * time.Second

func newWorld() (*world, error) {
	k, err := kubestand.New()
	if err != nil {
		return nil, err
	}
	s, err := stand.New(stand.Options{Kube: k})
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	w := &world{Stand: s, kube: k}
	if err := w.start(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) start() (err error) {
	if err := w.Start(stand.OtherAPI); err != nil {
		return err
	}
	authority, err := os.ReadFile(w.kube.Kube.File("lease-ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	w.http = &http.Client{Timeout: patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, MaxIdleConnsPerHost: 100,
	}}
	w.temporal, err = w.TemporalClient()
	return err
}

func (w *world) close() error {
	if w.temporal != nil {
		w.temporal.Close()
	}
	return errors.Join(w.Close(), w.kube.Close())
}

// leader is the replica that leads, once there is one.
func (w *world) leader(t *testing.T) string {
	t.Helper()
	var leader string
	await(t, time.Minute, func() error {
		for _, replica := range replicas {
			response, err := w.http.Get(w.LeaseURL(replica) + "/groups/none")
			if err != nil {
				continue
			}
			_ = response.Body.Close()
			if response.StatusCode == http.StatusUnauthorized {
				leader = replica
				return nil
			}
		}
		return errors.New("nobody leads")
	})
	return leader
}

// await polls until done returns nil.
func await(t *testing.T, limit time.Duration, done func() error) {
	t.Helper()
	if err := poll(t.Context(), limit, done); err != nil {
		t.Fatal(err)
	}
}

func poll(ctx context.Context, limit time.Duration, done func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := done()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("after %s: %w", limit.Round(time.Second), err)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// scene is a namespace with groups, of which each has the database app, and a
// ServiceAccount that may deploy to all of them; and what its callers did.
type scene struct {
	*world
	History
	namespace, bearer string
	// leads is the place in replicas of the one that led last.
	leads atomic.Int64
}

func newScene(t *testing.T, groups ...string) *scene {
	t.Helper()
	s := &scene{world: slipway, namespace: slipway.kube.Namespace(t)}
	account := s.kube.ServiceAccount(t, s.namespace, "deploy")
	s.bearer = s.kube.ServiceAccountToken(t, s.namespace, "deploy", kube.Audience)
	for _, group := range groups {
		s.kube.Group(t, s.namespace, group)
		s.kube.Database(t, s.namespace, database(group), group, account)
	}
	return s
}

func database(group string) string { return group + "-app" }

// answer is what a caller of the API gets. Status 0 is none.
type answer struct {
	Status    int
	Error     string
	Token     string
	ExpiresAt time.Time
	Leases    []lease.View
}

// ask sends a request to the replica that led last, and the next one to the
// other where that one does not lead.
func (s *scene) ask(ctx context.Context, method, path string, body any, header http.Header) answer {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // texts and numbers
	}
	at := s.leads.Load()
	request, err := http.NewRequestWithContext(ctx, method, s.LeaseURL(replicas[at])+"/groups/"+path, bytes.NewReader(text))
	if err != nil {
		panic(err) // the path is ours
	}
	if header != nil {
		request.Header = header
	}
	request.Header.Set("Authorization", "Bearer "+s.bearer)
	var a answer
	if response, err := s.http.Do(request); err == nil {
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err == nil && (len(text) == 0 || json.Unmarshal(text, &a) == nil) {
			a.Status = response.StatusCode
		}
	}
	if a.Status == 0 || a.Error == "not_leader" {
		s.leads.CompareAndSwap(at, 1-at)
	}
	return a
}

// do makes a call and records it.
func (s *scene) do(ctx context.Context, c Call) (Call, answer) {
	path := c.Group + "/leases"
	method, header := http.MethodPost, http.Header{}
	seconds := int(c.TTL / time.Second)
	var body any
	switch c.What {
	case Grant:
		body = map[string]any{"kind": c.Kind, "operationId": c.Operation, "instance": database(c.Group), "ttlSeconds": seconds}
	case Renew:
		method, body = http.MethodPut, map[string]any{"token": c.Token, "ttlSeconds": seconds}
	case Release:
		method = http.MethodDelete
		header.Set("X-Lease-Token", c.Token)
	}
	if c.What != Grant {
		path += "/" + string(c.Kind) + "/" + url.PathEscape(c.Operation)
	}
	c.Start = time.Now()
	a := s.ask(ctx, method, path, body, header)
	c.End = time.Now()
	c.ExpiresAt = a.ExpiresAt
	if c.What == Grant {
		c.Token = a.Token
	}
	switch {
	case a.Status >= 200 && a.Status < 300:
		c.Outcome = OK
	case a.Status == 0 || a.Status >= 500:
		c.Outcome = Unknown
	case a.Error == "revoked":
		c.Outcome = Revoked
	default:
		c.Outcome = Refused
	}
	s.Add(c)
	return c, a
}

// check fails the test where the history has what cannot have been.
func (s *scene) check(t *testing.T) {
	t.Helper()
	calls := s.Calls()
	count := map[string]int{}
	for _, c := range calls {
		count[fmt.Sprintf("%s %s", c.What, c.Outcome)]++
	}
	t.Logf("%d calls: %v", len(calls), count)
	for _, finding := range Check(calls) {
		t.Error(finding)
	}
}
