package deployer

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// linesOf writes the input in parts of the size and returns the lines.
func linesOf(input string, limit, size int) []string {
	var out []string
	l := &lines{limit: limit, emit: func(line string) { out = append(out, line) }}
	for p := []byte(input); len(p) > 0; p = p[min(size, len(p)):] {
		l.Write(p[:min(size, len(p))])
	}
	l.Close()
	return out
}

func TestLines(t *testing.T) {
	long := strings.Repeat("a", 2048)
	for name, test := range map[string]struct {
		input string
		want  []string
	}{
		"nothing":               {"", nil},
		"lines":                 {"one\ntwo\n", []string{"one", "two"}},
		"no end":                {"one\ntwo", []string{"one", "two"}},
		"empty lines":           {"\n\na\n\n", []string{"", "", "a", ""}},
		"crlf":                  {"one\r\ntwo\r\n", []string{"one", "two"}},
		"empty crlf lines":      {"one\r\n\r\ntwo\r\n", []string{"one", "", "two"}},
		"progress":              {"10%\r20%\r100%\r\ndone\n", []string{"10%", "20%", "100%", "done"}},
		"returns":               {"one\r\r\r\ntwo\n", []string{"one", "two"}},
		"return at the start":   {"\rone\n", []string{"", "one"}},
		"tab":                   {"a\tb\n", []string{"a\tb"}},
		"NUL":                   {"a\x00b\n", []string{`a\x00b`}},
		"control":               {"\a\b\v\f\x7f\n", []string{`\x07\x08\x0b\x0c\x7f`}},
		"not UTF-8":             {"a\xff\xc3(\xe2\x82\n", []string{`a\xff\xc3(\xe2\x82`}},
		"surrogate":             {"\xed\xa0\x80\n", []string{`\xed\xa0\x80`}},
		"UTF-8":                 {"größe 日本 😀\n", []string{"größe 日本 😀"}},
		"replacement":           {"\uFFFD\n", []string{"\uFFFD"}},
		"colour":                {"\x1b[1;31merror:\x1b[0m no\n", []string{"error: no"}},
		"cursor":                {"a\x1b[2K\x1b[1Gb\n", []string{"ab"}},
		"title":                 {"\x1b]0;title\a\n", []string{`\x1b]0;title\x07`}},
		"lone escape":           {"a\x1b\n", []string{`a\x1b`}},
		"unfinished formatting": {"a\x1b[3\n", []string{`a\x1b[3`}},
		"broken formatting":     {"a\x1b[3\x01m\n", []string{`a\x1b[3\x01m`}},
		"C1":                    {"a\u009b31mb\n", []string{`a\u009b31mb`}},
		"just fits":             {long[:1024] + "\nb\n", []string{long[:1024], "b"}},
		"long":                  {long + "\nb\n", []string{long[:1024] + " [… line cut at 1 KiB]", "b"}},
		"long without end":      {long, []string{long[:1024] + " [… line cut at 1 KiB]"}},
		"long when printed":     {strings.Repeat("\x00", 300) + "\n", []string{strings.Repeat(`\x00`, 256) + " [… line cut at 1 KiB]"}},
		"cut in a character":    {long[:1023] + "é\n", []string{long[:1023] + " [… line cut at 1 KiB]"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 3, 1 << 20} {
				require.Equal(t, test.want, linesOf(test.input, 1024, size), "in parts of %d", size)
			}
		})
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("one\r\n\x1b[31mtwo\x00\xff\n"), 4)
	f.Add(bytes.Repeat([]byte("é\u009b"), 100), 1)
	f.Add([]byte("\r\r\n\x1b[\x1b[[\x1b"), 7)
	f.Fuzz(func(t *testing.T, input []byte, size int) {
		const limit = 64
		size = max(1, min(size, len(input)))
		got := linesOf(string(input), limit, size)
		for _, line := range got {
			require.True(t, utf8.ValidString(line), "%q", line)
			require.LessOrEqual(t, len(line), limit+len(" [… line cut at 0 KiB]"))
			for _, r := range line {
				require.True(t, r == '\t' || !unicode.IsControl(r), "%q", line)
			}
		}
		require.Equal(t, linesOf(string(input), limit, len(input)+1), got, "the parts of the input show")
		if ends := bytes.Count(input, []byte("\n")) + bytes.Count(input, []byte("\r")); len(got) > ends+1 {
			t.Errorf("%d lines of %d line ends", len(got), ends)
		}
	})
}
