package leases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/leaseclient"
	"slipway.dev/slipway/cmd/slipway/exit"
)

// runner is a run of "lease run".
type runner struct {
	config   leaseclient.Config
	verbose  bool
	out      *console
	command  []string
	boundary boundary

	mu          sync.Mutex
	session     *leaseclient.Session // once the leases are granted
	guard       *guard               // once the command runs
	interrupted syscall.Signal       // before that
	cancel      context.CancelFunc   // of the waiting
}

// start checks what can be checked before a lease is asked for.
func (r *runner) start(c *cobra.Command, a *access, command []string, boundaryFile string) error {
	r.out = &console{out: c.ErrOrStderr(), json: a.output == "json", verbose: r.verbose}
	r.config.Group = a.group
	r.config.Report = r.report
	if r.config.OperationID == "" {
		r.config.OperationID = uuid.NewString()
	}
	switch {
	case r.config.Group == "":
		return exit.Misuse("--group is needed: the MysqlFailoverGroup")
	case r.config.Instance == "":
		return exit.Misuse("--instance is needed: the MysqlDatabase, which declares who may deploy")
	}
	if err := r.config.Check(); err != nil {
		return exit.Misuse("%v", err)
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	if _, err := exec.LookPath(command[0]); err != nil {
		return &exit.Error{Code: notStarted(err).Code, Text: safe(err.Error())}
	}
	r.command = command
	if r.boundary, err = newBoundary(boundaryFile); err != nil {
		return err
	}
	defer r.boundary.remove()
	// Signals are the command's, once it runs: they do not end the context.
	return r.run(context.WithoutCancel(c.Context()), client)
}

func (r *runner) run(ctx context.Context, api leaseclient.API) error {
	waiting, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	defer cancel()
	signals := make(chan os.Signal, 8)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) { // as nohup has it, for the command too
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	// Otherwise this process would end when standard error is gone, and so the
	// command with it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		for s := range signals {
			r.pass(s.(syscall.Signal))
		}
	}()

	r.out.say(record{Event: "operation", OperationID: r.config.OperationID}, "operation %s on %s", r.config.OperationID, r.config.Group)
	session, err := leaseclient.Acquire(waiting, api, r.config)
	if err != nil {
		return r.notAcquired(err)
	}
	ended, err := r.guarded(session)
	if err != nil {
		// What runs may still write, so nobody else may be let in before the
		// leases have ended by themselves.
		return r.end(exit.Failed, fmt.Sprintf("%v; the leases are not released", err))
	}
	result := r.result(session, ended)
	_ = session.Release(ctx) // reported
	return result
}

// pass passes a signal on to the command, or ends the waiting.
func (r *runner) pass(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.guard != nil {
		r.guard.send(order{Signal: s})
		return
	}
	r.interrupted = s
	r.cancel()
}

