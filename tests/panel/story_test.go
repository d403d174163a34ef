package panel

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// story is the whole of it, with the screenshots.
func story(t *testing.T, s *site) {
	_, tab := s.browser.person(t, s.one)
	tab.open("#/")
	tab.sees("h1", "Sign in")
	tab.shot("01-sign-in")
	tab.click("Amina Diallo")
	tab.sees("main", "Nothing here yet")
	tab.shot("02-no-deployments")

	id := tab.draft("Harbour community")
	tab.click(`[data-key="way/fleet"]`)
	tab.fill(at("/fleet/domain"), "harbour.example.org")
	tab.has(`[data-key="section-wiki"]`)
	tab.shot("03-general")
	tab.click(`[data-key="section-forum"]`)
	tab.click(at("/fleet/applications/forum/enable"))
	tab.fill(at("/fleet/applications/forum/title"), "Harbour talk")
	tab.fill(at("/fleet/applications/forum/translationApiKey"), "a key that nobody sees")
	tab.sees(`[data-key="section-forum"]`, "on")
	tab.shot("04-section")
	tab.click(`[data-key="section-wiki"]`)
	tab.click(at("/fleet/applications/wiki/enable"))
	tab.click(`[data-key="section-backup"]`)
	tab.click(at("/fleet/applications/backup/enable"))
	tab.click("wiki")

	tab.click("Preview")
	tab.sees("dialog[open]", "gateway", "wiki.harbour.example.org", "status.harbour.example.org", "translationApiKey")
	tab.shot("05-preview")
	tab.click("Close")

	open := s.mark(t, id, "deploy")
	tab.click("Submit")
	tab.sees(".head .badge", "Building")
	tab.sees(".log", "waiting at the gate")
	tab.shot("06-building")
	open()
	tab.sees(".log", "wiki: active, serving wiki.harbour.example.org", "deployed "+id)
	tab.sees(".head .badge", "Active")
	tab.sees("#announcements", "Harbour community: Active")
	tab.has(`[data-sbom="gateway"]`)
	tab.has(`a[href="https://wiki.harbour.example.org"]`)
	tab.sees(`[aria-label="Instances"]`, "Status page", "Backup", "Forum")
	tab.shot("07-active")

	document := tab.download(`[data-sbom="gateway"]`)
	var bom struct{ BOMFormat string }
	require.NoError(t, json.Unmarshal(document, &bom))
	require.Equal(t, "CycloneDX", bom.BOMFormat)

	tab.click("History")
	tab.sees(`[data-build="1"]`, "Deploy", "Succeeded")
	tab.click(`[data-key="log-1"]`)
	tab.sees(".builds .log", "deployed "+id)
	tab.shot("08-history")

	tab.click("Deployments")
	tab.sees(`[data-draft="`+id+`"]`, "Harbour community", "harbour.example.org", "Active")
	tab.shot("09-deployments")

	tab.open("#/drafts/" + id + "/delete")
	tab.sees("main", "This cannot be undone")
	open = s.mark(t, id, "destroy")
	tab.click(`[data-key="delete"]`)
	tab.has(`[data-step="destroy"][data-state="done"]`)
	tab.has(`[data-step="wait"][data-state="running"]`)
	tab.has(`[data-step="confirm"][data-state="waiting"]`)
	tab.sees(".head .badge", "Destroying")
	tab.shot("10-deleting")
	require.True(t, s.one.has(t, id), "the record stays until nothing is up")
	open()
	tab.sees("main", "Nothing here yet")
	require.False(t, s.one.has(t, id))
}

// download clicks and returns the file that the browser saved.
func (b *tab) download(selector string) []byte {
	b.t.Helper()
	folder := b.t.TempDir()
	_, err := chromedp.CallBrowser(b.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: folder,
		BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID,
	})
	require.NoError(b.t, err)
	b.click(selector)
	var content []byte
	await(b.t, func() error {
		files, err := filepath.Glob(filepath.Join(folder, "*.cdx.json"))
		if err != nil || len(files) != 1 {
			return fmt.Errorf("%d files were saved (%w)", len(files), err)
		}
		content, err = os.ReadFile(files[0])
		return err
	})
	return content
}

