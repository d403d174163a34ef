package coordination

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"slipway.dev/slipway/schema/lease"
)

// maxBody is the longest body, in bytes.
const maxBody = 4096

// readBody reads a JSON object (RFC 8259) that has some of the members and no
// other, none of them twice and nothing after it. Its values are texts and
// numbers. Names are compared exactly, unlike encoding/json does.
func (c *call) readBody(members ...string) (body, error) {
	// The end of a context does not interrupt a read. Only writers of tests
	// have no deadlines.
	if deadline, ok := c.Context().Deadline(); ok {
		_ = http.NewResponseController(c.w).SetReadDeadline(deadline)
	}
	raw, err := io.ReadAll(http.MaxBytesReader(c.w, c.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, refuse(codeRequestTooLarge, "the body has more than 4,096 bytes")
	}
	if err != nil {
		return nil, refuse(codeInvalidRequest, "the body ended early, or came too slowly")
	}
	return decode(raw, members)
}

// body has the members of a JSON object: string and json.Number.
type body map[string]any

func decode(raw []byte, members []string) (body, error) {
	// Beforehand, because tokens are read one by one.
	if !utf8.Valid(raw) || !json.Valid(raw) {
		return nil, refuse(codeInvalidRequest, "the body is not one JSON document in UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if first, _ := decoder.Token(); first != json.Delim('{') {
		return nil, refuse(codeInvalidRequest, "the body is not an object")
	}
	known := map[string]bool{}
	for _, member := range members {
		known[member] = true
	}
	b := body{}
	for decoder.More() {
		// The document is valid, so there is a name and then a value.
		token, _ := decoder.Token()
		name, _ := token.(string)
		value, _ := decoder.Token()
		if _, twice := b[name]; !known[name] || twice {
			return nil, refuse(codeInvalidRequest, "the body has an unknown member, or one twice")
		}
		switch value.(type) {
		case string, json.Number:
			b[name] = value
		default:
			return nil, refuse(codeInvalidRequest, name+" is neither a text nor a number")
		}
	}
	return b, nil
}

func (b body) text(member string) (string, error) {
	text, ok := b[member].(string)
	if !ok {
		return "", refuse(codeInvalidRequest, member+" is not a text")
	}
	return text, nil
}

// ttl is ttlSeconds, clamped. An integer of any size is one, also where no
// machine has a type for it; 30.0 and 3e1 are none.
func (b body) ttl() (time.Duration, error) {
	number, ok := b["ttlSeconds"].(json.Number)
	if !ok {
		return 0, refuse(codeInvalidRequest, "ttlSeconds is not an integer")
	}
	seconds, err := strconv.ParseInt(number.String(), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, refuse(codeInvalidRequest, "ttlSeconds is not an integer")
	}
	return lease.ClampTTL(seconds), nil // ParseInt gives the nearest for one out of range
}
