package panel

import (
	"flag"
	"testing"

	"slipway.dev/slipway/tests/kvstand"
)

var server *kvstand.Stand

func TestMain(m *testing.M) {
	// The tests mostly wait, so more of them run at once than there are cores.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	kvstand.Main(m, &server)
}

func TestPanel(t *testing.T) {
	s := newSite(t)
	for name, test := range map[string]func(t *testing.T, s *site){
		"a person drafts, submits, watches and deletes":    story,
		"problems are shown where they are":                problems,
		"secrets are never shown, and cleared when asked":  secrets,
		"the tab is closed between the phases":             closedTab,
		"the callback is lost and the tab closed":          lostCallback,
		"the computer sleeps while the record goes":        asleep,
		"what a refused ticket means":                      refusedTickets,
		"items of a list stay where they are":              items,
		"what an idle import and a queued build offer":     pages,
		"secrets wherever a schema has them":               schemas,
		"a destroy that fails leaves the record":           failedDestroy,
		"a draft that slipway never knew":                  neverSubmitted,
		"two tabs edit and delete":                         twoTabs,
		"two front-ends share an API, a third is refused":  origins,
		"the keyboard is enough":                           keyboard,
		"everything has a name, and can be read":           readable,
		"the channel goes on after the connection was cut": resumes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}
