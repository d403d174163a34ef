package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"slipway.dev/slipway/schema/deployment"
)

// Client calls the deployments API. It may be used from several goroutines.
type Client struct {
	base     *url.URL
	token    func() (string, error)
	http     *http.Client
	agent    string
	patience time.Duration
	trouble  func(error, time.Duration)

	// Tests shorten these.
	firstPause time.Duration
	maxPause   time.Duration
	silence    time.Duration
}

// Options of a Client. The zero value is good.
type Options struct {
	// HTTP makes the requests. Its Timeout must be 0, for it would end the
	// streams; the context of a call ends the call. Nil: a client of its own.
	// Redirects are not followed: a redirect is an *Error.
	HTTP *http.Client
	// UserAgent names the program to the API.
	UserAgent string
	// Patience is how long Submit tries again while the API is away. 0 is 30
	// seconds, below 0 is a single try.
	Patience time.Duration
	// Trouble is called before Submit or Follow waits for another try, with
	// the reason and the wait, and with a nil error once that try was
	// answered. It must return quickly.
	Trouble func(err error, wait time.Duration)
}

// New makes a client of the API at base: "https://slipway.example.org". The
// token source is asked before every request, so that a token may change; one
// that is nil, or that gives no text, sends requests without a token.
func New(base string, token func() (string, error), o Options) (*Client, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		// The error of url.Parse repeats the URL, which may hold a password.
		return nil, errors.New("the URL of the deployments API is not a URL")
	case u.User != nil:
		return nil, errors.New("the URL of the deployments API holds a user or a password; it takes a token only")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.HasSuffix(u.Host, ":"):
		return nil, fmt.Errorf("the URL of the deployments API is %q, and must begin with http:// or https:// and have a host", base)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the URL of the deployments API is %q, and must have no query and no fragment", base)
	}
	c := &Client{
		base:       u,
		token:      token,
		http:       &http.Client{},
		agent:      o.UserAgent,
		patience:   o.Patience,
		trouble:    o.Trouble,
		firstPause: 250 * time.Millisecond,
		maxPause:   15 * time.Second,
		// The API sends a comment every 15 seconds: three of them lost.
		silence: 45 * time.Second,
	}
	if o.HTTP != nil {
		*c.http = *o.HTTP
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if c.patience == 0 {
		c.patience = 30 * time.Second
	}
	if c.trouble == nil {
		c.trouble = func(error, time.Duration) {}
	}
	return c, nil
}

// Submitted says which build a submit or import became.
type Submitted struct {
	DeploymentID string `json:"deploymentId"`
	// Build is 0 for an import that does not deploy.
	Build      int64                 `json:"build"`
	Evaluation deployment.Evaluation `json:"evaluation"`
	// Nodes is empty when the evaluation was skipped.
	Nodes []deployment.Node `json:"nodes"`
}

// MarshalJSON writes it as the API does, with null for no build.
func (s Submitted) MarshalJSON() ([]byte, error) {
	type plain Submitted
	var build *int64
	if s.Build != 0 {
		build = &s.Build
	}
	return json.Marshal(struct {
		plain
		Build *int64 `json:"build"`
	}{plain(s), build})
}

// Previewed is what a submit of a configuration would stand up.
type Previewed struct {
	Nodes                []deployment.Node `json:"nodes"`
	DisabledApplications []string          `json:"disabledApplications"`
	// SecretsSet has the names of the secrets that the configuration itself
	// gives, by application.
	SecretsSet map[string][]string `json:"secretsSet"`
	// Instances are those that the deployment would have.
	Instances []deployment.Instance `json:"instances"`
}

// Destroyed says which build a destroy became.
type Destroyed struct {
	DeploymentID string `json:"deploymentId"`
	// Build is 0 when the deployment was idle already.
	Build int64 `json:"build,omitempty"`
	// State is idle when there was nothing to destroy, and empty otherwise.
	State deployment.State `json:"state,omitempty"`
	// Callback is "accepted", "refused" or "none".
	Callback string `json:"callback,omitempty"`
	// CallbackReason is why it is refused.
	CallbackReason string `json:"callbackReason,omitempty"`
}

// Submit gives a configuration to a deployment, which exists from then on. The
// configuration is a JSON object and is sent as it is. The same key again
// gives the same build; without a key, every call is a submit of its own.
func (c *Client) Submit(ctx context.Context, id string, configuration json.RawMessage, key string) (Submitted, error) {
	body, err := wrap(configuration, "")
	if err != nil {
		return Submitted{}, err
	}
	return c.submit(ctx, call{method: http.MethodPut, path: []string{id}, body: body}, key)
}

