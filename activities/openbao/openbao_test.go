package openbao_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/activities/openbao"
	"slipway.dev/slipway/schema/configuration"
	"slipway.dev/slipway/tests/kvstand"
)

var secrets *kvstand.Stand

func TestMain(m *testing.M) { kvstand.Main(m, &secrets) }

// canary is a value that must be nowhere but in OpenBao.
const canary = "CANARY-of-the-operator"

var forum = openbao.Instance{Deployment: "one", Application: "forum"}

// client is one with slipway's rights on a mount, and no root token.
func client(t *testing.T, m kvstand.Mount, change ...func(o *openbao.Options)) *openbao.Client {
	t.Helper()
	o := openbao.Options{Address: secrets.URL(), Mount: m.Path}
	for _, f := range change {
		f(&o)
	}
	if o.TokenFile == "" && o.AppRole == nil && o.Kubernetes == nil {
		_, o.TokenFile = m.Token(t)
	}
	c, err := openbao.New(o)
	require.NoError(t, err)
	return c
}

func through(p *kvstand.Proxy) func(*openbao.Options) {
	return func(o *openbao.Options) { o.Address, o.CAFile = p.URL, p.CAFile }
}

// requireReason checks why OpenBao did not do something, and that the error
// tells the operator and keeps what is secret.
func requireReason(t *testing.T, err error, reason openbao.Reason, says string) {
	t.Helper()
	var unavailable *openbao.UnavailableError
	require.ErrorAs(t, err, &unavailable)
	require.Equal(t, reason, unavailable.Reason, err.Error())
	require.Contains(t, err.Error(), says)
	requireNoSecret(t, err)
}

func requireNoSecret(t *testing.T, err error) {
	t.Helper()
	for _, secret := range []string{canary, "hvs.", "\"value\":"} {
		require.NotContains(t, err.Error(), secret)
	}
}

func fields(entries []configuration.SecretEntry) (live, dead []string) {
	for _, e := range entries {
		if e.Live {
			live = append(live, e.Field)
		} else {
			dead = append(dead, e.Field)
		}
	}
	return live, dead
}

func TestPathsAreThoseOfTheSeed(t *testing.T) {
	t.Parallel()
	m := secrets.Mount(t)
	require.NoError(t, client(t, m).Write(t.Context(), forum, "smtp.password", canary))
	read, err := secrets.Root().Logical().ReadWithContext(t.Context(), m.Path+"/data/deployments/one/secret/forum-operator-secrets/smtp.password")
	require.NoError(t, err)
	require.NotNil(t, read)
	require.Equal(t, map[string]any{"value": canary}, read.Data["data"])
}

func TestEntriesKnowWhichValuesAreThere(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := secrets.Mount(t)
	c := client(t, m)
	all := []string{"live", "soft", "destroyed", "older", "expired", "expiring", "byhand", "empty", "absent"}

	entries, err := c.Entries(ctx, forum, all)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing was ever written")

	for _, field := range []string{"live", "soft", "destroyed", "older", "stranger"} {
		require.NoError(t, c.Write(ctx, forum, field, canary))
	}
	require.NoError(t, c.Write(ctx, openbao.Instance{Deployment: "two", Application: "forum"}, "absent", canary))
	m.SoftDelete(t, "one", "forum", "soft")
	m.Destroy(t, "one", "forum", "destroyed", 1)
	require.NoError(t, c.Write(ctx, forum, "older", canary+"2"))
	m.Destroy(t, "one", "forum", "older", 1)
	m.Put(t, "one", "forum", "byhand", map[string]any{"other": canary})
	for field, after := range map[string]string{"expired": "1s", "expiring": "1h", "empty": "0s"} {
		_, err := secrets.Root().Logical().WriteWithContext(ctx, m.Entry("metadata", "one", "forum", field), map[string]any{"delete_version_after": after})
		require.NoError(t, err)
		if field != "empty" {
			require.NoError(t, c.Write(ctx, forum, field, canary))
		}
	}
	require.Eventually(t, func() bool { return m.Get(t, "one", "forum", "expired") == nil }, 20*time.Second, 50*time.Millisecond)
	// The times of an answer are to the second.
	require.Eventually(t, func() bool {
		entries, err = c.Entries(ctx, forum, all)
		require.NoError(t, err)
		_, dead := fields(entries)
		return len(dead) == 4
	}, 20*time.Second, 50*time.Millisecond, "%v", entries)
	live, dead := fields(entries)
	require.Equal(t, []string{"byhand", "expiring", "live", "older"}, live)
	require.Equal(t, []string{"destroyed", "empty", "expired", "soft"}, dead)
	for _, e := range entries {
		require.NotEmpty(t, e.Created)
		require.Equal(t, map[string]int{"older": 2, "empty": 0}[e.Field]+map[bool]int{true: 0, false: 1}[e.Field == "older" || e.Field == "empty"], e.Version, e.Field)
	}
}

