// Package channel sends what happens to a deployment as server-sent events
// ("The channel" of the contract).
//
// # Events
//
//	snapshot   the deployment; first, unless the client resumes
//	state      its state, when that changed
//	build      a build, when that changed
//	log        with log=true: {"build", "from", "text"}, from in bytes
//	reset      the place to resume from is not kept; a snapshot follows
//
// The state and build events are rows that the store writes in the transaction
// of the change they tell of, numbered per deployment without gaps. A stream is
// therefore nothing but a place in those rows, and the ID of an event is the
// place behind it: "<sequence>", or "<sequence>.<build>.<offset>" with the log,
// where build is the one whose log is told and offset how far. A client that
// comes back with an ID gets what follows that place, from any replica.
//
// With the log, the event by which a build starts makes its log the told one;
// the event by which it ends comes after the last byte of it. The store has the
// whole log when it writes that event, so the log is read to its end first.
//
// # One reader, many clients
//
//	NOTIFY → Listener → topic ──rows──→ encoded frames ──→ client
//	                                    (a window)    ──→ client
//	                                                  ──→ client, own place
//
// Per deployment, with and without the log, one topic reads the rows once per
// change and encodes each event once. Clients share those frames and keep only
// their own place. A client whose place lies before the window (it just came,
// it resumes, it was slow) reads rows by itself until its place lies in the
// window: both grow in the same two directions, sequence and log, so from then
// on a frame is new to the client, or not, or in part.
//
// # Failure
//
// A notification that is lost costs at most Config.Poll. A client that does not
// take what is written for Config.Write is dropped; nobody waits for it. A
// client that reads rows loses its stream when the store is away and comes back
// with its last ID; the others wait, with pings, until the topic can read again.
// A topic ends with its last client.
package channel
