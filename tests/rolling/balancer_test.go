package rolling

import (
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
)

// balancer is a Service: each new connection goes to one of the endpoints of that
// moment and stays there. Without one it is refused.
type balancer struct {
	listener net.Listener

	mu        sync.Mutex
	endpoints []string
}

func newBalancer() (*balancer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &balancer{listener: l}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go b.pass(conn.(*net.TCPConn))
		}
	}()
	return b, nil
}

func (b *balancer) address() string { return b.listener.Addr().String() }

func (b *balancer) set(endpoints []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints = endpoints
}

func (b *balancer) add(endpoint string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints = append(b.endpoints, endpoint)
}

func (b *balancer) remove(endpoint string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints = slices.DeleteFunc(b.endpoints, func(e string) bool { return e == endpoint })
}

func (b *balancer) pass(client *net.TCPConn) {
	defer func() { _ = client.Close() }()
	b.mu.Lock()
	var endpoint string
	if len(b.endpoints) > 0 {
		endpoint = b.endpoints[rand.IntN(len(b.endpoints))]
	}
	b.mu.Unlock()
	conn, err := net.Dial("tcp", endpoint)
	if err != nil {
		_ = client.SetLinger(0) // a reset, as of a port that nobody listens on
		return
	}
	server := conn.(*net.TCPConn)
	defer func() { _ = server.Close() }()
	var both sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{client, server}, {server, client}} {
		both.Go(func() {
			from, to := way[0], way[1]
			if _, err := io.Copy(to, from); err != nil {
				_ = client.SetLinger(0)
				_ = client.Close()
				_ = server.Close()
				return
			}
			_ = to.CloseWrite()
		})
	}
	both.Wait()
}
