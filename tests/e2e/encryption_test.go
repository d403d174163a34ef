package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/api/workflowservice/v1"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/cmd/slipway-dev/issuer"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/worker/codec"
)

// guarded is Temporal as production has it: TLS that the client checks, a client
// certificate, and an API key.
type guarded struct {
	env      []string
	admitted atomic.Int64
}

func guard(t *testing.T) *guarded {
	t.Helper()
	const apiKey = "key-of-the-namespace"
	var plain http.Protocols
	plain.SetUnencryptedHTTP2(true)
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", slipway.TemporalAddress
		},
		Transport:     &http.Transport{Protocols: &plain},
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	g := &guarded{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+apiKey {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		g.admitted.Add(1)
		forward.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // of the handshakes that are to fail
	var certificate []byte
	server.TLS = &tls.Config{
		ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(s tls.ConnectionState) error {
			if !bytes.Equal(s.PeerCertificates[0].Raw, certificate) {
				return fmt.Errorf("not the certificate of slipway")
			}
			return nil
		},
	}
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	certificate = server.Certificate().Raw
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	folder := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	g.env = []string{
		"TEMPORAL_ADDRESS=" + server.Listener.Addr().String(),
		"TEMPORAL_API_KEY=" + apiKey,
		"TEMPORAL_TLS_SERVER_CA_CERT_PATH=" + write("ca.crt", "CERTIFICATE", certificate),
		"TEMPORAL_TLS_SERVER_NAME=example.com",
		"TEMPORAL_TLS_CLIENT_CERT_PATH=" + write("tls.crt", "CERTIFICATE", certificate),
		"TEMPORAL_TLS_CLIENT_KEY_PATH=" + write("tls.key", "PRIVATE KEY", key),
	}
	return g
}

// other is the environment of a slipway with a database and a namespace of its
// own beside the shared one.
func other(t *testing.T, name string) []string {
	t.Helper()
	_, err := slipway.database.Exec(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	namespaces, err := temporalclient.NewNamespaceClient(temporalclient.Options{HostPort: slipway.TemporalAddress})
	require.NoError(t, err)
	defer namespaces.Close()
	require.NoError(t, namespaces.Register(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	}))
	slash := strings.LastIndex(slipway.DatabaseURL, "/")
	_, parameters, _ := strings.Cut(slipway.DatabaseURL[slash:], "?")
	return []string{
		"SLIPWAY_DATABASE_URL=" + slipway.DatabaseURL[:slash] + "/" + name + "?" + parameters,
		"TEMPORAL_NAMESPACE=" + name, "SLIPWAY_STATE_DIR=" + t.TempDir(),
		"SLIPWAY_LISTEN=127.0.0.1:0", "SLIPWAY_METRICS_LISTEN=127.0.0.1:0", "SLIPWAY_HEALTH_LISTEN=127.0.0.1:0",
	}
}

// serves runs `slipway serve` until the test ends, or stop is called; url is its
// deployments API.
func serves(t *testing.T, env []string) (url string, stop func()) {
	t.Helper()
	return runs(t, "serve", env)
}

// runs runs serve, api or worker so.
func runs(t *testing.T, name string, env []string) (url string, stop func()) {
	t.Helper()
	cmd := slipway.Command(name)
	cmd.Env = append(cmd.Env, env...)
	output, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	addresses, ended := make(chan [2]string, 8), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(output)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var line struct {
				Msg, For, Address string
				TLS               bool
			}
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listens" {
				scheme := "http://"
				if line.TLS {
					scheme = "https://"
				}
				addresses <- [2]string{line.For, scheme + line.Address}
			}
		}
		_ = cmd.Wait()
	}()
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-ended
		}
	}
	t.Cleanup(stop)
	health := ""
	for deadline := time.After(patience); health == "" || url == ""; {
		select {
		case address := <-addresses:
			switch address[0] {
			case "health":
				health = address[1]
			case "the deployments API":
				url = address[1]
			}
		case <-ended:
			t.Fatalf("slipway %s has ended", name)
		case <-deadline:
			t.Fatalf("slipway %s does not listen", name)
		}
	}
	await(t, patience, func() error {
		response, err := http.Get(health + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz says %d", response.StatusCode)
		}
		return nil
	})
	return url, stop
}

func finishes(t *testing.T, env []string, args ...string) ran {
	t.Helper()
	cmd := slipway.Command(args...)
	cmd.Env = append(cmd.Env, env...)
	return finish(t, cmd)
}

