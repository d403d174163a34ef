package deployments

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSafe(t *testing.T) {
	for text, want := range map[string]string{
		"plain … text\n\tas it is":  "plain … text\n\tas it is",
		"\x1b[1;31mred\x1b[0m":      "red",
		"\x1b[31":                   `\x1b[31`,
		"\x1b[3\x071m":              `\x1b[3\x071m`,
		"\x1b]0;title\x07":          `\x1b]0;title\x07`,
		"\x1bc":                     `\x1bc`,
		"a\rb":                      `a\x0db`,
		"\u009b31m":                 `\x9b31m`,
		"\x7f\x00\x08":              `\x7f\x00\x08`,
		"\u202eabc\u2066\ufeff":     `\u202eabc\u2066\ufeff`,
		"bad \xff\xfe utf-8":        "bad \ufffd\ufffd utf-8",
		"family \u200d joined é 漢字": "family \u200d joined é 漢字",
	} {
		require.Equal(t, want, safe(text))
	}
}

func TestCell(t *testing.T) {
	require.Equal(t, "one / two / three four", cell("one\r\ntwo\rthree\tfour\n"))
}

func TestLinesAreTheSameHoweverTheTextComes(t *testing.T) {
	text := "one\ntwo\r\n\n10%\r20%\rdone\r\nlast …"
	want := []string{"one", "two", "", "10%", "20%", "done", "last …"}
	for size := 1; size <= len(text); size++ {
		var got []string
		l := lines{emit: func(line string) { got = append(got, line) }}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			l.write(rest[:n])
			rest = rest[n:]
		}
		l.flush()
		require.Equal(t, want, got, "pieces of %d bytes", size)
	}
}

func TestALineWithoutEndIsCutAtACharacter(t *testing.T) {
	var got []string
	l := lines{emit: func(line string) { got = append(got, line) }}
	text := strings.Repeat("…", maxLine)
	l.write(text)
	require.Less(t, len(l.held), maxLine+1)
	l.flush()
	require.Equal(t, text, strings.Join(got, ""))
	for _, line := range got {
		require.LessOrEqual(t, len(line), maxLine)
		require.Equal(t, line, safe(line))
	}
}

func TestCopyTextKeepsCharactersWhole(t *testing.T) {
	text := "é…漢🚢"
	var got []string
	require.NoError(t, copyText(iotest.OneByteReader(strings.NewReader(text)), func(piece string) { got = append(got, piece) }))
	require.Equal(t, []string{"é", "…", "漢", "🚢"}, got)

	got = nil
	broken := errors.New("broken")
	err := copyText(io.MultiReader(strings.NewReader("a\xe2"), iotest.ErrReader(broken)), func(piece string) { got = append(got, piece) })
	require.ErrorIs(t, err, broken)
	require.Equal(t, []string{"a"}, got, "the half of a character is read again")

	got = nil
	require.NoError(t, copyText(strings.NewReader("a\xe2"), func(piece string) { got = append(got, piece) }))
	require.Equal(t, "a\xe2", strings.Join(got, ""), "a log may end in one")
}

func TestTimesForAPerson(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour:              "in the future",
		-time.Second:            "now",
		0:                       "now",
		3100 * time.Millisecond: "3.1s ago",
		90 * time.Second:        "90s ago",
		5 * time.Minute:         "5m ago",
		119 * time.Minute:       "119m ago",
		5 * time.Hour:           "5h ago",
		72 * time.Hour:          "3d ago",
	} {
		require.Equal(t, want, ago(d))
	}
}
