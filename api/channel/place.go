package channel

import (
	"strconv"
	"strings"

	"slipway.dev/slipway/schema/deployment"
)

// place is how far a stream has come. Without the log, build and offset are 0.
type place struct {
	// sequence is that of the last event.
	sequence int64
	// build is the one whose log is told, 0 before the first.
	build int64
	// offset is how many bytes of that log were told.
	offset int64
}

// id is the ID of the event that leads to the place.
func (p place) id(log bool) string {
	if !log {
		return strconv.FormatInt(p.sequence, 10)
	}
	return strconv.FormatInt(p.sequence, 10) + "." + strconv.FormatInt(p.build, 10) + "." + strconv.FormatInt(p.offset, 10)
}

// parsePlace reads an ID, with or without a place in the log.
func parsePlace(id string) (p place, inLog, ok bool) {
	parts := strings.Split(id, ".")
	if len(parts) != 1 && len(parts) != 3 {
		return place{}, false, false
	}
	var numbers [3]int64
	for i, part := range parts {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n < 0 || part != strconv.FormatInt(n, 10) {
			return place{}, false, false
		}
		numbers[i] = n
	}
	return place{numbers[0], numbers[1], numbers[2]}, len(parts) == 3, true
}

// behind reports whether q has something that p has not.
func (p place) behind(q place) bool {
	return p.sequence < q.sequence || p.build < q.build || p.build == q.build && p.offset < q.offset
}

// after is the place behind a stored event. Builds start in the order of their
// numbers.
func (p place) after(e deployment.Event, log bool) place {
	p.sequence = e.Sequence
	if log && e.Status == deployment.StatusRunning && e.Build > p.build {
		p.build, p.offset = e.Build, 0
	}
	return p
}