func TestTemporalAsInProduction(t *testing.T) {
	t.Parallel()
	g := guard(t)
	r := finishes(t, g.env, "temporal-setup")
	require.Equal(t, 0, r.code, r.err)
	require.NotZero(t, g.admitted.Load())
	for name, without := range map[string]string{
		"another authority":      "TEMPORAL_TLS_SERVER_CA_CERT_PATH=",
		"no client certificate":  "TEMPORAL_TLS_CLIENT_CERT_PATH=",
		"another name":           "TEMPORAL_TLS_SERVER_NAME=elsewhere.example",
		"the API key of another": "TEMPORAL_API_KEY=another",
	} {
		admitted := g.admitted.Load()
		env := append(slices.Clone(g.env), without)
		if name == "no client certificate" {
			env = append(env, "TEMPORAL_TLS_CLIENT_KEY_PATH=")
		}
		r := finishes(t, env, "temporal-setup", "--wait", "1s")
		require.Equal(t, 1, r.code, "%s: %s", name, r.out)
		require.Equal(t, admitted, g.admitted.Load(), name)
		require.NotContains(t, r.err, "key-of-the-namespace")
	}
}

// TestHistoriesAreUnreadableWithoutTheKey runs deployments with encryption, reads
// all that Temporal has of them, and changes the key.
func TestHistoriesAreUnreadableWithoutTheKey(t *testing.T) {
	t.Parallel()
	const namespace = "encrypted"
	older, newer := newKey("older"), newKey("newer")
	keys := filepath.Join(t.TempDir(), "keys")
	env := append(guard(t).env, other(t, namespace)...)
	env = append(env, "SLIPWAY_CODEC_KEYS_FILE="+keys)
	for _, command := range []string{"migrate", "temporal-setup"} {
		r := finishes(t, env, command)
		require.Equal(t, 0, r.code, r.err)
	}
	r := finishes(t, env, "serve")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "SLIPWAY_CODEC_KEYS_FILE", "there is no such file")

	require.NoError(t, os.WriteFile(keys, []byte(older), 0o600))
	url, stop := serves(t, env)
	own := at(t, url)
	note := "note." + rand.Text()
	harbour := func(members string) json.RawMessage {
		return json.RawMessage(`{"test":{"domain":"harbour.example","note":"` + note + `"` + members + `}}`)
	}
	submitted, err := own.Submit(t.Context(), "one", harbour(""), "")
	require.NoError(t, err)
	awaitState(t, own, "one", deployment.StateActive)
	_, err = own.Submit(t.Context(), "two", harbour(`,"deploy":"fail"`), "")
	require.NoError(t, err)
	awaitState(t, own, "two", deployment.StateFailed)
	_, err = own.Submit(t.Context(), "three", harbour(`,"evaluate":"refuse"`), "")
	var refused *client.Error
	require.ErrorAs(t, err, &refused)
	require.Contains(t, fmt.Sprint(refused.Message, refused.Details), "harbour.example", "errors come through")
	require.NotZero(t, submitted.Build)

	temporal, err := temporalclient.Dial(temporalclient.Options{HostPort: slipway.TemporalAddress, Namespace: namespace})
	require.NoError(t, err)
	defer temporal.Close()
	words := []string{note, "harbour", "not ours"}
	seen := readAll(t, temporal, "one", "two", "three")
	for _, word := range words {
		for _, form := range forms(word) {
			require.False(t, bytes.Contains(seen.raw, form), "%s is in a history", word)
		}
	}
	require.Equal(t, []string{"older"}, seen.keys)

	// With the key they are read, over the endpoint of the Web UI.
	remote := remoteCodec(t, url)
	require.Contains(t, plainText(t, remote, seen.payloads), note)
	require.Contains(t, plainText(t, remote, seen.payloads), "not ours")
	require.Contains(t, plainText(t, remote, seen.payloads), "submit of", "summaries are encrypted too")

	// Another key: what was before is read, what comes is written with the new one.
	stop()
	require.NoError(t, os.WriteFile(keys, []byte(newer+older), 0o600))
	url, _ = serves(t, env)
	_, err = at(t, url).Destroy(t.Context(), "one")
	require.NoError(t, err)
	awaitState(t, at(t, url), "one", deployment.StateIdle)
	require.Equal(t, []string{"newer", "older"}, readAll(t, temporal, "one").keys)
	require.Contains(t, plainText(t, remoteCodec(t, url), readAll(t, temporal, "one").payloads), note)
}

func newKey(id string) string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return id + " " + base64.StdEncoding.EncodeToString(key) + "\n"
}

func at(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(url, func() (string, error) { return slipway.Token(issuer.Claims{}), nil }, client.Options{})
	require.NoError(t, err)
	return c
}

func awaitState(t *testing.T, c *client.Client, id string, state deployment.State) {
	t.Helper()
	await(t, patience, func() error {
		d, err := c.Get(t.Context(), id)
		if err == nil && d.State != state {
			err = fmt.Errorf("%s is %s: %s", id, d.State, d.Reason)
		}
		return err
	})
}

func remoteCodec(t *testing.T, url string) converter.PayloadCodec {
	t.Helper()
	return converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{
		Endpoint: url + "/codec",
		ModifyRequest: func(r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+slipway.Token(issuer.Claims{}))
			return nil
		},
	})
}

