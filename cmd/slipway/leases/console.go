package leases

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"slipway.dev/slipway/api/leaseclient"
	"slipway.dev/slipway/schema/lease"
)

// record is a line of --output json: what happened, when, and what is known.
type record struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	// Lease is the kind of the lease that the event is about.
	Lease              lease.Kind          `json:"lease,omitempty"`
	OperationID        string              `json:"operationId,omitempty"`
	ExpiresAt          time.Time           `json:"expiresAt,omitzero"`
	TopologyGeneration int64               `json:"topologyGeneration,omitempty"`
	Holder             *leaseclient.Holder `json:"holder,omitempty"`
	// Cause is that of a loss.
	Cause leaseclient.Cause `json:"cause,omitempty"`
	// Reason is for a person.
	Reason       string  `json:"reason,omitempty"`
	RetrySeconds float64 `json:"retrySeconds,omitempty"`
	PID          int     `json:"pid,omitempty"`
	// DDLBegan and ExitCode are told at the end.
	DDLBegan *bool `json:"ddlBegan,omitempty"`
	ExitCode *int  `json:"exitCode,omitempty"`
}

// console says how a run goes, on standard error.
type console struct {
	out     io.Writer
	json    bool
	verbose bool

	mu sync.Mutex
}

// say writes a record, or the text for it.
func (c *console) say(r record, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.json {
		r.Time = time.Now().UTC()
		// Nobody is left to tell when standard error is gone.
		_ = json.NewEncoder(c.out).Encode(r)
		return
	}
	_, _ = fmt.Fprintln(c.out, "slipway: "+safe(fmt.Sprintf(format, args...)))
}

// event says what happened to a lease.
func (c *console) event(e leaseclient.Event) {
	r := record{Event: string(e.Kind), Lease: e.Lease, ExpiresAt: e.ExpiresAt, TopologyGeneration: e.Generation, RetrySeconds: e.Again.Seconds()}
	if e.Err != nil {
		r.Reason = e.Err.Error()
	}
	again := e.Again.Round(100 * time.Millisecond)
	switch e.Kind {
	case leaseclient.EventWaiting:
		if refused, ok := errors.AsType[*leaseclient.Error](e.Err); ok {
			r.Holder = refused.Holder
		}
		c.say(r, "waiting for the %s lease: %s; asking again in %s", e.Lease, whatFor(e.Err), again)
	case leaseclient.EventGranted:
		c.say(r, "granted the %s lease until %s, generation %d", e.Lease, clock(e.ExpiresAt), e.Generation)
	case leaseclient.EventRenewed:
		if c.verbose {
			c.say(r, "renewed the %s lease until %s", e.Lease, clock(e.ExpiresAt))
		}
	case leaseclient.EventUnconfirmed:
		c.say(r, "the %s lease, until %s, could not be renewed: %v; trying again in %s", e.Lease, clock(e.ExpiresAt), e.Err, again)
	case leaseclient.EventLost:
		if lost, ok := errors.AsType[*leaseclient.LostError](e.Err); ok {
			r.Cause = lost.Cause
		}
		c.say(r, "authority is lost: %v", e.Err)
	case leaseclient.EventReleased:
		c.say(r, "released the %s lease", e.Lease)
	case leaseclient.EventUnreleased:
		c.say(r, "the %s lease could not be released and ends by itself, at %s at the latest: %v", e.Lease, clock(e.ExpiresAt), e.Err)
	}
}

// whatFor says what a grant waits for.
func whatFor(err error) string {
	if refused, ok := errors.AsType[*leaseclient.Error](err); ok {
		switch {
		case refused.Holder != nil:
			return fmt.Sprintf("operation %s of %s has it until %s", refused.Holder.OperationID, refused.Holder.Instance, clock(refused.Holder.ExpiresAt))
		case refused.Code == leaseclient.CodeUnstable:
			return "the group is not stable (" + refused.Reason + ")"
		}
	}
	return err.Error()
}

func clock(t time.Time) string { return t.Local().Format("15:04:05") }
