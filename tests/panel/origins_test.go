package panel

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// origins: two front-ends share an API and see nothing of each other; a page of
// an origin that is not listed gets no answer that it can read.
func origins(t *testing.T, s *site) {
	person, one := s.browser.person(t, s.one)
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

	// A session is of its front-end, and the policy of a page names whom it may
	// speak with.
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
	require.NotContains(t, refused, "sent")

	// A page without a policy does send: from the same host with the cookie, from
	// another one without. It can neither read nor change anything.
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><title>Elsewhere</title>")
	}))
	defer elsewhere.Close()
	_, port, _ := strings.Cut(elsewhere.URL, "//127.0.0.1:")
	stranger := person.tab()
	for _, from := range []struct{ host, sends string }{
		{"127.0.0.1", "same-site, a cookie"},
		{"localhost", "cross-site, no cookie"},
	} {
		stranger.run(chromedp.Navigate("http://" + from.host + ":" + port))
		read := eval[string](stranger, `(async () => {
			const panel = "`+s.one.URL+`", credentials = "include";
			for (const path of ["/token", "/session", "/drafts", "/drafts/`+id+`/deletion"]) {
				// The answer, whatever it is, is kept from the page.
				await fetch(panel + path, {method: "POST", credentials, mode: "no-cors", body: '{"user":"amina","name":"Forged"}'}).catch(() => {});
			}
			const read = [];
			for (const [method, path] of [["GET", "/drafts"], ["POST", "/token"], ["DELETE", "/drafts/`+id+`"], ["DELETE", "/session"]]) {
				try { read.push(await (await fetch(panel + path, {method, credentials})).text()); } catch {}
			}
			return read.join();
		})()`)
		require.Empty(t, read, from.host)
		heard := s.one.strangers()
		for _, path := range []string{"/token", "/session", "/drafts", "/drafts/" + id + "/deletion"} {
			require.Contains(t, heard, "POST "+path+": "+from.sends+", 403")
		}
		for _, request := range heard {
			require.NotRegexp(t, "^DELETE|^(POST|PUT) .*, 2..$", request)
		}
	}
	one.open("#/")
	one.sees(`[data-draft="`+id+`"]`, "Shared API", "Active")
	require.NotContains(t, s.one.stored(t), "Forged")
}

func (b *tab) cookies() string {
	b.t.Helper()
	var all []string
	for _, c := range call(b, network.GetCookies, network.GetCookiesParams{}).Cookies {
		all = append(all, c.Name)
	}
	return strings.Join(all, " ")
}
