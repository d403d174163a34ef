package e2e

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"slipway.dev/slipway/schema/deployment"
)

// spans is where the stand of this package sends its traces.
var spans *spanCollector

// spanCollector takes spans by OTLP.
type spanCollector struct {
	collector.UnimplementedTraceServiceServer
	URL string

	mu  sync.Mutex
	all []*tracepb.Span
}

func newSpanCollector() (*spanCollector, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &spanCollector{URL: "http://" + l.Addr().String()}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(l) }() // until the tests end
	return c, nil
}

// Export is of collector.TraceServiceServer.
func (c *spanCollector) Export(_ context.Context, in *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range in.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			c.all = append(c.all, s.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// trace is the spans of a trace.
func (c *spanCollector) trace(id string) []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.all), func(s *tracepb.Span) bool { return hex.EncodeToString(s.GetTraceId()) != id })
}

// TestTraceOfASubmit: what the caller began goes on from the request to the
// workflow and its activities, and has no configuration in it.
func TestTraceOfASubmit(t *testing.T) {
	t.Parallel()
	const id, trace, caller, note = "traced", "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "a-note-that-no-span-has"
	header := http.Header{
		"Content-Type": {"application/json"},
		"Traceparent":  {"00-" + trace + "-" + caller + "-01"},
		"Baggage":      {"carried=" + note},
	}
	a := slipway.call(t, http.MethodPut, "/deployments/"+id+"?asked="+note, header, body(configuration(`"note":"`+note+`"`)))
	require.Less(t, a.Status, 300, a.Body)
	slipway.build(t, id, 1, deployment.StatusSucceeded)
	await(t, patience, func() error {
		found := map[string]*tracepb.Span{}
		var names []string
		for _, s := range spans.trace(trace) {
			require.NotContains(t, s.String(), note)
			found[s.GetName()] = s
			names = append(names, s.GetName())
		}
		for _, name := range []string{"PUT /deployments/{id}", "RunWorkflow:Submit", "StartActivity:Deploy", "RunActivity:Deploy"} {
			if found[name] == nil {
				return fmt.Errorf("no span %s among %s", name, strings.Join(names, ", "))
			}
		}
		request := found["PUT /deployments/{id}"]
		require.Equal(t, caller, hex.EncodeToString(request.GetParentSpanId()))
		require.Equal(t, tracepb.Span_SPAN_KIND_SERVER, request.GetKind())
		require.Equal(t, found["StartActivity:Deploy"].GetSpanId(), found["RunActivity:Deploy"].GetParentSpanId())
		return nil
	})
}
