package panel

import (
	"crypto/rand"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"slipway.dev/slipway/cmd/slipway-dev/issuer"
)

// userOf is who is signed in, by the cookie and by nothing else.
func (p *Panel) userOf(r *http.Request) (User, bool) {
	cookie, err := r.Cookie(p.cookie)
	if err != nil {
		return User{}, false
	}
	id, ok := p.store.userOf(cookie.Value, p.now())
	if !ok {
		return User{}, false
	}
	at := slices.IndexFunc(users, func(u User) bool { return u.ID == id })
	if at < 0 {
		return User{}, false
	}
	return users[at], true
}

func (p *Panel) signedIn(f func(w http.ResponseWriter, r *http.Request, u User) error) http.HandlerFunc {
	return p.handle(func(w http.ResponseWriter, r *http.Request) error {
		user, ok := p.userOf(r)
		if !ok {
			return errSignedOut
		}
		return f(w, r, user)
	})
}

// showSession answers what a page begins with.
func (p *Panel) showSession(w http.ResponseWriter, r *http.Request) error {
	answer := struct {
		API   string `json:"api"`
		Users []User `json:"users"`
		User  *User  `json:"user"`
	}{p.API, users, nil}
	if user, ok := p.userOf(r); ok {
		answer.User = &user
	}
	p.answer(w, http.StatusOK, answer)
	return nil
}

func (p *Panel) signIn(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		User string `json:"user"`
	}
	if err := decode(r, &body); err != nil {
		return err
	}
	if !slices.ContainsFunc(users, func(u User) bool { return u.ID == body.User }) {
		return problem{http.StatusBadRequest, "invalid_request", "there is no such user"}
	}
	// Where somebody is signed in already, that session ends.
	if old, err := r.Cookie(p.cookie); err == nil {
		if err := p.store.signOut(old.Value); err != nil {
			return err
		}
	}
	session, now := rand.Text(), p.now()
	if err := p.store.signIn(body.User, session, now, now.Add(sessionLife)); err != nil {
		return err
	}
	http.SetCookie(w, p.sessionCookie(session, sessionLife))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (p *Panel) signOut(w http.ResponseWriter, r *http.Request) error {
	if cookie, err := r.Cookie(p.cookie); err == nil {
		if err := p.store.signOut(cookie.Value); err != nil {
			return err
		}
	}
	http.SetCookie(w, p.sessionCookie("", -time.Second))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (p *Panel) sessionCookie(value string, life time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: p.cookie, Value: value, Path: "/", MaxAge: int(life / time.Second),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: strings.HasPrefix(p.Origin, "https:"),
	}
}

// token answers an access token for slipway, for the drafts that the user has
// now.
func (p *Panel) token(w http.ResponseWriter, _ *http.Request, u User) error {
	// Empty and there: without the claim a token is for all deployments.
	deployments := []string{}
	for _, d := range p.store.draftsOf(u.ID) {
		deployments = append(deployments, d.ID)
	}
	now := p.now()
	token, err := p.issuer.Token(issuer.Claims{
		Issuer: p.Origin, Audience: p.Audience, Subject: u.ID, Scope: issuer.DefaultScope,
		Deployments: deployments, IssuedAt: now, Expires: now.Add(tokenLife),
	})
	if err != nil {
		return err
	}
	p.answer(w, http.StatusOK, map[string]any{"token": token, "expiresIn": int(tokenLife / time.Second)})
	return nil
}

// discovery is how slipway finds the keys of this issuer (OpenID Connect
// Discovery 1.0).
func (p *Panel) discovery(w http.ResponseWriter, _ *http.Request) error {
	p.answer(w, http.StatusOK, map[string]any{
		"issuer": p.Origin, "jwks_uri": p.Origin + "/.well-known/jwks.json",
		"authorization_endpoint": p.Origin + "/", "response_types_supported": []string{"none"},
		"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"ES256"},
	})
	return nil
}

func (p *Panel) keys(w http.ResponseWriter, _ *http.Request) error {
	set, err := os.ReadFile(p.issuer.JWKSFile)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/jwk-set+json")
	_, err = w.Write(set)
	return err
}
