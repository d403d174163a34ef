package panel

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/tests/stand"
)

// chromium is one without a window.
type chromium struct{ ctx context.Context }

func newBrowser(t *testing.T) *chromium {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1200, 900),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("force-color-profile", "srgb"), chromedp.WSURLReadTimeout(patience),
	)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		cancel()
		stop()
	})
	require.NoError(t, chromedp.Do(ctx), "Chromium does not start; `make deps-test` installs it")
	return &chromium{ctx}
}

// person is a browser context: cookies and tabs that no other test sees.
type person struct {
	t     *testing.T
	front *front
	ctx   context.Context // an empty tab that stays, so that any other may be closed
}

// person opens a browser at a front-end.
func (b *chromium) person(t *testing.T, f *front) (*person, *tab) {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx))
	p := &person{t: t, front: f, ctx: ctx}
	return p, p.tab()
}

// tab opens another tab of the person.
func (p *person) tab() *tab {
	p.t.Helper()
	ctx, cancel := chromedp.NewContext(p.ctx)
	p.t.Cleanup(cancel)
	tab := &tab{t: p.t, front: p.front, ctx: ctx, cancel: cancel}
	// The first use opens the tab, and must not have a time limit.
	require.NoError(p.t, chromedp.Listen(ctx, tab.heard))
	call(tab, cdplog.Enable, cdp.Empty{})
	tab.prefers("light")
	p.t.Cleanup(func() {
		tab.mu.Lock()
		defer tab.mu.Unlock()
		require.Empty(p.t, tab.mistakes, "the page made mistakes")
	})
	return tab
}

// tab is what a person looks at.
type tab struct {
	t      *testing.T
	front  *front
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	mistakes []string
	// violates: the test does on purpose what the policy refuses.
	violates bool
}

// heard notes exceptions and what the policy of the page refuses.
func (b *tab) heard(event any) {
	mistake := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		mistake = fmt.Sprint(e.ExceptionDetails.Text, " ", e.ExceptionDetails.Exception)
	case *cdplog.EventEntryAdded:
		if e.Entry.Source == cdplog.EntrySourceSecurity || strings.Contains(e.Entry.Text, "Content Security Policy") {
			mistake = e.Entry.Text
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if mistake != "" && !b.violates {
		b.mistakes = append(b.mistakes, mistake)
	}
}

// call sends a command to the tab.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	require.NoError(b.t, err, command.Method)
	return result
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, actions...))
}

// close closes the tab.
func (b *tab) close() {
	b.t.Helper()
	b.cancel()
}

// open goes to a place of the panel, such as #/.
func (b *tab) open(place string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.front.URL + "/" + place))
}

// eval evaluates an expression of JavaScript.
func eval[T any](b *tab, expression string) (value T) {
	b.t.Helper()
	yes := true
	result := call(b, runtime.Evaluate, runtime.EvaluateParams{Expression: expression, ReturnByValue: &yes, AwaitPromise: &yes})
	require.Nil(b.t, result.ExceptionDetails, "%s: %v", expression, result.ExceptionDetails)
	if len(result.Result.Value) > 0 {
		require.NoError(b.t, json.Unmarshal(result.Result.Value, &value), expression)
	}
	return value
}

// text is what a person reads in an element, or empty where there is none.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf(`document.querySelector(%s)?.innerText ?? ""`, quote(selector)))
}

func (b *tab) is(selector string) bool {
	b.t.Helper()
	return eval[bool](b, fmt.Sprintf(`document.querySelector(%s) !== null`, quote(selector)))
}

// sees waits until an element has all texts.
func (b *tab) sees(selector string, texts ...string) {
	b.t.Helper()
	await(b.t, func() error {
		shown := b.text(selector)
		for _, text := range texts {
			if !strings.Contains(strings.ToLower(shown), strings.ToLower(text)) {
				return fmt.Errorf("%s does not show %q but %q; the page: %s", selector, text, shown, b.text("body"))
			}
		}
		return nil
	})
}

// has waits until there is an element.
func (b *tab) has(selector string) {
	b.t.Helper()
	await(b.t, func() error {
		if !b.is(selector) {
			return fmt.Errorf("there is no %s; the page: %s", selector, b.text("body"))
		}
		return nil
	})
}

// lacks waits until there is no such element.
func (b *tab) lacks(selector string) {
	b.t.Helper()
	await(b.t, func() error {
		if b.is(selector) {
			return fmt.Errorf("there still is %s", selector)
		}
		return nil
	})
}

