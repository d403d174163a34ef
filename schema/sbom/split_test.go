package sbom_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/sbom"
)

// again takes a document apart and puts it together from what a store keeps:
// the components by their hashes, and the remainder.
func again(t testing.TB, text []byte) ([]byte, sbom.Parts) {
	t.Helper()
	parts, err := sbom.Split(text)
	require.NoError(t, err)
	kept := map[[32]byte][]byte{}
	var order [][32]byte
	for i := range parts.Len() {
		component := bytes.Clone(parts.Component(i))
		if !json.Valid(component) {
			t.Fatalf("not a value: %s", component)
		}
		hash := sha256.Sum256(component)
		kept[hash] = component
		order = append(order, hash)
	}
	var remainder []byte
	for part := range parts.Remainder() {
		remainder = append(remainder, part...)
	}
	// A store may cut the remainder anywhere.
	cut := rand.IntN(len(remainder) + 1)
	next := func() ([]byte, error) {
		component := kept[order[0]]
		order = order[1:]
		return component, nil
	}
	document, err := sbom.Join(nil, remainder[:cut], next)
	require.NoError(t, err)
	document, err = sbom.Join(document, remainder[cut:], next)
	require.NoError(t, err)
	require.Empty(t, order, "every component has its place")
	return document, parts
}

func same(t testing.TB, text []byte) sbom.Parts {
	t.Helper()
	document, parts := again(t, text)
	if sha256.Sum256(text) != sha256.Sum256(document) {
		t.Fatalf("not the same\n%q\n%q", text[:min(len(text), 4000)], document[:min(len(document), 4000)])
	}
	return parts
}

// generator writes JSON in every way that it can be written.
type generator struct{ *rand.Rand }

func (g generator) one(of ...string) string { return of[g.IntN(len(of))] }

func (g generator) space() string {
	return g.one("", "", " ", "\n", "\t", "\r\n", "  \n\t ", " ")
}

func (g generator) number() string {
	return g.one("0", "-0", "1.0", "1.50", "1e5", "1E+05", "-12.0e-3", "123456789012345678901234567890", "0.1000000000000000055511151231257827")
}

func (g generator) string() string {
	pieces := []string{"a", "é", "\\u00e9", "\\u0000", "\\\"", "\\\\", "\\/", "/", "\\n", "\u2028", "\\ud83d\\ude00", "😀", "]", "}", "{", "[", ",", ":", "components", "\x7f", "\\ud800", "\xff"}
	var b strings.Builder
	for range g.IntN(6) {
		b.WriteString(g.one(pieces...))
	}
	return `"` + b.String() + `"`
}

func (g generator) key() string {
	return g.one(g.string(), `"name"`, `"components"`, `"Components"`, `"c\u006fmponents"`, `"version"`, `"metadata"`, `"x"`)
}

func (g generator) value(depth int) string {
	switch n := g.IntN(10); {
	case n < 2 && depth > 0:
		return g.list("[", "]", func() string { return g.value(depth - 1) })
	case n < 5 && depth > 0:
		return g.object(depth - 1)
	case n < 7:
		return g.string()
	case n < 9:
		return g.number()
	default:
		return g.one("true", "false", "null", "[]", "{}", "[ ]", "{\n}")
	}
}

func (g generator) list(open, end string, element func() string) string {
	var b strings.Builder
	b.WriteString(open + g.space())
	for i := range g.IntN(5) {
		if i > 0 {
			b.WriteString("," + g.space())
		}
		b.WriteString(element() + g.space())
	}
	return b.String() + end
}

func (g generator) object(depth int) string {
	return g.list("{", "}", func() string { return g.key() + g.space() + ":" + g.space() + g.value(depth) })
}

// document is an object in most cases, with arrays of components that repeat.
func (g generator) document() string {
	pool := []string{g.object(3), g.object(2), g.object(1), g.value(2), `{"name":"a","components":[{"name":"b"}]}`}
	member := func() string {
		if g.IntN(3) > 0 {
			return g.key() + g.space() + ":" + g.space() + g.value(3)
		}
		return g.one(`"components"`, `"\u0063omponents"`) + g.space() + ":" + g.space() +
			g.list("[", "]", func() string { return g.one(pool...) })
	}
	body := g.list("{", "}", member)
	if g.IntN(10) == 0 {
		body = g.value(2)
	}
	return g.one("", "", "\ufeff") + g.space() + body + g.space()
}

func TestSplitAndJoinGiveTheSameBytes(t *testing.T) {
	split := 0
	for seed := range uint64(20_000) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		split += same(t, []byte(g.document())).Len()
	}
	require.Greater(t, split, 10_000, "documents with components were among them")
}

