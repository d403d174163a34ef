package codec

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"slipway.dev/slipway/schema/wire"
	"slipway.dev/slipway/workflows"
)

func key(t *testing.T, id string) string {
	t.Helper()
	text := make([]byte, keyBytes)
	_, err := rand.Read(text)
	require.NoError(t, err)
	return id + " " + base64.StdEncoding.EncodeToString(text) + "\n"
}

func parse(t *testing.T, lines ...string) *Codec {
	t.Helper()
	c, err := Parse(strings.NewReader(strings.Join(lines, "")))
	require.NoError(t, err)
	return c
}

func payloads(t *testing.T, values ...any) []*common.Payload {
	t.Helper()
	p, err := converter.GetDefaultDataConverter().ToPayloads(values...)
	require.NoError(t, err)
	return p.GetPayloads()
}

func TestWhatIsEncryptedIsReadWithTheKeyAlone(t *testing.T) {
	c := parse(t, key(t, "one"))
	in := payloads(t, "harbour", []byte{0, 1}, nil)
	before := proto.Clone(in[0])
	encoded, err := c.Encode(in)
	require.NoError(t, err)
	require.True(t, proto.Equal(before, in[0]), "what was given is not changed")
	for i, p := range encoded {
		raw, err := proto.Marshal(p)
		require.NoError(t, err)
		require.NotContains(t, string(raw), "harbour")
		require.NotContains(t, string(raw), "json", "nor how it is encoded")
		again, err := c.Encode(in[i : i+1])
		require.NoError(t, err)
		require.NotEqual(t, p.GetData(), again[0].GetData(), "equal values are not seen to be equal")
	}
	decoded, err := c.Decode(encoded)
	require.NoError(t, err)
	for i := range in {
		require.True(t, proto.Equal(in[i], decoded[i]))
	}

	for name, other := range map[string]*Codec{
		"no key": {}, "another key": parse(t, key(t, "two")), "another key of that ID": parse(t, key(t, "one")),
	} {
		_, err := other.Decode(encoded)
		require.ErrorIs(t, err, errKey, name)
		require.ErrorContains(t, err, `"one"`, name)
	}
	for i := range encoded[0].GetData() {
		changed, ok := proto.Clone(encoded[0]).(*common.Payload)
		require.True(t, ok)
		changed.Data[i] ^= 1
		_, err := c.Decode([]*common.Payload{changed})
		require.ErrorIs(t, err, errKey)
	}
	_, err = c.Decode([]*common.Payload{{Metadata: encoded[0].GetMetadata()}})
	require.ErrorIs(t, err, errKey, "too short")
}

func TestAKeyIsChangedWithoutAPause(t *testing.T) {
	older, newer := key(t, "2026-01"), key(t, "2026-02")
	written := payloads(t, "harbour")
	steps := []*Codec{
		{}, parse(t, "plain\n", older), parse(t, older), parse(t, older, newer), parse(t, newer, older),
	}
	var histories [][]*common.Payload
	for i, step := range steps {
		encoded, err := step.Encode(written)
		require.NoError(t, err)
		require.Equal(t, i >= 2, step.Encrypts())
		histories = append(histories, encoded)
		// While processes are replaced one by one, those of the step before read what
		// this one writes; and it reads all that was ever written.
		for _, reader := range []*Codec{step, steps[max(0, i-1)]} {
			decoded, err := reader.Decode(encoded)
			require.NoError(t, err, "step %d", i)
			require.True(t, proto.Equal(written[0], decoded[0]))
		}
		for _, history := range histories {
			decoded, err := step.Decode(history)
			require.NoError(t, err)
			require.True(t, proto.Equal(written[0], decoded[0]))
		}
	}
	newest := parse(t, newer)
	_, err := newest.Decode(histories[3])
	require.ErrorIs(t, err, errKey, "a key that was removed too early")
	require.ErrorContains(t, err, `"2026-01"`)
}

func TestParse(t *testing.T) {
	good := key(t, "one")
	c := parse(t, "# of the year\n\n", "  ", good, "\t"+key(t, "two"))
	require.Equal(t, "one", c.current)
	require.Len(t, c.keys, 2)

	secret := strings.Fields(good)[1]
	for text, says := range map[string]string{
		"":                                     "there is no key",
		"# nothing\n\n":                        "there is no key",
		"plain\n":                              "there is no key",
		"plain " + secret:                      "line 1 is not the ID of a key, a space, and the key",
		"\n" + secret:                          "line 2 is not the ID",
		good + "plain\n":                       "line 2 is not the ID",
		good + good:                            "line 2 has the ID of a line before",
		"one " + secret + " two":               "line 1 is not the ID",
		"o/ne " + secret:                       "line 1 is not the ID",
		strings.Repeat("a", 65) + " " + secret: "line 1 is not the ID",
		"one " + secret[:40]:                   "line 1 has a key that is not 32 bytes",
		"one !" + secret[1:]:                   "line 1 has a key that is not 32 bytes",
	} {
		_, err := Parse(strings.NewReader(text))
		require.ErrorContains(t, err, says, text)
		require.NotContains(t, err.Error(), secret[:8])
	}
}

