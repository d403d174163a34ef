package configuration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// MaxBytes is the longest configuration, and the longest body that holds
	// one, in bytes.
	MaxBytes = 1 << 20
	// MaxDepth is how deep objects and arrays may nest. Nix and PostgreSQL
	// take less than a JSON parser does.
	MaxDepth = 100
	// MaxNames is how many bytes the names of the members on the way to one
	// value may have together. A name is repeated for everything below it
	// wherever places are told or kept, so a long one is a multiple of a body.
	MaxNames = 4096
	// MaxNumber is how many characters a number may have that is not a plain
	// integer, and how large its exponent may be. Every 64-bit float can be
	// written so.
	MaxNumber = 400
)

// Decode reads one JSON document more strictly than encoding/json: UTF-8 only,
// no object with the same key twice, nothing behind the document, at most
// MaxDepth levels and MaxNames bytes of names, and only numbers and strings
// that Nix can hold (integers of 64 bits, 64-bit floats of at most MaxNumber
// characters, no NUL). Numbers are json.Number, so that 1 and 1.0 stay apart:
// they are different types in Nix. The error is for the caller of the API; it
// names the place as a JSON Pointer and holds no value.
func Decode(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the body is not UTF-8")
	}
	d := decoder{json.NewDecoder(bytes.NewReader(data))}
	d.UseNumber()
	value, err := d.value(route{})
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the body has more than one JSON document")
	}
	return value, nil
}

type decoder struct{ *json.Decoder }

// route is the way to a value. Its pointer is only written where something is
// wrong there: of every value, that would cost the length of the way again.
type route struct {
	tokens []string
	// names is how many bytes those tokens have that are names of members.
	names int
}

func (r route) String() string { return place(pointerOf(r.tokens)) }

// member and item lead one level down. The routes to siblings share their
// memory, since there is one at a time.
func (r route) member(name string) route { return route{append(r.tokens, name), r.names + len(name)} }
func (r route) item(i int) route         { return route{append(r.tokens, strconv.Itoa(i)), r.names} }

func (d decoder) value(at route) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, syntaxError(at, err)
	}
	switch token := token.(type) {
	case json.Delim:
		if len(at.tokens) == MaxDepth {
			return nil, fmt.Errorf("%s: nested deeper than %d levels", at, MaxDepth)
		}
		if token == '{' {
			return d.object(at)
		}
		return d.array(at)
	case json.Number:
		return token, checkNumber(at, token)
	case string:
		return token, checkString(at, token)
	default:
		return token, nil
	}
}

func (d decoder) object(at route) (any, error) {
	object := map[string]any{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, syntaxError(at, err)
		}
		key, _ := token.(string) // the decoder takes nothing else for a key
		if err := checkString(at, key); err != nil {
			return nil, err
		}
		member := at.member(key)
		if member.names > MaxNames {
			return nil, fmt.Errorf("%s: the names on the way here have more than %d bytes together", member, MaxNames)
		}
		if _, ok := object[key]; ok {
			return nil, fmt.Errorf("%s: the key is there twice", member)
		}
		if object[key], err = d.value(member); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return object, syntaxError(at, err)
}

func (d decoder) array(at route) (any, error) {
	array := []any{}
	for d.More() {
		item, err := d.value(at.item(len(array)))
		if err != nil {
			return nil, err
		}
		array = append(array, item)
	}
	_, err := d.Token()
	return array, syntaxError(at, err)
}

// checkNumber refuses what the JSON reader of Nix would wrap around, or read as
// infinite or as zero, and what would take long to compare: the schema is held
// against exact fractions, which have as many digits as the exponent says.
func checkNumber(at route, n json.Number) error {
	mantissa, exponent, float := strings.Cut(strings.ToLower(n.String()), "e")
	if !float && !strings.Contains(mantissa, ".") {
		if _, err := n.Int64(); err != nil {
			return fmt.Errorf("%s: an integer has at most 64 bits (from %d to %d)", at, math.MinInt64, math.MaxInt64)
		}
		return nil
	}
	if len(n) > MaxNumber {
		return fmt.Errorf("%s: a number has at most %d characters", at, MaxNumber)
	}
	f, err := n.Float64()
	if err != nil || f == 0 && strings.ContainsAny(mantissa, "123456789") {
		return fmt.Errorf("%s: the number is out of the range of a 64-bit float (from %v to %v, and the same below 0)",
			at, math.SmallestNonzeroFloat64, math.MaxFloat64)
	}
	// What is zero is so in every power of ten.
	if power, err := strconv.Atoi(exponent); float && (err != nil || max(power, -power) > MaxNumber) {
		return fmt.Errorf("%s: the exponent of a number is from -%d to %d", at, MaxNumber, MaxNumber)
	}
	return nil
}

func checkString(at route, s string) error {
	if strings.ContainsRune(s, 0) {
		return fmt.Errorf("%s: a string holds the character NUL, which Nix has not", at)
	}
	return nil
}

func syntaxError(at route, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the body is not JSON: it ends too early")
	default:
		return fmt.Errorf("%s: the body is not JSON: %w", at, err)
	}
}

// Pointer appends a reference token to a JSON Pointer (RFC 6901).
func Pointer(path, token string) string {
	return path + "/" + escaper.Replace(token)
}

func pointerOf(path []string) string {
	var pointer strings.Builder
	for _, token := range path {
		pointer.WriteByte('/')
		_, _ = escaper.WriteString(&pointer, token) // a builder takes everything
	}
	return pointer.String()
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// place is a pointer for a person; the root has an empty one.
func place(path string) string {
	if path == "" {
		return "at the root"
	}
	const longest = 200
	if len(path) > longest {
		return "at " + strings.ToValidUTF8(path[:longest], "") + "…"
	}
	return "at " + path
}

// Canonical writes a decoded value with sorted keys and numbers as they were
// written. Equal configurations have equal canonical forms.
func Canonical(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, fmt.Errorf("write canonical JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
