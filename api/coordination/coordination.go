package coordination

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// Cluster is what the API asks the Kubernetes API server, uncached. An error
// says nothing about what was asked for: it could not be found out.
type Cluster interface {
	// Review says whose token it is. ok is false for one that is not accepted
	// for the audience.
	Review(ctx context.Context, token, audience string) (username string, ok bool, err error)
	// Databases are the MysqlDatabases of all namespaces.
	Databases(ctx context.Context) ([]lease.Database, error)
	// Group that is not there, or is being deleted, is an error too.
	Group(ctx context.Context, namespace, name string) (lease.Group, error)
}

// Leases are the records of a group. An answer is a decision, of whatever kind;
// an error means that none was made.
type Leases interface {
	// Observe gives the body of a GET, or an answer that says why not.
	Observe(ctx context.Context, group lease.Group) (lease.Observation, *wire.LeaseAnswer, error)
	// Consider says what a grant would come to, and grants nothing.
	Consider(ctx context.Context, group lease.Group, kind lease.Kind, holder lease.Holder) (wire.LeaseAnswer, error)
	// Renew extends a lease (lease.VerdictRenew).
	Renew(ctx context.Context, group lease.Group, ref wire.LeaseRef, caller lease.Caller, tokenHash string, ttl time.Duration) (wire.LeaseAnswer, error)
	// Peek says what a release would come to, and releases nothing.
	Peek(ctx context.Context, group lease.Group, ref wire.LeaseRef, request wire.ReleaseRequest) (wire.LeaseAnswer, error)
	// Release releases past the workflow.
	Release(ctx context.Context, group lease.Group, ref wire.LeaseRef, request wire.ReleaseRequest) (wire.LeaseAnswer, error)
}

// Workflows grant and release leases, each in the workflow of the lease.
type Workflows interface {
	// Grant grants (lease.VerdictGrant), or renews and rotates the token
	// (lease.VerdictRenew).
	Grant(ctx context.Context, ref wire.LeaseRef, request wire.GrantRequest) (wire.LeaseAnswer, error)
	Release(ctx context.Context, ref wire.LeaseRef, request wire.ReleaseRequest) (wire.LeaseAnswer, error)
}

// Config of the API. Everything is needed but what says otherwise.
type Config struct {
	Cluster   Cluster
	Leases    Leases
	Workflows Workflows
	// Leading reports whether this process holds leader election now.
	Leading func() bool
	// Audience that tokens have to be for.
	Audience string
	// Now is the clock that cached tokens are judged by; time.Now.
	Now func() time.Time
	// Random is where lease tokens come from; crypto/rand.
	Random io.Reader
	// Log gets a line a request, and the causes of failures; see NewLogger.
	Log        *zap.Logger
	Registerer prometheus.Registerer
}

// timeout of a request, in which writes start over and a release falls back.
const timeout = 10 * time.Second

// Handler serves the API. It has to see the path as it was sent: put nothing
// before it that cleans paths, as http.ServeMux does.
type Handler struct {
	Config
	routes  []route
	callers *callers
	metrics metrics
}

// NewHandler makes the handler and registers its metrics.
func NewHandler(c Config) (*Handler, error) {
	if c.Cluster == nil || c.Leases == nil || c.Workflows == nil || c.Leading == nil || c.Audience == "" ||
		c.Log == nil || c.Registerer == nil {
		return nil, errors.New("the configuration of the deployment coordination API is not complete")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	h := &Handler{Config: c, callers: newCallers(c.Now)}
	h.routes = h.table()
	var err error
	h.metrics, err = newMetrics(c.Registerer)
	return h, err
}

// table is the API.
func (h *Handler) table() []route {
	return []route{
		{http.MethodGet, "/deploy/v1/groups/{group}", "group", h.showGroup},
		{http.MethodPost, "/deploy/v1/groups/{group}/leases", "grant", h.grant},
		{http.MethodPut, "/deploy/v1/groups/{group}/leases/{kind}/{operation}", "renew", h.renew},
		{http.MethodDelete, "/deploy/v1/groups/{group}/leases/{kind}/{operation}", "release", h.release},
	}
}

// Server is an http.Server for the handler, to be served with ServeTLS("", "")
// or a TLS listener: the API has no plaintext. Its limits leave a request the
// time that the handler gives it, and the answer some of its own.
func Server(handler http.Handler, tlsConfig *tls.Config) *http.Server {
	return &http.Server{
		Handler:           handler,
		TLSConfig:         tlsConfig,
		ReadHeaderTimeout: timeout / 2,
		ReadTimeout:       timeout,
		WriteTimeout:      timeout + 5*time.Second,
		IdleTimeout:       2 * time.Minute,
		// A bearer token has at most 16 KiB, an escaped operation 384 bytes. One
		// that is too long gets its 401 up to here, and a 431 beyond.
		MaxHeaderBytes: 64 << 10,
	}
}

// call is a request, and what is found out about it on the way.
type call struct {
	*http.Request
	w     http.ResponseWriter
	match match
	// account is the caller, once the token has been accepted.
	account account
	// kind, operationID and instance are those asked for, once they are valid.
	kind                  lease.Kind
	operationID, instance string
	// instances are those that the caller is authorized for; namespace is where
	// their group is.
	instances []string
	namespace string
	// group is set once it has been read.
	group lease.Group
}

// account is a ServiceAccount.
type account struct{ namespace, name string }

// caller of the call, after admit.
func (c *call) caller() lease.Caller {
	return lease.Caller{Namespace: c.account.namespace, ServiceAccount: c.account.name, Instances: c.instances}
}

// ref of the lease of the call, after admit.
func (c *call) ref() wire.LeaseRef {
	return wire.LeaseRef{Namespace: c.namespace, Group: c.match.group, Kind: c.kind, OperationID: c.operationID}
}

// ServeHTTP answers a request, counts it and logs it.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	c := &call{Request: r.WithContext(ctx), w: w, match: matchPath(h.routes, r.Method, r.URL.EscapedPath())}
	answer, err := h.recovered(c)
	status := statusClientGone
	// A body that came too slowly ends the context too, and has an answer.
	_, refused := errors.AsType[*refusal](err)
	if err == nil || refused || !errors.Is(r.Context().Err(), context.Canceled) {
		status = h.write(w, c, answer, err)
	}
	h.record(c, status, time.Since(begin))
	if status == statusClientGone {
		panic(http.ErrAbortHandler) // or the server would send a 200
	}
}

// recovered makes an error of a panic, which is the answer of one request and
// not of all.
func (h *Handler) recovered(c *call) (a answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			h.Log.Error("a request of the deploy api panicked", zap.Any("panic", p), zap.Stack("stack"))
			err = errors.New("panic")
		}
	}()
	return h.serve(c)
}

// serve makes the checks that all calls have in common, in their order.
func (h *Handler) serve(c *call) (answer, error) {
	if !h.Leading() {
		return answer{}, refuse(codeNotLeader, "")
	}
	if err := h.authenticate(c); err != nil {
		return answer{}, err
	}
	if c.match.refusal != nil {
		return answer{}, c.match.refusal
	}
	if err := c.readPath(); err != nil {
		return answer{}, err
	}
	return c.match.serve(c)
}
