package openbao

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/openbao/openbao/api/v2"
	"github.com/prometheus/client_golang/prometheus"

	"slipway.dev/slipway/schema/kvpolicy"
)

// Options says which OpenBao, and as whom. Exactly one of TokenFile, AppRole
// and Kubernetes is set.
type Options struct {
	// Address is its URL, without a path: OPENBAO_ADDR.
	Address string
	// CAFile has the certificate authorities of the server (PEM); empty for those
	// of the system.
	CAFile string
	// Namespace is that of the mount and of the auth method; empty for none.
	Namespace string
	// Mount is the KV v2 engine, Root the folder of all deployments in it. Empty
	// is the default (schema/kvpolicy).
	Mount, Root string

	// TokenFile is a file with a token: OPENBAO_TOKEN_FILE.
	TokenFile string
	AppRole   *AppRole
	// Kubernetes is the auth method of that name.
	Kubernetes *Kubernetes

	// Timeout is how long one request may take; 0 is 5 s.
	Timeout time.Duration
	// Problem is called when Run could not log in or renew, and will try again;
	// nil for nothing. The error holds no credential.
	Problem func(error)
	// Registerer gets the metrics; nil: nobody does.
	Registerer prometheus.Registerer
}

// AppRole is a login by AppRole. The files are read at every login.
type AppRole struct {
	// Mount is where the auth method is mounted; empty is approle.
	Mount        string
	RoleIDFile   string
	SecretIDFile string
}

// Kubernetes is a login with a ServiceAccount token. Its file is read at every
// login, since the kubelet rotates it.
type Kubernetes struct {
	// Mount is where the auth method is mounted; empty is kubernetes.
	Mount     string
	Role      string
	TokenFile string
}

// Client is a client of one OpenBao. It may be used by many at once.
type Client struct {
	options Options
	metrics metrics
	// anonymous has no token.
	anonymous *api.Client

	// turn holds one token while nobody looks at or changes what follows.
	turn    chan struct{}
	session *session
	// failed is why the last login did not succeed, and when that was known.
	failed   error
	failedAt time.Time

	// mounted is that the mount was seen to be a KV v2 engine, plain that the
	// server has no LIST detailed-metadata.
	mounted, plain atomic.Bool
}

// New makes a client. It talks to nobody yet.
func New(options Options) (*Client, error) {
	ways := 0
	for _, set := range []bool{options.TokenFile != "", options.AppRole != nil, options.Kubernetes != nil} {
		if set {
			ways++
		}
	}
	if ways != 1 {
		return nil, errors.New("openbao: exactly one way to log in is needed: a token file, AppRole or Kubernetes auth")
	}
	if options.Mount == "" {
		options.Mount = kvpolicy.Mount
	}
	if options.Root == "" {
		options.Root = kvpolicy.Root
	}
	if options.Timeout == 0 {
		options.Timeout = 5 * time.Second
	}
	options.Mount, options.Root = strings.Trim(options.Mount, "/"), strings.Trim(options.Root, "/")
	for _, folder := range []string{options.Mount, options.Root} {
		if !isFolder(folder) {
			return nil, fmt.Errorf("openbao: %q is not a path of names", folder)
		}
	}
	address, err := url.Parse(options.Address)
	if err != nil || address.Scheme != "https" && address.Scheme != "http" || address.Host == "" || address.User != nil {
		return nil, errors.New("openbao: the address is not of the form https://host:port")
	}
	config := api.NewConfig()
	config.Address = options.Address
	// Activities have retries of their own, and a request of the API has a
	// person who waits.
	config.MaxRetries = 0
	config.Timeout = 0
	if transport, ok := config.HttpClient.Transport.(*http.Transport); ok {
		// A proxy of the environment is not one for secrets.
		transport.Proxy = nil
	}
	if options.CAFile != "" {
		if err := config.ConfigureTLS(&api.TLSConfig{CACert: options.CAFile}); err != nil {
			return nil, fmt.Errorf("openbao: CA file: %w", err)
		}
	}
	client, err := api.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("openbao: %w", err)
	}
	if options.Namespace != "" {
		client.SetNamespace(options.Namespace)
	}
	metrics, err := newMetrics(options.Registerer)
	if err != nil {
		return nil, err
	}
	c := &Client{options: options, metrics: metrics, anonymous: client, turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c, nil
}

// call is one request to the server.
type call struct {
	method string
	// path is behind /v1/.
	path string
	list bool
	body any
	// wrap is for how long the answer is to be kept for whoever has the token.
	wrap time.Duration
}

