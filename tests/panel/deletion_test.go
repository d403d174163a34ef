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
	id := tab.launched("A phantom")
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
