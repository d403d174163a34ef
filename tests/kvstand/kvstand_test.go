package kvstand_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/tests/kvstand"
)

var secrets *kvstand.Stand

func TestMain(m *testing.M) { kvstand.Main(m, &secrets) }

func TestMountsAreApart(t *testing.T) {
	one, other := secrets.Mount(t), secrets.Mount(t, kvstand.MountOptions{CASRequired: true, DeleteVersionAfter: time.Hour})
	require.NotEqual(t, one.Path, other.Path)
	one.Put(t, "d", "forum", "key", map[string]any{"value": "v"})
	require.Equal(t, map[string]any{"value": "v"}, one.Get(t, "d", "forum", "key"))
	require.Nil(t, other.Get(t, "d", "forum", "key"))
	other.Put(t, "d", "forum", "key", map[string]any{"value": "v"}, map[string]any{"cas": 0})
	require.NotNil(t, other.Metadata(t, "d", "forum", "key"))
	one.SoftDelete(t, "d", "forum", "key")
	require.Nil(t, one.Get(t, "d", "forum", "key"))
	require.NotNil(t, one.Metadata(t, "d", "forum", "key"))
	one.Destroy(t, "d", "forum", "key", 1)
	one.Remove(t, "d", "forum", "key")
	require.Nil(t, one.Metadata(t, "d", "forum", "key"))

	token, _ := one.Token(t)
	client, err := secrets.Bao.Root()
	require.NoError(t, err)
	client.SetToken(token)
	_, err = client.Logical().ReadWithContext(t.Context(), one.Entry("data", "d", "forum", "key"))
	require.NoError(t, err)
	_, err = client.Logical().ReadWithContext(t.Context(), other.Entry("data", "d", "forum", "key"))
	require.ErrorContains(t, err, "permission denied")
	secrets.Revoke(t, token)
	_, err = client.Logical().ReadWithContext(t.Context(), one.Entry("data", "d", "forum", "key"))
	require.ErrorContains(t, err, "permission denied")
}

func TestProxy(t *testing.T) {
	proxy := secrets.Proxy(t, false)
	get := func(path string) (int, string) {
		response, err := http.Get(proxy.URL + path)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
	status, body := get("/v1/sys/health")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, `"sealed":false`)
	require.Equal(t, []string{"GET sys/health"}, proxy.Seen())
	require.Empty(t, proxy.Seen())

	proxy.Set(kvstand.Answer("/sys/", http.StatusTooManyRequests, "slow down"))
	status, body = get("/v1/sys/health")
	require.Equal(t, http.StatusTooManyRequests, status)
	require.JSONEq(t, `{"errors":["slow down"]}`, body)
	status, _ = get("/v1/other")
	require.NotEqual(t, http.StatusTooManyRequests, status)

	proxy.Set(secrets.Lose(http.MethodGet, "/sys/"))
	status, body = get("/v1/sys/health")
	require.Zero(t, status)
	require.True(t, strings.Contains(body, "EOF") || strings.Contains(body, "reset"), body)
}

func TestKilledAndSealed(t *testing.T) {
	own, err := kvstand.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Close()) })
	m := own.Mount(t)
	m.Put(t, "d", "forum", "key", map[string]any{"value": "v"})
	own.Kill()
	own.Start(t)
	own.Seal(t)
	own.Unseal(t)
	require.Equal(t, map[string]any{"value": "v"}, m.Get(t, "d", "forum", "key"))
}
