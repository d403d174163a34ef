package coordination

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	temporalclient "go.temporal.io/sdk/client"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"slipway.dev/slipway/cmd/slipway-dev/kube"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/tests/kubestand"
	"slipway.dev/slipway/tests/stand"
)

// all is what the tests of this package share.
var all *shared

type shared struct {
	*stand.Stand
	kube     *kubestand.Stand
	admin    *kubernetes.Clientset
	custom   dynamic.Interface
	temporal temporalclient.Client
	roots    *x509.CertPool
	client   *http.Client
	secrets  secrets
}

// The pods that the replicas of the API believe to be.
const (
	pod      = "slipway-0"
	otherPod = "slipway-1"
)

func TestMain(m *testing.M) {
	// The tests mostly wait, so more of them run at once than there are cores.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	s, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	all = s
	code := m.Run()
	if err := s.check(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "after all tests:", err)
		code = 1
	}
	if code != 0 {
		fmt.Fprintln(os.Stderr, s.Logs())
	}
	if err := s.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

func start() (*shared, error) {
	kubernetesStand, err := kubestand.New()
	if err != nil {
		return nil, err
	}
	s := &shared{kube: kubernetesStand}
	if err := s.start(context.Background()); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *shared) start(ctx context.Context) (err error) {
	if s.admin, err = kubernetes.NewForConfig(s.kube.Admin()); err != nil {
		return err
	}
	if s.custom, err = dynamic.NewForConfig(s.kube.Admin()); err != nil {
		return err
	}
	for _, name := range []string{pod, otherPod} {
		_, err := s.admin.CoreV1().Pods(kube.Namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "slipway", Image: "slipway"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	s.Stand, err = stand.New(stand.Options{
		Kube: s.kube, Pods: map[string]string{stand.API: pod, stand.OtherAPI: otherPod},
		// What is not in the debug log is not in any.
		Env: []string{"SLIPWAY_LOG_LEVEL=debug"}, NotReady: true,
	})
	if err != nil {
		return err
	}
	if err := s.Kill(stand.Worker); err != nil { // leases need none
		return err
	}
	if s.temporal, err = s.TemporalClient(); err != nil {
		return err
	}
	ca, err := os.ReadFile(s.kube.Kube.File("lease-ca.crt"))
	if err != nil {
		return err
	}
	s.roots = x509.NewCertPool()
	s.roots.AppendCertsFromPEM(ca)
	s.client = s.newClient()
	return poll(ctx, time.Minute, func() error { return s.leads(stand.API) })
}

func (s *shared) close() error {
	var errs []error
	if s.temporal != nil {
		s.temporal.Close()
	}
	if s.Stand != nil {
		errs = append(errs, s.Stand.Close())
	}
	return errors.Join(append(errs, s.kube.Close())...)
}

// newClient has connections of its own.
func (s *shared) newClient() *http.Client {
	return &http.Client{
		Timeout:   20 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots}, MaxIdleConnsPerHost: 32},
	}
}

// leads returns nil when a replica answers as the leader: only the leader
// refuses a token that is none.
func (s *shared) leads(piece string) error {
	a, err := s.send(context.Background(), s.client, http.MethodGet, s.LeaseURL(piece)+"/groups/x", nil, "")
	if err == nil && a.status != http.StatusUnauthorized {
		err = fmt.Errorf("%s answers %d %s", piece, a.status, a.body)
	}
	return err
}

// answer of the API.
type answer struct {
	status int
	header http.Header
	body   string
}