// Import gives slipway a deployment that it does not know, with its
// configuration, and deploys it or only stores that. It does what Submit does,
// and also evaluates the system of each node, which may take minutes; a system
// that does not evaluate is a detail of the *Error, with the name of its node.
// The build of an import that does not deploy is 0. A deployment that is known
// is an *Error with the code already_exists.
func (c *Client) Import(ctx context.Context, id string, configuration json.RawMessage, deploy bool, key string) (Submitted, error) {
	body, err := wrap(configuration, fmt.Sprintf(`,"deploy":%t`, deploy))
	if err != nil {
		return Submitted{}, err
	}
	return c.submit(ctx, call{method: http.MethodPost, path: []string{id, "import"}, body: body}, key)
}

// submit makes a call that is taken at most once for its key, and makes it again
// while the API is away.
func (c *Client) submit(ctx context.Context, submit call, key string) (Submitted, error) {
	if key == "" {
		key = uuid.NewString()
	}
	if !isVisible(key) {
		return Submitted{}, errors.New("an idempotency key has visible ASCII characters only")
	}
	submit.header = http.Header{"Idempotency-Key": {key}}

	var giveUp time.Time // the call itself may take minutes
	pauses := c.pauses()
	troubled := false
	for {
		submitted, err := answer[Submitted](ctx, c, submit)
		var refused *Error
		var broken *ConnectionError
		var pause time.Duration
		switch {
		case errors.As(err, &refused) && refused.mayPass():
			pause = max(pauses.next(), refused.RetryAfter)
		case errors.As(err, &broken) && !broken.lasting():
			pause = pauses.next()
		default:
			if troubled {
				c.trouble(nil, 0)
			}
			return submitted, err
		}
		if giveUp.IsZero() {
			giveUp = time.Now().Add(c.patience)
		}
		if time.Now().Add(pause).After(giveUp) {
			return Submitted{}, err
		}
		troubled = true
		c.trouble(err, pause)
		if stopped := sleep(ctx, pause); stopped != nil {
			return Submitted{}, fmt.Errorf("%w; before that: %w", stopped, err)
		}
	}
}