func TestWriteOverWhateverIsThere(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, casRequired := range []bool{false, true} {
		m := secrets.Mount(t, kvstand.MountOptions{CASRequired: casRequired})
		c := client(t, m)
		for name, before := range map[string]func(field string){
			"nothing": func(string) {},
			"a value": func(field string) { require.NoError(t, c.Write(ctx, forum, field, "old")) },
			"deleted": func(field string) {
				require.NoError(t, c.Write(ctx, forum, field, "old"))
				m.SoftDelete(t, "one", "forum", field)
			},
			"destroyed": func(field string) {
				require.NoError(t, c.Write(ctx, forum, field, "old"))
				m.Destroy(t, "one", "forum", field, 1)
			},
			"by hand": func(field string) {
				m.Put(t, "one", "forum", field, map[string]any{"other": "old"}, map[string]any{"cas": 0})
			},
			"metadata only": func(field string) {
				_, err := secrets.Root().Logical().WriteWithContext(ctx, m.Entry("metadata", "one", "forum", field), map[string]any{"max_versions": 3})
				require.NoError(t, err)
			},
		} {
			field := strings.ReplaceAll(name, " ", "-")
			before(field)
			require.NoError(t, c.Write(ctx, forum, field, canary), name)
			require.Equal(t, map[string]any{"value": canary}, m.Get(t, "one", "forum", field), name)
		}
	}
}

func TestValuesOfAnyTypeArriveAsTheyAre(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := client(t, secrets.Mount(t))
	value, err := configuration.Decode([]byte(`{"text":"<&é\"\u2028","n":12345678901234567,"f":1.50,"list":[null,true]}`))
	require.NoError(t, err)
	token, err := c.Wrap(ctx, []configuration.Secret{{Path: "/x", Application: "forum", Field: "a", Value: value}, {Application: "wiki", Field: "b", Value: "v"}})
	require.NoError(t, err)
	got, err := c.Unwrap(ctx, token)
	require.NoError(t, err)
	require.Equal(t, []configuration.Secret{{Application: "forum", Field: "a", Value: value}, {Application: "wiki", Field: "b", Value: "v"}}, got)
	for _, secret := range got {
		require.NoError(t, c.Write(ctx, openbao.Instance{Deployment: "one", Application: secret.Application}, secret.Field, secret.Value))
	}
}

// TestConflicts has two writes with the same idea of the current version: what a
// retry is whose first try is still under way.
func TestConflicts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := secrets.Mount(t)
	proxy := secrets.Proxy(t, false)
	c, other := client(t, m, through(proxy)), client(t, m)
	for theirs, reason := range map[string]openbao.Reason{canary: "", "another": openbao.ReasonConflict} {
		field := "of-" + theirs
		var once sync.Once
		proxy.Set(func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost || r.Method == http.MethodPut {
				once.Do(func() { require.NoError(t, other.Write(ctx, forum, field, theirs)) })
			}
			return false
		})
		err := c.Write(ctx, forum, field, canary)
		if reason == "" {
			require.NoError(t, err)
		} else {
			requireReason(t, err, reason, "submit again")
		}
		require.Equal(t, map[string]any{"value": theirs}, m.Get(t, "one", "forum", field))
	}
	// Deleted in between is a conflict as well.
	var once sync.Once
	proxy.Set(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			once.Do(func() {
				require.NoError(t, other.Write(ctx, forum, "gone", canary))
				m.SoftDelete(t, "one", "forum", "gone")
			})
		}
		return false
	})
	requireReason(t, c.Write(ctx, forum, "gone", canary), openbao.ReasonConflict, "submit again")
}

