package deployer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/schema/deployment"
	"slipway.dev/slipway/schema/sbom"
)

// memory is a Journal in memory, with the rules of the real one. Processes
// reach it through a socket.
type memory struct {
	life time.Duration // of a fence

	mu      sync.Mutex
	builds  map[deployment.Ref]*memoryBuild
	away    time.Time // until then nothing answers
	refused error     // what AppendLog and StageSBOM return instead
	loses   int       // so many answers are lost after the call was done
}

type memoryBuild struct {
	action   deployment.Action
	fence    uuid.UUID
	until    time.Time // the fence is alive
	lapse    time.Time // what until was while something could run
	acquired int
	started  bool
	log      []byte
	pieces   int
	exit     *deployment.Exit
	sboms    map[string][]byte // staged, by node
	entries  []sbom.Entry      // nil: none were staged
}

var errAway = errors.New("the database is away")

func newMemory() *memory {
	return &memory{life: 20 * time.Second, builds: map[deployment.Ref]*memoryBuild{}}
}

// build returns what is known of a build. The test holds no lock: it asks when
// nothing runs, or copies.
func (m *memory) build(ref deployment.Ref) memoryBuild {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := *m.builds[ref]
	b.log = bytes.Clone(b.log)
	return b
}

func (m *memory) goAway(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = time.Now().Add(d)
}

// steal gives the build to another fence.
func (m *memory) steal(ref deployment.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.builds[ref].fence = uuid.New()
}

// with does a call, unless the memory is away: then it hangs until it is back,
// as a connection does, and fails.
func (m *memory) with(ref deployment.Ref, do func(b *memoryBuild) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if wait := time.Until(m.away); wait > 0 {
		m.mu.Unlock()
		time.Sleep(wait)
		m.mu.Lock()
		return errAway
	}
	b := m.builds[ref]
	if b == nil {
		return fmt.Errorf("no build %s", ref)
	}
	err := do(b)
	if err == nil && m.loses > 0 {
		m.loses--
		return errAway
	}
	return err
}

func (m *memory) AcquireFence(_ context.Context, ref deployment.Ref, fence uuid.UUID) (logged int64, err error) {
	err = m.with(ref, func(b *memoryBuild) error {
		again := b.fence == fence
		switch {
		case b.started && !again && b.action == deployment.ActionDeploy:
			return deployment.ErrAlreadyRan
		case !again && time.Now().Before(b.until):
			return deployment.ErrFenced
		case !again:
			b.acquired++
		}
		b.fence, b.started, b.exit = fence, true, nil
		b.until = time.Now().Add(m.life)
		b.lapse = b.until
		logged = int64(len(b.log))
		return nil
	})
	return logged, err
}

func (m *memory) RenewFence(_ context.Context, ref deployment.Ref, fence uuid.UUID) error {
	return m.with(ref, func(b *memoryBuild) error {
		if b.fence != fence || b.exit != nil {
			return deployment.ErrFenced
		}
		b.until = time.Now().Add(m.life)
		b.lapse = b.until
		return nil
	})
}

func (m *memory) AppendLog(_ context.Context, ref deployment.Ref, fence uuid.UUID, start int64, data []byte) error {
	return m.with(ref, func(b *memoryBuild) error {
		switch {
		case b.fence != fence:
			return deployment.ErrFenced
		case m.refused != nil:
			return m.refused
		case start+int64(len(data)) == int64(len(b.log)) && bytes.HasSuffix(b.log, data):
			return nil
		case start != int64(len(b.log)):
			return fmt.Errorf("a piece at %d, and the log has %d bytes", start, len(b.log))
		}
		b.log = append(b.log, data...)
		b.pieces++
		return nil
	})
}

func (m *memory) stageSBOM(ref deployment.Ref, fence uuid.UUID, node string, text []byte) error {
	return m.with(ref, func(b *memoryBuild) error {
		switch {
		case b.fence != fence || b.exit != nil:
			return deployment.ErrFenced
		case m.refused != nil:
			return m.refused
		case b.sboms == nil:
			b.sboms = map[string][]byte{}
		}
		b.sboms[node] = text
		return nil
	})
}

func (m *memory) StageSBOMs(_ context.Context, ref deployment.Ref, fence uuid.UUID, entries []sbom.Entry) error {
	return m.with(ref, func(b *memoryBuild) error {
		if b.fence != fence || b.exit != nil {
			return deployment.ErrFenced
		}
		b.entries = entries
		return nil
	})
}

func (m *memory) StageExit(_ context.Context, ref deployment.Ref, fence uuid.UUID, exit deployment.Exit) error {
	return m.with(ref, func(b *memoryBuild) error {
		if b.fence != fence {
			return deployment.ErrFenced
		}
		b.exit, b.until = &exit, time.Now()
		return nil
	})
}

