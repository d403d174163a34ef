package codec

import (
	"bufio"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/proto"
)

// Metadata of an encrypted payload, by the names that other codecs of Temporal
// use too.
const (
	metadataKeyID = "encryption-key-id"
	encoding      = "binary/encrypted"
)

// plain stands in the place of the key that encrypts where none does.
const plain = "plain"

// keyBytes is the size of a key: AES-256.
const keyBytes = 32

// errKey is that a payload cannot be decrypted with the keys of this process.
var errKey = errors.New("the payload cannot be decrypted here")

var keyID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Codec encrypts and decrypts payloads. The zero Codec encrypts nothing, and
// decrypts nothing that is encrypted.
type Codec struct {
	// current is the ID of the key that encrypts; empty where none does.
	current string
	keys    map[string]cipher.AEAD
}

// Parse reads keys: a line each has an ID (letters, digits, dots, hyphens and
// underscores, at most 64), white space, and 32 bytes in base64. Empty lines and
// those that begin with # are skipped. The first key encrypts, all decrypt;
// where the first line is the word plain, none encrypts. An error names the line
// and never what is in it.
func Parse(r io.Reader) (*Codec, error) {
	c := &Codec{keys: map[string]cipher.AEAD{}}
	lines, first := bufio.NewScanner(r), true
	for number := 1; lines.Scan(); number++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if first && len(fields) == 1 && fields[0] == plain {
			first = false
			continue
		}
		id, key, err := parseKey(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d %w", number, err)
		}
		if _, ok := c.keys[id]; ok {
			return nil, fmt.Errorf("line %d has the ID of a line before", number)
		}
		c.keys[id] = key
		if first {
			c.current, first = id, false
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(c.keys) == 0 {
		return nil, errors.New("there is no key")
	}
	return c, nil
}

func parseKey(fields []string) (string, cipher.AEAD, error) {
	if len(fields) != 2 || !keyID.MatchString(fields[0]) || fields[0] == plain {
		return "", nil, errors.New("is not the ID of a key, a space, and the key")
	}
	key, err := base64.StdEncoding.DecodeString(fields[1])
	if err != nil || len(key) != keyBytes {
		return "", nil, fmt.Errorf("has a key that is not %d bytes in base64", keyBytes)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return "", nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return fields[0], aead, err
}

// Encrypts reports whether the codec has a key that encrypts.
func (c *Codec) Encrypts() bool { return c.current != "" }

// Encode encrypts payloads.
func (c *Codec) Encode(payloads []*common.Payload) ([]*common.Payload, error) {
	if !c.Encrypts() {
		return payloads, nil
	}
	encoded := make([]*common.Payload, len(payloads))
	for i, p := range payloads {
		text, err := proto.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("encode a payload: %w", err)
		}
		encoded[i] = &common.Payload{
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding), metadataKeyID: []byte(c.current)},
			Data:     c.keys[c.current].Seal(nil, nil, text, []byte(c.current)),
		}
	}
	return encoded, nil
}

// Decode decrypts those of the payloads that are encrypted.
func (c *Codec) Decode(payloads []*common.Payload) ([]*common.Payload, error) {
	decoded := make([]*common.Payload, len(payloads))
	for i, p := range payloads {
		if string(p.GetMetadata()[converter.MetadataEncoding]) != encoding {
			decoded[i] = p
			continue
		}
		id := string(p.GetMetadata()[metadataKeyID])
		key, ok := c.keys[id]
		if !ok {
			return nil, fmt.Errorf("%w: the process has not its key %.64q", errKey, id)
		}
		text, err := key.Open(nil, nil, p.GetData(), []byte(id))
		if err != nil {
			return nil, fmt.Errorf("%w: it was changed, or its key %q is another one", errKey, id)
		}
		decoded[i] = &common.Payload{}
		if err := proto.Unmarshal(text, decoded[i]); err != nil {
			return nil, fmt.Errorf("decode a payload: %w", err)
		}
	}
	return decoded, nil
}

// Apply has a client, and the workers that use it, encrypt and decrypt.
func (c *Codec) Apply(options *client.Options) {
	options.DataConverter = dataConverter{converter.NewCodecDataConverter(unencrypted(), c)}
	options.FailureConverter = temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{
		DataConverter: options.DataConverter, EncodeCommonAttributes: c.Encrypts(),
	})
}

// dataConverter knows when it converts for a workflow.
type dataConverter struct{ converter.DataConverter }

func (d dataConverter) WithContext(context.Context) converter.DataConverter { return d }

func (d dataConverter) WithWorkflowContext(converter.WorkflowContext) converter.DataConverter {
	return inWorkflow(d)
}

// inWorkflow panics where the key is missing, which fails the task: an error
// would fail the workflow, for what is wrong with the worker.
type inWorkflow struct{ converter.DataConverter }

func (d inWorkflow) FromPayload(payload *common.Payload, value any) error {
	return must(d.DataConverter.FromPayload(payload, value))
}

func (d inWorkflow) FromPayloads(payloads *common.Payloads, values ...any) error {
	return must(d.DataConverter.FromPayloads(payloads, values...))
}

func must(err error) error {
	if errors.Is(err, errKey) {
		panic(err)
	}
	return err
}
