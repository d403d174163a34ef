package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/cors"

	"slipway.dev/slipway/schema/origin"
)

// preflightLife is how long a browser may remember what it was allowed.
// Browsers cut it to between 10 minutes and a day.
const preflightLife = 10 * time.Minute

// Headers of callbacks to a front-end, on a destroy.
const (
	headerCallbackURL   = "X-Callback-Url"
	headerCallbackToken = "X-Callback-Token"
)

// allowOrigins lets pages of the front-ends call from browsers. Callers are
// known by tokens that a page adds itself, never by what a browser adds, so
// there is no credentials mode. An origin that is not allowed gets no header
// that a browser looks for.
//
// The Web UIs of Temporal may call the codec, and nothing else.
func allowOrigins(allowed, codec origin.List) func(http.Handler) http.Handler {
	return cors.Handler(cors.Options{
		AllowOriginFunc: func(r *http.Request, header string) bool {
			return allowed.Allows(header) || strings.HasPrefix(r.URL.Path, codecPaths) && codec.Allows(header)
		},
		AllowedMethods: []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete},
		AllowedHeaders: []string{
			"Accept", "Authorization", "Content-Type", "Cache-Control", "If-None-Match", "Last-Event-ID",
			"Idempotency-Key", headerCallbackURL, headerCallbackToken,
			"X-Namespace", "Authorization-Extras", // of the Web UI of Temporal
		},
		ExposedHeaders: []string{
			"X-Request-Id", "ETag", "Location", "Retry-After", "Allow", "Content-Disposition", "WWW-Authenticate",
		},
		MaxAge: int(preflightLife / time.Second),
	})
}