// click clicks where a selector, or a button or link with a text, is. It tries
// again where the page was drawn anew meanwhile.
func (b *tab) click(what string) {
	b.t.Helper()
	find := fmt.Sprintf(`(() => {
		const what = %s;
		const visible = (e) => e.getClientRects().length > 0 && !e.disabled;
		const texts = [...document.querySelectorAll("button, a, label")].map((e) => [e, e.innerText.trim()]);
		const by = (fits) => texts.filter(([, text]) => fits(text)).map(([e]) => e);
		const all = /^[.#\[]/.test(what) ? [...document.querySelectorAll(what)]
			: [...by((text) => text === what), ...by((text) => text.includes(what))];
		const e = (document.querySelector("dialog[open]") ? all.filter((e) => e.closest("dialog[open]")) : all).find(visible);
		if (!e) return null;
		e.scrollIntoView({block: "center", behavior: "instant"});
		const r = e.getBoundingClientRect(), x = r.left + Math.min(r.width / 2, 40), y = r.top + r.height / 2;
		const hit = document.elementFromPoint(x, y);
		return hit && (e.contains(hit) || hit.contains(e) || hit.closest("label") === e) ? [x, y] : null;
	})()`, quote(what))
	var at []float64
	await(b.t, func() error {
		at = eval[[]float64](b, find)
		if at == nil {
			return fmt.Errorf("nothing to click is %q; the page: %s", what, b.text("body"))
		}
		return nil
	})
	b.run(chromedp.MouseClickXY(at[0], at[1]))
}

// fill types into a field in the place of what is there.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.has(selector)
	eval[any](b, fmt.Sprintf(`(() => { const e = document.querySelector(%s); e.focus(); e.select?.(); return null; })()`, quote(selector)))
	if text == "" {
		text = "\b"
	}
	b.run(chromedp.KeyEvent(text))
}

// at is the selector of the field of a pointer into the configuration.
func at(pointer string) string { return `[id="f` + pointer + `"]` }

// signIn signs in as one of the example users.
func (b *tab) signIn(user string) {
	b.t.Helper()
	b.open("#/")
	b.click(`[data-user="` + user + `"]`)
	b.sees("h1", "Deployments")
}

// draft makes a draft and returns its identifier.
func (b *tab) draft(name string) string {
	b.t.Helper()
	b.fill("#name", name)
	b.click("Create draft")
	b.sees("h1", name)
	id := strings.Split(eval[string](b, "location.hash"), "/")[2]
	require.Len(b.t, id, 36)
	return id
}

// choose makes a configuration that can be submitted.
func (b *tab) choose(domain string) {
	b.t.Helper()
	b.click(`[data-key="way/single"]`)
	b.fill(at("/single/domain"), domain)
	b.click(`[data-key="section-wiki"]`)
	b.click(at("/single/applications/wiki/enable"))
}

// launched makes a draft, submits it and waits until it is up.
func (b *tab) launched(name string) string {
	b.t.Helper()
	id := b.draft(name)
	b.choose("example.org")
	b.click("Submit")
	b.sees(".head .badge", "Active")
	return id
}

// shot keeps a screenshot of the page in light and in dark.
func (b *tab) shot(name string) {
	b.t.Helper()
	folder := os.Getenv("SLIPWAY_SCREENSHOTS")
	if folder == "" {
		folder = filepath.Join(stand.Root(), "tests", "panel", "screenshots")
	}
	require.NoError(b.t, os.MkdirAll(folder, 0o755))
	// As high as the page, since what sticks to an edge of the window would be in
	// the middle of it.
	width, height := eval[int64](b, "innerWidth"), eval[int64](b, "innerHeight")
	whole := max(height, eval[int64](b, "document.documentElement.scrollHeight"))
	b.window(width, whole)
	defer b.window(width, height)
	for _, scheme := range []string{"light", "dark"} {
		b.prefers(scheme)
		image, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		require.NoError(b.t, err)
		require.NoError(b.t, os.WriteFile(filepath.Join(folder, name+"-"+scheme+".png"), image, 0o644))
	}
	b.prefers("light")
}

// window sets the size of the window; a narrow one is that of a telephone.
func (b *tab) window(width, height int64) {
	b.t.Helper()
	size := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1}
	if width < 600 {
		size.DeviceScaleFactor, size.Mobile = 2, true
	}
	call(b, emulation.SetDeviceMetricsOverride, size)
}

// prefers sets the colour scheme; nothing moves.
func (b *tab) prefers(scheme string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string
	}
	return string(quoted)
}
