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
)

// Decode reads one JSON document more strictly than encoding/json: UTF-8 only,
// no object with the same key twice, nothing behind the document, at most
// MaxDepth levels, and only numbers and strings that Nix can hold (integers of
// 64 bits, finite floats, no NUL). Numbers are json.Number, so that 1 and 1.0
// stay apart: they are different types in Nix. The error is for the caller of
// the API; it names the place as a JSON Pointer and holds no value.
func Decode(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the body is not UTF-8")
	}
	d := decoder{json.NewDecoder(bytes.NewReader(data))}
	d.UseNumber()
	value, err := d.value("", 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the body has more than one JSON document")
	}
	return value, nil
}

type decoder struct{ *json.Decoder }

func (d decoder) value(path string, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, syntaxError(path, err)
	}
	switch token := token.(type) {
	case json.Delim:
		if depth == MaxDepth {
			return nil, fmt.Errorf("%s: nested deeper than %d levels", place(path), MaxDepth)
		}
		if token == '{' {
			return d.object(path, depth+1)
		}
		return d.array(path, depth+1)
	case json.Number:
		return token, checkNumber(path, token)
	case string:
		return token, checkString(path, token)
	default:
		return token, nil
	}
}

func (d decoder) object(path string, depth int) (any, error) {
	object := map[string]any{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, syntaxError(path, err)
		}
		key, _ := token.(string) // the decoder takes nothing else for a key
		if err := checkString(path, key); err != nil {
			return nil, err
		}
		member := Pointer(path, key)
		if _, ok := object[key]; ok {
			return nil, fmt.Errorf("%s: the key is there twice", place(member))
		}
		if object[key], err = d.value(member, depth); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return object, syntaxError(path, err)
}

func (d decoder) array(path string, depth int) (any, error) {
	array := []any{}
	for d.More() {
		item, err := d.value(Pointer(path, strconv.Itoa(len(array))), depth)
		if err != nil {
			return nil, err
		}
		array = append(array, item)
	}
	_, err := d.Token()
	return array, syntaxError(path, err)
}

// checkNumber refuses what the JSON reader of Nix would wrap around or read as
// infinite.
func checkNumber(path string, n json.Number) error {
	if !strings.ContainsAny(n.String(), ".eE") {
		if _, err := n.Int64(); err != nil {
			return fmt.Errorf("%s: an integer has at most 64 bits (from %d to %d)", place(path), math.MinInt64, math.MaxInt64)
		}
		return nil
	}
	if _, err := n.Float64(); err != nil {
		return fmt.Errorf("%s: the number is out of the range of a 64-bit float", place(path))
	}
	return nil
}

func checkString(path, s string) error {
	if strings.ContainsRune(s, 0) {
		return fmt.Errorf("%s: a string holds the character NUL, which Nix has not", place(path))
	}
	return nil
}

func syntaxError(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the body is not JSON: it ends too early")
	default:
		return fmt.Errorf("%s: the body is not JSON: %w", place(path), err)
	}
}

// Pointer appends a reference token to a JSON Pointer (RFC 6901).
func Pointer(path, token string) string {
	return path + "/" + escaper.Replace(token)
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
