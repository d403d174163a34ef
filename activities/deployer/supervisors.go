package deployer

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// Supervisors starts supervisor processes. It keeps one that has started, is
// connected to the database and waits for its order: the start of a program of
// slipway's size takes as long as the rest of what slipway does for a small
// deploy.
type Supervisors struct {
	// Command starts a process that calls Supervise with its standard input
	// and output, such as /proc/self/exe supervise.
	Command []string
	// Database is the URL that a supervisor opens its Journal with. It goes to
	// its standard input, and so into no argument and no environment.
	Database string

	mu     sync.Mutex
	spare  *supervisorProcess
	closed bool
}

// supervisorProcess is a supervisor as its worker sees it.
type supervisorProcess struct {
	cmd *exec.Cmd
	// in takes the order and the wishes. Its end, which the end of the worker
	// is too, ends the deployer.
	in io.WriteCloser
	// reports is closed when the supervisor has ended.
	reports    <-chan report
	complaints *tail
}

// Ready starts the spare where there is none. A start that fails is told by
// the next deploy, which tries again.
func (s *Supervisors) Ready() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.spare.alive() {
		return
	}
	s.spare, _ = s.start()
}

// Close ends the spare. Supervisors with an order are not touched.
func (s *Supervisors) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.spare != nil {
		_ = s.spare.wait()
		s.spare = nil
	}
}

// take returns a supervisor that waits for its order.
func (s *Supervisors) take() (*supervisorProcess, error) {
	s.mu.Lock()
	spare := s.spare
	s.spare = nil
	s.mu.Unlock()
	if spare.alive() {
		return spare, nil
	}
	return s.start()
}

func (s *Supervisors) start() (*supervisorProcess, error) {
	p := &supervisorProcess{
		cmd:        exec.Command(s.Command[0], s.Command[1:]...),
		complaints: &tail{limit: 4 << 10},
	}
	// Nothing of ours. It lives with few objects, and starts faster when it does
	// not collect them while it is on its way.
	p.cmd.Env = []string{"GOGC=400"}
	p.cmd.Dir = "/"
	p.cmd.Stderr = p.complaints
	// What ends the worker by its group or its terminal leaves the supervisor
	// to do its work.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	reports := make(chan report)
	go func() {
		defer close(reports)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var r report
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				reports <- r
			}
		}
	}()
	p.in, p.reports = in, reports
	// One that ended before it read this cannot read its order either, and
	// supervise tells how it ended.
	_ = json.NewEncoder(in).Encode(preparation{Database: s.Database})
	return p, nil
}

// alive reports whether a supervisor still waits for its order.
func (p *supervisorProcess) alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.reports: // one without an order has nothing to report but its end
		_ = p.wait()
		return false
	default:
		return true
	}
}

// wait ends the input of a supervisor and waits for its end.
func (p *supervisorProcess) wait() error {
	_ = p.in.Close()
	for range p.reports {
	}
	return p.cmd.Wait()
}

// tail keeps the end of what is written to it.
type tail struct {
	limit int
	data  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	t.data = t.data[max(0, len(t.data)-t.limit):]
	return len(p), nil
}

func (t *tail) String() string {
	return strings.TrimSpace(strings.ToValidUTF8(string(t.data), "\uFFFD"))
}
