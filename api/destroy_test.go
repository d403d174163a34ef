package api

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
)

const (
	reconcile     = panel + "/reconcile?row=secret-of-the-url"
	callbackToken = "secret-of-the-front-end"
)

func TestCallbackOfADestroy(t *testing.T) {
	b := startForPanels(t)
	b.Record("one", deployment.ActionDeploy, `{}`)
	with := func(url, token string) answer {
		return b.do("DELETE", "/deployments/one", "", "X-Callback-Url", url, "X-Callback-Token", token)
	}
	a := with("", "")
	require.JSONEq(t, `{"deploymentId":"one","build":2,"callback":"none"}`, a.body)

	a = with(reconcile, callbackToken)
	require.Equal(t, http.StatusAccepted, a.status)
	require.JSONEq(t, `{"deploymentId":"one","build":3,"callback":"accepted"}`, a.body)
	require.Equal(t, [][3]string{{"one", reconcile, callbackToken}}, b.Offers())
	asked := b.workflows.destroys[1]
	require.Equal(t, "offer-1", asked.Callback)
	require.NotContains(t, fmt.Sprint(b.workflows.destroys), "secret", "Temporal sees neither")

	for _, url := range []string{
		"https://evil.example/", "http://panel.example/", "https://panel.example:8443/", "https://me@panel.example/", "https://panel.example.evil.io/",
		"https://panel.example@evil.io/", "https://panel.example./", "https://panel.example/#x", "nonsense", "file:///etc/passwd", "http://169.254.169.254/", "https://2130706433/",
	} {
		a = with(url, callbackToken)
		require.Equal(t, http.StatusAccepted, a.status, "the destroy goes on")
		var d destroyed
		a.json(t, &d)
		require.Equal(t, "refused", d.Callback, url)
		require.NotEmpty(t, d.CallbackReason)
		last := b.workflows.destroys[len(b.workflows.destroys)-1]
		require.Empty(t, last.Callback)
		require.Equal(t, d.CallbackReason, last.CallbackRefused)
	}
	require.Len(t, b.Offers(), 1)

	b.workflows.set(func(w *workflows) { w.late = true })
	a = with(reconcile, callbackToken)
	require.Contains(t, a.body, `"callback":"refused","callbackReason":"the destroy has just ended"`)

	b.Fail(errors.New("away"))
	before := len(b.workflows.destroys)
	require.Equal(t, http.StatusServiceUnavailable, with(reconcile, callbackToken).status)
	require.Len(t, b.workflows.destroys, before, "nothing was begun")
	for _, line := range b.logged.All() {
		require.NotContains(t, fmt.Sprint(line.Message, line.ContextMap()), "secret")
	}
}

func TestHeadersOfACallback(t *testing.T) {
	b := startForPanels(t)
	b.Record("one", deployment.ActionDeploy, `{}`)
	for name, c := range map[string]struct {
		header http.Header
		want   string
	}{
		"a URL alone":    {http.Header{"X-Callback-Url": {reconcile}}, "come together"},
		"a token alone":  {http.Header{"X-Callback-Token": {callbackToken}}, "come together"},
		"an empty URL":   {http.Header{"X-Callback-Url": {""}, "X-Callback-Token": {callbackToken}}, "X-Callback-Url must be there once"},
		"an empty token": {http.Header{"X-Callback-Url": {reconcile}, "X-Callback-Token": {""}}, "X-Callback-Token must be there once"},
		"two URLs":       {http.Header{"X-Callback-Url": {reconcile, reconcile}, "X-Callback-Token": {callbackToken}}, "X-Callback-Url must be there once"},
		"two tokens":     {http.Header{"X-Callback-Url": {reconcile}, "X-Callback-Token": {"a", "b"}}, "X-Callback-Token must be there once"},
		"a space":        {http.Header{"X-Callback-Url": {reconcile}, "X-Callback-Token": {"a b"}}, "X-Callback-Token must be there once"},
		"another script": {http.Header{"X-Callback-Url": {"https://pänel.example"}, "X-Callback-Token": {"a"}}, "X-Callback-Url must be there once"},
		"a long URL":     {http.Header{"X-Callback-Url": {panel + "/" + strings.Repeat("a", 2048)}, "X-Callback-Token": {"a"}}, "1 to 2048"},
		"a long token":   {http.Header{"X-Callback-Url": {reconcile}, "X-Callback-Token": {strings.Repeat("a", 4097)}}, "1 to 4096"},
	} {
		request := b.request("DELETE", "/deployments/one", "")
		for header, values := range c.header {
			request.Header[header] = values
		}
		a := b.send(request)
		require.Equal(t, http.StatusBadRequest, a.status, name)
		f := a.failure(t)
		require.Equal(t, codeInvalidRequest, f.Error)
		require.Contains(t, f.Message, c.want, name)
	}
	require.Empty(t, b.workflows.destroys, "nothing was begun")
}