// serve makes the memory reach other processes, and returns how.
func (m *memory) serve(t *testing.T) (address string) {
	address = filepath.Join(t.TempDir(), "memory")
	listener, err := net.Listen("unix", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	server := rpc.NewServer()
	require.NoError(t, server.RegisterName("Journal", &memoryServer{m}))
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go server.ServeConn(connection)
		}
	}()
	return address
}

// Call is the argument of every remote call, and Answer its result.
type Call struct {
	Ref   deployment.Ref
	Fence uuid.UUID
	Start int64
	Data  []byte
	Exit  deployment.Exit
	// Node is of the SBOM Data, and Entries in the form of JSON.
	Node    string
	Entries []byte
}

type Answer struct {
	Logged  int64
	Problem string
}

func (a *Answer) of(err error) error {
	if err != nil {
		a.Problem = err.Error()
	}
	return nil
}

type memoryServer struct{ memory *memory }

func (s *memoryServer) AcquireFence(c Call, a *Answer) (err error) {
	a.Logged, err = s.memory.AcquireFence(context.Background(), c.Ref, c.Fence)
	return a.of(err)
}

func (s *memoryServer) RenewFence(c Call, a *Answer) error {
	return a.of(s.memory.RenewFence(context.Background(), c.Ref, c.Fence))
}

func (s *memoryServer) AppendLog(c Call, a *Answer) error {
	return a.of(s.memory.AppendLog(context.Background(), c.Ref, c.Fence, c.Start, c.Data))
}

func (s *memoryServer) StageExit(c Call, a *Answer) error {
	return a.of(s.memory.StageExit(context.Background(), c.Ref, c.Fence, c.Exit))
}

func (s *memoryServer) StageSBOM(c Call, a *Answer) error {
	return a.of(s.memory.stageSBOM(c.Ref, c.Fence, c.Node, c.Data))
}

func (s *memoryServer) StageSBOMs(c Call, a *Answer) error {
	entries := []sbom.Entry{}
	if err := json.Unmarshal(c.Entries, &entries); err != nil {
		return err
	}
	return a.of(s.memory.StageSBOMs(context.Background(), c.Ref, c.Fence, entries))
}

// remote is the memory, seen from another process.
type remote struct{ client *rpc.Client }

func openRemote(_ context.Context, address string) (Journal, func(), error) {
	client, err := rpc.Dial("unix", address)
	if err != nil {
		return nil, nil, err
	}
	return remote{client}, func() { _ = client.Close() }, nil
}

func (r remote) call(ctx context.Context, method string, c Call) (int64, error) {
	var a Answer
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case done := <-r.client.Go("Journal."+method, c, &a, make(chan *rpc.Call, 1)).Done:
		if done.Error != nil {
			return 0, done.Error
		}
	}
	for _, known := range []error{deployment.ErrFenced, deployment.ErrAlreadyRan} {
		if a.Problem == known.Error() {
			return 0, known
		}
	}
	if a.Problem != "" {
		return 0, errors.New(a.Problem)
	}
	return a.Logged, nil
}

func (r remote) AcquireFence(ctx context.Context, ref deployment.Ref, fence uuid.UUID) (int64, error) {
	return r.call(ctx, "AcquireFence", Call{Ref: ref, Fence: fence})
}

func (r remote) RenewFence(ctx context.Context, ref deployment.Ref, fence uuid.UUID) error {
	_, err := r.call(ctx, "RenewFence", Call{Ref: ref, Fence: fence})
	return err
}

func (r remote) AppendLog(ctx context.Context, ref deployment.Ref, fence uuid.UUID, start int64, data []byte) error {
	_, err := r.call(ctx, "AppendLog", Call{Ref: ref, Fence: fence, Start: start, Data: data})
	return err
}

func (r remote) StageExit(ctx context.Context, ref deployment.Ref, fence uuid.UUID, exit deployment.Exit) error {
	_, err := r.call(ctx, "StageExit", Call{Ref: ref, Fence: fence, Exit: exit})
	return err
}

func (r remote) StageSBOM(ctx context.Context, ref deployment.Ref, fence uuid.UUID, node string, d *sbom.Document) error {
	var remainder []byte
	for part := range d.Remainder() {
		remainder = append(remainder, part...)
	}
	i := -1
	text, err := sbom.Join(nil, remainder, func() ([]byte, error) { i++; return d.Component(i), nil })
	if err != nil {
		return err
	}
	_, err = r.call(ctx, "StageSBOM", Call{Ref: ref, Fence: fence, Node: node, Data: text})
	return err
}

func (r remote) StageSBOMs(ctx context.Context, ref deployment.Ref, fence uuid.UUID, entries []sbom.Entry) error {
	text, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	_, err = r.call(ctx, "StageSBOMs", Call{Ref: ref, Fence: fence, Entries: text})
	return err
}
