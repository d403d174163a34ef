package callback

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/origin"
)

const (
	// callTimeout is for the whole call, and connectTimeout for each address.
	callTimeout    = 10 * time.Second
	connectTimeout = 3 * time.Second
	// maxAnswer is how much of an answer is read, and maxHeader of its header,
	// in bytes.
	maxAnswer = 64 << 10
	maxHeader = 64 << 10
)

// Resolver looks names up; net.DefaultResolver does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Caller makes calls.
type Caller struct {
	// Resolver is asked once for each call.
	Resolver Resolver
	// TLS is nil for the certificates that the system trusts.
	TLS *tls.Config
}

// body is what a front-end is told.
type body struct {
	DeploymentID string           `json:"deploymentId"`
	Build        int64            `json:"build"`
	State        deployment.State `json:"state"`
}

// refusal is why an address is not called.
type refusal struct{ error }

// Call calls a front-end and says what became of it. Its error is for the log:
// it has neither the path and query of the URL nor the token.
func (c *Caller) Call(ctx context.Context, target origin.Target, token string, ref deployment.Ref) (deployment.Callback, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text, err := json.Marshal(body{ref.Deployment, ref.Build, deployment.StateIdle})
	if err != nil {
		return deployment.Callback{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.URL.String(), bytes.NewReader(text))
	if err != nil {
		return failed("the URL cannot be called"), errors.New("make the request")
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "slipway")

	response, err := c.client(target.Origin).Do(request)
	if err != nil {
		return because(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	// For front-ends that want to be read; the status alone counts.
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxAnswer))
	became := deployment.Callback{State: deployment.CallbackDelivered, Status: response.StatusCode}
	switch status := response.StatusCode; {
	case status >= 200 && status < 300:
		return became, nil
	case status >= 300 && status < 400:
		became.Reason = fmt.Sprintf("the front-end answered %d, and redirects are not followed", status)
	default:
		became.Reason = fmt.Sprintf("the front-end answered %d", status)
	}
	became.State = deployment.CallbackFailed
	return became, errors.New(became.Reason)
}

// client is one that calls the origin and nothing else, once.
func (c *Caller) client(o origin.Origin) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: nil, // a proxy would look the name up once more
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return c.dial(ctx, o, network, address)
			},
			TLSClientConfig:        c.TLS,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// dial connects to an address that was checked, not to a name.
func (c *Caller) dial(ctx context.Context, o origin.Origin, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var found []netip.Addr
	if literal, err := netip.ParseAddr(host); err == nil {
		found = []netip.Addr{literal}
	} else if found, err = c.Resolver.LookupNetIP(ctx, "ip", host); err != nil {
		return nil, err
	}
	for _, a := range found {
		if err := o.CheckAddress(a); err != nil {
			return nil, refusal{err}
		}
	}
	err = &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
	dialer := net.Dialer{Timeout: connectTimeout}
	for _, a := range found {
		var connection net.Conn
		if connection, err = dialer.DialContext(ctx, network, net.JoinHostPort(a.Unmap().String(), port)); err == nil {
			return connection, nil
		}
	}
	return nil, err
}

func failed(reason string) deployment.Callback {
	return deployment.Callback{State: deployment.CallbackFailed, Reason: reason}
}

// because says what became of a call without an answer. The reason does not
// tell what lies behind a name: it is for whoever may read the deployment.
func because(ctx context.Context, err error) (deployment.Callback, error) {
	var whole *url.Error // which has the URL
	if errors.As(err, &whole) {
		err = whole.Err
	}
	var refused refusal
	var lookup *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &refused):
		return deployment.Callback{State: deployment.CallbackRefused, Reason: refused.Error()}, err
	case ctx.Err() != nil:
		return failed(fmt.Sprintf("the front-end did not answer within %s; the call may have arrived", callTimeout)), err
	case errors.As(err, &lookup):
		return failed("the name of the front-end has no address"), err
	case errors.As(err, &certificate):
		return failed("the certificate of the front-end is not trusted"), err
	default:
		return failed("the connection to the front-end failed; the call may have arrived"), err
	}
}
