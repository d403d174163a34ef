package api

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"

	"slipway.dev/slipway/worker/codec"
)

func newCodec(t *testing.T) *codec.Codec {
	t.Helper()
	c, err := codec.Parse(strings.NewReader("one " + base64.StdEncoding.EncodeToString([]byte(rand.Text()+"012345")) + "\n"))
	require.NoError(t, err)
	return c
}

// TestCodec asks as the programs of Temporal do, with the SDK's client of the
// protocol.
func TestCodec(t *testing.T) {
	own := newCodec(t)
	b := start(t, func(c *Config) { c.Codec = own })
	remote := converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{
		Endpoint: b.url + "/codec",
		ModifyRequest: func(r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+b.token(both, nil))
			return nil
		},
	})
	plain, err := converter.GetDefaultDataConverter().ToPayloads("harbour", map[string]int{"size": 3})
	require.NoError(t, err)

	encoded, err := own.Encode(plain.GetPayloads())
	require.NoError(t, err)
	decoded, err := remote.Decode(append(encoded, plain.GetPayloads()...))
	require.NoError(t, err)
	for i := range decoded {
		require.True(t, proto.Equal(plain.GetPayloads()[i%2], decoded[i]))
	}
	encoded, err = remote.Encode(plain.GetPayloads())
	require.NoError(t, err)
	decoded, err = own.Decode(encoded)
	require.NoError(t, err)
	require.True(t, proto.Equal(plain.GetPayloads()[1], decoded[1]))

	encoded, err = newCodec(t).Encode(plain.GetPayloads())
	require.NoError(t, err)
	_, err = remote.Decode(encoded)
	require.ErrorContains(t, err, "cannot be decoded with the keys of this process")
}

func TestCodecRefuses(t *testing.T) {
	b := start(t, func(c *Config) { c.Codec = newCodec(t) })
	const encrypted = `{"payloads":[{"metadata":{"encoding":"YmluYXJ5L2VuY3J5cHRlZA==","encryption-key-id":"b25l"},"data":"AAAA"}]}`
	for _, path := range []string{"/codec/decode", "/codec/encode"} {
		for body, status := range map[string]int{
			"nonsense": 400, `[]`: 400, `{"payloads":{}}`: 400, `{"payloads":[{"data":"?"}]}`: 400, `{"payloads":["x"]}`: 400,
			`{}`: 200, `{"payloads":[]}`: 200, `{"payloads":[{}],"new":1}`: 200,
			strings.Repeat(" ", maxPayloads) + "{}": http.StatusRequestEntityTooLarge,
		} {
			require.Equal(t, status, b.do("POST", path+"?preserveStorageRefs=true", body).status, "%.40q", body)
		}
		require.Equal(t, http.StatusUnsupportedMediaType, b.do("POST", path, "{}", "Content-Type", "text/plain").status)
		require.Equal(t, http.StatusMethodNotAllowed, b.do("GET", path, "").status)
	}
	a := b.do("POST", "/codec/decode", encrypted)
	require.Equal(t, codeInvalidRequest, a.failure(t).Error)
	require.Equal(t, http.StatusNotFound, start(t, nil).do("POST", "/codec/decode", encrypted).status)
}
