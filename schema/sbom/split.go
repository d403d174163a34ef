package sbom

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
)

// mark stands for a component in a remainder.
const mark = 0

// byteOrderMark is that of UTF-8.
var byteOrderMark = []byte("\ufeff")

// Parts is a document taken apart. It keeps the text of the document.
type Parts struct {
	text       []byte
	components []span
}

// span is a part of a document, which has at most MaxSize bytes.
type span struct{ start, end uint32 }

// Split takes a document apart. It returns ErrNotJSON, ErrTooLarge, or
// ErrTooMany.
func Split(text []byte) (Parts, error) {
	if len(text) > MaxSize {
		return Parts{}, ErrTooLarge
	}
	body := bytes.TrimPrefix(text, byteOrderMark)
	if !json.Valid(body) {
		return Parts{}, notJSON(body)
	}
	s := scanner{text: text, at: len(text) - len(body)}
	p := Parts{text: text}
	for key, value := range s.members() {
		if text[value.start] != '[' || !isComponents(text[key.start:key.end]) {
			continue
		}
		inner := scanner{text: text, at: int(value.start)}
		for component := range inner.elements() {
			if len(p.components) == MaxComponents {
				return Parts{}, ErrTooMany
			}
			p.components = append(p.components, component)
		}
	}
	return p, nil
}

// notJSON is ErrNotJSON with the place.
func notJSON(body []byte) error {
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, new(json.RawMessage)); errors.As(err, &syntax) {
		return fmt.Errorf("%w: %s, at byte %d", ErrNotJSON, syntax, syntax.Offset)
	}
	return ErrNotJSON
}

// isComponents reports whether a key, in its quotes, is that of the components.
func isComponents(key []byte) bool {
	if bytes.IndexByte(key, '\\') < 0 {
		return string(key) == `"components"`
	}
	var text string
	return json.Unmarshal(key, &text) == nil && text == "components"
}

// Len is the number of components.
func (p Parts) Len() int { return len(p.components) }

// Component is the exact text of one, as a part of the document.
func (p Parts) Component(i int) []byte {
	return p.text[p.components[i].start:p.components[i].end]
}

// Remainder is the document with a mark for each component, in parts of any
// size which follow each other.
func (p Parts) Remainder() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		at := uint32(0)
		for _, c := range p.components {
			if !yield(p.text[at:c.start]) || !yield([]byte{mark}) {
				return
			}
			at = c.end
		}
		yield(p.text[at:])
	}
}

// Join appends a part of a remainder to document, with what next returns in the
// place of each mark. It returns the errors of next.
func Join(document, remainder []byte, next func() ([]byte, error)) ([]byte, error) {
	for {
		i := bytes.IndexByte(remainder, mark)
		if i < 0 {
			return append(document, remainder...), nil
		}
		component, err := next()
		if err != nil {
			return document, err
		}
		document = append(append(document, remainder[:i]...), component...)
		remainder = remainder[i+1:]
	}
}

// scanner reads valid JSON from a place on.
type scanner struct {
	text []byte
	at   int
}

// members are the keys and values of the object at the scanner, and none where
// no object is.
func (s *scanner) members() iter.Seq2[span, span] {
	return func(yield func(key, value span) bool) {
		if s.space() != '{' {
			return
		}
		for s.at++; s.space() != '}'; {
			key := s.value()
			s.space()
			s.at++ // the colon
			if !yield(key, s.value()) {
				return
			}
			if s.space() == ',' {
				s.at++
			}
		}
	}
}

// elements are those of the array at the scanner.
func (s *scanner) elements() iter.Seq[span] {
	return func(yield func(span) bool) {
		for s.at++; s.space() != ']'; {
			if !yield(s.value()) {
				return
			}
			if s.space() == ',' {
				s.at++
			}
		}
	}
}

// space passes white space and returns what follows.
func (s *scanner) space() byte {
	for {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
}

// value passes a value, with the white space before it.
func (s *scanner) value() span {
	first := s.space()
	start := s.at
	switch first {
	case '"':
		s.string()
	case '{', '[':
		s.at++
		for depth := 1; depth > 0; {
			switch s.text[s.at] {
			case '"':
				s.string()
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			s.at++
		}
	default: // a number or a word
		for s.at < len(s.text) && strings.IndexByte(" \t\n\r,]}", s.text[s.at]) < 0 {
			s.at++
		}
	}
	return span{uint32(start), uint32(s.at)}
}

// string passes a string.
func (s *scanner) string() {
	for s.at++; s.text[s.at] != '"'; s.at++ {
		if s.text[s.at] == '\\' {
			s.at++
		}
	}
	s.at++
}
