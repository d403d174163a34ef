package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway-dev/issuer"
	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/tests/stand"
)

// (e) 1,000 clients on one channel: when the last has an event, and what a
// client costs in memory.
func TestChannelOfThousandClients(t *testing.T) {
	const clients, rounds = 1000, 21
	const id = "crowd"
	_, err := api(t).Submit(t.Context(), id, configuration("gate", `,"deploy":"gate"`), "")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		b, err := api(t).Build(t.Context(), deployment.Ref{Deployment: id, Build: 1})
		return err == nil && b.Status == deployment.StatusRunning
	}, time.Minute, 20*time.Millisecond)

	pid := slipway.Process(stand.API).PID
	before := resident(t, pid)
	var received atomic.Int64 // of the current round
	last := make(chan time.Time, rounds)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	token := slipway.Token(issuer.Claims{})
	transport := &http.Transport{MaxConnsPerHost: 0, MaxIdleConnsPerHost: clients, ReadBufferSize: 2 << 10}
	for range clients {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, slipway.URL+"/deployments/"+id+"/events", nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := transport.RoundTrip(request)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode)
		lines := bufio.NewReaderSize(response.Body, 2<<10)
		for { // the snapshot
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			if line == "\n" {
				break
			}
		}
		go func() {
			defer func() { _ = response.Body.Close() }()
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				if strings.HasPrefix(line, "event: state") && received.Add(1) == clients {
					last <- time.Now()
				}
			}
		}()
	}
	memory := float64(resident(t, pid)-before) / clients
	report(t, "(e) memory of a client, in KiB", memory/1024, 64)

	db, err := slipway.Database(t.Context())
	require.NoError(t, err)
	defer db.Close()
	var crowd []time.Duration
	for range rounds {
		received.Store(0)
		// What a change of state writes, and nothing else: the event and its
		// notification.
		tx, err := db.Begin(t.Context())
		require.NoError(t, err)
		var sequence int64
		require.NoError(t, tx.QueryRow(t.Context(), `UPDATE deployments SET next_event = next_event + 1 WHERE id = $1 RETURNING next_event - 1`, id).Scan(&sequence))
		_, err = tx.Exec(t.Context(), `INSERT INTO events (deployment_id, sequence, kind, data) VALUES ($1, $2, 'state', '{"state":"building"}')`, id, sequence)
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `SELECT pg_notify('slipway', $1)`, id+" 0")
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, tx.Commit(t.Context()))
		select {
		case end := <-last:
			crowd = append(crowd, end.Sub(start))
		case <-time.After(30 * time.Second):
			t.Fatalf("only %d of %d clients have the event", received.Load(), clients)
		}
	}
	notify := notifyToListen(t, rounds)
	writes := bareWrites(t, clients, rounds)
	report(t, "(e) event to the last of 1,000 / the bare way", ratio(middle(crowd), notify+writes), 5,
		"event ", middle(crowd), ", NOTIFY ", notify, ", writes ", writes)
	require.NoError(t, os.WriteFile(slipway.Record+"/"+id+".open", nil, 0o644))
}

func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	require.NoError(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	require.NoError(t, err)
	return pages * int64(os.Getpagesize())
}

// notifyToListen is the median time from a commit to its notification.
func notifyToListen(t *testing.T, rounds int) time.Duration {
	t.Helper()
	listen, err := pgx.Connect(t.Context(), slipway.DatabaseURL)
	require.NoError(t, err)
	defer func() { _ = listen.Close(context.WithoutCancel(t.Context())) }()
	_, err = listen.Exec(t.Context(), `LISTEN bench`)
	require.NoError(t, err)
	db, err := slipway.Database(t.Context())
	require.NoError(t, err)
	defer db.Close()
	return median(t, rounds, func(int) {
		_, err := db.Exec(t.Context(), `SELECT pg_notify('bench', 'x')`)
		require.NoError(t, err)
		_, err = listen.WaitForNotification(t.Context())
		require.NoError(t, err)
	})
}

// bareWrites is the median time in which an event is written to n sockets and
// read at the other ends.
func bareWrites(t *testing.T, n, rounds int) time.Duration {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	var received atomic.Int64
	done := make(chan struct{}, 1)
	frame := []byte("id: 100\nevent: state\ndata: {\"state\":\"building\"}\n\n")
	servers := make([]net.Conn, n)
	for i := range servers {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		servers[i], err = l.Accept()
		require.NoError(t, err)
		defer func() { _ = servers[i].Close() }()
		go func() {
			buffer := make([]byte, len(frame))
			for {
				if _, err := io.ReadFull(c, buffer); err != nil {
					return
				}
				if received.Add(1) == int64(n) {
					done <- struct{}{}
				}
			}
		}()
	}
	return median(t, rounds, func(int) {
		received.Store(0)
		for _, s := range servers {
			_, err := s.Write(frame)
			require.NoError(t, err)
		}
		<-done
	})
}
