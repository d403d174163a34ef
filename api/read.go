package api

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/go-chi/chi/v5"

	"slipway.dev/slipway/schema/deployment"
)

const (
	// maxQueryIDs is how many identifiers fit into a query.
	maxQueryIDs = 100
	// maxListIDs is how many identifiers one list takes.
	maxListIDs = 10_000
)

func (a *api) list(w http.ResponseWriter, r *http.Request, c caller) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refuse(codeInvalidRequest, "the query is not one")
	}
	ids := query["id"]
	if len(ids) > maxQueryIDs {
		return refuse(codeInvalidRequest, "the query has %d identifiers, at most %d are allowed; use POST /deployments/list", len(ids), maxQueryIDs)
	}
	return a.listed(w, r, c, ids)
}

func (a *api) listMany(w http.ResponseWriter, r *http.Request, c caller) error {
	value, err := a.readBody(w, r, "ids")
	if err != nil {
		return err
	}
	items, ok := value.([]any)
	if !ok {
		return refuse(codeInvalidRequest, `the member "ids" is not an array`)
	}
	if len(items) > maxListIDs {
		return refuse(codeInvalidRequest, "the list has %d identifiers, at most %d are allowed", len(items), maxListIDs)
	}
	ids := make([]string, len(items))
	for i, item := range items {
		if ids[i], ok = item.(string); !ok {
			return refuse(codeInvalidRequest, `the member "ids" holds something that is not a string, at %d`, i)
		}
	}
	return a.listed(w, r, c, ids)
}

// listed streams those of the deployments that exist and that the token may
// read, each once, in the order first asked.
func (a *api) listed(w http.ResponseWriter, r *http.Request, c caller, ids []string) error {
	if len(ids) == 0 {
		return refuse(codeInvalidRequest, "there is no identifier to list")
	}
	asked := make([]string, 0, len(ids))
	seen := make(map[string]struct{}, len(ids))
	for i, id := range ids {
		if err := deployment.CheckID(id); err != nil {
			return refuse(codeInvalidDeploymentID, "identifier %d of the list: %s", i+1, err)
		}
		if _, ok := seen[id]; ok || !c.grant.Covers(id) {
			continue
		}
		seen[id] = struct{}{}
		asked = append(asked, id)
	}

	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(&limited{w, http.NewResponseController(w), a.WriteTimeout}, 32<<10)
	_, _ = out.WriteString(`{"deployments":[`) // the buffer keeps an error for Flush
	if len(asked) > 0 {
		first := true
		err := a.shown.Deployments(r.Context(), asked, func(d deployment.Deployment) error {
			data, err := encodeDeployment(d)
			if err != nil {
				return err
			}
			if !first {
				_ = out.WriteByte(',')
			}
			first = false
			_, err = out.Write(data)
			return err
		})
		if err != nil {
			return fromStore(err)
		}
	}
	_, _ = out.WriteString("]}")
	if err := out.Flush(); err != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
	return nil
}

// limited writes with a time limit.
type limited struct {
	http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
}

func (l *limited) Write(b []byte) (int, error) {
	if err := l.control.SetWriteDeadline(time.Now().Add(l.limit)); err != nil {
		return 0, err
	}
	return l.ResponseWriter.Write(b)
}

func (a *api) show(w http.ResponseWriter, r *http.Request, c caller) error {
	d, err := a.shown.Deployment(r.Context(), c.deployment)
	if err != nil {
		return fromStore(err)
	}
	body, err := encodeDeployment(d)
	return respond(w, http.StatusOK, body, err)
}

func (a *api) builds(w http.ResponseWriter, r *http.Request, c caller) error {
	const defaultBuilds, maxBuilds = 20, 100
	limit, err := wholeNumber(r, "limit", defaultBuilds, 1, maxBuilds)
	if err != nil {
		return err
	}
	before, err := wholeNumber(r, "before", 0, 1, maxInt64)
	if err != nil {
		return err
	}
	builds, err := a.Reader.Builds(r.Context(), c.deployment, int(limit), before)
	if err != nil {
		return fromStore(err)
	}
	if builds == nil {
		builds = []deployment.Build{}
	}
	return respondJSON(w, http.StatusOK, map[string][]deployment.Build{"builds": builds})
}

const maxInt64 = 1<<63 - 1

// buildOf is the build that the path names.
func buildOf(r *http.Request, c caller) (deployment.Ref, error) {
	n, err := parseNumber(chi.URLParam(r, "n"))
	if err != nil || n < 1 {
		return deployment.Ref{}, refuse(codeInvalidRequest, "a build is named by its number, from 1")
	}
	return deployment.Ref{Deployment: c.deployment, Build: n}, nil
}

func (a *api) build(w http.ResponseWriter, r *http.Request, c caller) error {
	ref, err := buildOf(r, c)
	if err != nil {
		return err
	}
	build, err := a.shown.Build(r.Context(), ref)
	if err != nil {
		return fromStore(err)
	}
	return respondJSON(w, http.StatusOK, build)
}

// logPiece is how much of a log is read at once, in bytes.
const logPiece = 256 << 10

// log answers the log of a build as it is, or with follow until the build has
// ended. server ends those that follow.
func (a *api) log(server context.Context) handler {
	return func(w http.ResponseWriter, r *http.Request, c caller) error {
		ref, err := buildOf(r, c)
		if err != nil {
			return err
		}
		from, err := wholeNumber(r, "from", 0, 0, maxInt64)
		if err != nil {
			return err
		}
		follow, err := flag(r, "follow")
		if err != nil {
			return err
		}
		ctx, cancel := context.WithDeadline(r.Context(), c.until)
		defer cancel()
		var changed <-chan struct{} // never, without follow
		if follow {
			defer a.streaming(r)()
			defer context.AfterFunc(server, cancel)()
			var stop func()
			changed, stop = a.Listener.Subscribe(c.deployment)
			defer stop()
		}

		reader := bounded{a.Reader, a.Timeout}
		piece, err := reader.Log(ctx, ref, from, logPiece)
		if err != nil {
			return fromStore(err)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Accel-Buffering", "no")
		w.WriteHeader(http.StatusOK)
		if r.Method == http.MethodHead {
			return nil
		}
		control := http.NewResponseController(w)
		out := &limited{w, control, a.WriteTimeout}
		for {
			if _, err := out.Write(piece.Data); err != nil {
				panic(http.ErrAbortHandler) // the client has gone, or is too slow
			}
			if piece.Ended || !follow && len(piece.Data) == 0 {
				return nil
			}
			if len(piece.Data) == 0 {
				if err := control.Flush(); err != nil {
					panic(http.ErrAbortHandler)
				}
				// HTTP/2 resets a stream whose deadline passes, also one with
				// nothing to write.
				_ = control.SetWriteDeadline(time.Time{})
				select {
				case <-changed:
				case <-time.After(a.Poll):
				case <-ctx.Done():
					// The build goes on: this is not the whole log.
					panic(http.ErrAbortHandler)
				}
			}
			from += int64(len(piece.Data))
			if piece, err = reader.Log(ctx, ref, from, logPiece); err != nil {
				return fromStore(err) // which breaks the answer off
			}
		}
	}
}

type ticketAnswer struct {
	Ticket    string    `json:"ticket"`
	ExpiresAt time.Time `json:"expiresAt"`
}

func (a *api) ticket(w http.ResponseWriter, _ *http.Request, c caller) error {
	ticket, expires := a.tickets.Issue(c.deployment, a.Now(), c.grant.Expires)
	body, err := json.Marshal(ticketAnswer{ticket, expires})
	return respond(w, http.StatusOK, body, err)
}