// problems has the schema and the module refuse.
func problems(t *testing.T, s *site) {
	_, tab := s.browser.person(t, s.one)
	tab.signIn("jonas")
	id := tab.draft("Full of mistakes")
	tab.click("Submit")
	tab.click(`[role="alert"] a`)
	tab.has(`[data-key="way/fleet"]:focus[aria-invalid="true"]`)
	require.NotEmpty(t, tab.text(`[id="way.error"]`))
	tab.click(`[data-key="way/fleet"]`)
	tab.fill(at("/fleet/domain"), "Not A Domain")
	tab.click(`[data-key="section-forum"]`)
	tab.click(at("/fleet/applications/forum/enable"))
	tab.fill(at("/fleet/applications/forum/uploadMegabytes"), "5000")
	tab.click(`[data-key="section-backup"]`)
	tab.fill(at("/fleet/applications/backup/hour"), "99")
	tab.click("Submit")
	tab.sees(`form [role="alert"]`, "problems", "Domain", "Largest upload", "Hour")
	tab.has(at("/fleet/applications/backup/hour") + `[aria-invalid="true"]`)
	tab.shot("11-problems")

	// Each leads to its field, in whatever section that is.
	tab.click("Largest upload")
	tab.has(at("/fleet/applications/forum/uploadMegabytes") + `:focus[aria-invalid="true"]`)
	require.Contains(t, eval[string](tab, `document.getElementById(document.activeElement.getAttribute("aria-describedby").split(" ").at(-1)).innerText`), "1024")
	tab.fill(at("/fleet/applications/forum/uploadMegabytes"), "50")
	tab.click("Domain")
	tab.has(at("/fleet/domain") + ":focus")
	tab.fill(at("/fleet/domain"), "example.org")
	tab.click(`[data-key="section-backup"]`)
	tab.fill(at("/fleet/applications/backup/hour"), "4")

	// The module refuses what the schema lets through, in its own words.
	tab.click(at("/fleet/applications/backup/enable"))
	tab.click("Preview")
	tab.sees(`form [role="alert"]`, "the backup is enabled but copies no application")

	// Nothing was recorded.
	tab.open("#/drafts/" + id)
	tab.sees("main", "Not launched yet")
	tab.shot("12-draft")
}

// secrets follows the value of a secret, which only slipway gets.
func secrets(t *testing.T, s *site) {
	_, tab := s.browser.person(t, s.other)
	tab.signIn("amina")
	id := tab.draft("With a key")
	const key = "canary-of-the-translation-key"
	tab.choose("secrets.example.org")
	tab.click(`[data-key="section-forum"]`)
	tab.click(at("/single/applications/forum/enable"))
	field := at("/single/applications/forum/translationApiKey")
	tab.fill(field, key)
	tab.click("Save draft")
	tab.sees(".bar", "Saved")
	require.NotContains(t, s.other.stored(t), key)
	tab.click("Submit")
	tab.sees(".head .badge", "Active")

	tab.click("Configuration")
	tab.click(`[data-key="section-forum"]`)
	status := `.field:has(` + field + `) [data-secret]`
	tab.sees(status, "Set")
	require.Empty(t, tab.value(field), "a value is never shown")
	require.Equal(t, "password", tab.attribute(field, "type"))
	tab.shot("13-secret-set")
	tab.click(`[aria-label="Clear Key of the translation service"]`)
	tab.sees(status, "Will be cleared")
	// Another method has the same applications, with their secrets.
	tab.click(`[data-key="section-"]`)
	tab.click(`[data-key="way/fleet"]`)
	tab.click(`[data-key="section-forum"]`)
	status = `.field:has(` + at("/fleet/applications/forum/translationApiKey") + `) [data-secret]`
	tab.sees(status, "Will be cleared")
	tab.click(`[aria-label="Keep Key of the translation service"]`)
	tab.has(status + `[data-secret="set"]`)
	tab.click(`[aria-label="Clear Key of the translation service"]`)
	tab.click("Submit")
	tab.sees(".facts", "fleet")
	tab.sees(".head .badge", "Active")
	tab.click("Configuration")
	tab.click(`[data-key="section-forum"]`)
	tab.sees(status, "Not set")
	// What is cleared is not cleared again.
	require.Contains(t, s.other.stored(t), "secretsClear")
	tab.click("Submit")
	tab.sees(".facts", "#3 deploy")
	require.NotContains(t, s.other.stored(t), "secretsClear")
	require.NotContains(t, s.other.stored(t), key)
	require.NotContains(t, s.Logs(), key)
	require.True(t, s.other.has(t, id))
}

func (b *tab) value(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf(`document.querySelector(%s)?.value ?? ""`, quote(selector)))
}

func (b *tab) attribute(selector, name string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf(`document.querySelector(%s)?.getAttribute(%s) ?? ""`, quote(selector), quote(name)))
}