func (s *shared) send(ctx context.Context, client *http.Client, method, address string, header http.Header, body string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	s.secrets.addLeaseToken(text)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

// room is a namespace with a group, a database and who may deploy to it.
type room struct {
	t testing.TB
	// piece is the replica of the API that is asked.
	piece                      string
	namespace, group, instance string
	account                    kube.Client
	token                      string
}

// enter makes a room. The group has the name of the namespace, so that no other
// test has it.
func enter(t testing.TB) *room {
	t.Helper()
	r := &room{t: t, piece: stand.API, namespace: all.kube.Namespace(t), instance: "orders-app"}
	r.group = r.namespace
	all.kube.Group(t, r.namespace, r.group)
	r.account = all.kube.ServiceAccount(t, r.namespace, "deploy")
	all.kube.Database(t, r.namespace, r.instance, r.group, r.account)
	r.token = all.bearer(t, r.namespace, "deploy", kube.Audience)
	return r
}

// bearer is a token of a ServiceAccount.
func (s *shared) bearer(t testing.TB, namespace, name string, audiences ...string) string {
	t.Helper()
	token := s.kube.ServiceAccountToken(t, namespace, name, audiences...)
	s.secrets.add(token)
	return token
}

// call sends a request below /deploy/v1 with the token of the room, unless
// header says otherwise.
func (r *room) call(method, path, body string, header http.Header) answer {
	r.t.Helper()
	sent := http.Header{"Authorization": {"Bearer " + r.token}}
	for name, values := range header {
		sent[name] = values
	}
	a, err := all.send(r.t.Context(), all.client, method, all.LeaseURL(r.piece)+path, sent, body)
	require.NoError(r.t, err)
	require.Equal(r.t, []string{"no-store"}, a.header["Cache-Control"])
	require.Equal(r.t, []string{"application/json"}, a.header["Content-Type"])
	return a
}

func (r *room) get() answer { r.t.Helper(); return r.call(http.MethodGet, "/groups/"+r.group, "", nil) }

func (r *room) grant(kind, operation string, ttl int) answer {
	r.t.Helper()
	return r.grantFor(r.instance, kind, operation, ttl)
}

func (r *room) grantFor(instance, kind, operation string, ttl int) answer {
	r.t.Helper()
	body, err := json.Marshal(map[string]any{"kind": kind, "operationId": operation, "instance": instance, "ttlSeconds": ttl})
	require.NoError(r.t, err)
	return r.call(http.MethodPost, "/groups/"+r.group+"/leases", string(body), nil)
}

// granted grants a lease that has to be new, and returns its token.
func (r *room) granted(kind, operation string, ttl int) string {
	r.t.Helper()
	a := r.grant(kind, operation, ttl)
	require.Equal(r.t, http.StatusCreated, a.status, a.body)
	return a.text(r.t, "token")
}

func (r *room) path(kind, operation string) string {
	return "/groups/" + r.group + "/leases/" + kind + "/" + url.PathEscape(operation)
}

func (r *room) renew(kind, operation, token string, ttl int) answer {
	r.t.Helper()
	return r.call(http.MethodPut, r.path(kind, operation), fmt.Sprintf(`{"token":%q,"ttlSeconds":%d}`, token, ttl), nil)
}

func (r *room) release(kind, operation, token string) answer {
	r.t.Helper()
	header := http.Header{}
	if token != "" {
		header["X-Lease-Token"] = []string{token}
	}
	return r.call(http.MethodDelete, r.path(kind, operation), "", header)
}

// change changes the group.
func (r *room) change(change func(group *unstructured.Unstructured)) {
	r.t.Helper()
	all.kube.ChangeGroup(r.t, r.namespace, r.group, change)
}

// set sets a member of the group's status, or removes it for nil.
func (r *room) set(value any, fields ...string) {
	r.t.Helper()
	r.change(func(group *unstructured.Unstructured) { put(r.t, group, value, fields...) })
}

func put(t testing.TB, group *unstructured.Unstructured, value any, fields ...string) {
	fields = append([]string{"status"}, fields...)
	if value == nil {
		unstructured.RemoveNestedField(group.Object, fields...)
		return
	}
	require.NoError(t, unstructured.SetNestedField(group.Object, value, fields...))
}

func (r *room) annotate(name, value string) {
	r.t.Helper()
	r.change(func(group *unstructured.Unstructured) {
		annotations := group.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[name] = value
		group.SetAnnotations(annotations)
	})
}

// look reads the group.
func (r *room) look() *unstructured.Unstructured {
	r.t.Helper()
	group, err := all.groups(r.namespace).Get(r.t.Context(), r.group, metav1.GetOptions{})
	require.NoError(r.t, err)
	return group
}

func (s *shared) groups(namespace string) dynamic.ResourceInterface {
	return s.custom.Resource(schema.GroupVersionResource{Group: "shipstream.io", Version: "v1alpha1", Resource: "mysqlfailovergroups"}).Namespace(namespace)
}

// failover is status.plannedFailover.
func (r *room) failover() map[string]any {
	r.t.Helper()
	found, _, err := unstructured.NestedMap(r.look().Object, "status", "plannedFailover")
	require.NoError(r.t, err)
	return found
}

// record is the record of a lease, where leases of its kind are kept.
func (r *room) record(kind, operation string) lease.Record {
	r.t.Helper()
	name := lease.MutexName(r.group)
	if kind == "failover-hold" {
		name = lease.OperationName(r.group, lease.KindHold, operation)
	}
	found, err := all.admin.CoordinationV1().Leases(r.namespace).Get(r.t.Context(), name, metav1.GetOptions{})
	require.NoError(r.t, err)
	record, err := lease.ParseRecord(found.Annotations[lease.AnnotationRecord])
	require.NoError(r.t, err)
	return record
}

// becomes waits until the record of a lease has a state.
func (r *room) becomes(limit time.Duration, kind, operation string, state lease.State) {
	r.t.Helper()
	await(r.t, limit, func() error {
		if record := r.record(kind, operation); record.State != state {
			return fmt.Errorf("the %s of %s is %s, not %s", kind, operation, record.State, state)
		}
		return nil
	})
}

func (r *room) workflow(kind, operation string) string {
	return wire.LeaseID(wire.LeaseRef{Namespace: r.namespace, Group: r.group, Kind: lease.Kind(kind), OperationID: operation})
}

// events are the messages of the group's Events of a reason.
func (r *room) events(reason string) []string {
	r.t.Helper()
	list, err := all.admin.CoreV1().Events(r.namespace).List(r.t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
	require.NoError(r.t, err)
	var messages []string
	for _, event := range list.Items {
		require.Equal(r.t, "MysqlFailoverGroup", event.InvolvedObject.Kind)
		require.Equal(r.t, r.group, event.InvolvedObject.Name)
		messages = append(messages, event.Type+": "+event.Message)
	}
	return messages
}

// text is a member of the body.
func (a answer) text(t testing.TB, member string) string {
	t.Helper()
	var body map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &body), a.body)
	text, ok := body[member].(string)
	require.True(t, ok, "no text %q in %s", member, a.body)
	return text
}

// placeholders of is.
var placeholders = map[string]string{
	"<token>": `[0-9a-f]{64}`,
	"<time>":  `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z`,
}

// is requires a status and a body, byte for byte but for <token> and <time>.
func (a answer) is(t testing.TB, status int, body string, args ...any) {
	t.Helper()
	pattern := regexp.QuoteMeta(fmt.Sprintf(body, args...))
	for place, expression := range placeholders {
		pattern = strings.ReplaceAll(pattern, regexp.QuoteMeta(place), expression)
	}
	require.Equal(t, status, a.status, a.body)
	require.Regexp(t, "^"+pattern+"$", a.body)
}

// refused is is for a body of only a code.
func (a answer) refused(t testing.TB, status int, code string) {
	t.Helper()
	a.is(t, status, `{"error":"%s"}`, code)
}

// command runs the slipway program and returns what it writes and its exit code.
func command(t testing.TB, args ...string) (string, int) {
	t.Helper()
	cmd := all.Command(args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		require.NotNil(t, cmd.ProcessState, err)
	}
	return output.String(), cmd.ProcessState.ExitCode()
}

// await polls until done returns nil.
func await(t testing.TB, limit time.Duration, done func() error) {
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
			return fmt.Errorf("after %s: %w", limit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