// applied are the converters of a client with the codec.
func applied(c *Codec) client.Options {
	var options client.Options
	c.Apply(&options)
	return options
}

func TestFailures(t *testing.T) {
	c := parse(t, key(t, "one"))
	failed := temporal.NewNonRetryableApplicationError("harbour is closed", "BuildFailed", errors.New("harbour"), "harbour")
	f := applied(c).FailureConverter.ErrorToFailure(failed)
	raw, err := proto.Marshal(f)
	require.NoError(t, err)
	require.NotContains(t, string(raw), "harbour")
	require.Contains(t, string(raw), "BuildFailed", "the types of errors stay plain")

	var application *temporal.ApplicationError
	require.ErrorAs(t, applied(c).FailureConverter.FailureToError(f), &application)
	require.Equal(t, "harbour is closed", application.Message())
	var detail string
	require.NoError(t, application.Details(&detail))
	require.Equal(t, "harbour", detail)

	f = applied(&Codec{}).FailureConverter.ErrorToFailure(failed)
	require.Equal(t, "harbour is closed", f.GetMessage(), "as ever, without keys")
}

func TestAWorkflowWaitsForAWorkerWithTheKey(t *testing.T) {
	c, other := parse(t, key(t, "one")), parse(t, key(t, "two"))
	encrypted, err := applied(c).DataConverter.ToPayloads("harbour")
	require.NoError(t, err)
	aware, ok := applied(other).DataConverter.(interface {
		WithWorkflowContext(workflow.Context) converter.DataConverter
	})
	require.True(t, ok)
	var text string
	require.ErrorIs(t, applied(other).DataConverter.FromPayloads(encrypted, &text), errKey)
	require.Panics(t, func() { _ = aware.WithWorkflowContext(nil).FromPayloads(encrypted, &text) })
	require.Panics(t, func() { _ = aware.WithWorkflowContext(nil).FromPayload(encrypted.GetPayloads()[0], &text) })
	var number int
	require.Error(t, aware.WithWorkflowContext(nil).FromPayloads(&common.Payloads{Payloads: payloads(t, "x")}, &number), "what is no matter of keys fails as ever")
}

func TestInAWorkflow(t *testing.T) {
	c := parse(t, key(t, "one"))
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetDataConverter(applied(c).DataConverter)
	env.SetFailureConverter(applied(c).FailureConverter)
	twice := func(ctx workflow.Context, text string) (string, error) {
		return text + text, nil
	}
	env.RegisterWorkflow(twice)
	env.ExecuteWorkflow(twice, "ab")
	require.NoError(t, env.GetWorkflowError())
	var result string
	require.NoError(t, env.GetWorkflowResult(&result))
	require.Equal(t, "abab", result)
}

// TestHistoriesFromBeforeTheKeys: runs that began without encryption go on with
// it.
func TestHistoriesFromBeforeTheKeys(t *testing.T) {
	options := applied(parse(t, key(t, "one")))
	files, err := filepath.Glob("../../workflows/testdata/histories/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
		DataConverter: options.DataConverter, FailureConverter: options.FailureConverter,
	})
	require.NoError(t, err)
	for name, definition := range map[string]any{
		wire.WorkflowSubmit: workflows.Submit, wire.WorkflowImport: workflows.Import, wire.WorkflowDestroy: workflows.Destroy,
		wire.WorkflowPreview: workflows.Preview, wire.WorkflowSchemaBuild: workflows.SchemaBuild,
		wire.WorkflowLease: workflows.Lease, wire.WorkflowPlanned: workflows.PlannedOperation,
	} {
		replayer.RegisterWorkflowWithOptions(definition, workflow.RegisterOptions{Name: name})
	}
	var logged bytes.Buffer
	logger := log.NewStructuredLogger(slog.New(slog.NewTextHandler(&logged, nil)))
	for _, file := range files {
		require.NoError(t, replayer.ReplayWorkflowHistoryFromJSONFile(logger, file), "%s: %s", file, logged.String())
	}
}

// Temporal refuses a payload of over 2 MiB.
func TestAConfigurationKeepsItsSize(t *testing.T) {
	text := `{"note":"` + strings.Repeat("<>&\u2028", 1000) + `"}`
	for _, c := range []*Codec{{}, parse(t, key(t, "one"))} {
		converter := applied(c).DataConverter
		payload, err := converter.ToPayload(wire.SubmitRequest{Configuration: json.RawMessage(text)})
		require.NoError(t, err)
		require.Less(t, len(payload.GetData()), len(text)+500)
		var request wire.SubmitRequest
		require.NoError(t, converter.FromPayload(payload, &request))
		require.Equal(t, text, string(request.Configuration))
	}
	_, err := applied(&Codec{}).DataConverter.ToPayload(func() {})
	require.ErrorIs(t, err, converter.ErrUnableToEncode)
}
