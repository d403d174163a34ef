// Package leaseclient is the client of the deployment coordination API,
// /deploy/v1 (seed A and docs/lease-api.md), for programs that migrate a
// database. `slipway lease run` is made of it.
//
//	Client   one request a call: Observe, Grant, Renew, Release
//	Acquire  takes the migration lease, then the hold, and waits its turn
//	Session  keeps both renewed, says when authority ends, releases both
//
// A program of one's own uses it like this:
//
//	api, err := leaseclient.New(leaseclient.Options{URL: url, CAFile: ca, TokenFile: token})
//	session, err := leaseclient.Acquire(ctx, api, leaseclient.Config{Group: "orders", Instance: "orders-app", OperationID: id, TTL: 30 * time.Second})
//	defer session.Release(ctx)
//	// migrate, and stop when session.Done() is closed
//
// # The timeline of one lease
//
//	sent         sent again                                     deadline
//	 │◄── ttl/3 ──►│                                                │
//	 ├─────────────┼─────── not confirmed: tries again ──┬──────┬───┤
//	 │             │                                     │      │   │
//	 PUT 200       PUT 423, 503, no answer          SIGTERM  SIGKILL the lease may be
//	 │                                                   │      │   another's
//	 └── deadline = sent + ttl                 Lead before it   KillLead before it
//
// # What is promised
//
//   - The deadline counts from when the last confirmed request was sent, on
//     CLOCK_BOOTTIME, which runs on while the machine sleeps and is never set;
//     or it is expiresAt on the wall clock, where that is earlier. A clock that
//     is set back prolongs nothing. Of two leases the earlier deadline counts.
//   - Done is closed at the deadline minus Lead, or at once when the lease is
//     lost: 404, 409 or 403 for a renewal, or another topology generation than
//     that of the grant. A lost lease is never asked for again.
//   - 423, 503, 401 and no answer are no renewal, and no loss either: it is
//     tried again until the deadline. An answer after the deadline is a loss.
//   - A request of a lease begins when the one before it has ended.
//   - The hold is released before the migration. Acquire releases what it took
//     when it cannot take the rest.
//   - An operation that holds the migration already is somebody else's run of
//     it: it is waited for like any holder, never taken over.
//
// # What is not promised
//
// A TTL is not exactly-once DDL. What a database server has been told to do goes
// on when its client has ended. Session runs in the process that it guards, so
// it cannot end one that is stopped: `slipway lease run` has a watchdog, a
// process of its own, for that.
package leaseclient
