// Package deployer runs the deployer of a module source and sees to it that
// nothing of it is left when it has ended.
//
//	worker ── activity Deploy or Destroy
//	   │        a private working folder, GC roots, a heartbeat every second
//	   │ pipes: the order and "cancel" in, reports out
//	   ▼
//	supervisor ── Supervise, a process of its own in a session of its own
//	   │        the fence, the log, the exit
//	   ▼
//	deployer ── and whatever it starts, daemons too
//
// These hold:
//
//   - A deployer runs only while its supervisor holds the fence of the build.
//     The fence lapses 20 s after its last renewal by the clock of the
//     database; the supervisor renews it every 5 s and ends everything when
//     the last request that succeeded was sent 15 s ago, measured with a clock
//     that counts the time a machine sleeps.
//   - The exit of the deployer is staged in the database only when no process
//     of it is left, and before the activity returns. Whoever finishes the
//     build goes by what was staged and never by the result of the activity,
//     so a worker that dies in between changes nothing.
//   - The supervisor is the subreaper of everything below it: a daemon that
//     forks twice and makes a session of its own becomes its child. It ends
//     process groups, and again, until the kernel says that it has no child.
//   - Nothing that is private is in an argument or in the environment of the
//     supervisor. The deployer gets a clean environment, no descriptor but its
//     standard ones, and the configuration as a file that only its user reads.
//
// What ends a deployer:
//
//	it exits           what it left running is asked to end, then killed
//	cancel             SIGTERM to its group, after Limits.Grace SIGKILL to all
//	the worker is gone its end of the pipe closes; the same with Limits.Short
//	the fence is lost  SIGKILL to all at once
//
// An exit with 0 is a success in each of these cases: what was deployed is
// deployed.
//
// When the supervisor itself is killed, the kernel kills the deployer, and the
// activity (or Clean, when the worker is gone too) ends the processes that
// carry the working folder in their environment. A process that cleared its
// environment escapes that, and only that. What a deployer starts through
// another service of the machine (systemd-run, the Nix daemon) is not its
// descendant and is left alone.
//
// # The log
//
// Standard output and error together become lines of printable UTF-8, since
// they are shown in terminals and browsers:
//
//   - A line ends with LF, CR LF or CR (each step of a progress bar is a line
//     of its own, nothing is lost), or with the end of the output.
//   - Formatting sequences of terminals (ESC [ …, colours for instance) are
//     left out. Any other ESC, NUL, control character and byte that is not
//     UTF-8 is written as \x1b, control characters above ASCII as \u009b.
//   - A line over 16 KiB is cut and ends in a note. The log ends at 64 MiB with
//     a note; the rest of the output is read and dropped.
//   - Lines in brackets are of the supervisor.
//
// While the database is away the log waits, and the deployer with it as soon
// as the pipe is full.
//
// # SBOMs
//
// When a deploy has exited with 0 and no process of it is left, the supervisor
// reads SBOM_OUT_DIR/nodes.json and the files that it names, and stages them
// one by one under the fence, which it still renews, before the exit. So an
// exit of 0 in the database has its SBOMs beside it, also when the worker died.
//
//   - Only regular files in the folder itself are read, of at most 64 MiB, and
//     symbolic links are not followed.
//   - A file that is no SBOM, or that the database does not take, becomes the
//     reason of its node. A list that cannot be read changes no SBOM, which the
//     log says. Neither fails the build.
//   - The documents are checked, split and stored here and not by whoever
//     finishes the build: that one has seconds, a document of 64 MiB may need
//     many, and the supervisor has its fence for as long as it takes.
package deployer