// mayPass: an API that is away, or a proxy that cannot reach it. A 500 is
// neither, and comes again.
func (e *Error) mayPass() bool {
	switch e.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// Preview checks and evaluates a configuration as Submit does, and stores
// nothing.
func (c *Client) Preview(ctx context.Context, id string, configuration json.RawMessage) (Previewed, error) {
	body, err := wrap(configuration, "")
	if err != nil {
		return Previewed{}, err
	}
	return answer[Previewed](ctx, c, call{method: http.MethodPost, path: []string{id, "preview"}, body: body})
}

// Destroy queues a build that takes down what the deployment has up.
func (c *Client) Destroy(ctx context.Context, id string) (Destroyed, error) {
	return answer[Destroyed](ctx, c, call{method: http.MethodDelete, path: []string{id}})
}

// DestroyAndCallBack is Destroy, and asks for a POST to a URL of a front-end,
// with a bearer token of its own, when the destroy has reached idle.
func (c *Client) DestroyAndCallBack(ctx context.Context, id, callback, token string) (Destroyed, error) {
	if !isVisible(callback) || !isVisible(token) {
		return Destroyed{}, errors.New("the URL and the token of a callback have visible ASCII characters only")
	}
	header := http.Header{"X-Callback-Url": {callback}, "X-Callback-Token": {token}}
	return answer[Destroyed](ctx, c, call{method: http.MethodDelete, path: []string{id}, header: header})
}

// maxQuery is how many identifiers the list takes in its query.
const maxQuery = 100

// List reads those of the deployments that exist and that the token may read,
// each once, in the order of the identifiers. At least one identifier, and at
// most 10,000.
func (c *Client) List(ctx context.Context, ids []string) ([]deployment.Deployment, error) {
	type listed struct {
		Deployments []deployment.Deployment `json:"deployments"`
	}
	list := call{method: http.MethodGet, query: url.Values{"id": ids}}
	if len(ids) > maxQuery {
		body, err := json.Marshal(map[string][]string{"ids": ids})
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		list = call{method: http.MethodPost, list: true, body: body}
	}
	found, err := answer[listed](ctx, c, list)
	return found.Deployments, err
}

// Get reads one deployment.
func (c *Client) Get(ctx context.Context, id string) (deployment.Deployment, error) {
	return answer[deployment.Deployment](ctx, c, call{method: http.MethodGet, path: []string{id}})
}

// Builds reads the history of a deployment, newest first: at most limit
// builds (0: as many as the API gives), with numbers below before (0: from the
// newest).
func (c *Client) Builds(ctx context.Context, id string, limit int, before int64) ([]deployment.Build, error) {
	type listed struct {
		Builds []deployment.Build `json:"builds"`
	}
	query := url.Values{}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	if before > 0 {
		query.Set("before", strconv.FormatInt(before, 10))
	}
	found, err := answer[listed](ctx, c, call{method: http.MethodGet, path: []string{id, "builds"}, query: query})
	return found.Builds, err
}

// Build reads one build, with the configuration that it deploys.
func (c *Client) Build(ctx context.Context, ref deployment.Ref) (deployment.Build, error) {
	return answer[deployment.Build](ctx, c, call{method: http.MethodGet, path: buildPath(ref)})
}

// Cancel ends a queued build at once, and asks the deployer of a running one
// to stop; the answer is the build as it is then. A build that has ended is an
// *Error with the code build_ended.
func (c *Client) Cancel(ctx context.Context, ref deployment.Ref) (deployment.Build, error) {
	return answer[deployment.Build](ctx, c, call{method: http.MethodPost, path: buildPath(ref, "cancel")})
}

// Log opens the log of a build, from an offset in bytes. It is UTF-8. With
// follow, it goes on until the build ends, or until the connection does: who
// wants to know which reads the build, and opens the log again from where it
// was. The caller closes it.
func (c *Client) Log(ctx context.Context, ref deployment.Ref, from int64, follow bool) (io.ReadCloser, error) {
	query := url.Values{}
	if from > 0 {
		query.Set("from", strconv.FormatInt(from, 10))
	}
	if follow {
		query.Set("follow", "true")
	}
	response, err := c.do(ctx, call{method: http.MethodGet, path: buildPath(ref, "log"), query: query, accept: "text/plain"})
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// SBOMs reads the state of the SBOM of each node of a deployment, sorted by
// node.
func (c *Client) SBOMs(ctx context.Context, id string) ([]deployment.NodeSBOM, error) {
	type listed struct {
		Nodes []deployment.NodeSBOM `json:"nodes"`
	}
	found, err := answer[listed](ctx, c, call{method: http.MethodGet, root: "sbom-list", path: []string{id}})
	return found.Nodes, err
}

// SBOM opens the SBOM of a node, or with an empty node that of the only one:
// the bytes that the deployer wrote. The last read fails where they are not all
// of them or not the right ones, so nothing of the document is known before. A
// node without an SBOM is an *Error with the code sbom_unavailable and the
// reason. The caller closes it.
func (c *Client) SBOM(ctx context.Context, id, node string) (io.ReadCloser, error) {
	response, err := c.do(ctx, call{method: http.MethodGet, root: "sbom", path: []string{id}, query: ofNode(node), accept: "application/vnd.cyclonedx+json"})
	if err != nil {
		return nil, err
	}
	return &checked{ReadCloser: response.Body, ctx: ctx, client: c, sum: sha256.New(), tag: response.Header.Get("ETag")}, nil
}

// checked is a document whose strong entity tag is its SHA-256.
type checked struct {
	io.ReadCloser
	ctx    context.Context
	client *Client
	sum    hash.Hash
	tag    string
}

func (d *checked) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	d.sum.Write(p[:n])
	switch {
	case err == nil:
	case err != io.EOF:
		err = d.client.broken(d.ctx, err)
	// A weak tag is that of a proxy which encoded the document in its own way.
	case !strings.HasPrefix(d.tag, "W/") && d.tag != `"`+hex.EncodeToString(d.sum.Sum(nil))+`"`:
		err = d.client.broken(d.ctx, errors.New("the document that came is not the one that its ETag names"))
	}
	return n, err
}

// SBOMDiff compares the SBOM of a node, or with an empty node that of the only
// one, with its earlier one. Without an earlier one it is an *Error with the
// code sbom_unavailable.
func (c *Client) SBOMDiff(ctx context.Context, id, node string) (deployment.SBOMDiff, error) {
	return answer[deployment.SBOMDiff](ctx, c, call{method: http.MethodGet, root: "sbom-diff", path: []string{id}, query: ofNode(node)})
}

func ofNode(node string) url.Values {
	if node == "" {
		return nil
	}
	return url.Values{"node": {node}}
}

// Components finds the nodes that have a component, of the deployments that the
// token may read: at most limit (0: as many as the API gives), and whether there
// are more.
func (c *Client) Components(ctx context.Context, q deployment.ComponentQuery, limit int) (uses []deployment.ComponentUse, more bool, err error) {
	type found struct {
		Nodes []deployment.ComponentUse `json:"nodes"`
		More  bool                      `json:"more"`
	}
	query := url.Values{}
	for name, value := range map[string]string{"purl": q.PURL, "name": q.Name, "version": q.Version} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	f, err := answer[found](ctx, c, call{method: http.MethodGet, root: "components", query: query})
	return f.Nodes, f.More, err
}

func buildPath(ref deployment.Ref, rest ...string) []string {
	return append([]string{ref.Deployment, "builds", strconv.FormatInt(ref.Build, 10)}, rest...)
}

// call is one request.
type call struct {
	method string
	// root is the first part of the path; empty for deployments.
	root string
	// path is what follows the root, and begins with the identifier of a
	// deployment; empty where there is none.
	path []string
	// list: /deployments/list, which is no deployment's path.
	list   bool
	query  url.Values
	header http.Header
	body   []byte
	// accept is the media type of the answer; empty for JSON.
	accept string
}

// do makes a request. Every answer that it returns is a success of the media
// type that was asked for, with an open body.
func (c *Client) do(ctx context.Context, l call) (*http.Response, error) {
	path := []string{cmp.Or(l.root, "deployments")}
	if l.list {
		path = append(path, "list")
	}
	if len(l.path) > 0 {
		// An empty identifier, or one with dots, would name another path.
		if err := deployment.CheckID(l.path[0]); err != nil {
			return nil, err
		}
	}
	u := c.base.JoinPath(append(path, l.path...)...)
	u.RawQuery = l.query.Encode()
	request, err := http.NewRequestWithContext(ctx, l.method, u.String(), bytes.NewReader(l.body))
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	for name, values := range l.header {
		request.Header[name] = values
	}
	accept := l.accept
	if accept == "" {
		accept = "application/json"
	}
	request.Header.Set("Accept", accept)
	if l.body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.agent != "" {
		request.Header.Set("User-Agent", c.agent)
	}
	token := ""
	if c.token != nil {
		if token, err = c.token(); err != nil {
			return nil, fmt.Errorf("token: %w", err)
		}
	}
	if token != "" {
		if !isVisible(token) {
			return nil, errors.New("token: it has characters that a token cannot have")
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}

	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		defer func() { _ = response.Body.Close() }()
		return nil, readError(response, token)
	}
	if !isType(response, accept) {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the answer is not %s: is %s the deployments API?", accept, c.base)
	}
	return response, nil
}

// answer makes a request and reads its JSON.
func answer[T any](ctx context.Context, c *Client, l call) (T, error) {
	var value, none T
	response, err := c.do(ctx, l)
	if err != nil {
		return none, err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return none, c.broken(ctx, err)
	}
	if err := json.Unmarshal(data, &value); err != nil {
		return none, fmt.Errorf("the answer is not what the deployments API gives: %w", err)
	}
	return value, nil
}

// broken is the error of a request that got no whole answer.
func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	return &ConnectionError{Base: c.base.String(), Err: err}
}

// wrap makes the body of a submit, with what else is in it, without rewriting the configuration:
// encoding/json would turn it into another text of the same value.
func wrap(configuration json.RawMessage, beside string) ([]byte, error) {
	if !json.Valid(configuration) {
		return nil, errors.New("the configuration is not JSON")
	}
	const before, after = `{"configuration":`, `}`
	body := make([]byte, 0, len(before)+len(configuration)+len(beside)+len(after))
	return append(append(append(append(body, before...), configuration...), beside...), after...), nil
}

// isVisible: may be the value of a header as it is.
func isVisible(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// pauses grow, and are never the same for two clients that lost the same
// server.
type pauses struct{ now, max time.Duration }

func (c *Client) pauses() *pauses { return &pauses{c.firstPause, c.maxPause} }

func (p *pauses) next() time.Duration {
	half := p.now / 2
	p.now = min(2*p.now, p.max)
	return half + rand.N(half+1)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