func TestALostAnswerIsHealedByTheNextTry(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := secrets.Mount(t)
	proxy := secrets.Proxy(t, false)
	c := client(t, m, through(proxy))
	proxy.Set(secrets.Lose(http.MethodPost, "/data/"))
	requireReason(t, c.Write(ctx, forum, "key", canary), openbao.ReasonUnreachable, "cannot be reached")
	require.Equal(t, map[string]any{"value": canary}, m.Get(t, "one", "forum", "key"), "it arrived")
	proxy.Set(nil)
	require.NoError(t, c.Write(ctx, forum, "key", canary))
	require.Equal(t, map[string]any{"value": canary}, m.Get(t, "one", "forum", "key"))

	seen, err := c.Entries(ctx, forum, []string{"key"})
	require.NoError(t, err)
	for _, fault := range []kvstand.Fault{secrets.Lose(http.MethodPost, "/destroy/"), secrets.Lose(http.MethodDelete, "/metadata/")} {
		proxy.Set(fault)
		_, err = c.Clear(ctx, forum, seen[0])
		requireReason(t, err, openbao.ReasonUnreachable, "cannot be reached")
	}
	proxy.Set(nil)
	gone, err := c.Clear(ctx, forum, seen[0])
	require.NoError(t, err)
	require.True(t, gone)
}

func TestCopyForARename(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := secrets.Mount(t)
	c := client(t, m)
	require.NoError(t, c.Write(ctx, forum, "old", canary))

	require.NoError(t, c.Copy(ctx, forum, "new", "old"))
	require.Equal(t, map[string]any{"value": canary}, m.Get(t, "one", "forum", "new"))
	require.Equal(t, map[string]any{"value": canary}, m.Get(t, "one", "forum", "old"), "the old one stays")
	require.NoError(t, c.Copy(ctx, forum, "new", "old"), "again")
	require.EqualValues(t, "1", m.Metadata(t, "one", "forum", "new")["current_version"].(json.Number).String())

	require.NoError(t, c.Write(ctx, forum, "new", "set"))
	require.NoError(t, c.Copy(ctx, forum, "new", "old"))
	require.Equal(t, map[string]any{"value": "set"}, m.Get(t, "one", "forum", "new"), "a value that is there stays")

	m.SoftDelete(t, "one", "forum", "new")
	require.NoError(t, c.Copy(ctx, forum, "new", "old"))
	require.Equal(t, map[string]any{"value": canary}, m.Get(t, "one", "forum", "new"), "a deleted one has no value")

	m.Put(t, "one", "forum", "byhand", map[string]any{"other": canary})
	requireReason(t, c.Copy(ctx, forum, "third", "byhand"), openbao.ReasonEntry, `no key "value"`)
	m.SoftDelete(t, "one", "forum", "old")
	requireReason(t, c.Copy(ctx, forum, "third", "old"), openbao.ReasonConflict, "submit again")
	requireReason(t, c.Copy(ctx, forum, "third", "never"), openbao.ReasonConflict, "submit again")
	require.Nil(t, m.Get(t, "one", "forum", "third"))
}