// answer is what the server said.
type answer struct {
	Data     json.RawMessage `json:"data"`
	Auth     *authorization  `json:"auth"`
	WrapInfo *struct {
		Token string `json:"token"`
	} `json:"wrap_info"`
	Warnings []string `json:"warnings"`

	// at is the time of the server, to the second.
	at time.Time
}

// send sends a request as it is. Its error may hold anything: failure makes it
// one to show.
func (c *Client) send(ctx context.Context, client *api.Client, r call) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	request := client.NewRequest(r.method, "/v1/"+r.path)
	if r.list {
		request.Params.Set("list", "true")
	}
	request.WrapTTL = ""
	if r.wrap > 0 {
		request.WrapTTL = fmt.Sprintf("%ds", int(r.wrap.Seconds()))
	}
	if err := request.SetJSONBody(r.body); err != nil {
		return answer{}, errors.New("the request cannot be written as JSON")
	}
	begin := time.Now()
	response, err := client.RawRequestWithContext(ctx, request)
	if response == nil {
		c.metrics.answered(nil, time.Since(begin))
		return answer{}, err
	}
	c.metrics.answered(response.Response, time.Since(begin))
	defer func() { _ = response.Body.Close() }()
	var a answer
	if response.StatusCode != http.StatusNoContent {
		if failed := response.DecodeJSON(&a); failed != nil && err == nil {
			err = ctx.Err()
			if err == nil {
				err = notUnderstood("talk to " + c.options.Address)
			}
		}
	}
	var refused *api.ResponseError
	if errors.As(err, &refused) && client.Token() != "" {
		for i, said := range refused.Errors {
			refused.Errors[i] = strings.ReplaceAll(said, client.Token(), "…")
		}
	}
	// The KV engine says only in a warning that it has no such endpoint, and
	// looks as if nothing were there.
	if refused != nil && refused.StatusCode == http.StatusNotFound && strings.Contains(strings.Join(a.Warnings, " "), invalidPath) {
		refused.Errors = append(refused.Errors, a.Warnings...)
	}
	if a.at, _ = http.ParseTime(response.Header.Get("Date")); a.at.IsZero() {
		a.at = time.Now()
	}
	return a, err
}

// do sends a request with the token of the session, and once more after a new
// login where that token is not valid any more.
func (c *Client) do(ctx context.Context, r call) (answer, error) {
	s, err := c.current(ctx)
	if err != nil {
		return answer{}, err
	}
	a, err := c.send(ctx, s.client, r)
	// A refusal does not say whether the token or its policy is at fault.
	if !hasStatus(err, http.StatusForbidden) || c.isValid(ctx, s) {
		return a, err
	}
	if s, err = c.after(ctx, s); err != nil {
		return answer{}, err
	}
	return c.send(ctx, s.client, r)
}

// ready checks once that the mount is a KV v2 engine: another version answers
// as if it were empty.
func (c *Client) ready(ctx context.Context) error {
	if c.mounted.Load() {
		return nil
	}
	return c.Check(ctx)
}

// Check asks the server, with a token of the login, whether the mount is a KV v2
// engine. Its error is an *UnavailableError.
func (c *Client) Check(ctx context.Context) error {
	what := "look at the mount " + c.options.Mount
	a, err := c.do(ctx, call{method: http.MethodGet, path: "sys/internal/ui/mounts/" + c.options.Mount})
	if err != nil {
		return c.failure(ctx, what, err, false)
	}
	var mount struct {
		Path    string            `json:"path"`
		Type    string            `json:"type"`
		Options map[string]string `json:"options"`
	}
	if err := json.Unmarshal(a.Data, &mount); err != nil {
		return notUnderstood(what)
	}
	if strings.Trim(mount.Path, "/") != c.options.Mount || mount.Type != "kv" || mount.Options["version"] != "2" {
		return unavailable(ReasonMount, "%s: there is an engine %q of version %q at %s, and no KV v2 engine; check SLIPWAY_OPENBAO_MOUNT",
			what, mount.Type, mount.Options["version"], mount.Path)
	}
	c.mounted.Store(true)
	return nil
}

// names is what names a mount, and a folder in one.
const names = `^[A-Za-z0-9_-]+([./][A-Za-z0-9_-]+)*$`

func isFolder(path string) bool {
	matches, err := regexp.MatchString(names, path)
	return err == nil && matches
}
