package api

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// served keeps the schema that was answered last, compressed.
type served struct {
	mu   sync.Mutex
	last servedSchema
}

type servedSchema struct {
	plain, compressed []byte
	hash              string
}

func (s *served) of(schema []byte) (servedSchema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.plain != nil && bytes.Equal(s.last.plain, schema) {
		return s.last, nil
	}
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if _, err := w.Write(schema); err != nil {
		return servedSchema{}, fmt.Errorf("compress the schema: %w", err)
	}
	if err := w.Close(); err != nil {
		return servedSchema{}, fmt.Errorf("compress the schema: %w", err)
	}
	sum := sha256.Sum256(schema)
	s.last = servedSchema{bytes.Clone(schema), compressed.Bytes(), hex.EncodeToString(sum[:16])}
	return s.last, nil
}

// schema answers the JSON Schema of a configuration, as the module source gives
// it. A client asks each time whether it has changed, which is cheap: a form
// that is older than the checks would only find out at the submit.
func (a *api) schema(w http.ResponseWriter, r *http.Request, _ caller) error {
	source, err := a.source(r.Context())
	if err != nil {
		return err
	}
	schema, err := a.served.of(source.Schema)
	if err != nil {
		return err
	}
	// A strong tag names bytes, so each coding has its own (RFC 9110, 8.8.3.3).
	content, tag := schema.plain, schema.hash
	header := w.Header()
	header.Add("Vary", "Accept-Encoding")
	if takesGzip(r.Header.Values("Accept-Encoding")) {
		content, tag = schema.compressed, schema.hash+"-gzip"
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Type", "application/schema+json")
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", `"`+tag+`"`)
	// A part of it is of no use, and would be answered with statuses of its own.
	r.Header.Del("Range")
	r.Header.Del("If-Match")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	return nil
}

// takesGzip reads Accept-Encoding (RFC 9110, 12.5.3).
func takesGzip(values []string) bool {
	takes := false
	for coding := range strings.SplitSeq(strings.Join(values, ","), ",") {
		name, parameter, _ := strings.Cut(coding, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		if name != "gzip" && name != "x-gzip" && name != "*" {
			continue
		}
		weight, weighed := strings.CutPrefix(strings.ToLower(strings.TrimSpace(parameter)), "q=")
		q, err := strconv.ParseFloat(weight, 64)
		ok := !weighed || err == nil && q > 0
		if name != "*" {
			return ok
		}
		takes = ok
	}
	return takes
}
