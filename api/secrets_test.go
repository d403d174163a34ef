package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/wire"
)

// sealer is an OpenBao that only wraps.
type sealer struct {
	mu      sync.Mutex
	wrapped [][]configuration.Secret
	err     error
	// Called in each call.
	during func(context.Context)
}

func (s *sealer) Wrap(ctx context.Context, secrets []configuration.Secret) (string, error) {
	if s.during != nil {
		s.during(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrapped = append(s.wrapped, secrets)
	return "wrapping-token", s.err
}

const withKey = `{"configuration":{"name":"harbour","applications":{"wiki":{"key":"value-of-mine"}}}}`

func TestSubmitHandsSecretsOver(t *testing.T) {
	s := &sealer{}
	b := start(t, func(c *Config) { c.Sealer = s })
	b.workflows.set(func(w *workflows) { w.ready = true })
	require.Equal(t, http.StatusAccepted, b.do("PUT", "/deployments/one", withKey).status)

	submit := b.workflows.submits[0]
	require.JSONEq(t, `{"applications":{"wiki":{}},"name":"harbour"}`, string(submit.Configuration))
	require.Equal(t, []string{"key"}, submit.Secrets[0].Given)
	require.Equal(t, []wire.CommitRequest{{Wrapped: "wrapping-token"}}, b.workflows.commits)
	require.Len(t, s.wrapped, 1)
	require.Equal(t, "value-of-mine", s.wrapped[0][0].Value)
	crossed, err := json.Marshal([]any{b.workflows.submits, b.workflows.commits})
	require.NoError(t, err)
	require.NotContains(t, string(crossed), "value-of-mine")
	for _, entry := range b.logged.All() {
		text, err := json.Marshal(entry.ContextMap())
		require.NoError(t, err)
		require.NotContains(t, entry.Message+string(text), "value-of-mine")
	}
}

// A submit without new secrets needs no token.
func TestSubmitKeepsSecrets(t *testing.T) {
	s := &sealer{}
	b := start(t, func(c *Config) { c.Sealer = s })
	a := b.do("PUT", "/deployments/one", `{"configuration":{"name":"harbour","applications":{"wiki":{"key":null}}}}`)
	require.Equal(t, http.StatusAccepted, a.status)
	require.Equal(t, []string{"key"}, b.workflows.submits[0].Secrets[0].Fields)
	require.Empty(t, b.workflows.submits[0].Secrets[0].Given)
	require.Empty(t, s.wrapped)
}

// A value in a configuration from before the field was a secret moves.
func TestSubmitMovesStoredSecrets(t *testing.T) {
	s := &sealer{}
	b := start(t, func(c *Config) { c.Sealer = s })
	b.Record("one", "deploy", `{"name":"harbour","applications":{"wiki":{"key":"value-of-old"}}}`)
	b.workflows.set(func(w *workflows) { w.ready = true })
	require.Equal(t, http.StatusAccepted, b.do("PUT", "/deployments/one", `{"configuration":{"name":"harbour","applications":{"wiki":{}}}}`).status)
	require.Equal(t, []string{"key"}, b.workflows.submits[0].Secrets[0].Stored)
	require.Equal(t, int64(1), *b.workflows.submits[0].StoredBuild, "which must be the newest when OpenBao is read")
	require.Equal(t, "value-of-old", s.wrapped[0][0].Value)
}

func TestOpenBaoIsAway(t *testing.T) {
	s := &sealer{err: errors.New("sealed at https://bao.internal")}
	b := start(t, func(c *Config) { c.Sealer = s })
	b.workflows.set(func(w *workflows) { w.ready = true })
	a := b.do("PUT", "/deployments/one", withKey)
	require.Equal(t, codeServiceUnavailable, a.failure(t).Error)
	require.Contains(t, a.failure(t).Message, "nothing was recorded")
	require.NotContains(t, a.body, "bao.internal")
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.Equal(t, []wire.CommitRequest{{}}, b.workflows.commits, "the workflow waits for nothing")
	require.Equal(t, http.StatusNotFound, b.do("GET", "/deployments/one", "").status, "something was stored")
}

// The workflow of a client that leaves would keep other submits waiting.
func TestClientLeavesWhileItsSecretsAreHandedOver(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	s := &sealer{err: context.Canceled, during: func(ctx context.Context) {
		leave()
		<-ctx.Done()
	}}
	b := start(t, func(c *Config) { c.Sealer = s })
	b.workflows.set(func(w *workflows) { w.ready = true })
	_, err := http.DefaultClient.Do(b.request("PUT", "/deployments/one", withKey).WithContext(ctx))
	require.ErrorIs(t, err, context.Canceled)
	require.Eventually(t, func() (told bool) {
		b.workflows.set(func(w *workflows) { told = w.givenUp })
		return told
	}, 10*time.Second, 10*time.Millisecond)
}

func TestAnotherSubmitIsInProgress(t *testing.T) {
	b := start(t, func(c *Config) { c.Sealer = &sealer{} })
	b.workflows.set(func(w *workflows) { w.err = applicationError("another submit", wire.ErrorSubmitInProgress) })
	a := b.do("PUT", "/deployments/one", withKey)
	require.Equal(t, http.StatusConflict, a.status)
	require.Equal(t, codeSubmitInProgress, a.failure(t).Error)
	require.NotEmpty(t, a.header.Get("Retry-After"))
}

// Each secret is checked by its own subschema, in a preview too.
func TestSecretsAreChecked(t *testing.T) {
	b := start(t, func(c *Config) { c.Sealer = &sealer{} })
	for _, call := range []string{"PUT /deployments/one", "POST /deployments/one/preview"} {
		method, path, _ := strings.Cut(call, " ")
		a := b.do(method, path, `{"configuration":{"name":"harbour","applications":{"wiki":{"key":17}}}}`)
		f := a.failure(t)
		require.Equal(t, codeInvalidConfiguration, f.Error)
		require.Equal(t, "/applications/wiki/key", f.Details[0].Path)
		require.NotContains(t, strings.Replace(a.body, f.RequestID, "", 1), "17")
	}
}

func TestDestroyTakesTheSecretsAlong(t *testing.T) {
	for _, s := range []Sealer{nil, &sealer{}} {
		b := start(t, func(c *Config) { c.Sealer = s })
		b.Record("one", "deploy", `{"name":"harbour"}`)
		b.do("DELETE", "/deployments/one", "")
		require.Equal(t, s != nil, b.workflows.destroys[0].Secrets)
	}
}
