package api

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
)

// http2 serves the API over TLS too, and makes requests as HTTP/2 from then on.
func (b *bundle) http2(tune func(*http.Transport)) {
	server := httptest.NewUnstartedServer(nil)
	server.Config = Server(b.api.router)
	server.EnableHTTP2 = true
	server.StartTLS()
	b.t.Cleanup(func() {
		b.stop()
		server.CloseClientConnections()
		server.Close()
	})
	b.url, b.http = server.URL, server.Client()
	if tune != nil {
		tune(b.http.Transport.(*http.Transport))
	}
}

// Over HTTP/2, net/http resets a stream when the time of its last write is over,
// whether or not there is something to write.
func TestStreamsOverHTTP2OutliveAPause(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *Config) { c.WriteTimeout, c.Ping, c.Poll = time.Second, 1500*time.Millisecond, time.Hour })
	b.http2(nil)
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	b.Start("one", n)
	b.Print("one", n, "first\n")
	response, events := b.opened("GET", "/deployments/one/events")
	require.Equal(t, 2, response.ProtoMajor)
	_, log := b.opened("GET", "/deployments/one/builds/1/log?follow=true")
	until := func(lines *bufio.Reader, want string) {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			if line == want+"\n" {
				return
			}
		}
	}
	until(log, "first")
	until(events, ": ping")
	until(events, ": ping")
	b.Print("one", n, "second\n")
	until(log, "second")
	b.End("one", n, deployment.StatusSucceeded)
	until(events, "event: state")
}

func TestASlowClientIsDroppedOverHTTP2(t *testing.T) {
	t.Parallel()
	b := start(t, func(c *Config) { c.WriteTimeout = 500 * time.Millisecond })
	b.http2(func(transport *http.Transport) {
		transport.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}
	})
	n := b.Record("one", deployment.ActionDeploy, `{}`)
	b.Start("one", n)
	b.Print("one", n, strings.Repeat(strings.Repeat("x", 1023)+"\n", 256))
	b.opened("GET", "/deployments/one/events?log=true") // and nobody reads
	require.Eventually(t, func() bool { return testutil.ToFloat64(b.api.metrics.dropped) == 1 }, patience, 10*time.Millisecond)
	require.Equal(t, http.StatusOK, b.do("GET", "/deployments/one", "").status, "on the same connection")
}
