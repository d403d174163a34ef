package configuration_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/configuration"
)

func TestDecodeRefuses(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"nothing":                {"", "it ends too early"},
		"half":                   {`{"a":`, "it ends too early"},
		"not JSON":               {"{a:1}", "not JSON"},
		"a trailing comma":       {`{"a":[1,]}`, "not JSON"},
		"a missing comma":        {`[1 2]`, "not JSON"},
		"two documents":          {`{} {}`, "more than one JSON document"},
		"a trailing word":        {`{} x`, "more than one JSON document"},
		"a key twice":            {`{"a":{"b":1,"b":2}}`, "at /a/b: the key is there twice"},
		"an escaped twin":        {`{"a":1,"\u0061":2}`, "at /a: the key is there twice"},
		"not UTF-8":              {"{\"a\":\"\xff\"}", "not UTF-8"},
		"NUL":                    {`{"a":["\u0000"]}`, "at /a/0: a string holds the character NUL"},
		"NUL in a key":           {`{"\u0000":1}`, "a string holds the character NUL"},
		"a large integer":        {`{"n":9223372036854775808}`, "at /n: an integer has at most 64 bits"},
		"a large float":          {`{"n":1e999}`, "at /n: the number is out of the range"},
		"a large negative float": {`{"n":[-1e309]}`, "at /n/0: the number is out of the range"},
		"a float near zero":      {`{"n":1e-400}`, "at /n: the number is out of the range of a 64-bit float (from 5e-324 to 1.79"},
		"a tiny float":           {`{"n":1e-1000001}`, "at /n: the number is out of the range"},
		"a tiny float below":     {`{"n":-0.1E-99999999999999999999}`, "at /n: the number is out of the range"},
		"a long zero":            {`{"n":0.` + strings.Repeat("0", 399) + `}`, "at /n: a number has at most 400 characters"},
		"a long float":           {`{"n":1.` + strings.Repeat("3", 100_000) + `}`, "at /n: a number has at most 400 characters"},
		"a long exponent":        {`{"n":1e` + strings.Repeat("0", 500) + `1}`, "at /n: a number has at most 400 characters"},
		"a power of zero":        {`{"n":0e-401}`, "at /n: the exponent of a number is from -400 to 400"},
		"no exponent":            {`{"n":0.0E+9999999999}`, "at /n: the exponent of a number is from -400 to 400"},
		"101 levels":             {strings.Repeat("[", 101) + strings.Repeat("]", 101), "nested deeper than 100 levels"},
		"10,000 levels":          {strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000), "nested deeper than 100 levels"},
		"a long name":            {`{"` + strings.Repeat("k", 4097) + `":1}`, "the names on the way here have more than 4096 bytes together"},
		"long names":             {`{"` + strings.Repeat("k", 4000) + `":[{"` + strings.Repeat("k", 97) + `":1}]}`, "the names on the way here have more than 4096 bytes together"},
		"a million brackets":     {strings.Repeat("[", 1_000_000), "nested deeper than 100 levels"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := configuration.Decode([]byte(c.in))
			require.ErrorContains(t, err, c.want)
			require.Less(t, len(err.Error()), 500)
		})
	}
}

func TestDecodeKeepsNumbersAsWritten(t *testing.T) {
	value, err := configuration.Decode([]byte(` {"b":1.0, "a":[1,1e2,-0,9223372036854775807,5E-324,-1.7976931348623157e+308,0e-400,0.1000], "c":"<&\u2028é"} `))
	require.NoError(t, err)
	canonical, err := configuration.Canonical(value)
	require.NoError(t, err)
	require.Equal(t, `{"a":[1,1e2,-0,9223372036854775807,5E-324,-1.7976931348623157e+308,0e-400,0.1000],"b":1.0,"c":"<&\u2028é"}`, string(canonical))
}

func TestDecodeTakesTheDeepest(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("[", 100) + strings.Repeat("]", 100),
		`{"` + strings.Repeat("k", 4000) + `":[{"` + strings.Repeat("k", 96) + `":[[1]],"` + strings.Repeat("l", 96) + `":1}]}`,
	} {
		_, err := configuration.Decode([]byte(text))
		require.NoError(t, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}],"c":"d"}`))
	f.Add([]byte(`[1e5,-0.0,"\ud800"]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		value, err := configuration.Decode(data)
		if err != nil {
			return
		}
		canonical, err := configuration.Canonical(value)
		require.NoError(t, err)
		again, err := configuration.Decode(canonical)
		require.NoError(t, err)
		require.Equal(t, value, again)
	})
}
