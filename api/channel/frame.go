package channel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"slipway.dev/slipway/schema/deployment"
)

// frame is one event as it goes over the wire to everybody who has the same
// place.
type frame struct {
	// to is the place behind the frame.
	to   place
	wire []byte

	// A stored event, or else a piece of the log of to.build: text, which
	// begins at from and ends at to.offset.
	event deployment.Event
	from  int64
	text  []byte
}

func (f frame) isLog() bool { return f.event.Sequence == 0 }

// encode writes one server-sent event. JSON has line breaks only between its
// tokens, where a space does as well.
func encode(kind, id string, data []byte) []byte {
	b := make([]byte, 0, len("event: \nid: \ndata: \n\n")+len(kind)+len(id)+len(data))
	b = append(append(b, "event: "...), kind...)
	if id != "" {
		b = append(append(b, "\nid: "...), id...)
	}
	b = append(b, "\ndata: "...)
	start := len(b)
	b = append(b, data...)
	for i := start; i < len(b); i++ {
		if b[i] == '\n' || b[i] == '\r' {
			b[i] = ' '
		}
	}
	return append(b, "\n\n"...)
}

func eventFrame(e deployment.Event, to place, log bool) frame {
	return frame{to: to, event: e, wire: encode(string(e.Kind), to.id(log), e.Data)}
}

// logText is the data of a log event.
type logText struct {
	Build int64 `json:"build"`
	// From is the offset of Text in the log, in bytes.
	From int64  `json:"from"`
	Text string `json:"text"`
}

// logFrame is for a piece of a log. What is not UTF-8 becomes U+FFFD.
func logFrame(from int64, text []byte, to place) (frame, error) {
	var data bytes.Buffer
	e := json.NewEncoder(&data)
	e.SetEscapeHTML(false)
	if err := e.Encode(logText{to.build, from, string(text)}); err != nil {
		return frame{}, fmt.Errorf("encode a piece of the log: %w", err)
	}
	wire := encode("log", to.id(true), bytes.TrimSuffix(data.Bytes(), []byte("\n")))
	return frame{to: to, from: from, text: text, wire: wire}, nil
}

// reframe is what a client at p has to get of a frame, and its place then.
// Nothing: it has all of it.
func (f frame) reframe(p place, log bool) (next place, wire []byte, err error) {
	next = p
	if !f.isLog() {
		if f.to.sequence <= p.sequence {
			return p, nil, nil
		}
		next = p.after(f.event, log)
		if next == f.to {
			return next, f.wire, nil
		}
		return next, encode(string(f.event.Kind), next.id(log), f.event.Data), nil
	}
	if f.to.build != p.build || f.to.offset <= p.offset {
		return p, nil, nil
	}
	next.offset = f.to.offset
	if next == f.to && p.offset == f.from {
		return next, f.wire, nil
	}
	from := max(p.offset, f.from)
	own, err := logFrame(from, f.text[from-f.from:], next)
	return next, own.wire, err
}

// whole cuts an incomplete rune off the end of a piece of a log that goes on
// behind it.
func whole(text []byte) []byte {
	for i := len(text) - 1; i >= 0 && i >= len(text)-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return text[:i]
			}
			break
		}
	}
	return text
}
