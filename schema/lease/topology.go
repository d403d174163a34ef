package lease

import (
	"strconv"
	"strings"
)

// Topology is a site that was active and the generation that went with it.
type Topology struct {
	Site       string
	Generation int64
}

// ParseTopology reads AnnotationTopology, <site>@<generation>. A broken
// one is not ok and counts as missing: slipway then takes what it sees for the
// beginning, as it does for a new group.
func ParseTopology(annotation string) (Topology, bool) {
	at := strings.LastIndexByte(annotation, '@')
	if at < 1 {
		return Topology{}, false
	}
	generation, err := strconv.ParseInt(annotation[at+1:], 10, 64)
	topology := Topology{Site: annotation[:at], Generation: generation}
	return topology, err == nil && generation >= 1 && topology.String() == annotation
}

// String is the annotation.
func (t Topology) String() string { return t.Site + "@" + strconv.FormatInt(t.Generation, 10) }

// StepKind is what has to be written before a group's topology has settled.
type StepKind string

const (
	// StepSettled: what was noted is what is.
	StepSettled StepKind = "settled"
	// StepNoPrimary: no active site. What was noted stays, so that the next
	// active site is compared with the last one.
	StepNoPrimary StepKind = "no-primary"
	// StepRaise: write Step.Generation to status, conditionally, and look again.
	StepRaise StepKind = "raise"
	// StepWait: as StepRaise, but the operator has to do it.
	StepWait StepKind = "wait"
	// StepNote: revoke every lease of another generation, then write
	// Step.Observed to AnnotationTopology.
	StepNote StepKind = "note"
)

// Step is the next step towards a settled topology.
type Step struct {
	Kind StepKind
	// Generation to write, for StepRaise.
	Generation int64
	// Observed is the annotation to write, for StepNote.
	Observed string
}

// Pending says whether GET, POST and PUT answer 423 TopologyPersistencePending
// until the step has been taken.
func (s Step) Pending() bool { return s.Kind == StepRaise || s.Kind == StepWait || s.Kind == StepNote }

// Topology compares the group with what was noted. With follow the generation is
// the operator's alone, and slipway waits where it would raise it.
//
//	active  noted         generation     step
//	""      any           any            no-primary
//	A       none, broken  0              raise to 1
//	A       none, broken  n              note A@n
//	A       A@n           n              settled
//	A       A@m           n, not m       note A@n
//	B       A@n           n              raise to n+1
//	B       A@m           n, not m       note B@n
//	any     A@m           0              raise to m+1
//
// A generation that was lost with the status is raised above the noted one, so
// that no generation is used twice. After a crash between raise and note the
// generation differs from what was noted, and the note follows.
func (g Group) Topology(follow bool) Step {
	if g.ActiveSite == "" {
		return Step{Kind: StepNoPrimary}
	}
	noted, known := Topology{}, false
	if g.ObservedTopology.Present {
		noted, known = ParseTopology(g.ObservedTopology.Value)
	}
	if !known {
		noted = Topology{}
	}
	switch {
	case g.Generation < 1, known && g.Generation == noted.Generation && g.ActiveSite != noted.Site:
		if follow {
			return Step{Kind: StepWait}
		}
		return Step{Kind: StepRaise, Generation: noted.Generation + 1}
	case known && noted == Topology{Site: g.ActiveSite, Generation: g.Generation}:
		return Step{Kind: StepSettled}
	}
	return Step{Kind: StepNote, Observed: Topology{Site: g.ActiveSite, Generation: g.Generation}.String()}
}
