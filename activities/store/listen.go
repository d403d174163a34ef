package store

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgxlisten"
	"go.uber.org/zap"
)

// reconnectDelay is how long a Listener waits before it connects again.
const reconnectDelay = time.Second

// Listener hears of changes over one connection of its own, for everybody in
// the process.
type Listener struct {
	connect func(context.Context) (*pgx.Conn, error)
	log     *zap.Logger

	mu      sync.Mutex
	waiting map[string]map[chan struct{}]struct{} // by deployment
}

// Listener makes one for the store's database. Run it for as long as it is
// used.
func (s *Store) Listener(log *zap.Logger) *Listener {
	config := s.pool.Config().ConnConfig
	return &Listener{
		connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, config) },
		log:     log,
		waiting: map[string]map[chan struct{}]struct{}{},
	}
}

// Run listens until ctx ends. After each reconnect every subscriber gets a
// signal, since changes can have been missed.
func (l *Listener) Run(ctx context.Context) {
	listener := pgxlisten.Listener{
		Connect:        l.connect,
		ReconnectDelay: reconnectDelay,
		LogError: func(_ context.Context, err error) {
			if ctx.Err() == nil {
				l.log.Warn("listening for changes was interrupted", zap.Error(err))
			}
		},
	}
	listener.Handle(channel, l)
	for ctx.Err() == nil {
		if err := listener.Listen(ctx); err != nil && ctx.Err() == nil {
			l.log.Warn("listening for changes ended", zap.Error(err))
			select {
			case <-ctx.Done():
			case <-time.After(reconnectDelay):
			}
		}
	}
}

// HandleNotification is for pgxlisten.
func (l *Listener) HandleNotification(_ context.Context, n *pgconn.Notification, _ *pgx.Conn) error {
	id, _, _ := strings.Cut(n.Payload, " ")
	l.mu.Lock()
	defer l.mu.Unlock()
	signal(l.waiting[id])
	return nil
}

// HandleBacklog is for pgxlisten: it is called after each connect.
func (l *Listener) HandleBacklog(context.Context, string, *pgx.Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, subscribers := range l.waiting {
		signal(subscribers)
	}
	return nil
}

func signal(subscribers map[chan struct{}]struct{}) {
	for c := range subscribers {
		select {
		case c <- struct{}{}:
		default: // a signal waits there already
		}
	}
}

// Subscribe gives a signal whenever something of the deployment may have
// changed. Signals that are not taken become one. Call stop when done.
func (l *Listener) Subscribe(id string) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[id] == nil {
		l.waiting[id] = map[chan struct{}]struct{}{}
	}
	l.waiting[id][c] = struct{}{}
	return c, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waiting[id], c)
		if len(l.waiting[id]) == 0 {
			delete(l.waiting, id)
		}
	}
}
