package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/tests/kubestand"
	"slipway.dev/slipway/tests/stand"
)

const (
	// leaseGroups is how many groups have a lease, and how many clients renew.
	leaseGroups = 50
	// leaseRounds is how often each way has its turn, which lasts leaseTurn:
	// what the machine does meanwhile is the same for all.
	leaseRounds = 5
	leaseTurn   = 3 * time.Second
)

// TestRenewals measures renewals through slipway's API, over TLS, against the
// same calls of the API server without any of slipway, at once and one at a
// time as behind the one mutex of the existing operator.
func TestRenewals(t *testing.T) {
	b := newLeaseBench(t)
	grants := make([]time.Duration, leaseGroups)
	for i := range grants {
		grants[i] = timed(func() { b.grant(t, i) })
	}
	bare := b.bareClient(t)
	var one sync.Mutex
	ways := []struct {
		name  string
		renew func(ctx context.Context, i int) error
		times []time.Duration
	}{
		{name: "slipway", renew: b.renew},
		{name: "bare", renew: bare.renew},
		{name: "mutex", renew: func(ctx context.Context, i int) error {
			one.Lock()
			defer one.Unlock()
			return bare.renew(ctx, i)
		}},
	}
	alone := median(t, 30, func(i int) { require.NoError(t, b.renew(t.Context(), i)) })
	before := b.histories(t)
	for range leaseRounds {
		for i := range ways {
			times, err := atOnce(t.Context(), ways[i].renew)
			require.NoError(t, err, ways[i].name)
			ways[i].times = append(ways[i].times, times...)
		}
	}
	after := b.histories(t)

	rate := func(way int) float64 {
		return float64(len(ways[way].times)) / (leaseRounds * leaseTurn).Seconds()
	}
	tail := func(way int) float64 { return ratio(quantile(ways[way].times, 0.99), quantile(ways[way].times, 0.5)) }
	rates := fmt.Sprintf("renewals/s: slipway %.0f, bare %.0f, mutex %.0f", rate(0), rate(1), rate(2))
	report(t, "(e) rate of bare calls / renewals", rate(1)/rate(0), 1/0.8, rates)
	report(t, "(f) rate behind one mutex / renewals", rate(2)/rate(0), 1/2.5, rates)
	report(t, "(g) p99/p50 of renewals / that of bare calls", tail(0)/tail(1), 2.5,
		fmt.Sprintf("p50 and p99: slipway %s %s, bare %s %s",
			quantile(ways[0].times, 0.5), quantile(ways[0].times, 0.99), quantile(ways[1].times, 0.5), quantile(ways[1].times, 0.99)))
	fmt.Printf("%-46s %6.2f             grant %s, renewal %s, one at a time\n", "(h) a grant / a renewal", ratio(middle(grants), alone), middle(grants), alone)
	report(t, "(i) events that renewals add to histories", float64(after-before), 0,
		len(ways[0].times), " renewals of ", leaseGroups, " leases")
}

func quantile(times []time.Duration, q float64) time.Duration {
	slices.Sort(times)
	return times[int(q*float64(len(times)-1))]
}

// atOnce renews all leases at once, each again and again, for a turn.
func atOnce(ctx context.Context, renew func(ctx context.Context, i int) error) ([]time.Duration, error) {
	var (
		mu    sync.Mutex
		all   []time.Duration
		first error
		done  atomic.Bool
		wg    sync.WaitGroup
	)
	time.AfterFunc(leaseTurn, func() { done.Store(true) })
	for i := range leaseGroups {
		wg.Go(func() {
			var times []time.Duration
			var err error
			for err == nil && !done.Load() {
				start := time.Now()
				err = renew(ctx, i)
				times = append(times, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, times...)
			if first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	return all, first
}

// leaseBench is a slipway with groups of which each has a migration lease.
type leaseBench struct {
	*stand.Stand
	kube      *kubestand.Stand
	namespace string
	account   kube.Client
	bearer    string
	http      *http.Client
	tokens    [leaseGroups]string
}

func newLeaseBench(t *testing.T) *leaseBench {
	t.Helper()
	k, err := kubestand.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.Close()) })
	s, err := stand.New(stand.Options{Kube: k})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Logs()[:0])
		}
		require.NoError(t, s.Close())
	})
	b := &leaseBench{Stand: s, kube: k, namespace: k.Namespace(t)}
	b.account = k.ServiceAccount(t, b.namespace, "deploy")
	b.bearer = k.ServiceAccountToken(t, b.namespace, "deploy", kube.Audience)
	for i := range leaseGroups {
		k.Group(t, b.namespace, leaseGroup(i))
		k.Database(t, b.namespace, leaseGroup(i)+"-app", leaseGroup(i), b.account)
	}
	authority, err := os.ReadFile(k.Kube.File("lease-ca.crt"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority))
	b.http = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, MaxIdleConnsPerHost: leaseGroups, ForceAttemptHTTP2: true,
	}}
	require.Eventually(t, func() bool { // until the replica leads, and has noted the topology
		status, _, err := b.call(t.Context(), http.MethodGet, leaseGroup(leaseGroups-1), nil)
		return err == nil && status == http.StatusOK
	}, time.Minute, 100*time.Millisecond)
	return b
}

