package panel

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// deleting begins to delete a deployment that is up, and stops where the
// destroy waits at its gate.
func (b *tab) deleting(s *site, id string) (open func()) {
	b.t.Helper()
	open = s.mark(b.t, id, "destroy")
	b.open("#/drafts/" + id + "/delete")
	b.click(`[data-key="delete"]`)
	b.has(`[data-step="wait"][data-state="running"]`)
	return open
}

// closedTab: slipway's callback removes the record.
func closedTab(t *testing.T, s *site) {
	person, tab := s.browser.person(t, s.one)
	tab.signIn("jonas")
	id := tab.launched("Closed half-way")
	open := tab.deleting(s, id)
	other := person.tab()
	other.open("#/")
	other.sees(`[data-draft="`+id+`"]`, "Destroying")
	tab.close()
	open()
	await(t, func() error {
		if s.one.has(t, id) {
			return fmt.Errorf("the record is still there")
		}
		return nil
	})
	other.lacks(`[data-draft="` + id + `"]`)
}

// lostCallback leaves a phantom: a record of a deployment that is gone. It is
// seen, and deleted again, which goes straight to the last step.
func lostCallback(t *testing.T, s *site) {
	person, tab := s.browser.person(t, s.one)
	tab.signIn("jonas")
	id := tab.draft("A phantom")
	tab.choose("example.org")
	tab.click(`[data-key="section-forum"]`)
	field := at("/single/applications/forum/translationApiKey")
	tab.fill(field, "a key that goes with the destroy")
	tab.click("Submit")
	tab.sees(".head .badge", "Active")
	tab.click("Configuration")
	tab.click(`[data-key="section-forum"]`)
	tab.has(`.field:has(` + field + `) [data-secret="set"]`)
	s.one.loseCallback(id)
	open := tab.deleting(s, id)
	other := person.tab()
	other.open("#/drafts/" + id + "/history")
	tab.close()
	open()
	other.sees(".head .badge", "Idle")
	other.sees(`[data-build="2"]`, "Destroy", "callback failed")
	require.True(t, s.one.has(t, id), "it was not told")
	other.shot("14-history-of-a-phantom")

	other.open("#/drafts/" + id + "/configuration/forum")
	other.has(`.field:has(` + field + `) [data-secret="unset"]`)
	other.open("#/")
	other.sees(`[data-draft="`+id+`"]`, "A phantom", "Nothing is up", "Idle")
	other.shot("15-phantom")
	other.open("#/drafts/" + id + "/delete")
	other.sees("main", "only its record is left")
	other.click("Remove the record")
	other.sees("h1", "Deployments")
	other.lacks(`[data-draft="` + id + `"]`)
	require.False(t, s.one.has(t, id))
}

// asleep is a page that comes back after slipway's callback has removed the
// record: its token and its ticket have expired, and no new token names the
// deployment.
func asleep(t *testing.T, s *site) {
	_, tab := s.browser.person(t, s.other)
	tab.signIn("jonas")
	id := tab.launched("Slept through it")
	open := tab.deleting(s, id)
	back := s.line.cut(id)
	tab.sees(".head", "reconnecting")
	open()
	await(t, func() error {
		if s.other.has(t, id) {
			return fmt.Errorf("the record is still there")
		}
		return nil
	})
	s.line.expire(id)
	eval[any](tab, `(() => { const now = Date.now; Date.now = () => now() + 3600000; return null; })()`)
	back()
	tab.sees("main", "This deployment is gone")
	tab.lacks(".head")
	tab.click("All deployments")
	tab.sees("h1", "Deployments")
	tab.lacks(`[data-draft="` + id + `"]`)
}

