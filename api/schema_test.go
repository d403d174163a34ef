package api

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
)

func TestSchema(t *testing.T) {
	b := start(t, nil)
	get := func(header ...string) answer {
		return b.do("GET", "/schema", "", append([]string{"Authorization", "", "Accept-Encoding", "identity"}, header...)...)
	}
	plain := get()
	require.Equal(t, http.StatusOK, plain.status)
	require.JSONEq(t, testSchema, plain.body)
	require.Equal(t, "application/schema+json", plain.header.Get("Content-Type"))
	require.Equal(t, "no-cache", plain.header.Get("Cache-Control"))
	require.Equal(t, []string{"Origin", "Accept-Encoding"}, plain.header.Values("Vary"))
	tag := plain.header.Get("ETag")
	require.Regexp(t, `^"[0-9a-f]{32}"$`, tag, "a strong tag")
	require.Equal(t, plain.body, get("Authorization", "Bearer nonsense").body, "a token is not looked at")

	packed := get("Accept-Encoding", "br;q=1.0, gzip;q=0.8")
	require.Equal(t, "gzip", packed.header.Get("Content-Encoding"))
	require.Equal(t, []string{"Origin", "Accept-Encoding"}, packed.header.Values("Vary"))
	unpacked, err := gzip.NewReader(strings.NewReader(packed.body))
	require.NoError(t, err)
	content, err := io.ReadAll(unpacked)
	require.NoError(t, err)
	require.Equal(t, plain.body, string(content))
	packedTag := packed.header.Get("ETag")
	require.NotEqual(t, tag, packedTag, "other bytes, another strong tag")

	for _, test := range []struct {
		encoding, tag string
		status        int
	}{
		{"identity", tag, http.StatusNotModified},
		{"gzip", packedTag, http.StatusNotModified},
		{"identity", `"x", W/` + tag, http.StatusNotModified},
		{"identity", "*", http.StatusNotModified},
		{"gzip", tag, http.StatusOK},
		{"identity", packedTag, http.StatusOK},
		{"identity", `"x"`, http.StatusOK},
	} {
		a := get("Accept-Encoding", test.encoding, "If-None-Match", test.tag)
		require.Equal(t, test.status, a.status, "%+v", test)
		require.Equal(t, []string{"Origin", "Accept-Encoding"}, a.header.Values("Vary"))
		if a.status == http.StatusNotModified {
			require.Empty(t, a.body)
			require.NotEmpty(t, a.header.Get("ETag"))
			require.Equal(t, "no-cache", a.header.Get("Cache-Control"))
		}
	}
	whole := get("Range", "bytes=9999999-", "If-Match", `"other"`)
	require.Equal(t, http.StatusOK, whole.status)
	require.Equal(t, plain.body, whole.body)
	head := b.do("HEAD", "/schema", "", "Authorization", "", "Accept-Encoding", "identity")
	require.Equal(t, http.StatusOK, head.status)
	require.Equal(t, tag, head.header.Get("ETag"))
	require.Empty(t, head.body)
	require.Equal(t, "GET, HEAD", b.do("POST", "/schema", "{}").header.Get("Allow"))

	// Another source is another schema at once.
	b.SetSource(deployment.Source{Snapshot: "/nix/store/other", Schema: json.RawMessage(`{"title":"other"}`)})
	changed := get("If-None-Match", tag)
	require.Equal(t, http.StatusOK, changed.status)
	require.JSONEq(t, `{"title":"other"}`, changed.body)
}

func TestThereIsNoSchema(t *testing.T) {
	b := start(t, nil)
	b.SetSource(deployment.Source{Problem: "it is broken at /srv/source"})
	for _, method := range []string{"GET", "HEAD"} {
		a := b.do(method, "/schema", "", "Authorization", "", "If-None-Match", "*")
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		require.NotEmpty(t, a.header.Get("Retry-After"))
		require.NotContains(t, a.body, "/srv/source")
	}
	b.Fail(errors.New("away"))
	require.Equal(t, http.StatusServiceUnavailable, b.do("GET", "/schema", "").status)
}

func TestTakesGzip(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "x-gzip": true, "br, gzip": true, "*": true, "identity": false, "gzipped": false,
		"gzip;q=0": false, "gzip;q=0.000": false, "gzip; q=0.1": true, "*;q=0": false, "gzip;q=0, *": false, "*, gzip;q=0": false,
		"*;q=0, gzip": true, "gzip;q=nonsense": false, ",,": false,
	} {
		require.Equal(t, want, takesGzip([]string{value}), value)
	}
	require.True(t, takesGzip([]string{"br", "gzip"}))
	require.False(t, takesGzip(nil))
}
