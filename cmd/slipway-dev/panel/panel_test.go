package panel

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"
)

// site is a panel that is served, and its clock.
type site struct {
	*Panel
	server *httptest.Server
	clock  time.Time
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{clock: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.Handler().ServeHTTP(w, r) }))
	t.Cleanup(s.server.Close)
	s.open(t, t.TempDir())
	return s
}

// open starts the panel on a folder.
func (s *site) open(t *testing.T, folder string) {
	t.Helper()
	p, err := New(Options{Folder: folder, Origin: s.server.URL, API: "http://api.example", Audience: "slipway"})
	require.NoError(t, err)
	p.now = func() time.Time { return s.clock }
	s.Panel = p
}

// caller is a browser, or whoever calls.
type caller struct {
	*site
	cookies []*http.Cookie
	header  http.Header
}

func (c caller) with(name, value string) caller {
	header := c.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set(name, value)
	c.header = header
	return c
}

func (c caller) call(t *testing.T, method, path, body string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, c.server.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	for name, values := range c.header {
		request.Header[name] = values
	}
	for _, cookie := range c.cookies {
		request.AddCookie(cookie)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response, string(text)
}

func (c caller) status(t *testing.T, method, path, body string) int {
	t.Helper()
	response, _ := c.call(t, method, path, body)
	return response.StatusCode
}

// do calls and reads the answer.
func do[T any](t *testing.T, c caller, method, path, body string) (answer T) {
	t.Helper()
	response, text := c.call(t, method, path, body)
	require.Less(t, response.StatusCode, 300, text)
	require.NoError(t, json.Unmarshal([]byte(text), &answer), text)
	return answer
}

func (s *site) signedIn(t *testing.T, user string) caller {
	t.Helper()
	response, text := caller{site: s}.call(t, http.MethodPost, "/session", fmt.Sprintf(`{"user":%q}`, user))
	require.Equal(t, http.StatusNoContent, response.StatusCode, text)
	return caller{site: s, cookies: response.Cookies()}
}

type begun struct{ CallbackURL, CallbackToken string }

// idle is what slipway sends, and what a later one may add.
func idle(id string) string {
	return fmt.Sprintf(`{"deploymentId":%q,"build":2,"state":"idle","later":{"more":true}}`, id)
}

func (s *site) slipway(token string) caller {
	return caller{site: s}.with("Authorization", "Bearer "+token)
}

func TestSessionIsACookieThatScriptsAndOtherSitesDoNotGet(t *testing.T) {
	s := newSite(t)
	require.Equal(t, http.StatusUnauthorized, caller{site: s}.status(t, http.MethodGet, "/drafts", ""))
	require.Equal(t, http.StatusBadRequest, caller{site: s}.status(t, http.MethodPost, "/session", `{"user":"mallory"}`))
	amina := s.signedIn(t, "amina")
	cookie := amina.cookies[0]
	require.True(t, cookie.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
	require.Contains(t, cookie.Name, strings.Split(s.server.URL, ":")[2], "a cookie is of all ports of a host")
	require.Equal(t, http.StatusOK, amina.status(t, http.MethodGet, "/drafts", ""))

	stored, err := os.ReadFile(filepath.Join(s.Folder, "panel.json"))
	require.NoError(t, err)
	require.NotContains(t, string(stored), cookie.Value, "only its hash is kept")

	// It stays over a restart, ends by itself, and when asked.
	s.open(t, s.Folder)
	require.Equal(t, http.StatusOK, amina.status(t, http.MethodGet, "/drafts", ""))
	jonas := s.signedIn(t, "jonas")
	require.Equal(t, http.StatusNoContent, jonas.status(t, http.MethodDelete, "/session", ""))
	require.Equal(t, http.StatusUnauthorized, jonas.status(t, http.MethodGet, "/drafts", ""))
	s.clock = s.clock.Add(sessionLife)
	require.Equal(t, http.StatusUnauthorized, amina.status(t, http.MethodGet, "/drafts", ""))
}

func TestPagesOfOtherOriginsCannotUseASession(t *testing.T) {
	s := newSite(t)
	amina := s.signedIn(t, "amina")
	id := do[shown](t, amina, http.MethodPost, "/drafts", `{"name":"Mine"}`).ID
	for _, path := range []string{"POST /drafts", "PUT /drafts/" + id, "DELETE /drafts/" + id, "POST /drafts/" + id + "/deletion", "POST /token", "POST /session", "DELETE /session"} {
		method, path, _ := strings.Cut(path, " ")
		for _, header := range [][2]string{{"Sec-Fetch-Site", "same-site"}, {"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
			require.Equal(t, http.StatusForbidden, amina.with(header[0], header[1]).status(t, method, path, `{}`), "%s %s %v", method, path, header)
		}
	}
	require.Equal(t, http.StatusOK, amina.with("Sec-Fetch-Site", "same-origin").status(t, http.MethodPost, "/token", `{}`))
	require.Equal(t, http.StatusOK, amina.status(t, http.MethodGet, "/drafts/"+id, ""))
}

func TestDraftsBelongToOneUser(t *testing.T) {
	s := newSite(t)
	amina, jonas := s.signedIn(t, "amina"), s.signedIn(t, "jonas")
	d := do[shown](t, amina, http.MethodPost, "/drafts", `{"name":"  Mine "}`)
	require.Equal(t, "Mine", d.Name)
	require.JSONEq(t, `{}`, string(d.Configuration))
	for _, path := range []string{"GET /drafts/" + d.ID, "PUT /drafts/" + d.ID, "DELETE /drafts/" + d.ID, "POST /drafts/" + d.ID + "/deletion"} {
		method, path, _ := strings.Cut(path, " ")
		require.Equal(t, http.StatusNotFound, jonas.status(t, method, path, `{"name":"a","configuration":{},"revision":1}`), path)
	}
	require.Empty(t, do[struct{ Drafts []shown }](t, jonas, http.MethodGet, "/drafts", "").Drafts)

	// Two tabs do not undo each other's changes.
	saved := do[shown](t, amina, http.MethodPut, "/drafts/"+d.ID, `{"name":"New","configuration":{"a":{"b":1.0}},"revision":1}`)
	require.Equal(t, 2, saved.Revision)
	response, text := amina.call(t, http.MethodPut, "/drafts/"+d.ID, `{"name":"Old","configuration":{},"revision":1}`)
	require.Equal(t, http.StatusConflict, response.StatusCode)
	require.Contains(t, text, "changed_meanwhile")
	s.open(t, s.Folder)
	again := do[shown](t, amina, http.MethodGet, "/drafts/"+d.ID, "")
	require.Equal(t, "New", again.Name)
	require.JSONEq(t, `{"a":{"b":1.0}}`, string(again.Configuration))

	for _, bad := range []string{``, `{`, `{"name":""}`, `{"name":"` + strings.Repeat("x", 81) + `"}`, `{"name":"a","owner":"jonas"}`, `{"name":"a\u0000"}`} {
		require.Equal(t, http.StatusBadRequest, amina.status(t, http.MethodPost, "/drafts", bad), bad)
	}
	require.Equal(t, http.StatusRequestEntityTooLarge, amina.status(t, http.MethodPost, "/drafts", `{"name":"`+strings.Repeat("x", 2<<20)+`"}`))
	for range maxDrafts - 1 {
		require.Equal(t, http.StatusCreated, amina.status(t, http.MethodPost, "/drafts", `{"name":"a"}`))
	}
	require.Equal(t, http.StatusConflict, amina.status(t, http.MethodPost, "/drafts", `{"name":"a"}`))
}

func TestAccessTokensNameTheDraftsOfTheirUser(t *testing.T) {
	s := newSite(t)
	amina, jonas := s.signedIn(t, "amina"), s.signedIn(t, "jonas")
	id := do[shown](t, amina, http.MethodPost, "/drafts", `{"name":"Mine"}`).ID

	discovered := do[struct {
		Issuer string
		JWKS   string `json:"jwks_uri"`
	}](t, caller{site: s}, http.MethodGet, "/.well-known/openid-configuration", "")
	require.Equal(t, s.server.URL, discovered.Issuer)
	keys := do[jose.JSONWebKeySet](t, caller{site: s}, http.MethodGet, strings.TrimPrefix(discovered.JWKS, s.server.URL), "")

	for _, c := range []struct {
		caller
		subject string
		want    []any
	}{{amina, "amina", []any{id}}, {jonas, "jonas", []any{}}} {
		answer := do[struct {
			Token     string
			ExpiresIn int
		}](t, c.caller, http.MethodPost, "/token", `{}`)
		require.Equal(t, 300, answer.ExpiresIn)
		token, err := jwt.ParseSigned(answer.Token, []jose.SignatureAlgorithm{jose.ES256})
		require.NoError(t, err)
		var registered jwt.Claims
		var all map[string]any
		require.NoError(t, token.Claims(keys.Key(token.Headers[0].KeyID)[0].Key, &registered, &all))
		require.NoError(t, registered.Validate(jwt.Expected{Issuer: s.server.URL, AnyAudience: jwt.Audience{"slipway"}, Subject: c.subject, Time: s.clock}))
		require.Equal(t, s.clock.Add(tokenLife), registered.Expiry.Time().UTC())
		require.Equal(t, c.want, all["deployments"], "no claim would be every deployment")
	}
}

func TestReconcileTakesItsTokenOnceAndForOneRow(t *testing.T) {
	s := newSite(t)
	amina := s.signedIn(t, "amina")
	draft := func() string { return do[shown](t, amina, http.MethodPost, "/drafts", `{"name":"Mine"}`).ID }
	begin := func(id string) begun {
		return do[begun](t, amina, http.MethodPost, "/drafts/"+id+"/deletion", `{}`)
	}
	one, other := draft(), draft()
	b := begin(one)
	u, err := url.Parse(b.CallbackURL)
	require.NoError(t, err)
	require.Equal(t, s.server.URL, u.Scheme+"://"+u.Host)
	stored, err := os.ReadFile(filepath.Join(s.Folder, "panel.json"))
	require.NoError(t, err)
	require.NotContains(t, string(stored), b.CallbackToken)

	for name, status := range map[string]int{
		"no token":        caller{site: s}.status(t, http.MethodPost, u.Path, idle(one)),
		"only a session":  amina.status(t, http.MethodPost, u.Path, idle(one)),
		"another token":   s.slipway("x"+b.CallbackToken[1:]).status(t, http.MethodPost, u.Path, idle(one)),
		"another row":     s.slipway(b.CallbackToken).status(t, http.MethodPost, "/reconcile/"+other, idle(other)),
		"an unknown row":  s.slipway(b.CallbackToken).status(t, http.MethodPost, "/reconcile/none", idle("none")),
		"as an access to": s.slipway(b.CallbackToken).status(t, http.MethodDelete, "/drafts/"+one, ""),
	} {
		require.Equal(t, http.StatusUnauthorized, status, name)
	}
	require.Equal(t, http.StatusBadRequest, s.slipway(b.CallbackToken).status(t, http.MethodPost, u.Path, idle(other)))
	require.Equal(t, http.StatusBadRequest, s.slipway(b.CallbackToken).status(t, http.MethodPost, u.Path, `{"deploymentId":"`+one+`","build":1,"state":"active"}`))

	// Two tabs may each have begun; whichever token slipway has is good.
	second := begin(one)
	require.Equal(t, http.StatusNoContent, s.slipway(b.CallbackToken).status(t, http.MethodPost, u.Path, idle(one)))
	require.Equal(t, http.StatusNotFound, amina.status(t, http.MethodGet, "/drafts/"+one, ""))
	require.Equal(t, http.StatusUnauthorized, s.slipway(second.CallbackToken).status(t, http.MethodPost, u.Path, idle(one)))

	// Whoever saves a draft wants it, and time ends a deletion too.
	b = begin(other)
	require.Equal(t, http.StatusOK, amina.status(t, http.MethodPut, "/drafts/"+other, `{"name":"Wanted","configuration":{},"revision":1}`))
	require.Equal(t, http.StatusUnauthorized, s.slipway(b.CallbackToken).status(t, http.MethodPost, "/reconcile/"+other, idle(other)))
	b = begin(other)
	s.clock = s.clock.Add(deletionLife)
	require.Equal(t, http.StatusUnauthorized, s.slipway(b.CallbackToken).status(t, http.MethodPost, "/reconcile/"+other, idle(other)))

	amina = s.signedIn(t, "amina")
	require.Equal(t, http.StatusNoContent, amina.status(t, http.MethodDelete, "/drafts/"+other, ""))
	require.Equal(t, http.StatusNotFound, amina.status(t, http.MethodDelete, "/drafts/"+other, ""))
}

func TestEveryAnswerHasThePolicy(t *testing.T) {
	s := newSite(t)
	for _, path := range []string{"/", "/js/app.js", "/panel.css", "/session", "/drafts", "/nothing", "/.well-known/jwks.json"} {
		response, _ := caller{site: s}.call(t, http.MethodGet, path, "")
		policy := response.Header.Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'; script-src 'self'; style-src 'self'", path)
		require.Contains(t, policy, "connect-src 'self' http://api.example;", path)
		require.NotContains(t, policy, "unsafe")
		require.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"))
		require.Empty(t, response.Header.Get("Access-Control-Allow-Origin"))
	}
	_, page := caller{site: s}.call(t, http.MethodGet, "/", "")
	require.NotContains(t, page, "<style")
	require.NotRegexp(t, `<script[^>]*>[^<]`, page)
	require.NotRegexp(t, ` (on\w+|style)=`, page)
}

// TestDocumentation keeps the JavaScript of docs/front-ends.md what the panel
// runs, and the browser tests try.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/front-ends.md")
	require.NoError(t, err)
	parts := strings.Split(string(text), "```js\n")
	require.Greater(t, len(parts), 3)
	for _, part := range parts[1:] {
		first, rest, _ := strings.Cut(part, "\n")
		name, ok := strings.CutPrefix(first, "// cmd/slipway-dev/panel/web/")
		require.True(t, ok, "the first line names the file: %s", first)
		code, _, ok := strings.Cut(rest, "```")
		require.True(t, ok)
		file, err := web.ReadFile("web/" + name)
		require.NoError(t, err)
		require.Contains(t, string(file), strings.TrimSpace(code), name)
	}
}

func TestBadOptionsAndABrokenStore(t *testing.T) {
	for _, origin := range []string{"", "127.0.0.1:3000", "http://127.0.0.1:3000/", "http://127.0.0.1:3000/panel"} {
		_, err := New(Options{Folder: t.TempDir(), Origin: origin})
		require.ErrorContains(t, err, "is not an origin")
	}
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "panel.json"), []byte("{"), 0o600))
	_, err := New(Options{Folder: folder, Origin: "http://127.0.0.1:3000"})
	require.ErrorContains(t, err, "panel.json")
}
