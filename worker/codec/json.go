package codec

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// unencrypted is the SDK's converter, but for JSON.
func unencrypted() converter.DataConverter {
	return converter.NewCompositeDataConverter(
		converter.NewNilPayloadConverter(), converter.NewByteSlicePayloadConverter(),
		converter.NewProtoJSONPayloadConverter(), converter.NewProtoPayloadConverter(),
		jsonConverter{converter.NewJSONPayloadConverter()},
	)
}

// jsonConverter writes <, > and & as they are, which are six bytes each as the
// SDK writes them: a configuration of 1 MiB has to stay below Temporal's limit
// of 2 MiB for a payload.
type jsonConverter struct {
	*converter.JSONPayloadConverter
}

func (c jsonConverter) ToPayload(value any) (*common.Payload, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, fmt.Errorf("%w: %w", converter.ErrUnableToEncode, err)
	}
	return &common.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(c.Encoding())},
		Data:     bytes.TrimSuffix(text.Bytes(), []byte("\n")),
	}, nil
}