// refusedTickets: the channel is not asked for again when it is refused for
// good, and only the record tells what that means for a delete that waits.
func refusedTickets(t *testing.T, s *site) {
	_, tab := s.browser.person(t, s.one)
	tab.open("#/")
	const try = `(async (tickets, record) => {
		const { deleteDeployment } = await import("/js/deletion.js");
		const { Problem } = await import("/js/problem.js");
		const seen = [];
		const slipway = { base: "", call: async (method) => {
			if (method === "DELETE") return { state: "destroying" };
			const status = tickets.shift();
			seen.push("ticket " + status);
			throw new Problem(status);
		} };
		const drafts = {
			beginDeletion: async () => ({ callbackUrl: "", callbackToken: "" }),
			read: async () => { if (record !== 200) throw new Problem(record); },
			confirmDeletion: async () => { seen.push("confirmed"); },
		};
		const deletion = deleteDeployment({ slipway, drafts, id: "some", step: () => {} });
		const patience = new Promise((resolve) => setTimeout(resolve, 20000, "waits for ever"));
		seen.push(await Promise.race([deletion.then(() => "deleted", (problem) => problem.status), patience]));
		return seen.join(", ");
	})(%s, %d)`
	for _, test := range []struct {
		tickets string
		record  int
		want    string
	}{
		{"[403]", 200, "ticket 403, 403"},
		{"[401]", 200, "ticket 401, 401"},
		{"[404]", 200, "ticket 404, 404"},
		{"[403]", 404, "ticket 403, 404"},
		{"[403]", 401, "ticket 403, 401"},
		{"[0, 503, 403]", 404, "ticket 0, ticket 503, ticket 403, 404"},
	} {
		require.Equal(t, test.want, eval[string](tab, fmt.Sprintf(try, test.tickets, test.record)), "the record: %d", test.record)
	}
}

// failedDestroy keeps the record, and a second try works.
func failedDestroy(t *testing.T, s *site) {
	_, tab := s.browser.person(t, s.other)
	tab.signIn("jonas")
	id := tab.launched("Hard to take down")
	mend := s.mark(t, id, "destroy.fails")
	tab.open("#/drafts/" + id + "/delete")
	tab.click(`[data-key="delete"]`)
	tab.has(`[data-step="wait"][data-state="failed"]`)
	tab.sees(`[role="alert"]`, "The record is still here")
	tab.sees(".head .badge", "Failed")
	tab.shot("16-destroy-failed")
	require.True(t, s.other.has(t, id))
	tab.click("Overview")
	tab.sees(".log", "the provider does not answer")

	mend()
	tab.click("Delete")
	tab.click("Try again")
	tab.sees("h1", "Deployments")
	require.False(t, s.other.has(t, id))
}

// neverSubmitted is a draft of which slipway knows nothing.
func neverSubmitted(t *testing.T, s *site) {
	_, tab := s.browser.person(t, s.other)
	tab.signIn("jonas")
	id := tab.draft("Second thoughts")
	tab.open("#/drafts/" + id + "/delete")
	tab.sees("main", "only its record is left")
	tab.click("Remove the record")
	tab.sees("h1", "Deployments")
	require.False(t, s.other.has(t, id))
	tab.open("#/drafts/" + id)
	tab.sees("h1", "This deployment is gone")
}

// twoTabs of a person: neither undoes what the other did.
func twoTabs(t *testing.T, s *site) {
	person, tab := s.browser.person(t, s.one)
	tab.signIn("jonas")
	id := tab.draft("In two tabs")
	other := person.tab()
	other.open("#/drafts/" + id + "/configuration")
	other.sees("form", "Fleet")
	tab.choose("example.org")
	tab.click("Save draft")
	tab.sees(".bar", "Saved")
	other.click(`[data-key="way/single"]`)
	other.fill(at("/single/domain"), "other.example.org")
	other.click("Save draft")
	other.sees(`[role="alert"]`, "changed in another tab")
	other.shot("17-two-tabs")
	other.click("Load that version")
	await(t, func() error {
		if domain := other.value(at("/single/domain")); domain != "example.org" {
			return fmt.Errorf("the domain is %q", domain)
		}
		return nil
	})

	// What one submits, the other watches.
	other.click("Overview")
	tab.click("Submit")
	tab.sees(".head .badge", "Active")
	other.open("#/")
	other.sees(`[data-draft="`+id+`"]`, "Active")

	// Both delete at once: one destroy, no error.
	other.open("#/drafts/" + id + "/delete")
	other.sees("main", "This cannot be undone")
	open := tab.deleting(s, id)
	other.sees(".head .badge", "Destroying")
	other.click(`[data-key="delete"]`)
	other.has(`[data-step="wait"][data-state="running"]`)
	open()
	tab.sees("h1", "Deployments")
	other.sees("h1", "Deployments")
	require.False(t, s.one.has(t, id))
}
