package api

import (
	"net/http"

	"go.temporal.io/api/common/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// codecPaths is where the codec of payloads is.
const codecPaths = "/codec/"

// maxPayloads is how many bytes the payloads of a request may have: more than a
// message of Temporal, of at most 4 MiB, has in base64.
const maxPayloads = 6 << 20

// decodePayloads and encodePayloads are the protocol of a remote codec, by which
// the Web UI and the CLI of Temporal show what is encrypted. The Web UI asks in
// small pieces, and shows what was refused as it is.
func (a *api) decodePayloads(w http.ResponseWriter, r *http.Request, c caller) error {
	return a.convertPayloads(w, r, c, func(p []*common.Payload) ([]*common.Payload, error) { return a.Codec.Decode(p) })
}

func (a *api) encodePayloads(w http.ResponseWriter, r *http.Request, c caller) error {
	return a.convertPayloads(w, r, c, func(p []*common.Payload) ([]*common.Payload, error) { return a.Codec.Encode(p) })
}

func (a *api) convertPayloads(w http.ResponseWriter, r *http.Request, c caller, convert func([]*common.Payload) ([]*common.Payload, error)) error {
	if c.grant.Deployments() != nil {
		return refuse(codeForbidden, "a payload does not say of which deployment it is, and the token is limited to some")
	}
	if a.Codec == nil {
		return refuse(codeNotFound, "the payloads of Temporal are not encrypted here (SLIPWAY_CODEC_KEYS_FILE)")
	}
	body, err := a.readJSON(w, r, maxPayloads)
	if err != nil {
		return err
	}
	var payloads common.Payloads
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, &payloads); err != nil {
		return refuse(codeInvalidRequest, "the body is not an object with payloads of Temporal")
	}
	converted, err := convert(payloads.GetPayloads())
	if err != nil {
		f := refuse(codeInvalidRequest, "a payload cannot be decoded with the keys of this process")
		f.cause = err
		return f
	}
	answer, err := protojson.Marshal(&common.Payloads{Payloads: converted})
	return respond(w, http.StatusOK, answer, err)
}
