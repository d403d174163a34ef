package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"
)

const (
	// refreshEvery is how often keys are fetched that nobody misses, so that
	// one that the issuer withdrew is not believed for longer; refreshAway is
	// how often while the issuer is away.
	refreshEvery = 5 * time.Minute
	refreshAway  = 15 * time.Second
	// fetchEvery is how often keys are fetched because of tokens whose key is
	// not known: anybody can send such a token.
	fetchEvery = 5 * time.Second
	// fetchTimeout bounds a fetch, with discovery and redirects.
	fetchTimeout = 5 * time.Second
	maxRedirects = 3
	maxProblem   = 300 // bytes of an issuer's error in the log
)

// ErrKeysAway: the keys of the issuer cannot be had now, so nobody can say
// whether a token is valid.
var ErrKeysAway = errors.New("the keys of the issuer cannot be had now")

// remoteKeys is an oidc.KeySet of a JWKS URL, given or found by discovery. A
// token whose key is unknown makes it look again. Keys that were fetched once
// stay while the issuer is away.
type remoteKeys struct {
	issuer  Issuer
	now     func() time.Time
	log     *zap.Logger
	fetches singleflight.Group

	mu     sync.Mutex
	keys   []jose.JSONWebKey
	tried  time.Time // when the last fetch began
	failed error     // of the last fetch
}

func newRemoteKeys(issuer Issuer, now func() time.Time, log *zap.Logger) (*remoteKeys, error) {
	from := issuer.JWKSURL
	if from == "" {
		from = issuer.Issuer
	}
	r := &remoteKeys{issuer: issuer, now: now, log: log, failed: errors.New("they were not fetched yet")}
	if err := checkURL(from); err != nil {
		return nil, fmt.Errorf("keys of the issuer: %s %w", from, err)
	}
	if _, err := r.client(); err != nil {
		return nil, err
	}
	return r, nil
}

// checkURL says why keys must not be fetched from a URL: who can change them on
// their way can sign tokens.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return errors.New("is not a URL of the form https://host/path")
	}
	address := net.ParseIP(u.Hostname())
	loopback := u.Hostname() == "localhost" || address != nil && address.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !loopback) {
		return errors.New("is not https, which only this machine may do without")
	}
	return nil
}

// VerifySignature returns the payload of a compact JWS that one of the keys
// signed. Its error is ErrKeysAway where there may be keys that it does not
// know.
func (r *remoteKeys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(token, algorithms())
	if err != nil {
		return nil, fmt.Errorf("parse the token: %w", err)
	}
	if payload, err := verify(jws, r.current()); err == nil {
		return payload, nil
	}
	if err := r.refresh(ctx, fetchEvery); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeysAway, err)
	}
	return verify(jws, r.current())
}

func (r *remoteKeys) current() []jose.JSONWebKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys
}

// run fetches the keys until ctx ends.
func (r *remoteKeys) run(ctx context.Context) {
	for {
		wait := refreshEvery
		if r.refresh(ctx, 0) != nil {
			wait = refreshAway
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// refresh fetches the keys, unless a fetch began less than every ago, and
// returns the error of the last fetch. It waits for no longer than ctx lives;
// others may wait for the same fetch.
func (r *remoteKeys) refresh(ctx context.Context, every time.Duration) error {
	fetched := r.fetches.DoChan("", func() (any, error) {
		r.mu.Lock()
		if !r.tried.IsZero() && r.now().Sub(r.tried) < every {
			defer r.mu.Unlock()
			return nil, r.failed
		}
		r.tried = r.now()
		r.mu.Unlock()
		keys, err := r.fetch(context.WithoutCancel(ctx))
		r.fetched(keys, err)
		return nil, err
	})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case result := <-fetched:
		return result.Err
	}
}

func (r *remoteKeys) fetched(keys []jose.JSONWebKey, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		problem := err.Error()
		r.log.Warn("the keys of an issuer could not be fetched, those from before stay",
			zap.Int("keys", len(r.keys)), zap.String("error", problem[:min(len(problem), maxProblem)]))
	case r.failed != nil:
		r.log.Info("the keys of an issuer were fetched", zap.Int("keys", len(keys)))
	}
	r.failed = err
	if err == nil {
		r.keys = keys
	}
}

func (r *remoteKeys) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	client, err := r.client()
	if err != nil {
		return nil, err
	}
	from := r.issuer.JWKSURL
	if from == "" {
		if from, err = discover(oidc.ClientContext(ctx, client), r.issuer.Issuer); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, fmt.Errorf("keys of the issuer: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("keys of the issuer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("keys of the issuer: %s answers %s", from, response.Status)
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("keys of the issuer: %w", err)
	}
	return parseKeys(content, from)
}

// discover asks the issuer where its keys are (OpenID Connect Discovery 1.0).
func discover(ctx context.Context, issuer string) (string, error) {
	provider, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		return "", fmt.Errorf("discovery of the issuer: %w", err)
	}
	var metadata struct {
		JWKSURI string `json:"jwks_uri"`
	}
	if err := provider.Claims(&metadata); err != nil {
		return "", fmt.Errorf("discovery of the issuer: %w", err)
	}
	if err := checkURL(metadata.JWKSURI); err != nil {
		return "", fmt.Errorf("discovery of the issuer: its jwks_uri %w", err)
	}
	return metadata.JWKSURI, nil
}

// client is a new one for each fetch, so that a file of certificates that
// changed counts.
func (r *remoteKeys) client() (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true
	if r.issuer.CAFile != "" {
		certificates, err := os.ReadFile(r.issuer.CAFile)
		if err != nil {
			return nil, fmt.Errorf("certificates of the issuer: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(certificates) {
			return nil, fmt.Errorf("certificates of the issuer: %s has no certificate (PEM)", r.issuer.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{
		Transport: limited{transport},
		CheckRedirect: func(request *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return errors.New("too many redirects")
			}
			if request.URL.Scheme != via[0].URL.Scheme {
				return errors.New("a redirect to another scheme")
			}
			return nil
		},
	}, nil
}

// limited bounds the bodies of answers.
type limited struct{ http.RoundTripper }

func (l limited) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(request)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxKeySet)
	}
	return response, err
}
