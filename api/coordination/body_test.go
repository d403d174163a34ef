package coordination

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// badBodies are no body of any call, made of one that is.
func badBodies(good string) map[string]string {
	open := strings.TrimSuffix(good, "}")
	return map[string]string{
		"empty":                  "",
		"space":                  " ",
		"null":                   "null",
		"array":                  "[" + good + "]",
		"text":                   `"a"`,
		"no JSON":                "kind=migration",
		"cut":                    open,
		"trailing object":        good + "{}",
		"trailing null":          good + " null",
		"trailing brace":         good + "}",
		"trailing NUL":           good + "\x00",
		"byte order mark":        "\ufeff" + good,
		"not UTF-8":              open + ",\"a\":\"\xff\"}",
		"trailing comma":         open + ",}",
		"comment":                good + "//",
		"unknown member":         open + `,"force":true}`,
		"unknown text member":    open + `,"force":"yes"}`,
		"unknown empty member":   open + `,"":"yes"}`,
		"other case":             strings.Replace(good, "ttlSeconds", "ttlseconds", 1),
		"both cases":             open + `,"TTLSECONDS":30}`,
		"member twice":           open + `,"ttlSeconds":30}`,
		"member twice, escaped":  open + `,"ttl\u0053econds":30}`,
		"ttlSeconds missing":     strings.Replace(good, `,"ttlSeconds":30`, "", 1),
		"ttlSeconds as text":     strings.Replace(good, `:30`, `:"30"`, 1),
		"ttlSeconds as float":    strings.Replace(good, `:30`, `:30.5`, 1),
		"ttlSeconds as 30.0":     strings.Replace(good, `:30`, `:30.0`, 1),
		"ttlSeconds as exponent": strings.Replace(good, `:30`, `:3e1`, 1),
		"ttlSeconds as null":     strings.Replace(good, `:30`, `:null`, 1),
		"ttlSeconds as true":     strings.Replace(good, `:30`, `:true`, 1),
		"ttlSeconds as array":    strings.Replace(good, `:30`, `:[30]`, 1),
		"ttlSeconds as object":   strings.Replace(good, `:30`, `:{}`, 1),
		"ttlSeconds as +30":      strings.Replace(good, `:30`, `:+30`, 1),
		"ttlSeconds as 030":      strings.Replace(good, `:30`, `:030`, 1),
		"ttlSeconds as 0x1e":     strings.Replace(good, `:30`, `:0x1e`, 1),
		"ttlSeconds as NaN":      strings.Replace(good, `:30`, `:NaN`, 1),
	}
}

func TestTTL(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30": 30 * time.Second, "5": 5 * time.Second, "4": 5 * time.Second, "0": 5 * time.Second, "-0": 5 * time.Second, "-1": 5 * time.Second,
		"120": 2 * time.Minute, "121": 2 * time.Minute, "9223372036854775807": 2 * time.Minute, "9223372036854775808": 2 * time.Minute,
		"-9223372036854775809": 5 * time.Second, "1" + strings.Repeat("0", 400): 2 * time.Minute, "-1" + strings.Repeat("0", 400): 5 * time.Second,
	} {
		b, err := decode([]byte(`{"ttlSeconds":`+text+`}`), []string{"ttlSeconds"})
		require.NoError(t, err, text)
		ttl, err := b.ttl()
		require.NoError(t, err, text)
		require.Equal(t, want, ttl, text)
	}
}
