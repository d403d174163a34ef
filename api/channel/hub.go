package channel

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"slipway.dev/slipway/schema/deployment"
)

// Reader reads the rows that a channel is made of. Its errors are those of the
// store, with deployment.ErrUnknown among them.
type Reader interface {
	Snapshot(ctx context.Context, id string) (deployment.Snapshot, error)
	Events(ctx context.Context, id string, after int64, limit int) (deployment.Events, error)
	Builds(ctx context.Context, id string, limit int, before int64) ([]deployment.Build, error)
	Log(ctx context.Context, ref deployment.Ref, from int64, limit int) (deployment.LogPiece, error)
}

// Listener gives a signal whenever something of a deployment may have changed:
// a build, its state, its log; and after it lost its connection. Signals that
// were not taken become one.
type Listener interface {
	Subscribe(id string) (changed <-chan struct{}, stop func())
}

// Config of a Hub. Reader, Listener, Encode and Log are needed.
type Config struct {
	Reader   Reader
	Listener Listener
	// Encode writes the JSON of a deployment, as the API shows it.
	Encode func(deployment.Deployment) ([]byte, error)
	Log    *zap.Logger
	// Dropped is called for each client that was too slow.
	Dropped func()

	// Ping is the time between two comments on a stream; 15 s.
	Ping time.Duration
	// Poll is when the rows are read without a signal; 10 s.
	Poll time.Duration
	// Write is how long a client may take to accept what is written to it;
	// 10 s.
	Write time.Duration
	// LogInterval is the least time between two reads of a log that grows, so
	// that a chatty deployer costs each client a few events a second instead
	// of one a line; 100 ms. It holds nothing else back.
	LogInterval time.Duration
	// Window is how much of a channel is kept encoded, in bytes; 1 MiB.
	Window int
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		value *time.Duration
		other time.Duration
	}{
		{&c.Ping, 15 * time.Second},
		{&c.Poll, 10 * time.Second},
		{&c.Write, 10 * time.Second},
		{&c.LogInterval, 100 * time.Millisecond},
	} {
		if *d.value == 0 {
			*d.value = d.other
		}
	}
	if c.Window == 0 {
		c.Window = 1 << 20
	}
	return c
}

// Hub serves the channels of all deployments.
type Hub struct {
	Config
	ctx context.Context // ends all streams and topics

	mu     sync.Mutex
	topics map[topicKey]*topic
}

type topicKey struct {
	deployment string
	log        bool
}

// NewHub makes a hub whose streams end with ctx.
func NewHub(ctx context.Context, c Config) *Hub {
	return &Hub{Config: c.withDefaults(), ctx: ctx, topics: map[topicKey]*topic{}}
}

// join gives a client the topic of a deployment, and starts it for the first
// one: from a place that the hub itself has read, or from the present. Call
// leave when done.
func (h *Hub) join(key topicKey, from *place) (t *topic, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, ok := h.topics[key]
	if !ok {
		ctx, stop := context.WithCancel(h.ctx)
		t = &topic{hub: h, key: key, stop: stop, changed: make(chan struct{})}
		if from != nil {
			t.begin(*from)
		}
		h.topics[key] = t
		go t.run(ctx)
	}
	t.clients++
	return t, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if t.clients--; t.clients == 0 {
			delete(h.topics, key)
			t.stop()
		}
	}
}