func TestClear(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := secrets.Mount(t)
	c := client(t, m)
	for name, test := range map[string]struct {
		before, since func(field string)
		gone          bool
		value         map[string]any
		destroyed     []string
	}{
		"as it was seen": {gone: true},
		"with many versions": {gone: true, before: func(field string) {
			for i := range 3 {
				require.NoError(t, c.Write(ctx, forum, field, fmt.Sprint(canary, i)))
			}
		}},
		"a deleted one": {gone: true, before: func(field string) { m.SoftDelete(t, "one", "forum", field) }},
		"set again since": {value: map[string]any{"value": "new"}, destroyed: []string{"1"},
			since: func(field string) { require.NoError(t, c.Write(ctx, forum, field, "new")) }},
		"made anew since": {value: map[string]any{"value": "new"}, since: func(field string) {
			m.Remove(t, "one", "forum", field)
			require.NoError(t, c.Write(ctx, forum, field, "new"))
		}},
		"gone since": {gone: true, since: func(field string) { m.Remove(t, "one", "forum", field) }},
	} {
		field := strings.ReplaceAll(name, " ", "-")
		require.NoError(t, c.Write(ctx, forum, field, canary))
		if test.before != nil {
			test.before(field)
		}
		seen, err := c.Entries(ctx, forum, []string{field})
		require.NoError(t, err)
		require.Len(t, seen, 1)
		if test.since != nil {
			test.since(field)
		}
		for range 2 { // the second time after a lost answer
			gone, err := c.Clear(ctx, forum, seen[0])
			require.NoError(t, err, name)
			require.Equal(t, test.gone, gone, name)
		}
		metadata := m.Metadata(t, "one", "forum", field)
		require.Equal(t, test.gone, metadata == nil, name)
		require.Equal(t, test.value, m.Get(t, "one", "forum", field), name)
		for _, version := range test.destroyed {
			require.Equal(t, true, metadata["versions"].(map[string]any)[version].(map[string]any)["destroyed"], name)
		}
	}
}

func TestClearSeesAWriteInBetween(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := secrets.Mount(t)
	proxy := secrets.Proxy(t, false)
	c, other := client(t, m, through(proxy)), client(t, m)
	require.NoError(t, c.Write(ctx, forum, "key", canary))
	seen, err := c.Entries(ctx, forum, []string{"key"})
	require.NoError(t, err)
	proxy.Set(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/destroy/") {
			require.NoError(t, other.Write(ctx, forum, "key", "new"))
		}
		return false
	})
	gone, err := c.Clear(ctx, forum, seen[0])
	require.NoError(t, err)
	require.False(t, gone)
	require.Equal(t, map[string]any{"value": "new"}, m.Get(t, "one", "forum", "key"))
}

func TestDeleteTree(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := secrets.Mount(t)
	c := client(t, m)
	other := openbao.Instance{Deployment: "one-b", Application: "forum"}
	require.NoError(t, c.DeleteTree(ctx, "one"), "of a deployment without secrets")
	for _, in := range []openbao.Instance{forum, {Deployment: "one", Application: "wiki"}, other} {
		for _, field := range []string{"a", "b.c"} {
			require.NoError(t, c.Write(ctx, in, field, canary))
		}
	}
	m.SoftDelete(t, "one", "forum", "a")
	byHand := m.Path + "/data/deployments/one/secret/of others/deep/er/x"
	_, err := secrets.Root().Logical().WriteWithContext(ctx, byHand, map[string]any{"data": map[string]any{"x": 1}})
	require.NoError(t, err)

	for range 2 {
		require.NoError(t, c.DeleteTree(ctx, "one"))
	}
	list, err := secrets.Root().Logical().ListWithContext(ctx, m.Path+"/metadata/deployments/one")
	require.NoError(t, err)
	require.Nil(t, list)
	require.Equal(t, map[string]any{"value": canary}, m.Get(t, "one-b", "forum", "a"))
}

