// Package worker runs the workflows and activities of slipway: what is
// registered on which task queue, how many of each run at once, and the two
// loops that every worker has beside Temporal:
//
//   - the sweeper fails builds whose workflow has ended without them, so that
//     a workflow that was terminated leaves its deployment usable;
//   - the keeper watches the module source and has every new snapshot of it
//     evaluated.
//
// Both may run in any number of workers: what they do is conditional on rows
// and on workflow IDs.
package worker