func plainText(t *testing.T, remote converter.PayloadCodec, payloads []*common.Payload) string {
	t.Helper()
	plain, err := remote.Decode(payloads)
	require.NoError(t, err)
	var text strings.Builder
	for _, p := range plain {
		text.Write(p.GetData())
		text.WriteByte('\n')
	}
	return text.String()
}

// kept is what Temporal has of some workflows: all bytes, the payloads, and the
// keys that they are encrypted with.
type kept struct {
	raw      []byte
	payloads []*common.Payload
	keys     []string
}

// readAll reads the workflows of deployments, and fails where a payload is not
// encrypted.
func readAll(t *testing.T, temporal temporalclient.Client, deployments ...string) kept {
	t.Helper()
	var seen kept
	visit := proxy.VisitPayloadsOptions{SkipSearchAttributes: true,
		Visitor: func(visited *proxy.VisitPayloadsContext, payloads []*common.Payload) ([]*common.Payload, error) {
			for _, p := range payloads {
				if _, header := visited.Parent.(*common.Header); header {
					require.Regexp(t, `^\{"traceparent":"[0-9a-f-]+"\}$`, string(p.GetData()), "of a trace, and no more")
					continue
				}
				require.Equal(t, "binary/encrypted", string(p.GetMetadata()["encoding"]), "%s", p.GetData())
				if key := string(p.GetMetadata()["encryption-key-id"]); !slices.Contains(seen.keys, key) {
					seen.keys = append(seen.keys, key)
				}
				seen.payloads = append(seen.payloads, p)
			}
			return payloads, nil
		}}
	take := func(m proto.Message) {
		raw, err := proto.Marshal(m)
		require.NoError(t, err)
		seen.raw = append(seen.raw, raw...)
		require.NoError(t, proxy.VisitPayloads(context.Background(), m, visit))
	}
	for _, id := range deployments {
		var runs []*common.WorkflowExecution
		await(t, patience, func() error {
			page, err := temporal.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: "SlipwayDeployment = '" + id + "'"})
			if err != nil {
				return err
			}
			runs = nil
			for _, run := range page.GetExecutions() {
				if run.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
					return fmt.Errorf("%s runs", run.GetExecution().GetWorkflowId())
				}
				runs = append(runs, run.GetExecution())
			}
			if len(runs) == 0 {
				return fmt.Errorf("there is no workflow of %s yet", id)
			}
			return nil
		})
		for _, run := range runs {
			events, all := temporal.GetWorkflowHistory(t.Context(), run.GetWorkflowId(), run.GetRunId(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT), &history.History{}
			for events.HasNext() {
				event, err := events.Next()
				require.NoError(t, err)
				all.Events = append(all.Events, event)
			}
			take(all)
			described, err := temporal.DescribeWorkflowExecution(t.Context(), run.GetWorkflowId(), run.GetRunId())
			require.NoError(t, err)
			take(described)
		}
	}
	slices.Sort(seen.keys)
	return seen
}

// forms are how a word may be written: as it is, and as JSON has bytes.
func forms(word string) [][]byte {
	forms := [][]byte{[]byte(word), []byte(hex.EncodeToString([]byte(word)))}
	for before := range 3 {
		// Both ends depend on what is around the word.
		encoded := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), word...))
		forms = append(forms, []byte(encoded[(before*8+5)/6:len(encoded)-2]))
	}
	return forms
}

// TestAWorkflowWaitsForItsKey: a worker that lacks the key of a workflow does it
// no harm.
func TestAWorkflowWaitsForItsKey(t *testing.T) {
	t.Parallel()
	key, wrong := newKey("one"), newKey("one")
	connect := func(keys string) temporalclient.Client {
		payloads, err := codec.Parse(strings.NewReader(keys))
		require.NoError(t, err)
		options := temporalclient.Options{HostPort: slipway.TemporalAddress, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))}
		payloads.Apply(&options)
		c, err := temporalclient.Dial(options)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		return c
	}
	const queue = "keys"
	run := func(c temporalclient.Client) worker.Worker {
		w := worker.New(c, queue, worker.Options{})
		w.RegisterWorkflowWithOptions(func(_ workflow.Context, text string) (string, error) { return text + text, nil },
			workflow.RegisterOptions{Name: "Twice"})
		require.NoError(t, w.Start())
		return w
	}
	with := connect(key)
	started, err := with.ExecuteWorkflow(t.Context(), temporalclient.StartWorkflowOptions{TaskQueue: queue}, "Twice", "ab")
	require.NoError(t, err)
	for i, keys := range []string{newKey("two"), wrong} {
		w := run(connect(keys))
		await(t, patience, func() error {
			described, err := with.DescribeWorkflowExecution(t.Context(), started.GetID(), started.GetRunID())
			if err == nil && int(described.GetPendingWorkflowTask().GetAttempt()) < i+2 {
				err = fmt.Errorf("%d: %s", i, described)
			}
			return err
		})
		w.Stop()
	}
	defer run(with).Stop()
	var result string
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, started.Get(ctx, &result))
	require.Equal(t, "abab", result)
}