func TestNamesThatWouldLeaveTheFolder(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := client(t, secrets.Mount(t))
	for _, name := range []string{"", ".", "..", "a/b", "../../two/secret/forum-operator-secrets/x", "a b", "a%2fb", "a?b", "a..b", "é", "a\n"} {
		require.ErrorContains(t, c.Write(ctx, forum, name, canary), "cannot be part of a path", "%q", name)
		require.ErrorContains(t, c.Copy(ctx, forum, "a", name), "cannot be part of a path")
		_, err := c.Entries(ctx, openbao.Instance{Deployment: name, Application: "forum"}, nil)
		require.ErrorContains(t, err, "cannot be part of a path")
		_, err = c.Entries(ctx, openbao.Instance{Deployment: "one", Application: name}, nil)
		require.ErrorContains(t, err, "cannot be part of a path")
		require.ErrorContains(t, c.DeleteTree(ctx, name), "cannot be part of a path")
		_, err = c.Clear(ctx, forum, configuration.SecretEntry{Field: name})
		require.ErrorContains(t, err, "cannot be part of a path")
	}
}

func TestAWrappingTokenIsForOneUse(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := secrets.Mount(t)
	c := client(t, m)
	token, err := c.Wrap(ctx, []configuration.Secret{{Application: "forum", Field: "key", Value: canary}})
	require.NoError(t, err)
	looked, err := secrets.Root().Logical().WriteWithContext(ctx, "sys/wrapping/lookup", map[string]any{"token": token})
	require.NoError(t, err)
	require.Equal(t, json.Number("60"), looked.Data["creation_ttl"])

	// Another process unwraps, with a login of its own.
	got, err := client(t, m).Unwrap(ctx, token)
	require.NoError(t, err)
	require.Equal(t, canary, got[0].Value)
	for _, spent := range []string{token, "hvs.nonsense", "not even a token", ""} {
		_, err = c.Unwrap(ctx, spent)
		require.ErrorIs(t, err, openbao.ErrWrapSpent)
		requireNoSecret(t, err)
	}
	expired, err := c.Wrap(ctx, []configuration.Secret{{Application: "forum", Field: "key", Value: canary}})
	require.NoError(t, err)
	secrets.Revoke(t, expired)
	_, err = c.Unwrap(ctx, expired)
	require.ErrorIs(t, err, openbao.ErrWrapSpent)
}

// TestTheTwoWaysToList has a server that can list with details, and those that
// cannot or may not, all in front of the same entries.
func TestTheTwoWaysToList(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := secrets.Mount(t)
	direct := client(t, m)
	for _, field := range []string{"a", "b", "c"} {
		require.NoError(t, direct.Write(ctx, forum, field, canary))
	}
	m.SoftDelete(t, "one", "forum", "b")
	want, err := direct.Entries(ctx, forum, []string{"a", "b"})
	require.NoError(t, err)
	live, dead := fields(want)
	require.Equal(t, []string{"a"}, live)
	require.Equal(t, []string{"b"}, dead)

	details := map[string]any{}
	for _, field := range []string{"a", "b", "c"} {
		details[field] = m.Metadata(t, "one", "forum", field)
	}
	details["folder/"] = map[string]any{}
	for name, test := range map[string]struct {
		fault    kvstand.Fault
		requests int // of the second Entries
	}{
		"with details": {func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/detailed-metadata/") {
				return false
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{"keys": []string{"a", "b", "c", "folder/"}, "key_info": details}})
			return true
		}, 1},
		"with too few details": {func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/detailed-metadata/") {
				return false
			}
			_, _ = w.Write([]byte(`{"data": {"keys": ["a"], "key_info": {"a": {"current_version": 1}}}}`))
			return true
		}, 4},
		"forbidden":   {kvstand.Answer("/detailed-metadata/", http.StatusForbidden, "permission denied"), 5},
		"no route":    {kvstand.Answer("/detailed-metadata/", http.StatusNotFound, `no handler for route "x"`), 3},
		"unsupported": {kvstand.Answer("/detailed-metadata/", http.StatusMethodNotAllowed, "unsupported operation"), 3},
	} {
		proxy := secrets.Proxy(t, false)
		proxy.Set(test.fault)
		c := client(t, m, through(proxy))
		for range 2 {
			proxy.Seen()
			got, err := c.Entries(ctx, forum, []string{"a", "b"})
			require.NoError(t, err, name)
			require.Equal(t, want, got, name)
		}
		require.Len(t, proxy.Seen(), test.requests, name)
	}
	empty := secrets.Proxy(t, false)
	empty.Set(kvstand.Answer("/detailed-metadata/", http.StatusNotFound))
	got, err := client(t, m, through(empty)).Entries(ctx, forum, []string{"a"})
	require.NoError(t, err)
	require.Empty(t, got)
}

