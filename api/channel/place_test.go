package channel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
)

func TestPlaceIDs(t *testing.T) {
	for _, p := range []place{{}, {1, 0, 0}, {12, 3, 456}, {1 << 62, 1 << 62, 1 << 62}} {
		again, inLog, ok := parsePlace(p.id(true))
		require.True(t, ok && inLog)
		require.Equal(t, p, again)
		again, inLog, ok = parsePlace(p.id(false))
		require.True(t, ok && !inLog)
		require.Equal(t, place{sequence: p.sequence}, again)
	}
}

func TestPlaceBehind(t *testing.T) {
	for _, c := range []struct {
		p, q place
		want bool
	}{
		{place{1, 1, 1}, place{1, 1, 1}, false},
		{place{1, 1, 1}, place{2, 1, 1}, true},
		{place{1, 1, 1}, place{1, 1, 2}, true},
		{place{1, 1, 9}, place{1, 2, 0}, true},
		{place{2, 1, 1}, place{1, 1, 2}, true},
		{place{2, 2, 0}, place{1, 1, 9}, false},
	} {
		require.Equal(t, c.want, c.p.behind(c.q), "%v %v", c.p, c.q)
	}
}

func TestReframe(t *testing.T) {
	event := eventFrame(deployment.Event{Sequence: 5, Kind: deployment.EventState, Data: []byte(`{"a":
1}`)}, place{5, 2, 10}, true)
	piece, err := logFrame(10, []byte("abcdef"), place{5, 2, 16})
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		f    frame
		p    place
		next place
		wire string
	}{
		{"event, next", event, place{4, 2, 10}, place{5, 2, 10}, "event: state\nid: 5.2.10\ndata: {\"a\": 1}\n\n"},
		{"event, known", event, place{5, 2, 10}, place{5, 2, 10}, ""},
		{"event, farther in the log", event, place{4, 2, 12}, place{5, 2, 12}, "event: state\nid: 5.2.12\ndata: {\"a\": 1}\n\n"},
		{"piece, next", piece, place{5, 2, 10}, place{5, 2, 16}, "event: log\nid: 5.2.16\ndata: {\"build\":2,\"from\":10,\"text\":\"abcdef\"}\n\n"},
		{"piece, half known", piece, place{5, 2, 13}, place{5, 2, 16}, "event: log\nid: 5.2.16\ndata: {\"build\":2,\"from\":13,\"text\":\"def\"}\n\n"},
		{"piece, farther in the events", piece, place{7, 2, 10}, place{7, 2, 16}, "event: log\nid: 7.2.16\ndata: {\"build\":2,\"from\":10,\"text\":\"abcdef\"}\n\n"},
		{"piece, known", piece, place{5, 2, 16}, place{5, 2, 16}, ""},
		{"piece, of an older build", piece, place{5, 3, 0}, place{5, 3, 0}, ""},
	} {
		next, wire, err := c.f.reframe(c.p, true)
		require.NoError(t, err, c.name)
		require.Equal(t, c.next, next, c.name)
		require.Equal(t, c.wire, string(wire), c.name)
	}
}

func TestWhole(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "",
		"abc":                  "abc",
		"a€":                   "a€",
		"a\xe2":                "a",
		"a\xe2\x82":            "a",
		"\xf0\x9f\x98":         "",
		"😀":                    "😀",
		"a\xff":                "a\xff",
		"\x80\x80\x80\x80\x80": "\x80\x80\x80\x80\x80",
	} {
		require.Equal(t, want, string(whole([]byte(text))), "%q", text)
	}
}
