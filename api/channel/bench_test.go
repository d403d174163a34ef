package channel_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/api/internal/memory"
	"slipway.dev/slipway/schema/deployment"
)

const crowd = 1000

// BenchmarkThousandClients measures how long an event takes until the last of
// 1,000 clients has it, over real connections, beside the time that 1,000 bare
// writes to such connections take, and what a client costs in memory (of which
// the half that reads, which is in this process too, is a part).
func BenchmarkThousandClients(b *testing.B) {
	bundle := benchBundle(b)
	before := inUse()
	clients := make([]*bufio.Reader, crowd)
	for i := range clients {
		conn := dial(b, strings.TrimPrefix(bundle.url, "http://"))
		_, err := io.WriteString(conn, "GET /one HTTP/1.1\r\nHost: bench\r\n\r\n")
		require.NoError(b, err)
		clients[i] = bufio.NewReaderSize(conn, 1024)
		untilLine(b, clients[i], "event: snapshot")
	}
	crowdBytes := (inUse() - before) / crowd

	arrived := receivers(b, clients, "event: build")
	var fanOut []time.Duration
	for i := 0; b.Loop(); i++ {
		begin := time.Now()
		bundle.Change("one", 1, fmt.Sprint(i))
		for range clients {
			<-arrived
		}
		fanOut = append(fanOut, time.Since(begin))
	}
	b.StopTimer()
	bare := bareWrites(b)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(median(fanOut).Microseconds()), "µs/event-to-last-client")
	b.ReportMetric(float64(bare.Microseconds()), "µs/1000-bare-writes")
	b.ReportMetric(float64(median(fanOut))/float64(bare), "ratio")
	b.ReportMetric(float64(crowdBytes)/1024, "KiB/client")
}

func benchBundle(b *testing.B) *bundle {
	b.Helper()
	store := memory.New()
	store.Kept = 1000
	store.Record("one", deployment.ActionDeploy, `{}`)
	return start(b, store, nil)
}

func dial(b *testing.B, address string) net.Conn {
	b.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	require.NoError(b, conn.SetDeadline(time.Now().Add(10*time.Minute)))
	return conn
}

// receivers tell of each line that begins so, one goroutine a client, until
// the connections close.
func receivers(b *testing.B, clients []*bufio.Reader, prefix string) <-chan struct{} {
	arrived := make(chan struct{}, crowd)
	for _, c := range clients {
		go func() {
			for {
				line, err := c.ReadSlice('\n')
				if err != nil && err != bufio.ErrBufferFull {
					return
				}
				if bytes.HasPrefix(line, []byte(prefix)) {
					arrived <- struct{}{}
				}
			}
		}()
	}
	return arrived
}

func untilLine(b *testing.B, r *bufio.Reader, prefix string) {
	b.Helper()
	for {
		line, err := r.ReadString('\n')
		require.NoError(b, err)
		if strings.HasPrefix(line, prefix) {
			break
		}
	}
	for { // the rest of the event
		line, err := r.ReadString('\n')
		require.NoError(b, err)
		if line == "\n" {
			return
		}
	}
}

// bareWrites is the median time of writing one event to 1,000 sockets, one
// after another, until the last receiver has it.
func bareWrites(b *testing.B) time.Duration {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	b.Cleanup(func() { _ = listener.Close() })
	servers := make([]net.Conn, crowd)
	clients := make([]*bufio.Reader, crowd)
	for i := range clients {
		clients[i] = bufio.NewReaderSize(dial(b, listener.Addr().String()), 1024)
		servers[i], err = listener.Accept()
		require.NoError(b, err)
		b.Cleanup(func() { _ = servers[i].Close() })
	}
	arrived := receivers(b, clients, "event: build")
	data, err := json.Marshal(deployment.Build{})
	require.NoError(b, err)
	event := []byte("event: build\nid: 1\ndata: " + string(data) + "\n\n")
	var took []time.Duration
	for range 50 {
		begin := time.Now()
		for _, s := range servers {
			_, err := s.Write(event)
			require.NoError(b, err)
		}
		for range clients {
			<-arrived
		}
		took = append(took, time.Since(begin))
	}
	return median(took)
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// inUse is the memory that the process holds, heap and stacks.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
