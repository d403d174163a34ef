package auth

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// remoteIssuer is an issuer on the network, with a certificate of its own.
type remoteIssuer struct {
	url, caFile string
	fetches     atomic.Int32 // of the keys

	mu     sync.Mutex
	keys   []jose.JSONWebKey
	answer http.HandlerFunc // instead of the keys
	claims map[string]any   // of the discovery, instead of the right ones
}

func newRemoteIssuer(t *testing.T, keys ...jose.JSONWebKey) *remoteIssuer {
	t.Helper()
	r := &remoteIssuer{keys: keys}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		claims := map[string]any{"issuer": r.url, "jwks_uri": r.url + "/keys"}
		for name, value := range r.claims {
			claims[name] = value
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(claims)
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, request *http.Request) {
		r.fetches.Add(1)
		r.mu.Lock()
		answer, keys := r.answer, r.keys
		r.mu.Unlock()
		if answer != nil {
			answer(w, request)
			return
		}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: keys})
	})
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	r.url = server.URL
	r.caFile = filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(r.caFile, certificate, 0o600))
	return r
}

func (r *remoteIssuer) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func away(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }

func (r *remoteIssuer) discovered() Issuer {
	return Issuer{Issuer: r.url, Audience: testAudience, CAFile: r.caFile}
}

func (r *remoteIssuer) byURL() Issuer {
	return Issuer{Issuer: testIssuer, Audience: testAudience, JWKSURL: r.url + "/keys", CAFile: r.caFile}
}

// clock is a clock that a test moves.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(c.at.Load(), 0) }

func (c *clock) wait(d time.Duration) { c.at.Add(int64(d / time.Second)) }

func newClock() *clock {
	c := &clock{}
	c.at.Store(1_700_000_000)
	return c
}

// verifies is what a token of the keys gets.
func verifies(t *testing.T, v *Verifier, c *clock, issuer string, keys testKeys, keyID string) error {
	t.Helper()
	_, err := v.Verify(t.Context(), sign(t, jose.ES256, keyID, keys.p256, with(c.now(), claims{"iss": issuer})))
	return err
}

func public(keys testKeys, keyID string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: keys.p256.Public(), KeyID: keyID, Use: "sig"}
}

func TestKeysOfARemoteIssuerRotate(t *testing.T) {
	first, second := newTestKeys(t), newTestKeys(t)
	for name, of := range map[string]func(*remoteIssuer) Issuer{"discovery": (*remoteIssuer).discovered, "URL": (*remoteIssuer).byURL} {
		t.Run(name, func(t *testing.T) {
			c, r := newClock(), newRemoteIssuer(t, public(first, "1"))
			trusted := of(r)
			v, err := NewVerifier([]Issuer{trusted}, c.now, zap.NewNop())
			require.NoError(t, err)
			require.Zero(t, r.fetches.Load(), "the start waits for nobody")

			for range 3 {
				require.NoError(t, verifies(t, v, c, trusted.Issuer, first, "1"))
			}
			require.EqualValues(t, 1, r.fetches.Load(), "a known key needs no fetch")

			r.set(func() { r.keys = []jose.JSONWebKey{public(first, "1"), public(second, "2")} })
			for range 20 { // too soon; and nobody can make us ask more often
				err := verifies(t, v, c, trusted.Issuer, second, "2")
				require.Error(t, err)
				require.NotErrorIs(t, err, ErrKeysAway, "the issuer was there and did not have it")
			}
			require.EqualValues(t, 1, r.fetches.Load())
			c.wait(fetchEvery)
			require.NoError(t, verifies(t, v, c, trusted.Issuer, second, "2"))
			require.NoError(t, verifies(t, v, c, trusted.Issuer, first, "1"))
			require.EqualValues(t, 2, r.fetches.Load())

			// A key that the issuer withdrew goes with the next fetch.
			r.set(func() { r.keys = []jose.JSONWebKey{public(second, "2")} })
			require.NoError(t, v.remote[0].refresh(t.Context(), 0))
			require.ErrorContains(t, verifies(t, v, c, trusted.Issuer, first, "1"), "not signed with a key")
			require.NoError(t, verifies(t, v, c, trusted.Issuer, second, "2"))
		})
	}
}

func TestAnIssuerThatIsAway(t *testing.T) {
	first, second := newTestKeys(t), newTestKeys(t)
	c, here, gone := newClock(), newRemoteIssuer(t, public(first, "1")), newRemoteIssuer(t, public(first, "1"))
	gone.set(func() { gone.answer = away })
	v, err := NewVerifier([]Issuer{here.discovered(), gone.discovered()}, c.now, zap.NewNop())
	require.NoError(t, err, "it does not stop the start")
	require.NoError(t, verifies(t, v, c, here.url, first, "1"), "nor the others")
	require.ErrorIs(t, verifies(t, v, c, gone.url, first, "1"), ErrKeysAway)
	require.ErrorIs(t, verifies(t, v, c, gone.url, first, "1"), ErrKeysAway, "also without a fetch")
	require.EqualValues(t, 1, gone.fetches.Load())

	gone.set(func() { gone.answer = nil })
	c.wait(fetchEvery)
	require.NoError(t, verifies(t, v, c, gone.url, first, "1"), "it is back")

	gone.set(func() { gone.answer = away })
	c.wait(time.Hour)
	require.NoError(t, verifies(t, v, c, gone.url, first, "1"), "a known key stays")
	require.ErrorIs(t, verifies(t, v, c, gone.url, second, "2"), ErrKeysAway, "it may be a new one")
	require.ErrorContains(t, verifies(t, v, c, "https://nobody.example", first, "1"), "not trusted")
}