func leaseGroup(i int) string { return fmt.Sprintf("orders-%d", i) }

func (b *leaseBench) call(ctx context.Context, method, path string, body any) (int, []byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, b.LeaseURL(stand.API)+"/groups/"+path, strings.NewReader(string(text)))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+b.bearer)
	response, err := b.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err = io.ReadAll(response.Body)
	return response.StatusCode, text, err
}

func (b *leaseBench) grant(t *testing.T, i int) {
	t.Helper()
	status, text, err := b.call(t.Context(), http.MethodPost, leaseGroup(i)+"/leases", map[string]any{
		"kind": lease.KindMigration, "operationId": "bench", "instance": leaseGroup(i) + "-app", "ttlSeconds": 120,
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, string(text))
	var granted struct{ Token string }
	require.NoError(t, json.Unmarshal(text, &granted))
	b.tokens[i] = granted.Token
}

func (b *leaseBench) renew(ctx context.Context, i int) error {
	status, text, err := b.call(ctx, http.MethodPut, leaseGroup(i)+"/leases/migration/bench", map[string]any{"token": b.tokens[i], "ttlSeconds": 120})
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("renewal: %d %s", status, text)
	}
	return err
}

// histories is how many events the workflows of all leases have. A lease that
// is renewed all the time is looked at once in its TTL, which is longer than
// the measurement.
func (b *leaseBench) histories(t *testing.T) (events int64) {
	t.Helper()
	c, err := b.TemporalClient()
	require.NoError(t, err)
	defer c.Close()
	for i := range leaseGroups {
		id := wire.LeaseID(wire.LeaseRef{Namespace: b.namespace, Group: leaseGroup(i), Kind: lease.KindMigration, OperationID: "bench"})
		described, err := c.DescribeWorkflowExecution(t.Context(), id, "")
		require.NoError(t, err)
		events += described.GetWorkflowExecutionInfo().GetHistoryLength()
	}
	return events
}

// bareCalls makes the calls of the API server that a renewal makes, with what
// client-go has for them, and nothing else.
type bareCalls struct {
	custom    rest.Interface
	leases    coordinationclient.LeaseInterface
	namespace string
}

func (b *leaseBench) bareClient(t *testing.T) *bareCalls {
	t.Helper()
	config := b.kube.Slipway()
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	custom := rest.CopyConfig(config)
	custom.APIPath, custom.GroupVersion = "/apis", &schema.GroupVersion{Group: "shipstream.io", Version: "v1alpha1"}
	custom.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	bare := &bareCalls{namespace: b.namespace}
	bare.custom, err = rest.RESTClientForConfigAndClient(custom, httpClient)
	require.NoError(t, err)
	config.ContentType = runtime.ContentTypeProtobuf
	leases, err := coordinationclient.NewForConfigAndClient(config, httpClient)
	require.NoError(t, err)
	bare.leases = leases.Leases(b.namespace)
	return bare
}

func (b *bareCalls) renew(ctx context.Context, i int) error {
	name := leaseGroup(i)
	if _, err := b.custom.Get().Resource("mysqldatabases").Param("limit", "500").DoRaw(ctx); err != nil {
		return err
	}
	if err := b.group(ctx, name); err != nil {
		return err
	}
	mutex, err := b.leases.Get(ctx, lease.MutexName(name), metav1.GetOptions{})
	if err != nil {
		return err
	}
	// That of the operation is not there: it is for a tombstone.
	if _, err := b.leases.Get(ctx, lease.OperationName(name, lease.KindMigration, "bench"), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("the object of the operation: %w", err)
	}
	if err := b.update(ctx, mutex); err != nil {
		return err
	}
	return b.group(ctx, name)
}

func (b *bareCalls) group(ctx context.Context, name string) error {
	_, err := b.custom.Get().Namespace(b.namespace).Resource("mysqlfailovergroups").Name(name).DoRaw(ctx)
	return err
}

func (b *bareCalls) update(ctx context.Context, mutex *coordinationv1.Lease) error {
	now := metav1.NowMicro()
	mutex.Spec.RenewTime = &now
	_, err := b.leases.Update(ctx, mutex, metav1.UpdateOptions{})
	return err
}