// operations are all that talk to the server with a token.
func operations(ctx context.Context, c *openbao.Client) map[string]func() error {
	return map[string]func() error{
		"entries": func() error { _, err := c.Entries(ctx, forum, []string{"key"}); return err },
		"write":   func() error { return c.Write(ctx, forum, "key", canary) },
		"copy":    func() error { return c.Copy(ctx, forum, "new", "key") },
		"clear": func() error {
			_, err := c.Clear(ctx, forum, configuration.SecretEntry{Field: "key", Version: 1})
			return err
		},
		"tree": func() error { return c.DeleteTree(ctx, "one") },
		"wrap": func() error {
			_, err := c.Wrap(ctx, []configuration.Secret{{Application: "forum", Field: "key", Value: canary}})
			return err
		},
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	m := secrets.Mount(t)
	token, file := m.Token(t)
	require.NoError(t, client(t, m).Write(t.Context(), forum, "key", canary))
	forbidden := func(w http.ResponseWriter, r *http.Request) bool {
		return !strings.Contains(r.URL.Path, "lookup-self") && kvstand.Answer("", http.StatusForbidden, "permission denied")(w, r)
	}
	answer := func(status int, text string) kvstand.Fault {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
			return true
		}
	}
	for name, test := range map[string]struct {
		fault  kvstand.Fault
		reason openbao.Reason
		says   string
	}{
		"sealed":           {kvstand.Answer("", http.StatusServiceUnavailable, "OpenBao is sealed"), openbao.ReasonSealed, "unseal"},
		"403":              {forbidden, openbao.ReasonForbidden, "policy"},
		"429":              {kvstand.Answer("", http.StatusTooManyRequests, "quota exceeded"), openbao.ReasonRateLimited, "quota"},
		"500":              {kvstand.Answer("", http.StatusInternalServerError, "disk full"), openbao.ReasonServer, "look at its log"},
		"502, no JSON":     {answer(http.StatusBadGateway, ""), openbao.ReasonServer, "502"},
		"400 that repeats": {kvstand.Repeat("", http.StatusBadRequest), openbao.ReasonRefused, "400"},
		"500 that repeats": {kvstand.Repeat("", http.StatusInternalServerError), openbao.ReasonServer, "500"},
		"silence":          {kvstand.Silence(""), openbao.ReasonTimeout, "no answer within 300ms"},
		"a broken answer":  {func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, openbao.ReasonUnreachable, "cannot be reached"},
		"half an answer":   {answer(http.StatusOK, `{"data": {"`), openbao.ReasonServer, "not understood"},
		"another program":  {answer(http.StatusOK, `<html>`), openbao.ReasonServer, "not understood"},
		"nothing in it":    {answer(http.StatusOK, `{}`), openbao.ReasonServer, ""},
	} {
		for _, used := range []bool{false, true} {
			proxy := secrets.Proxy(t, false)
			c := client(t, m, through(proxy), func(o *openbao.Options) {
				if o.TokenFile = file; test.reason == openbao.ReasonTimeout {
					o.Timeout = 300 * time.Millisecond
				}
			})
			if used { // the login and the mount are known already
				require.Eventually(t, func() bool {
					_, err := c.Entries(t.Context(), forum, nil)
					return err == nil
				}, 30*time.Second, 10*time.Millisecond)
			}
			proxy.Set(test.fault)
			for operation, do := range operations(t.Context(), c) {
				err := do()
				if name == "nothing in it" && err == nil {
					require.True(t, used && operation != "wrap", "%s: %s", name, operation)
					continue
				}
				require.Error(t, err, "%s: %s", name, operation)
				requireReason(t, err, test.reason, test.says)
				require.NotContains(t, err.Error(), token)
			}
		}
	}
}