func TestManyTokensOfAnUnknownKeyAreOneFetch(t *testing.T) {
	keys := newTestKeys(t)
	c, r := newClock(), newRemoteIssuer(t)
	arrived := make(chan struct{}, 100)
	release := make(chan struct{})
	r.set(func() {
		r.answer = func(w http.ResponseWriter, _ *http.Request) {
			arrived <- struct{}{}
			<-release
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public(keys, "1")}})
		}
	})
	v, err := NewVerifier([]Issuer{r.byURL()}, c.now, zap.NewNop())
	require.NoError(t, err)
	results := make(chan error, 20)
	token := sign(t, jose.ES256, "1", keys.p256, with(c.now(), nil))
	for range cap(results) {
		go func() {
			_, err := v.Verify(context.Background(), token)
			results <- err
		}()
	}
	<-arrived
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = v.Verify(impatient, token)
	require.ErrorIs(t, err, ErrKeysAway, "who does not wait gets no answer, and the fetch goes on")
	close(release)
	for range cap(results) {
		require.NoError(t, <-results)
	}
	require.EqualValues(t, 1, r.fetches.Load())
}

func TestFetchesAreBounded(t *testing.T) {
	keys := newTestKeys(t)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public(keys, "1")}})
	}))
	t.Cleanup(plain.Close)
	for name, arrange := range map[string]func(r *remoteIssuer){
		"a redirect to another scheme": func(r *remoteIssuer) {
			r.answer = func(w http.ResponseWriter, request *http.Request) {
				http.Redirect(w, request, plain.URL, http.StatusFound)
			}
		},
		"redirects without an end": func(r *remoteIssuer) {
			r.answer = func(w http.ResponseWriter, request *http.Request) {
				http.Redirect(w, request, "/keys", http.StatusFound)
			}
		},
		"a huge answer": func(r *remoteIssuer) {
			r.answer = func(w http.ResponseWriter, _ *http.Request) {
				piece := []byte(strings.Repeat(" ", 64<<10))
				for range 1 << 14 { // 1 GiB
					if _, err := w.Write(piece); err != nil {
						return
					}
				}
			}
		},
		"an answer without an end": func(r *remoteIssuer) {
			r.answer = func(w http.ResponseWriter, request *http.Request) {
				_, _ = w.Write([]byte(`{"keys":[`))
				_ = http.NewResponseController(w).Flush()
				<-request.Context().Done()
			}
		},
		"not a set": func(r *remoteIssuer) {
			r.answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }
		},
		"a private key":              func(r *remoteIssuer) { r.keys = []jose.JSONWebKey{{Key: keys.p256, KeyID: "1"}} },
		"discovery of another":       func(r *remoteIssuer) { r.claims = map[string]any{"issuer": "https://else.example"} },
		"keys in plain text":         func(r *remoteIssuer) { r.claims = map[string]any{"jwks_uri": "http://issuer.example/keys"} },
		"discovery without keys":     func(r *remoteIssuer) { r.claims = map[string]any{"jwks_uri": ""} },
		"certificate not trusted":    func(r *remoteIssuer) { r.caFile = "" },
		"a server that is not there": func(r *remoteIssuer) { r.claims = map[string]any{"jwks_uri": "https://127.0.0.1:1/keys"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, r := newClock(), newRemoteIssuer(t, public(keys, "1"))
			r.set(func() { arrange(r) })
			v, err := NewVerifier([]Issuer{r.discovered()}, c.now, zap.NewNop())
			require.NoError(t, err)
			start := time.Now()
			require.ErrorIs(t, verifies(t, v, c, r.url, keys, "1"), ErrKeysAway)
			require.Less(t, time.Since(start), 4*fetchTimeout)
		})
	}
}

func TestRunFetchesWithoutATokenAndEnds(t *testing.T) {
	keys := newTestKeys(t)
	c, r := newClock(), newRemoteIssuer(t, public(keys, "1"))
	v, err := NewVerifier([]Issuer{r.discovered()}, c.now, zap.NewNop())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); v.Run(ctx) }()
	require.Eventually(t, func() bool { return len(v.remote[0].current()) == 1 }, 20*time.Second, 5*time.Millisecond)
	cancel()
	<-ended
	require.NoError(t, verifies(t, v, c, r.url, keys, "1"))
	require.EqualValues(t, 1, r.fetches.Load())
}
