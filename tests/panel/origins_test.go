package panel

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/stretchr/testify/require"
)

// origins: two front-ends share an API and see nothing of each other; a page of
// an origin that is not listed gets no answer that it can read.
func origins(t *testing.T, s *site) {
	_, one := s.browser.person(t, s.one)
	one.signIn("jonas")
	id := one.launched("Shared API")
	_, other := s.browser.person(t, s.other)
	other.signIn("amina")
	mine := other.draft("Of the other front-end")
	other.choose("other.example.org")
	other.click("Submit")
	other.sees(".head .badge", "Active")
	other.open("#/drafts/" + id)
	other.sees("h1", "This deployment is gone")

	// Its token is not for the deployment of the other front-end.
	ask := `(async () => {
		const { api } = await (await fetch("/session")).json();
		const { token } = await (await fetch("/token", {method: "POST", body: "{}"})).json();
		const ask = async (method, path) => (await fetch(api + path, {method, headers: {Authorization: "Bearer " + token}})).status;
		return [await ask("GET", "/deployments/` + mine + `"), await ask("GET", "/deployments/` + id + `"), await ask("DELETE", "/deployments/` + id + `")];
	})()`
	require.Equal(t, []int{http.StatusOK, http.StatusForbidden, http.StatusForbidden}, eval[[]int](other, ask))

	_, third := s.browser.person(t, s.third)
	third.signIn("amina")
	third.sees("main", "Nothing here yet")
	third.fill("#name", "Not allowed")
	third.click("Create draft")
	third.sees("main", "does not answer this page", s.third.URL)
	third.open("#/")
	third.sees("main", "Not allowed", "does not answer this page")
	third.shot("18-not-allowed")

	// A session is of its front-end: a page of another one, on the same host,
	// can neither read with it nor change anything.
	_, name, _ := strings.Cut(s.one.URL, "//127.0.0.1:")
	require.Contains(t, one.cookies(), "slipway-panel-"+name)
	require.NotContains(t, eval[string](one, "document.cookie"), "slipway-panel", "scripts do not see the session")
	other.mu.Lock()
	other.violates = true
	other.mu.Unlock()
	refused := eval[[]string](other, `(async () => {
		const refused = [];
		for (const [method, path] of [["POST", "/token"], ["DELETE", "/drafts/`+id+`"], ["POST", "/drafts"], ["DELETE", "/session"]]) {
			try { await fetch("`+s.one.URL+`" + path, {method, credentials: "include", mode: "no-cors"}); refused.push("sent"); }
			catch { refused.push("refused"); }
		}
		return refused;
	})()`)
	require.NotContains(t, refused, "sent", "the policy of the page names whom it may speak with")
	require.True(t, s.one.has(t, id))
}

func (b *tab) cookies() string {
	b.t.Helper()
	var all []string
	for _, c := range call(b, network.GetCookies, network.GetCookiesParams{}).Cookies {
		all = append(all, c.Name)
	}
	return strings.Join(all, " ")
}
