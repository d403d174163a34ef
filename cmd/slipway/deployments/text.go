package deployments

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// safe makes text safe for a terminal: escape sequences of colour and the like
// are dropped, and every other character that moves the cursor, changes the
// direction of writing or is no character is written as its number. Line ends
// and tabs stay.
func safe(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return unsafe(r) || r == utf8.RuneError }) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		if n := sequence(text); n > 0 {
			text = text[n:]
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteRune(utf8.RuneError)
		case unsafe(r) && r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case unsafe(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}

// cell is safe for text that must stay on one line.
func cell(text string) string {
	text = strings.TrimSpace(strings.NewReplacer("\r\n", "\n", "\r", "\n", "\t", " ").Replace(text))
	return safe(strings.ReplaceAll(text, "\n", " / "))
}

// unsafe characters: control characters, and those that a terminal or a reader
// takes for line ends, or that turn the direction of the text around.
func unsafe(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r == '\ufeff':
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// sequence is the length of the control sequence (ECMA-48, CSI) that text
// begins with, and 0 without one. What builds print in colour is common enough
// to be worth reading.
func sequence(text string) int {
	if !strings.HasPrefix(text, "\x1b[") {
		return 0
	}
	for i := 2; i < len(text); i++ {
		switch c := text[i]; {
		case 0x40 <= c && c <= 0x7e:
			return i + 1
		case c < 0x20 || c > 0x3f:
			return 0
		}
	}
	return 0
}

// maxLine is how much of a line without an end is kept back, in bytes.
const maxLine = 16 << 10

// lines cuts text that comes in pieces into lines; \n, \r\n and a lone \r end
// one, so that a progress bar becomes lines too. A line without an end is cut
// at maxLine.
type lines struct {
	held string
	emit func(line string)
}

func (l *lines) write(text string) {
	l.held += text
	for {
		end := strings.IndexAny(l.held, "\r\n")
		switch {
		case end >= 0 && l.held[end] == '\r' && end == len(l.held)-1 && end < maxLine:
			return // the \n may follow
		case end >= 0:
			next := end + 1
			if strings.HasPrefix(l.held[end:], "\r\n") {
				next++
			}
			l.emit(l.held[:end])
			l.held = l.held[next:]
		case len(l.held) > maxLine:
			cut := whole(l.held[:maxLine])
			l.emit(l.held[:cut])
			l.held = l.held[cut:]
		default:
			return
		}
	}
}

func (l *lines) flush() {
	if l.held != "" {
		l.emit(strings.TrimSuffix(l.held, "\r"))
		l.held = ""
	}
}

// whole is how much of text does not cut a character at its end.
func whole(text string) int {
	for cut := len(text) - 1; cut >= 0 && cut >= len(text)-utf8.UTFMax; cut-- {
		if utf8.RuneStart(text[cut]) {
			if !utf8.FullRuneInString(text[cut:]) {
				return cut
			}
			break
		}
	}
	return len(text)
}

// copyText hands on text as it comes, without cutting a character in two. A
// read that fails keeps the half of one back: the next read begins there.
func copyText(from io.Reader, emit func(text string)) error {
	buffer := make([]byte, 32<<10)
	held := ""
	for {
		n, err := from.Read(buffer)
		text := held + string(buffer[:n])
		end := whole(text)
		if err == io.EOF {
			end = len(text)
		}
		if end > 0 {
			emit(text[:end])
		}
		held = text[end:]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
