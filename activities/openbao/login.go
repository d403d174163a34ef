package openbao

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/openbao/openbao/api/v2"
)

// authorization is what a login or a renewal gives.
type authorization struct {
	Token string `json:"client_token"`
	// Lease is in seconds; 0 is a token without an end.
	Lease     int  `json:"lease_duration"`
	Renewable bool `json:"renewable"`
}

// session is a token and what is known of it. It never changes: a renewal makes
// another.
type session struct {
	client    *api.Client
	token     string
	renewable bool
	// granted is how long the token was given for at first, 0 for without an
	// end; lease is from the time at.
	granted, lease time.Duration
	at             time.Time
}

// isOver reports whether the token has ended by the clock of this process.
func (s *session) isOver(now time.Time) bool { return s.lease > 0 && now.Sub(s.at) >= s.lease }

// due is when the token is to be renewed: at two thirds of its time.
func (s *session) due() time.Time { return s.at.Add(s.lease * 2 / 3) }

// current is the session, after a login where there is none or where another
// token is in the file.
func (c *Client) current(ctx context.Context) (*session, error) {
	asked := time.Now()
	if err := c.take(ctx); err != nil {
		return nil, err
	}
	defer c.give()
	if s := c.session; s != nil && !s.isOver(time.Now()) && !c.isReplaced(s) {
		return s, nil
	}
	return c.loginOnce(ctx, asked)
}

// take takes the turn, which give gives back.
func (c *Client) take(ctx context.Context) error {
	select {
	case <-c.turn:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a login to OpenBao: %w", context.Cause(ctx))
	}
}

func (c *Client) give() { c.turn <- struct{}{} }

// loginOnce logs in, unless somebody else has tried in vain since asked: those
// who wait for an OpenBao that is away wait for one time limit, not for as many
// as they are.
func (c *Client) loginOnce(ctx context.Context, asked time.Time) (*session, error) {
	if c.failed != nil && c.failedAt.After(asked) {
		return nil, c.failed
	}
	s, err := c.login(ctx)
	if err == nil || ctx.Err() == nil {
		c.failed, c.failedAt = err, time.Now()
	}
	return s, err
}

// isReplaced reports whether another token is in the token file.
func (c *Client) isReplaced(s *session) bool {
	if c.options.TokenFile == "" {
		return false
	}
	token, err := credential(c.options.TokenFile)
	return err == nil && token != s.token
}

// after is a session that follows one whose token is not valid any more.
func (c *Client) after(ctx context.Context, s *session) (*session, error) {
	asked := time.Now()
	if err := c.take(ctx); err != nil {
		return nil, err
	}
	defer c.give()
	if c.session != nil && c.session.token != s.token {
		return c.session, nil
	}
	c.session = nil
	return c.loginOnce(ctx, asked)
}

// isValid asks whether the token of a session is. Where that cannot be found
// out, it is.
func (c *Client) isValid(ctx context.Context, s *session) bool {
	_, err := c.send(ctx, s.client, call{method: http.MethodGet, path: "auth/token/lookup-self"})
	return !hasStatus(err, http.StatusForbidden)
}

// login replaces the session, once it has another. The caller has the turn.
func (c *Client) login(ctx context.Context) (*session, error) {
	var s *session
	var err error
	switch o := c.options; {
	case o.AppRole != nil:
		s, err = c.loginWith(ctx, or(o.AppRole.Mount, "approle"), map[string]string{"role_id": o.AppRole.RoleIDFile, "secret_id": o.AppRole.SecretIDFile}, nil)
	case o.Kubernetes != nil:
		s, err = c.loginWith(ctx, or(o.Kubernetes.Mount, "kubernetes"), map[string]string{"jwt": o.Kubernetes.TokenFile}, map[string]string{"role": o.Kubernetes.Role})
	default:
		s, err = c.loginByFile(ctx)
	}
	if err != nil {
		return nil, err
	}
	c.session = s
	return s, nil
}

func or(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}

// loginWith logs in by an auth method with the contents of files and other
// parameters.
func (c *Client) loginWith(ctx context.Context, mount string, files, others map[string]string) (*session, error) {
	what := "log in by " + mount
	body := map[string]string{}
	for name, value := range others {
		body[name] = value
	}
	for name, path := range files {
		text, err := credential(path)
		if err != nil {
			return nil, unavailable(ReasonLogin, "%s: %v", what, err)
		}
		body[name] = text
	}
	a, err := c.send(ctx, c.anonymous, call{method: http.MethodPost, path: "auth/" + mount + "/login", body: body})
	switch {
	case hasStatus(err, http.StatusForbidden), hasStatus(err, http.StatusBadRequest), isAbsent(err), isNoRoute(err),
		// Of a wrong secret ID, by some versions.
		says(err, http.StatusInternalServerError, "invalid"):
		return nil, unavailable(ReasonLogin, "%s: OpenBao refuses the login; check the auth method %s, its role and the credentials", what, mount)
	case err != nil:
		return nil, c.failure(ctx, what, err, true)
	case a.Auth == nil || a.Auth.Token == "":
		return nil, unavailable(ReasonLogin, "%s: the answer of OpenBao has no token", what)
	}
	return c.newSession(*a.Auth)
}

