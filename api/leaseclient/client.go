package leaseclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"slipway.dev/slipway/schema/lease"
)

// Options of a Client.
type Options struct {
	// URL of the API: "https://bloodraven.bloodraven.svc.cluster.local:8443",
	// with or without /deploy/v1.
	URL string
	// CAFile holds the certificates (PEM) that the server's has to be signed
	// by. Empty: those that the system trusts.
	CAFile string
	// TokenFile holds the ServiceAccount token. It is read for every request,
	// because the token rotates.
	TokenFile string
	// Proxy finds the proxy of a request, as http.Transport has it; nil: none.
	Proxy func(*http.Request) (*url.URL, error)
	// UserAgent names the program to the API.
	UserAgent string
}

// Client calls the API, one request a call, and tries nothing again: Session
// does. It may be used from several goroutines. The context of a call should
// have a deadline, for nothing else ends a call that is never answered.
type Client struct {
	base      *url.URL
	tokenFile string
	agent     string
	http      *http.Client
}

const apiPath = "/deploy/v1"

// New makes a Client. Its errors name the option that is wrong.
func New(o Options) (*Client, error) {
	base, err := url.Parse(o.URL)
	switch {
	case err != nil:
		// The error of url.Parse repeats the URL, which may hold a password.
		return nil, errors.New("the URL of the lease API is not a URL")
	case base.Scheme != "https" || base.Hostname() == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("the URL of the lease API has to begin with https:// and has a host and a path only")
	case o.TokenFile == "":
		return nil, errors.New("there is no token file")
	}
	if path := strings.TrimSuffix(base.Path, "/"); path == "" {
		base.Path = apiPath
	} else {
		base.Path = path
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("CA file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA file: %s has no certificate (PEM)", o.CAFile)
		}
	}
	return &Client{
		base: base, tokenFile: o.TokenFile, agent: o.UserAgent,
		http: &http.Client{
			// HTTP/1.1 on purpose: a request that is given up closes its
			// connection, while one of HTTP/2 would leave the next request on a
			// connection that may be dead.
			Transport: &http.Transport{
				Proxy: o.Proxy, TLSClientConfig: config, MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute,
				DialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Observe reads the group. What it says is no permission to go on after a lease
// was lost. 423 is an *Error while the topology settles.
func (c *Client) Observe(ctx context.Context, group string) (lease.Observation, error) {
	var o lease.Observation
	_, err := c.call(ctx, http.MethodGet, []string{group}, nil, nil, &o)
	return o, err
}

// Request asks for a lease.
type Request struct {
	Kind        lease.Kind `json:"kind"`
	OperationID string     `json:"operationId"`
	Instance    string     `json:"instance"`
	// TTL in seconds; the API brings it into 5 to 120.
	TTL int64 `json:"ttlSeconds"`
}

// Grant is a lease that was granted.
type Grant struct {
	// Token owns the lease. It is told once; it is a secret.
	Token              string    `json:"token"`
	ExpiresAt          time.Time `json:"expiresAt"`
	TopologyGeneration int64     `json:"topologyGeneration"`
	// New is false where the operation had the lease already: its earlier token
	// is worthless from now on.
	New bool `json:"-"`
}

// Grant asks for a lease. Who calls it for an operation that may be held by
// another process takes that one's lease away.
func (c *Client) Grant(ctx context.Context, group string, r Request) (Grant, error) {
	var g Grant
	status, err := c.call(ctx, http.MethodPost, []string{group, "leases"}, r, nil, &g)
	g.New = status == http.StatusCreated
	if err == nil && g.Token == "" {
		return Grant{}, errors.New("the answer is not what the lease API gives: no token")
	}
	return g, err
}

// Lease names a lease that is held.
type Lease struct {
	Group       string
	Kind        lease.Kind
	OperationID string
	Token       string
}

// Renewal is a lease that was renewed.
type Renewal struct {
	ExpiresAt          time.Time `json:"expiresAt"`
	TopologyGeneration int64     `json:"topologyGeneration"`
}

// Renew renews a lease for ttl seconds.
func (c *Client) Renew(ctx context.Context, l Lease, ttl int64) (Renewal, error) {
	var r Renewal
	body := struct {
		Token string `json:"token"`
		TTL   int64  `json:"ttlSeconds"`
	}{l.Token, ttl}
	_, err := c.call(ctx, http.MethodPut, l.path(), body, nil, &r)
	return r, err
}

// Release gives a lease back. One that is not held any more is no error.
func (c *Client) Release(ctx context.Context, l Lease) error {
	_, err := c.call(ctx, http.MethodDelete, l.path(), nil, http.Header{"X-Lease-Token": {l.Token}}, nil)
	return err
}

func (l Lease) path() []string { return []string{l.Group, "leases", string(l.Kind), l.OperationID} }

// maxAnswer is as much of an answer as is read: the leases of a group.
const maxAnswer = 4 << 20

// call makes a request and reads the JSON of a success into an object.
func (c *Client) call(ctx context.Context, method string, path []string, body any, header http.Header, into any) (status int, err error) {
	token, err := c.token()
	if err != nil {
		return 0, err
	}
	address := c.base.String() + "/groups"
	for _, segment := range path {
		segment = url.PathEscape(segment)
		if strings.Trim(segment, ".") == "" { // an operation may be "..", and would name another path
			segment = strings.ReplaceAll(segment, ".", "%2E")
		}
		address += "/" + segment
	}
	var sent []byte
	if body != nil {
		if sent, err = json.Marshal(body); err != nil {
			return 0, fmt.Errorf("request: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(sent))
	if err != nil {
		return 0, fmt.Errorf("request: %w", err)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	if c.agent != "" {
		request.Header.Set("User-Agent", c.agent)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, c.broken(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, c.broken(err)
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return response.StatusCode, refusal(response.StatusCode, kind, answer)
	}
	if into == nil {
		return response.StatusCode, nil
	}
	if kind != "application/json" || json.Unmarshal(answer, into) != nil {
		return response.StatusCode, fmt.Errorf("the answer is not what the lease API gives: is it at %s?", c.base)
	}
	return response.StatusCode, nil
}

// token reads the file anew.
func (c *Client) token() (string, error) {
	text, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("token file: %s is empty", c.tokenFile)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("token file: %s does not hold one token", c.tokenFile)
	}
	return token, nil
}

func (c *Client) broken(err error) error {
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}
	return &ConnectionError{URL: c.base.String(), Err: err}
}

func refusal(status int, kind string, answer []byte) error {
	e := &Error{Status: status}
	var body struct {
		Code               Code    `json:"error"`
		Reason             string  `json:"reason"`
		Holder             *Holder `json:"holder"`
		TopologyGeneration int64   `json:"topologyGeneration"`
		RetryAfterSeconds  int     `json:"retryAfterSeconds"`
	}
	if kind == "application/json" && json.Unmarshal(answer, &body) == nil {
		e.Code, e.Reason, e.Holder, e.TopologyGeneration = body.Code, body.Reason, body.Holder, body.TopologyGeneration
		e.RetryAfter = time.Duration(max(0, body.RetryAfterSeconds)) * time.Second
	}
	return e
}
