package deployer

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// lines makes the output of a deployer printable lines, as the package
// comment has it. It holds at most one line in memory.
type lines struct {
	limit int
	emit  func(line string) // without a line end

	raw     []byte // the line so far, at most limit bytes
	cut     bool   // the line went on behind raw
	afterCR bool   // a line end that follows at once belongs to the last one
}

func (l *lines) Write(p []byte) {
	for len(p) > 0 {
		line, rest, ended := bytes.Cut(p, []byte{'\n'})
		for {
			before, after, found := bytes.Cut(line, []byte{'\r'})
			l.add(before)
			if !found {
				break
			}
			l.end(true)
			line = after
		}
		if ended {
			l.end(false)
		}
		p = rest
	}
}

// Close ends the last line where the output ended without a line end.
func (l *lines) Close() {
	if len(l.raw) > 0 {
		l.end(false)
	}
}

func (l *lines) add(p []byte) {
	if len(p) == 0 {
		return
	}
	l.afterCR = false
	if room := l.limit - len(l.raw); len(p) > room {
		p, l.cut = p[:room], true
	}
	l.raw = append(l.raw, p...)
}

func (l *lines) end(cr bool) {
	swallow := l.afterCR && len(l.raw) == 0
	l.afterCR = cr
	if swallow {
		return
	}
	text, cut := printable(l.raw, l.limit, l.cut)
	if cut {
		text += fmt.Sprintf(" [… line cut at %d KiB]", l.limit>>10)
	}
	l.emit(text)
	l.raw, l.cut = l.raw[:0], false
}

// printable makes the start of a line at most limit bytes of printable text.
// The line was cut before when cut is given, and it is cut when that is
// returned.
func printable(raw []byte, limit int, cut bool) (string, bool) {
	var b strings.Builder
	for len(raw) > 0 {
		if n := formatting(raw); n > 0 {
			raw = raw[n:]
			continue
		}
		r, n := utf8.DecodeRune(raw)
		text := raw[:n]
		switch {
		case r == utf8.RuneError && n == 1:
			if cut && !utf8.FullRune(raw) {
				return b.String(), true // the cut went through a character
			}
			text = fmt.Appendf(nil, `\x%02x`, raw[0])
		case r < 0x20 && r != '\t' || r == 0x7f:
			text = fmt.Appendf(nil, `\x%02x`, r)
		case 0x80 <= r && r < 0xa0:
			text = fmt.Appendf(nil, `\u%04x`, r)
		}
		if b.Len()+len(text) > limit {
			return b.String(), true
		}
		b.Write(text)
		raw = raw[n:]
	}
	return b.String(), cut
}

// formatting is the length of the control sequence (ECMA-48, 5.4) that raw
// begins with, and 0 where there is none: ESC [, parameters, one final byte.
func formatting(raw []byte) int {
	if len(raw) < 3 || raw[0] != 0x1b || raw[1] != '[' {
		return 0
	}
	for i, c := range raw[2:] {
		switch {
		case 0x20 <= c && c <= 0x3f:
		case 0x40 <= c && c <= 0x7e:
			return i + 3
		default:
			return 0
		}
	}
	return 0
}