func TestCheckAsksEachTime(t *testing.T) {
	t.Parallel()
	m := secrets.Mount(t)
	proxy := secrets.Proxy(t, false)
	c := client(t, m, through(proxy))
	require.NoError(t, c.Check(t.Context()))
	require.NoError(t, c.Write(t.Context(), forum, "key", canary))
	proxy.Set(kvstand.Answer("", http.StatusServiceUnavailable, "OpenBao is sealed"))
	requireReason(t, c.Check(t.Context()), openbao.ReasonSealed, "unseal")
	proxy.Set(nil)
	require.NoError(t, c.Check(t.Context()))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := secrets.Mount(t)
	proxy := secrets.Proxy(t, true)
	require.NoError(t, client(t, m, through(proxy)).Write(ctx, forum, "key", canary))
	for name, change := range map[string]func(o *openbao.Options){
		"unknown authority": func(o *openbao.Options) { o.CAFile = "" },
		"another name":      func(o *openbao.Options) { o.Address = strings.Replace(o.Address, "127.0.0.1", "localhost", 1) },
		"no TLS":            func(o *openbao.Options) { o.Address = strings.Replace(secrets.URL(), "http:", "https:", 1) },
	} {
		c := client(t, m, through(proxy), change)
		for operation, do := range operations(ctx, c) {
			err := do()
			require.Error(t, err, "%s: %s", name, operation)
			requireReason(t, err, openbao.ReasonTLS, "TLS")
		}
	}
	_, token := m.Token(t)
	_, err := openbao.New(openbao.Options{Address: proxy.URL, CAFile: "/nowhere", TokenFile: token})
	require.ErrorContains(t, err, "CA file")
}

func TestWrongMounts(t *testing.T) {
	t.Parallel()
	m, old := secrets.Mount(t), secrets.Mount(t, kvstand.MountOptions{Version: 1})
	_, file := m.Token(t)
	_, oldFile := old.Token(t)
	for name, test := range map[string]struct {
		options openbao.Options
		reason  openbao.Reason
		says    string
	}{
		"none there":                   {openbao.Options{Mount: "nowhere", TokenFile: file}, openbao.ReasonForbidden, "the mount nowhere"},
		"KV v1":                        {openbao.Options{Mount: old.Path, TokenFile: oldFile}, openbao.ReasonMount, `version "1"`},
		"another engine":               {openbao.Options{Mount: "sys", TokenFile: file}, openbao.ReasonMount, "SLIPWAY_OPENBAO_MOUNT"},
		"below a mount":                {openbao.Options{Mount: m.Path + "/data", TokenFile: file}, openbao.ReasonMount, "SLIPWAY_OPENBAO_MOUNT"},
		"a folder that is not allowed": {openbao.Options{Mount: m.Path, Root: "elsewhere", TokenFile: file}, openbao.ReasonForbidden, "the folder elsewhere"},
	} {
		test.options.Address = secrets.URL()
		c, err := openbao.New(test.options)
		require.NoError(t, err)
		for operation, do := range operations(t.Context(), c) {
			if operation == "wrap" {
				continue // needs no mount
			}
			err := do()
			require.Error(t, err, "%s: %s", name, operation)
			requireReason(t, err, test.reason, test.says)
		}
	}
	// A mount that goes away is noticed, if the policy reaches it.
	c := client(t, m)
	require.NoError(t, c.Write(t.Context(), forum, "key", canary))
	require.NoError(t, secrets.Root().Sys().UnmountWithContext(t.Context(), m.Path))
	for operation, do := range operations(t.Context(), c) {
		if operation != "wrap" {
			requireReason(t, do(), openbao.ReasonMount, "no KV v2 engine")
		}
	}
}

