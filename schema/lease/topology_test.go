package lease

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseTopology(t *testing.T) {
	for text, want := range map[string]Topology{"iad@17": {"iad", 17}, "a@b@1": {"a@b", 1}, "iad@9223372036854775807": {"iad", 9223372036854775807}} {
		topology, ok := ParseTopology(text)
		require.True(t, ok, text)
		require.Equal(t, want, topology)
		require.Equal(t, text, topology.String())
	}
	for _, text := range []string{"", "@", "iad", "iad@", "@17", "iad@0", "iad@-1", "iad@+1", "iad@017", "iad@1.5", "iad@ 1", "iad@x", "iad@9223372036854775808"} {
		_, ok := ParseTopology(text)
		require.False(t, ok, "%q", text)
	}
}

func TestTopology(t *testing.T) {
	for name, test := range map[string]struct {
		active     string
		noted      string
		generation int64
		want       Step
		follow     Step
	}{
		"settled":                          {"iad", "iad@17", 17, Step{Kind: StepSettled}, Step{Kind: StepSettled}},
		"new group":                        {"", "-", 0, Step{Kind: StepNoPrimary}, Step{Kind: StepNoPrimary}},
		"primary gone":                     {"", "iad@17", 17, Step{Kind: StepNoPrimary}, Step{Kind: StepNoPrimary}},
		"primary gone, raised":             {"", "iad@17", 18, Step{Kind: StepNoPrimary}, Step{Kind: StepNoPrimary}},
		"first site":                       {"iad", "-", 0, Step{Kind: StepRaise, Generation: 1}, Step{Kind: StepWait}},
		"first site with a generation":     {"iad", "-", 5, Step{Kind: StepNote, Observed: "iad@5"}, Step{Kind: StepNote, Observed: "iad@5"}},
		"empty annotation":                 {"iad", "", 5, Step{Kind: StepNote, Observed: "iad@5"}, Step{Kind: StepNote, Observed: "iad@5"}},
		"broken annotation":                {"iad", "iad", 5, Step{Kind: StepNote, Observed: "iad@5"}, Step{Kind: StepNote, Observed: "iad@5"}},
		"broken annotation, no generation": {"iad", "iad@x", 0, Step{Kind: StepRaise, Generation: 1}, Step{Kind: StepWait}},
		"moved, operator raised":           {"pdx", "iad@17", 18, Step{Kind: StepNote, Observed: "pdx@18"}, Step{Kind: StepNote, Observed: "pdx@18"}},
		"moved, nobody raised":             {"pdx", "iad@17", 17, Step{Kind: StepRaise, Generation: 18}, Step{Kind: StepWait}},
		"raised without a move":            {"iad", "iad@17", 18, Step{Kind: StepNote, Observed: "iad@18"}, Step{Kind: StepNote, Observed: "iad@18"}},
		"lowered":                          {"iad", "iad@17", 3, Step{Kind: StepNote, Observed: "iad@3"}, Step{Kind: StepNote, Observed: "iad@3"}},
		"status lost":                      {"iad", "iad@17", 0, Step{Kind: StepRaise, Generation: 18}, Step{Kind: StepWait}},
	} {
		t.Run(name, func(t *testing.T) {
			group := with(func(g *Group) {
				g.ActiveSite, g.Generation = test.active, test.generation
				g.ObservedTopology = Annotation{Present: test.noted != "-", Value: test.noted}
				if test.noted == "-" {
					g.ObservedTopology = Annotation{}
				}
			})
			require.Equal(t, test.want, group.Topology(false))
			require.Equal(t, test.follow, group.Topology(true))
			settled := test.want.Kind == StepSettled || test.want.Kind == StepNoPrimary
			require.Equal(t, !settled, test.want.Pending())
			require.Equal(t, !settled, test.follow.Pending())
		})
	}
}

// Whoever takes the steps arrives, also when a crash falls between them.
func TestStepsArrive(t *testing.T) {
	group := with(func(g *Group) { g.ActiveSite = "pdx" })
	for range 2 {
		step := group.Topology(false)
		switch step.Kind {
		case StepRaise:
			group.Generation = step.Generation
		case StepNote:
			group.ObservedTopology = Annotation{true, step.Observed}
		}
	}
	require.Equal(t, Step{Kind: StepSettled}, group.Topology(false))
	require.EqualValues(t, 18, group.Generation)
}
