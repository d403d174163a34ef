package panel

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"slipway.dev/slipway/cmd/slipway-dev/issuer"
)

// Options of a panel. Everything is needed but what says otherwise.
type Options struct {
	// Folder holds its store and its key pair.
	Folder string
	// Origin is where browsers and slipway reach it, http://host:port. It is
	// the issuer of its tokens too.
	Origin string
	// API is the URL of the deployments API, as browsers reach it.
	API string
	// Audience is what slipway wants in a token.
	Audience string
	// Log receives what went wrong; none where it is nil.
	Log *log.Logger
}

// How long things last. An access token is short: it is the only thing that a
// page has and that slipway takes.
const (
	sessionLife  = 12 * time.Hour
	tokenLife    = 5 * time.Minute
	deletionLife = 24 * time.Hour
)

// maxBody is what the panel reads of a request; a configuration has at most
// 1 MiB.
const maxBody = 1<<20 + 64<<10

// User is one who may sign in. There are two, so that what belongs to one and
// not to the other can be seen.
type User struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Role string `json:"role"`
}

// users are the example users. Anybody may be one of them: this panel is for a
// machine on which only its developer is.
var users = []User{
	{"amina", "Amina Diallo", "Runs the community sites"},
	{"jonas", "Jonas Weber", "Tries things out"},
}

//go:embed web
var web embed.FS

// Panel is the front-end.
type Panel struct {
	Options
	store  *store
	issuer *issuer.Issuer
	cookie string
	now    func() time.Time
}

// New opens the store, or makes it.
func New(o Options) (*Panel, error) {
	if o.Log == nil {
		o.Log = log.New(io.Discard, "", 0)
	}
	origin, err := url.Parse(o.Origin)
	if err != nil || origin.Host == "" || origin.String() != origin.Scheme+"://"+origin.Host {
		return nil, fmt.Errorf("panel: %q is not an origin such as http://127.0.0.1:3000", o.Origin)
	}
	if err := os.MkdirAll(o.Folder, 0o755); err != nil {
		return nil, fmt.Errorf("panel: %w", err)
	}
	p := &Panel{Options: o, now: time.Now}
	// A cookie is sent to every port of a host, so the name has the port.
	p.cookie = "slipway-panel-" + origin.Port()
	if p.store, err = openStore(filepath.Join(o.Folder, "panel.json")); err != nil {
		return nil, fmt.Errorf("panel: %w", err)
	}
	if p.issuer, err = issuer.Open(filepath.Join(o.Folder, "issuer")); err != nil {
		return nil, fmt.Errorf("panel: %w", err)
	}
	return p, nil
}

// Handler serves the panel.
func (p *Panel) Handler() http.Handler {
	// What a session may do. A browser adds the cookie to whatever a page asks
	// for, so requests that another origin caused are refused.
	session := http.NewServeMux()
	session.HandleFunc("GET /session", p.handle(p.showSession))
	session.HandleFunc("POST /session", p.handle(p.signIn))
	session.HandleFunc("DELETE /session", p.handle(p.signOut))
	session.HandleFunc("POST /token", p.signedIn(p.token))
	session.HandleFunc("GET /drafts", p.signedIn(p.list))
	session.HandleFunc("POST /drafts", p.signedIn(p.create))
	session.HandleFunc("GET /drafts/{id}", p.signedIn(p.show))
	session.HandleFunc("PUT /drafts/{id}", p.signedIn(p.save))
	session.HandleFunc("DELETE /drafts/{id}", p.signedIn(p.confirm))
	session.HandleFunc("POST /drafts/{id}/deletion", p.signedIn(p.begin))
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(p.handle(func(http.ResponseWriter, *http.Request) error {
		return problem{http.StatusForbidden, "forbidden", "the request was made by a page of another origin"}
	}))

	pages, err := fs.Sub(web, "web")
	if err != nil {
		panic(err) // the folder is embedded
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/session", "/token", "/drafts", "/drafts/"} {
		mux.Handle(path, protection.Handler(session))
	}
	// What slipway may do, with a header that no browser adds.
	mux.HandleFunc("POST /reconcile/{id}", p.handle(p.reconcile))
	mux.HandleFunc("GET /.well-known/openid-configuration", p.handle(p.discovery))
	mux.HandleFunc("GET /.well-known/jwks.json", p.handle(p.keys))
	mux.Handle("/", http.FileServerFS(pages))
	return p.secured(mux)
}

// secured sets what holds for every answer. Scripts and styles are files of
// the panel, and its pages speak with the panel and slipway only.
func (p *Panel) secured(next http.Handler) http.Handler {
	policy := strings.Join([]string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'",
		"connect-src 'self' " + p.API, "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
		"require-trusted-types-for 'script'",
	}, "; ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-cache")
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

// problem is a refusal, in the shape that slipway has too.
type problem struct {
	status  int
	code    string
	message string
}

func (p problem) Error() string { return p.message }

var errSignedOut = problem{http.StatusUnauthorized, "unauthorized", "nobody is signed in"}

func (p *Panel) handle(f func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		err := f(w, r)
		if err == nil {
			return
		}
		var known problem
		var tooLarge *http.MaxBytesError
		switch {
		case errors.As(err, &known):
		case errors.As(err, &tooLarge):
			known = problem{http.StatusRequestEntityTooLarge, "request_too_large", "the body is too large"}
		case errors.Is(err, errNoDraft):
			known = problem{http.StatusNotFound, "not_found", err.Error()}
		case errors.Is(err, errRevision):
			known = problem{http.StatusConflict, "changed_meanwhile", err.Error()}
		case errors.Is(err, errTooMany):
			known = problem{http.StatusConflict, "too_many", err.Error()}
		case errors.Is(err, errToken):
			known = problem{http.StatusUnauthorized, "unauthorized", err.Error()}
		default:
			p.Log.Printf("%s %s: %v", r.Method, r.URL.Path, err)
			known = problem{http.StatusInternalServerError, "internal_error", "the panel failed; its log says why"}
		}
		p.answer(w, known.status, map[string]string{"error": known.code, "message": known.message})
	}
}

func (p *Panel) answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		p.Log.Printf("answer: %v", err)
	}
}

// decode reads a JSON body of a page, which has no members but those of into.
func decode(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	return read(decoder, into)
}

// decodeKnown reads what of a JSON body into has members for. A later slipway
// may say more.
func decodeKnown(r *http.Request, into any) error {
	return read(json.NewDecoder(r.Body), into)
}

func read(decoder *json.Decoder, into any) error {
	if err := decoder.Decode(into); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return err
		}
		return problem{http.StatusBadRequest, "invalid_request", "the body is not the JSON that is expected"}
	}
	return nil
}
