// Package faults breaks a running slipway in every way that a machine can:
// pieces killed, frozen and restarted while deployments are evaluated, queued,
// deployed and hauled out. All pieces are real processes.
//
// A scenario puts deployments into their phases (phases_test.go), lets the
// fault happen, brings all pieces up again and asks of every deployment
// (deployment_test.go):
//
//   - No build is lost: what was answered with 202 has its row, and a request
//     that was repeated with its idempotency key has one row only.
//   - Two deployers never ran at once, and a deploy ran once at most. The
//     deployer of tests/sources/controlled keeps the record.
//   - A build succeeded if and only if its deployer did.
//   - Within 60 s the state is settled and follows from the builds, no
//     workflow is open, and no process or working folder of a deployer is left.
//   - The next submit ends active, and the destroy after it idle.
//
// The soak does the same for a while with random calls and random faults.
// SOAK=10m makes it last so long, and lengthens what is shortened otherwise.
// SOAK_SEED repeats the choices of one; what they meet depends on the machine.
//
// Most of a scenario is waiting, so two run at once, each with a slipway of its
// own (main_test.go).
package faults
