package panel

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// keyboard does without the mouse.
func keyboard(t *testing.T, s *site) {
	_, tab := s.browser.person(t, s.one)
	tab.open("#/")
	tab.sees("h1", "Sign in")
	tab.reach("Jonas Weber")
	tab.press(kb.Enter)
	tab.sees("h1", "Deployments")
	tab.reach("#name")
	tab.press("Without a mouse", kb.Enter)
	tab.sees("h1", "Without a mouse")
	tab.has(`[data-key="way/fleet"]`)
	// The first stop is a way past what every page has.
	eval[any](tab, `document.activeElement.blur()`)
	tab.reach(`[data-key="way/fleet"]`)
	tab.press(" ")
	tab.reach(at("/fleet/domain"))
	tab.press("example.org")
	tab.back(`[data-key="section-wiki"]`)
	tab.press(kb.Enter)
	tab.sees("form h2", "Wiki")
	tab.reach(at("/fleet/applications/wiki/enable"))
	tab.press(" ")
	tab.sees(`[data-key="section-wiki"]`, "on")
	tab.reach("Preview")
	tab.press(kb.Enter)
	tab.sees("dialog[open]", "wiki.example.org")
	tab.has("dialog :focus")
	tab.press(kb.Escape)
	tab.lacks("dialog[open]")
	tab.reach("Save draft")
	tab.press(kb.Enter)
	tab.sees(".bar", "Saved")
}

// press presses keys.
func (b *tab) press(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.run(chromedp.KeyEvent(key))
	}
}

// reach presses Tab until the focus is at a selector or a text, and requires
// that it can be seen where it is.
func (b *tab) reach(what string) {
	b.t.Helper()
	b.walk(what, chromedp.KeyEvent(kb.Tab))
}

// back is reach in the other direction.
func (b *tab) back(what string) {
	b.t.Helper()
	b.walk(what, chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
}

// focus is where the focus is.
type focus struct {
	There, Visible bool
	Text           string
}

func (b *tab) walk(what string, step chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	var seen []string
	for range 60 {
		b.run(step)
		at := eval[focus](b, fmt.Sprintf(`(() => {
			const e = document.activeElement, what = %s;
			const there = /^[.#\[]/.test(what) ? e.matches(what) : e.innerText.trim().includes(what);
			const style = getComputedStyle(e), after = getComputedStyle(e, "::after");
			return {There: there && e !== document.body, Text: e.innerText || e.id,
				Visible: e.matches(":focus-visible") && [style, after].some((s) => s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2)};
		})()`, quote(what)))
		if at.There {
			require.True(b.t, at.Visible, "the focus at %s cannot be seen", what)
			return
		}
		seen = append(seen, strings.ReplaceAll(at.Text, "\n", " "))
	}
	b.t.Fatalf("%s is not reached by the keyboard; the focus was at %q", what, seen)
}

// readable looks at every kind of page as a screen reader does, and at its
// colours.
func readable(t *testing.T, s *site) {
	_, tab := s.browser.person(t, s.one)
	tab.open("#/")
	tab.sees("h1", "Sign in")
	tab.looks("sign in")
	tab.signIn("jonas")
	tab.looks("list")
	id := tab.launched("Readable")
	tab.looks("overview")
	for _, place := range []string{"configuration", "configuration/wiki", "configuration/forum", "history", "delete"} {
		tab.open("#/drafts/" + id + "/" + place)
		tab.has("h2, .builds")
		tab.lacks(".loading")
		tab.looks(place)
	}

	// Everything is there on a telephone too, and nothing sticks out.
	tab.window(375, 812)
	for _, place := range []string{"#/", "#/drafts/" + id, "#/drafts/" + id + "/configuration", "#/drafts/" + id + "/history", "#/drafts/" + id + "/delete"} {
		tab.open(place)
		tab.has("h1")
		tab.lacks(".loading")
		require.LessOrEqual(t, eval[int](tab, "document.documentElement.scrollWidth"), 375, place)
		switch place {
		case "#/drafts/" + id:
			tab.has("[data-sbom]")
			tab.shot("19-telephone")
		case "#/drafts/" + id + "/configuration":
			tab.shot("20-telephone-form")
		}
	}
}

// looks requires one heading, a name for whatever can be used, landmarks, and
// enough contrast in light and dark.
func (b *tab) looks(where string) {
	b.t.Helper()
	roles := map[string]int{}
	used := []string{"button", "link", "textbox", "spinbutton", "checkbox", "switch", "radio", "combobox", "dialog", "log", "group", "navigation", "listbox"}
	for _, node := range call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role := strings.Trim(string(node.Role.Value), `"`)
		roles[role]++
		name := ""
		if node.Name != nil {
			name = strings.Trim(string(node.Name.Value), `"`)
		}
		if slices.Contains(used, role) {
			require.NotEmpty(b.t, strings.TrimSpace(name), "%s: a %s has no name", where, role)
		}
	}
	for _, landmark := range []string{"main", "banner", "contentinfo"} {
		require.Equal(b.t, 1, roles[landmark], "%s: %s; there are %v", where, landmark, roles)
	}
	require.Equal(b.t, 1, eval[int](b, `document.querySelectorAll("h1").length`), where)
	require.Equal(b.t, "en", eval[string](b, "document.documentElement.lang"))
	for _, scheme := range []string{"light", "dark"} {
		b.prefers(scheme)
		require.Empty(b.t, eval[[]string](b, contrast), "%s, %s: too little contrast", where, scheme)
	}
	b.prefers("light")
}

// contrast lists texts whose contrast to what is behind them is below 4.5:1
// (WCAG 2.2, 1.4.3).
const contrast = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
	const paint = (colours) => {
		canvas.clearRect(0, 0, 1, 1);
		for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
		return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
	};
	const light = (rgb) => {
		const [r, g, b] = rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const faint = [];
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const text = walker.currentNode.textContent.trim(), e = walker.currentNode.parentElement;
		if (!text || !e.checkVisibility({opacityProperty: true}) || e.closest(".unseen, .skip, :disabled, option, noscript, script")) continue;
		const behind = [];
		for (let at = e; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
		const back = paint(behind), front = paint([...behind, getComputedStyle(e).color]);
		const [a, b] = [light(front), light(back)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
		if (ratio < 4.5) faint.push(text.slice(0, 40) + " " + ratio.toFixed(2));
	}
	return faint;
})()`

// resumes has the connection cut while a build runs: the channel goes on where it
// was, so each line of the log is there once.
func resumes(t *testing.T, s *site) {
	_, tab := s.browser.person(t, s.other)
	tab.signIn("amina")
	id := tab.draft("Out of reach")
	tab.choose("away.example.org")
	open := s.mark(t, id, "deploy")
	tab.click("Submit")
	tab.sees(".log", "waiting at the gate")
	back := s.line.cut(id)
	tab.sees(".head", "reconnecting")
	open()
	back()
	tab.sees(".head .badge", "Active")
	tab.sees(".log", "deployed "+id)
	lines := strings.Split(strings.TrimSpace(tab.text(".log")), "\n")
	for i, line := range lines {
		require.NotContains(t, lines[i+1:], line, "a line came twice")
	}
	require.NotContains(t, tab.text(".head"), "reconnecting")
}
