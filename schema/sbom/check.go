package sbom

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/CycloneDX/cyclonedx-go"
)

// MaxSize is the largest document, in bytes, and MaxComponents the most
// components that one can have.
const (
	MaxSize       = 64 << 20
	MaxComponents = 1_000_000
)

// Why a file is no SBOM. Errors of this package that wrap one of these are
// reasons for a person.
var (
	ErrTooLarge     = fmt.Errorf("the SBOM is larger than %d MiB", MaxSize>>20)
	ErrTooMany      = fmt.Errorf("the SBOM has more than %d components", MaxComponents)
	ErrNotJSON      = errors.New("the SBOM is not JSON")
	ErrNotCycloneDX = errors.New("the SBOM is not CycloneDX")
	ErrVersion      = errors.New("the version of CycloneDX is not supported")
)

// Hash is a SHA-256.
type Hash = [sha256.Size]byte

// Document is an SBOM that was accepted.
type Document struct {
	Parts
	// SpecVersion is that of CycloneDX, as "1.6".
	SpecVersion string
	// SHA256 is that of the whole, and Size its length in bytes.
	SHA256 Hash
	Size   int64
	// Hashes are those of the components, in their order.
	Hashes []Hash
}

// Reader reads documents. It remembers which components it accepted, so that
// documents which share many are read fast. Not for several goroutines.
type Reader struct{ accepted map[Hash]struct{} }

// NewReader makes a Reader.
func NewReader() *Reader { return &Reader{accepted: map[Hash]struct{}{}} }

// maxAccepted is about how many components a Reader remembers.
const maxAccepted = 100_000

// maxReason bounds what a reason quotes, in bytes.
const maxReason = 300

// Read takes a document apart and checks it. It keeps text. The errors are
// those of Split, ErrNotCycloneDX and ErrVersion.
func (r *Reader) Read(text []byte) (*Document, error) {
	parts, err := Split(text)
	if err != nil {
		return nil, err
	}
	d := &Document{Parts: parts, SHA256: sha256.Sum256(text), Size: int64(len(text)), Hashes: make([]Hash, parts.Len())}
	for i := range d.Hashes {
		d.Hashes[i] = sha256.Sum256(parts.Component(i))
	}
	if d.SpecVersion, err = version(text); err != nil {
		return nil, err
	}
	if err := r.decode(d); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrNotCycloneDX, err)
	}
	if len(r.accepted) > maxAccepted {
		clear(r.accepted)
	}
	for _, hash := range d.Hashes[:min(len(d.Hashes), maxAccepted)] {
		r.accepted[hash] = struct{}{}
	}
	return d, nil
}

// version reads what says that it is CycloneDX.
func version(text []byte) (string, error) {
	s := scanner{text: text, at: len(text) - len(bytes.TrimPrefix(text, byteOrderMark))}
	if s.space() != '{' {
		return "", fmt.Errorf("%w: it is not an object", ErrNotCycloneDX)
	}
	var format, version string
	for key, value := range s.members() {
		var name string
		if err := json.Unmarshal(text[key.start:key.end], &name); err != nil {
			return "", fmt.Errorf("%w: %w", ErrNotJSON, err)
		}
		for want, into := range map[string]*string{"bomFormat": &format, "specVersion": &version} {
			if name == want && json.Unmarshal(text[value.start:value.end], into) != nil {
				return "", fmt.Errorf("%w: %s must be a string", ErrNotCycloneDX, want)
			}
		}
	}
	if format != "CycloneDX" {
		return "", fmt.Errorf("%w: bomFormat must be \"CycloneDX\"", ErrNotCycloneDX)
	}
	if version == "" {
		return "", fmt.Errorf("%w: it has no specVersion", ErrNotCycloneDX)
	}
	quoted, err := json.Marshal(version)
	if err == nil {
		err = new(cyclonedx.SpecVersion).UnmarshalJSON(quoted)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %q", ErrVersion, shorten(version, 20))
	}
	return version, nil
}

// batchSize is about how much is decoded at a time, in bytes.
const batchSize = 64 << 10

// decode decodes all of a document with cyclonedx-go: the top level without
// its arrays, then the elements of each array in batches. Components that were
// accepted before are left out.
func (r *Reader) decode(d *Document) error {
	s := scanner{text: d.text, at: len(d.text) - len(bytes.TrimPrefix(d.text, byteOrderMark))}
	head := batch{open: []byte{'{'}, close: []byte{'}'}}
	component := 0
	for key, value := range s.members() {
		name, text := d.text[key.start:key.end], d.text[value.start:value.end]
		if text[0] != '[' {
			if err := head.add(name, []byte{':'}, text); err != nil {
				return err
			}
			continue
		}
		if err := head.add(name, []byte(":[]")); err != nil {
			return err
		}
		elements := batch{open: fmt.Appendf(nil, "{%s:[", name), close: []byte("]}")}
		inner := scanner{text: d.text, at: int(value.start)}
		split := isComponents(name)
		for element := range inner.elements() {
			if split {
				component++
				if _, known := r.accepted[d.Hashes[component-1]]; known {
					continue
				}
			}
			if err := elements.add(d.text[element.start:element.end]); err != nil {
				return err
			}
		}
		if err := elements.decode(); err != nil {
			return err
		}
	}
	return head.decode()
}

// batch is a document that is made of parts of another.
type batch struct {
	open, close []byte
	text        []byte
}

func (b *batch) add(parts ...[]byte) error {
	if len(b.text) > batchSize {
		if err := b.decode(); err != nil {
			return err
		}
	}
	if len(b.text) == 0 {
		b.text = append(b.text, b.open...)
	} else {
		b.text = append(b.text, ',')
	}
	for _, part := range parts {
		b.text = append(b.text, part...)
	}
	return nil
}

func (b *batch) decode() error {
	if len(b.text) == 0 {
		return nil
	}
	err := cyclonedx.NewBOMDecoder(bytes.NewReader(append(b.text, b.close...)), cyclonedx.BOMFileFormatJSON).Decode(&cyclonedx.BOM{})
	b.text = b.text[:0]
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) && mistyped.Field != "" {
		return fmt.Errorf("%s cannot be a JSON %s", shorten(mistyped.Field, maxReason), mistyped.Value)
	}
	if err != nil {
		return errors.New(shorten(err.Error(), maxReason))
	}
	return nil
}