// report says what happened to a lease, and tells the watchdog the deadline.
func (r *runner) report(e leaseclient.Event) {
	r.out.event(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Kind == leaseclient.EventRenewed && r.guard != nil {
		deadline := r.session.Deadline()
		r.guard.send(order{Deadline: &deadline})
	}
}

// ended is how the command ended.
type ended struct {
	commandEnd
	// why the watchdog ended it; empty when it ended by itself.
	why string
}

// guarded runs the command under the watchdog and returns when nothing of it is
// left. An error says that something may be.
func (r *runner) guarded(session *leaseclient.Session) (ended, error) {
	environment := append(os.Environ(),
		"SLIPWAY_LEASE_OPERATION_ID="+r.config.OperationID, "SLIPWAY_LEASE_BOUNDARY="+r.boundary.path)
	r.mu.Lock()
	if r.interrupted != 0 {
		r.mu.Unlock()
		return ended{commandEnd: commandEnd{Code: exitSignal + int(r.interrupted)}}, nil
	}
	guard, err := startGuard(r.command, environment, session.TTL(), session.Deadline())
	if err != nil {
		r.mu.Unlock()
		return ended{commandEnd: commandEnd{Code: exit.Failed, NotStarted: err.Error()}}, nil
	}
	r.session, r.guard = session, guard
	r.mu.Unlock()

	end := ended{commandEnd: commandEnd{Code: exit.Failed, Ended: true}, why: "the watchdog was killed"}
	lost := session.Done()
	late := time.NewTicker(beat)
	defer late.Stop()
	for {
		select {
		case <-lost:
			lost = nil
			guard.send(order{End: true})
		case <-late.C:
			// The watchdog has ended everything before; unless it is stopped.
			if session.Deadline().Left(leaseclient.Clock{}) <= leaseclient.KillLead-2*beat {
				guard.kill()
			}
		case n, alive := <-guard.notices:
			switch {
			case !alive:
				return end, guard.close()
			case n.Started != 0:
				r.out.say(record{Event: "started", PID: n.Started}, "running %s", r.command[0])
			case n.Ending == endingLeft:
				r.out.say(record{Event: "ending", Reason: "the command left processes behind"}, "ending the processes that the command left behind")
			case n.Ending != "":
				end.why = "the deadline of the leases came" // when it was lost, the session knows more
			case n.Exit != nil:
				end.commandEnd = *n.Exit
			}
		}
	}
}

// result is the error of a run whose command has ended.
func (r *runner) result(session *leaseclient.Session, e ended) error {
	if e.NotStarted != "" {
		return r.end(e.Code, e.NotStarted)
	}
	if !e.Ended {
		if e.Code == 0 {
			r.out.say(r.last(0, ""), "the command ended with 0")
			return nil
		}
		return r.end(e.Code, fmt.Sprintf("the command ended with %d", e.Code))
	}
	why := e.why
	if err := session.Err(); err != nil {
		why = err.Error()
	}
	if r.boundary.begun() {
		return r.end(exitLostInDDL, fmt.Sprintf("authority was lost after DDL had begun: %s. "+
			"Verify the schema by hand before any other migration: what was sent to the database may have been done, in part or in full, or may still be running there. "+
			"Do not simply run the job again. This was operation %s", why, r.config.OperationID))
	}
	return r.end(exitLost, fmt.Sprintf("authority was lost before DDL had begun: %s. The job may be run again, as a new operation", why))
}

// notAcquired is the error of a run that got no leases.
func (r *runner) notAcquired(err error) error {
	r.mu.Lock()
	interrupted := r.interrupted
	r.mu.Unlock()
	if interrupted != 0 {
		return r.end(exitSignal+int(interrupted), "interrupted before the command was run")
	}
	if _, ok := errors.AsType[*leaseclient.LostError](err); ok {
		return r.end(exitLost, err.Error()+"; the command was not run")
	}
	text := "no lease: " + whatFor(err)
	if refused, ok := errors.AsType[*leaseclient.Error](err); ok {
		switch refused.Code {
		case leaseclient.CodeHeld, leaseclient.CodeUnstable:
			text += "; --wait waits longer"
		case leaseclient.CodeRevoked:
			text += "; a revoked operation never gets a lease again, use a new --operation-id"
		case leaseclient.CodeUnauthorized:
			text += "; is the token of the right audience, and not expired?"
		case leaseclient.CodeForbidden:
			text += "; does spec.deploymentClients of a MysqlDatabase of the group have this ServiceAccount, and is --instance its name?"
		}
	}
	return r.end(exitRefused, text)
}

// end says the last of a run: as JSON here, as a text by who prints the error.
func (r *runner) end(code int, text string) error {
	if !r.out.json {
		return &exit.Error{Code: code, Text: safe(text)}
	}
	r.out.say(r.last(code, text), "")
	return &exit.Error{Code: code}
}

func (r *runner) last(code int, text string) record {
	begun := r.boundary.begun()
	return record{Event: "ended", OperationID: r.config.OperationID, Reason: text, ExitCode: &code, DDLBegan: &begun}
}