func TestThePolicyIsNarrow(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := secrets.Mount(t)
	m.Put(t, "one", "forum", "key", map[string]any{"value": canary})
	token, _ := m.Token(t)
	narrow, err := secrets.Bao.Root()
	require.NoError(t, err)
	narrow.SetToken(token)
	for _, path := range []string{
		m.Path + "/data/deployments/one/secret/forum-operator-secrets",
		m.Path + "/data/deployments/one/other/forum-operator-secrets/key",
		m.Path + "/data/elsewhere/one/secret/forum-operator-secrets/key",
		m.Path + "/metadata/deployments", m.Path + "/config", "secret/data/deployments/one/secret/forum-operator-secrets/key",
		"sys/mounts", "sys/policies/acl/" + m.Policy, "auth/token/accessors", "auth/approle/role/slipway/role-id",
	} {
		_, err := narrow.Logical().ReadWithContext(ctx, path)
		require.ErrorContains(t, err, "permission denied", path)
		_, err = narrow.Logical().ListWithContext(ctx, path)
		require.ErrorContains(t, err, "permission denied", path)
	}
	_, err = narrow.Logical().WriteWithContext(ctx, "auth/token/create", nil)
	require.ErrorContains(t, err, "permission denied")
	_, err = narrow.Logical().DeleteWithContext(ctx, m.Entry("data", "one", "forum", "key"))
	require.ErrorContains(t, err, "permission denied")
	_, err = narrow.Logical().WriteWithContext(ctx, m.Entry("metadata", "one", "forum", "key"), map[string]any{"max_versions": 1})
	require.ErrorContains(t, err, "permission denied")
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]openbao.Options{
		"no address":      {TokenFile: "x"},
		"no scheme":       {Address: "openbao:8200", TokenFile: "x"},
		"a password":      {Address: "https://a:" + canary + "@openbao", TokenFile: "x"},
		"no login":        {Address: "https://openbao"},
		"two logins":      {Address: "https://openbao", TokenFile: "x", AppRole: &openbao.AppRole{}},
		"a strange mount": {Address: "https://openbao", TokenFile: "x", Mount: "a/../b"},
		"a strange root":  {Address: "https://openbao", TokenFile: "x", Root: "a b"},
	} {
		_, err := openbao.New(o)
		require.Error(t, err, name)
		requireNoSecret(t, err)
	}
	_, err := openbao.New(openbao.Options{Address: "https://openbao:8200/", TokenFile: "x", Mount: "/kv/team/", Root: "a/b"})
	require.NoError(t, err)
}

// TestSealedAndKilled has a server of its own.
func TestSealedAndKilled(t *testing.T) {
	t.Parallel()
	own, err := kvstand.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	ctx := t.Context()
	m := own.Mount(t)
	_, file := m.Token(t)
	c, err := openbao.New(openbao.Options{Address: own.URL(), Mount: m.Path, TokenFile: file})
	require.NoError(t, err)
	require.NoError(t, c.Write(ctx, forum, "key", canary))
	wrapped, err := c.Wrap(ctx, []configuration.Secret{{Application: "forum", Field: "key", Value: canary}})
	require.NoError(t, err)

	own.Seal(t)
	fresh, err := openbao.New(openbao.Options{Address: own.URL(), Mount: m.Path, TokenFile: file})
	require.NoError(t, err)
	for _, c := range []*openbao.Client{c, fresh} {
		for _, do := range operations(ctx, c) {
			requireReason(t, do(), openbao.ReasonSealed, "unseal it")
		}
	}
	_, err = c.Unwrap(ctx, wrapped)
	requireReason(t, err, openbao.ReasonSealed, "unseal it")
	own.Unseal(t)
	got, err := c.Unwrap(ctx, wrapped)
	require.NoError(t, err, "the values waited")
	require.Equal(t, canary, got[0].Value)

	own.Kill()
	for _, do := range operations(ctx, c) {
		requireReason(t, do(), openbao.ReasonUnreachable, own.URL())
	}
	own.Start(t)
	require.Equal(t, map[string]any{"value": canary}, m.Get(t, "one", "forum", "key"))
	require.NoError(t, c.Write(ctx, forum, "key", "new"))
}

func TestACallerThatGivesUpIsNoFaultOfOpenBao(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, do := range operations(ctx, client(t, secrets.Mount(t))) {
		require.ErrorIs(t, do(), context.Canceled)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}
