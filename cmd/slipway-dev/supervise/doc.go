// Package supervise runs the programs of a development machine as children
// that are never left behind.
//
// Every child leads a process group of its own, so that Ctrl-C on the terminal
// reaches slipway-dev alone, which then decides the order. Three things end a
// child:
//
//   - Stop asks it to end, and kills its whole group after a deadline;
//   - Kill kills its group at once;
//   - the death of slipway-dev itself: the kernel sends the child its death
//     signal (Linux, PR_SET_PDEATHSIG).
//
// Whenever the child has ended, by itself too, what is left of its group is
// killed before the child is reaped: until then its group cannot be confused
// with that of a newer process.
//
// The kernel ties the death signal to the thread that started the child, not
// to the process. So each child has a goroutine that holds its thread from the
// start of the child to its end.
package supervise
