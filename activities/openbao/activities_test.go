package openbao_test

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
	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/activities/openbao"
	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/tests/kvstand"
)

func field(name string) openbao.Field { return openbao.Field{Application: "forum", Field: name} }

// wrap wraps values of the forum: field and value in turn.
func wrap(t *testing.T, c *openbao.Client, values ...string) string {
	t.Helper()
	var given []configuration.Secret
	for i := 0; i < len(values); i += 2 {
		given = append(given, configuration.Secret{Application: "forum", Field: values[i], Value: values[i+1]})
	}
	token, err := c.Wrap(t.Context(), given)
	require.NoError(t, err)
	return token
}

func value(v string) map[string]any { return map[string]any{"value": v} }

// What a submit does follows from what it says and what OpenBao has.
func TestReadSecrets(t *testing.T) {
	t.Parallel()
	m := secrets.Mount(t)
	a := &openbao.Activities{Client: client(t, m)}
	for _, name := range []string{"kept", "first", "second", "cleared", "both", "gone"} {
		m.Put(t, "one", "forum", name, value(canary))
	}
	m.SoftDelete(t, "one", "forum", "gone")
	m.Put(t, "one", "wiki", "kept", value(canary))

	prepared, err := a.ReadSecrets(t.Context(), openbao.ReadInput{
		Deployment:    "one",
		Configuration: json.RawMessage(`{"vm":{"applications":{"forum":{"title":"a"},"wiki":{},"chat":{}}}}`),
		Applications: []configuration.ApplicationSecrets{
			{Path: "/vm/applications/chat", Application: "chat", Fields: []string{"kept"}, Lists: true},
			{
				Path: "/vm/applications/forum", Application: "forum", Lists: true,
				Fields: []string{"absent", "both", "cleared", "gone", "kept", "never", "new", "renamed", "stored"},
				Given:  []string{"both", "new"}, Clear: []string{"cleared", "never"}, Stored: []string{"kept", "stored"},
				Former: map[string][]string{"renamed": {"second", "first"}, "kept": {"first"}},
			},
			{Path: "/vm/applications/wiki", Application: "wiki", Fields: []string{"kept"}, Lists: false},
		},
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"vm":{"applications":{"chat":{},"wiki":{},
		"forum":{"title":"a","secretsSet":["both","kept","new","renamed","stored"]}}}}`, string(prepared.Configuration))
	require.Equal(t, []openbao.Field{field("both"), field("new"), field("stored")}, prepared.Write)
	require.Equal(t, []openbao.Copied{{Field: field("renamed"), From: "second"}}, prepared.Copy)
	require.Len(t, prepared.Clear, 1, "what was never there needs no clear")
	require.Equal(t, "cleared", prepared.Clear[0].Entry.Field)
	require.Equal(t, 1, prepared.Clear[0].Entry.Version)
	text, err := json.Marshal(prepared)
	require.NoError(t, err)
	require.NotContains(t, string(text), canary)
}

func TestWriteSecrets(t *testing.T) {
	t.Parallel()
	m := secrets.Mount(t)
	c := client(t, m)
	a := &openbao.Activities{Client: c}
	m.Put(t, "one", "forum", "old", value("from the old name"))
	in := openbao.WriteInput{
		Deployment: "one", Wrapped: wrap(t, c, "key", canary, "unasked", "x"),
		Write: []openbao.Field{field("key")}, Copy: []openbao.Copied{{Field: field("renamed"), From: "old"}},
	}
	require.NoError(t, a.WriteSecrets(t.Context(), in))
	require.Equal(t, value(canary), m.Get(t, "one", "forum", "key"))
	require.Equal(t, value("from the old name"), m.Get(t, "one", "forum", "renamed"))
	require.Equal(t, value("from the old name"), m.Get(t, "one", "forum", "old"), "the nodes read it until their next deploy")
	require.Nil(t, m.Get(t, "one", "forum", "unasked"))

	requireSpent(t, a.WriteSecrets(t.Context(), in))
	requireSpent(t, a.WriteSecrets(t.Context(), openbao.WriteInput{Deployment: "one", Write: in.Write}))

	copied := openbao.WriteInput{Deployment: "one", Copy: []openbao.Copied{{Field: field("again"), From: "old"}}}
	require.NoError(t, a.WriteSecrets(t.Context(), copied), "copies need no token")
}

func requireSpent(t *testing.T, err error) {
	t.Helper()
	var application *temporal.ApplicationError
	require.True(t, errors.As(err, &application), "%v", err)
	require.Equal(t, wire.ErrorSecretsSpent, application.Type())
	require.True(t, application.NonRetryable())
	requireNoSecret(t, err)
}

// A token that brings something else writes nothing at all.
func TestWriteSecretsOfAnotherSubmit(t *testing.T) {
	t.Parallel()
	m := secrets.Mount(t)
	c := client(t, m)
	m.Put(t, "one", "forum", "old", value(canary))
	err := (&openbao.Activities{Client: c}).WriteSecrets(t.Context(), openbao.WriteInput{
		Deployment: "one", Wrapped: wrap(t, c, "key", canary),
		Write: []openbao.Field{field("key"), field("other")}, Copy: []openbao.Copied{{Field: field("renamed"), From: "old"}},
	})
	require.ErrorContains(t, err, "did not come with the submit")
	requireNoSecret(t, err)
	require.Nil(t, m.Get(t, "one", "forum", "key"))
	require.Nil(t, m.Get(t, "one", "forum", "renamed"))
}

// Values on their way are with nobody else once they are unwrapped, so a server
// that is away for a moment must not lose them.
func TestWriteSecretsOutlastsAFault(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func() kvstand.Fault{
		"not taken yet": func() kvstand.Fault {
			return kvstand.Answer("/sys/wrapping/unwrap", http.StatusServiceUnavailable, "Vault is sealed")
		},
		"lost answers": func() kvstand.Fault { return secrets.Lose(http.MethodPost, "/data/") },
		"overloaded":   func() kvstand.Fault { return kvstand.Answer("/data/", http.StatusTooManyRequests, "quota") },
		"failing":      func() kvstand.Fault { return kvstand.Answer("/metadata/", http.StatusInternalServerError, "oops") },
		"sealed by then": func() kvstand.Fault {
			return kvstand.Answer("/data/", http.StatusServiceUnavailable, "Vault is sealed")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := secrets.Mount(t)
			proxy := secrets.Proxy(t, false)
			c := client(t, m, through(proxy))
			token := wrap(t, c, "one", canary, "two", canary)
			var mu sync.Mutex
			left, fault := 3, fault()
			proxy.Set(func(w http.ResponseWriter, r *http.Request) bool {
				mu.Lock()
				now := left > 0 && fault != nil
				mu.Unlock()
				if !now {
					return false
				}
				defer func() { mu.Lock(); left--; mu.Unlock() }()
				return fault(w, r)
			})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			require.NoError(t, (&openbao.Activities{Client: c}).WriteSecrets(ctx, openbao.WriteInput{
				Deployment: "one", Wrapped: token, Write: []openbao.Field{field("one"), field("two")}}))
			require.Equal(t, value(canary), m.Get(t, "one", "forum", "one"))
			require.Equal(t, value(canary), m.Get(t, "one", "forum", "two"))
		})
	}
}

// What waiting does not mend is said at once, and before the time of the
// activity is over.
func TestWriteSecretsGivesUp(t *testing.T) {
	t.Parallel()
	m := secrets.Mount(t)
	proxy := secrets.Proxy(t, false)
	c := client(t, m, through(proxy))
	// The fault begins after the wrap.
	write := func(limit time.Duration, fault kvstand.Fault) (time.Duration, error) {
		token := wrap(t, c, "key", canary)
		proxy.Set(fault)
		defer proxy.Set(nil)
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		begin := time.Now()
		err := (&openbao.Activities{Client: c}).WriteSecrets(ctx, openbao.WriteInput{
			Deployment: "one", Wrapped: token, Write: []openbao.Field{field("key")}})
		return time.Since(begin), err
	}

	// Somebody else writes in between: that must not be written over.
	took, err := write(20*time.Second, func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/data/") {
			m.Put(t, "one", "forum", "key", value("another"))
		}
		return false
	})
	requireReason(t, err, openbao.ReasonConflict, "submit again")
	require.Less(t, took, 10*time.Second)
	require.Equal(t, value("another"), m.Get(t, "one", "forum", "key"))

	took, err = write(20*time.Second, kvstand.Answer("/data/", http.StatusForbidden, "permission denied"))
	requireReason(t, err, openbao.ReasonForbidden, "")
	require.Less(t, took, 10*time.Second)

	took, err = write(3*time.Second, kvstand.Answer("/data/", http.StatusInternalServerError, "oops"))
	requireReason(t, err, openbao.ReasonServer, "")
	require.Less(t, took, 3*time.Second)
}

func TestClearAndDeleteSecrets(t *testing.T) {
	t.Parallel()
	m := secrets.Mount(t)
	a := &openbao.Activities{Client: client(t, m)}
	for _, name := range []string{"cleared", "newer", "kept"} {
		m.Put(t, "one", "forum", name, value(canary))
	}
	m.Put(t, "two", "forum", "kept", value(canary))
	prepared, err := a.ReadSecrets(t.Context(), openbao.ReadInput{
		Deployment: "one", Configuration: json.RawMessage(`{}`),
		Applications: []configuration.ApplicationSecrets{{Path: "/x", Application: "forum",
			Fields: []string{"cleared", "kept", "newer"}, Clear: []string{"cleared", "newer"}}},
	})
	require.NoError(t, err)
	m.Put(t, "one", "forum", "newer", value("newer"))
	in := openbao.ClearInput{Deployment: "one", Cleared: prepared.Clear}
	for range 2 { // its own retry too
		require.NoError(t, a.ClearSecrets(t.Context(), in))
		require.Nil(t, m.Metadata(t, "one", "forum", "cleared"))
		require.Equal(t, value("newer"), m.Get(t, "one", "forum", "newer"))
		require.Equal(t, value(canary), m.Get(t, "one", "forum", "kept"))
	}
	m.Put(t, "one", "forum", "cleared", value("anew"))
	require.NoError(t, a.ClearSecrets(t.Context(), in))
	require.Equal(t, value("anew"), m.Get(t, "one", "forum", "cleared"), "it was made anew since")

	for range 2 {
		require.NoError(t, a.DeleteSecrets(t.Context(), "one"))
		for _, name := range []string{"cleared", "newer", "kept"} {
			require.Nil(t, m.Metadata(t, "one", "forum", name))
		}
	}
	require.Equal(t, value(canary), m.Get(t, "two", "forum", "kept"))
}