func TestSplitFindsTheComponents(t *testing.T) {
	for text, want := range map[string][]string{
		`{}`:                       nil,
		`[]`:                       nil,
		`[{"components":[1]}]`:     nil,
		`"components"`:             nil,
		`{"components":[]}`:        nil,
		`{"components":[ ]}`:       nil,
		`{"components":null}`:      nil,
		`{"components":{"a":[1]}}`: nil,
		`{"Components":[{}]}`:      nil,
		`{"a":{"components":[1]}}`: nil,
		"\ufeff" + ` {"components" : [ {"a": 1.0 } , {"a": 1.0 },{"components":[{}]}, 1.0 ] } `: {`{"a": 1.0 }`, `{"a": 1.0 }`, `{"components":[{}]}`, `1.0`},
		`{"components":[1],"x":"components","components":[2,"]"]}`:                              {`1`, `2`, `"]"`},
		`{"c\u006fmponents":[true]}`: {`true`},
		`{"\\components":[true]}`:    nil,
	} {
		parts := same(t, []byte(text))
		var got []string
		for i := range parts.Len() {
			got = append(got, string(parts.Component(i)))
		}
		require.Equal(t, want, got, text)
	}
}

func TestSplitRefusesWhatIsNotJSON(t *testing.T) {
	for _, text := range []string{"", " ", "\ufeff", `{"components":[}`, `{"components":[{}]`, `{"components":["` + "\x00" + `"]}`,
		`{"components":[{}]}}`, "\x00", `{"a":"\`, "\xff\xfe{\x00}\x00", `{'a':1}`, strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)} {
		_, err := sbom.Split([]byte(text))
		require.ErrorIs(t, err, sbom.ErrNotJSON, "%.40q", text)
	}
}

func realDocuments(t testing.TB) map[string][]byte {
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	documents := map[string][]byte{}
	for _, file := range files {
		documents[file], err = os.ReadFile(file)
		require.NoError(t, err)
	}
	return documents
}

func TestRealDocuments(t *testing.T) {
	for file, text := range realDocuments(t) {
		for name, text := range map[string][]byte{file: text, file + " with CR LF": bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")), file + " with a BOM": append([]byte("\ufeff"), text...)} {
			parts := same(t, text)
			var bom cyclonedx.BOM
			require.NoError(t, cyclonedx.NewBOMDecoder(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff"))), cyclonedx.BOMFileFormatJSON).Decode(&bom))
			if bom.Components == nil {
				bom.Components = &[]cyclonedx.Component{}
			}
			require.Len(t, *bom.Components, parts.Len(), name)
			d, err := sbom.NewReader().Read(text)
			require.NoError(t, err, name)
			require.Equal(t, bom.SpecVersion.String(), d.SpecVersion)
			require.Equal(t, sha256.Sum256(text), d.SHA256)
			for i, want := range *bom.Components {
				got, err := sbom.Components(parts.Component(i))
				require.NoError(t, err)
				require.Equal(t, want.Name, got[0].Name)
				require.Equal(t, want.PackageURL, got[0].PURL)
			}
		}
	}
}

func TestSignatureOfADocumentStillVerifies(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	for file, text := range realDocuments(t) {
		signature := ed25519.Sign(private, text)
		document, _ := again(t, text)
		require.True(t, ed25519.Verify(public, document, signature), file)
		document[len(document)/2]++
		require.False(t, ed25519.Verify(public, document, signature), file)
	}
}

// large is a document of about size bytes with components of about each bytes.
func large(size, each int) []byte {
	var b bytes.Buffer
	b.Grow(size + each + 200)
	b.WriteString(`{"bomFormat":"CycloneDX","specVersion":"1.6","version":1,"components":[`)
	for i := 0; b.Len() < size-each; i++ {
		if i > 0 {
			b.WriteString(",\n  ")
		}
		fmt.Fprintf(&b, `{"type":"library","name":"p%d","version":"1.%d","description":"%s"}`, i, i, strings.Repeat("x", each-60))
	}
	b.WriteString("]}\n")
	return b.Bytes()
}

func TestTwoHundredThousandComponents(t *testing.T) {
	text := large(200_000*130, 100)
	parts := same(t, text)
	require.Greater(t, parts.Len(), 200_000)
}

// What the whole takes is measured by tests/bench.
func TestReadNeedsLittleMemory(t *testing.T) {
	text := large(16<<20, 100)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	d, err := sbom.NewReader().Read(text)
	require.NoError(t, err)
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(16<<20))
	runtime.KeepAlive(d)
	runtime.KeepAlive(text)
}

func FuzzSplit(f *testing.F) {
	for _, text := range realDocuments(f) {
		if len(text) < 10_000 {
			f.Add(text)
		}
	}
	for seed := range uint64(50) {
		f.Add([]byte(generator{rand.New(rand.NewPCG(seed, 2))}.document()))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := sbom.Split(text)
		valid := json.Valid(bytes.TrimPrefix(text, []byte("\ufeff")))
		require.Equal(t, valid, err == nil)
		if !valid {
			return
		}
		same(t, text)
		_, _ = sbom.NewReader().Read(text)
	})
}