// loginByFile takes the token of the file, and asks how long it lasts.
func (c *Client) loginByFile(ctx context.Context) (*session, error) {
	what := "use the token of " + c.options.TokenFile
	token, err := credential(c.options.TokenFile)
	if err != nil {
		return nil, unavailable(ReasonLogin, "%s: %v", what, err)
	}
	s, err := c.newSession(authorization{Token: token})
	if err != nil {
		return nil, err
	}
	a, err := c.send(ctx, s.client, call{method: http.MethodGet, path: "auth/token/lookup-self"})
	if hasStatus(err, http.StatusForbidden) {
		return nil, unavailable(ReasonLogin, "%s: OpenBao does not know it: it has expired or was revoked, or may not look itself up; put a new one there", what)
	}
	if err != nil {
		return nil, c.failure(ctx, what, err, true)
	}
	var self struct {
		TTL       int     `json:"ttl"` // seconds, rounded down
		Ends      *string `json:"expire_time"`
		Renewable bool    `json:"renewable"`
	}
	if err := unmarshal(a.Data, &self); err != nil {
		return nil, notUnderstood(what)
	}
	if self.Ends != nil {
		// 0 is also what a token has in its last second.
		self.TTL = max(self.TTL, 1)
	}
	return c.newSession(authorization{Token: token, Lease: self.TTL, Renewable: self.Renewable})
}

func (c *Client) newSession(a authorization) (*session, error) {
	client, err := c.anonymous.CloneWithHeaders()
	if err != nil {
		return nil, fmt.Errorf("openbao: %w", err)
	}
	client.SetToken(a.Token)
	lease := time.Duration(a.Lease) * time.Second
	return &session{client: client, token: a.Token, renewable: a.Renewable, granted: lease, lease: lease, at: time.Now()}, nil
}

// credential reads a file of one word.
func credential(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	word := strings.TrimSpace(string(text))
	// The client would otherwise repeat it in its error.
	if word == "" || strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("the file %s does not hold one word", path)
	}
	return word, nil
}

// Times of Run.
const (
	// look is how often it looks at a token that needs nothing.
	look = time.Minute
	// again is how soon it tries again after an error, at most.
	again = 10 * time.Second
)

// Run logs in and keeps the token alive, until ctx is done. Without it, a
// client that is not used for long finds its token expired, and a token file
// then has nothing to log in with again.
func (c *Client) Run(ctx context.Context) {
	for {
		wait, err := c.tend(ctx)
		if err != nil && ctx.Err() == nil {
			c.metrics.logins.Inc()
		}
		if err != nil && ctx.Err() == nil && c.options.Problem != nil {
			c.options.Problem(err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// tend does for the token what is due, and says when to look again.
func (c *Client) tend(ctx context.Context) (time.Duration, error) {
	s, err := c.current(ctx)
	if err != nil {
		return again, err
	}
	if s.lease == 0 {
		return look, nil
	}
	if wait := time.Until(s.due()); wait > 0 {
		return min(wait, look), nil
	}
	next, err := c.renew(ctx, s)
	if err != nil {
		return min(again, max(s.granted/10, 100*time.Millisecond)), err
	}
	return max(min(time.Until(next.due()), look), 100*time.Millisecond), nil
}

// renew renews the token of a session, or replaces it by a login: where it is
// not renewable, and where a renewal gives it less than half of its time because
// it nears its end.
func (c *Client) renew(ctx context.Context, s *session) (*session, error) {
	const what = "renew the token"
	onlyFile := c.options.TokenFile != ""
	if !s.renewable && onlyFile {
		return nil, unavailable(ReasonLogin, "%s: that of %s is not renewable and ends at %s; put a new one there",
			what, c.options.TokenFile, s.at.Add(s.lease).UTC().Format(time.RFC3339))
	}
	if s.renewable {
		a, err := c.send(ctx, s.client, call{method: http.MethodPost, path: "auth/token/renew-self", body: map[string]string{}})
		if err == nil && a.Auth == nil {
			err = errors.New("the answer has no token")
		}
		if err != nil && onlyFile {
			return nil, c.failure(ctx, what, err, false)
		}
		if err == nil && (onlyFile || a.Auth.Lease == 0 || time.Duration(a.Auth.Lease)*time.Second >= s.granted/2) {
			return c.renewed(ctx, s, *a.Auth)
		}
	}
	if err := c.take(ctx); err != nil {
		return nil, err
	}
	defer c.give()
	return c.login(ctx)
}

// renewed is the session that follows one by its renewal.
func (c *Client) renewed(ctx context.Context, s *session, a authorization) (*session, error) {
	next, err := c.newSession(authorization{Token: s.token, Lease: a.Lease, Renewable: a.Renewable})
	if err != nil {
		return nil, err
	}
	next.granted = s.granted
	if err := c.take(ctx); err != nil {
		return nil, err
	}
	defer c.give()
	if c.session == s {
		c.session = next
	}
	return next, nil
}
