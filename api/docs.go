package api

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/swaggest/swgui/v5/static"

	"slipway.dev/slipway/schema"
)

// openAPI answers the contract as it is in the repository.
func (a *api) openAPI() http.HandlerFunc {
	sum := sha256.Sum256(schema.OpenAPI)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	return func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Type", "application/yaml")
		header.Set("Cache-Control", "no-cache")
		header.Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(schema.OpenAPI))
	}
}

// The page of the documentation: Swagger UI, which shows the contract and can
// call it. Nothing comes from elsewhere, and no script is in the page, so that
// a strict content policy holds.
const (
	docsPage = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>slipway: deployments API</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" type="image/png" href="docs/favicon-32x32.png">
<script src="docs/swagger-ui-bundle.js" defer></script>
<script src="docs/start.js" defer></script>
</head>
<body>
<div id="swagger-ui"></div>
<noscript><p>This page needs JavaScript. The contract as a file: <a href="openapi.yaml">openapi.yaml</a></p></noscript>
</body>
</html>
`
	docsScript = `SwaggerUIBundle({
  url: "openapi.yaml",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  defaultModelsExpandDepth: 0,
});
`
	docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

func (a *api) docs(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", docsPolicy)
	w.Header().Set("Referrer-Policy", "no-referrer")
	serveAsset(w, r, "text/html; charset=utf-8", []byte(docsPage))
}

// docsAsset answers a part of the page. Those of Swagger UI are kept
// compressed; a client that does not take that gets them in full.
func (a *api) docsAsset(w http.ResponseWriter, r *http.Request) {
	var contentType, file string
	switch chi.URLParam(r, "asset") {
	case "start.js":
		serveAsset(w, r, "text/javascript; charset=utf-8", []byte(docsScript))
		return
	case "swagger-ui-bundle.js":
		contentType, file = "text/javascript; charset=utf-8", "swagger-ui-bundle.js.gz"
	case "swagger-ui.css":
		contentType, file = "text/css; charset=utf-8", "swagger-ui.css.gz"
	case "favicon-32x32.png":
		contentType, file = "image/png", "favicon-32x32.png"
	default:
		a.notFound(w, r)
		return
	}
	content, err := static.FS.ReadFile(file)
	if err == nil && strings.HasSuffix(file, ".gz") {
		w.Header().Set("Vary", "Accept-Encoding")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
		} else {
			content, err = gunzip(content)
		}
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	serveAsset(w, r, contentType, content)
}

func gunzip(content []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}

func serveAsset(w http.ResponseWriter, r *http.Request, contentType string, content []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "max-age=3600")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}
