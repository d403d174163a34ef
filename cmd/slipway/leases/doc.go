// Package leases is the command "slipway lease": what people and deploy jobs
// do with the leases of the deployment coordination API.
//
// # lease run
//
// Three processes, so that whatever stops or dies the command does not outlive
// its authority:
//
//	client      takes and renews the leases (api/leaseclient), says how it goes
//	  └ watchdog    knows the deadline, starts the command and ends it
//	      └ command     in a process group of its own, with everything below it
//
// The client tells the watchdog every new deadline over a pipe, and asks it to
// pass signals on or to end the command; the watchdog tells the client over
// another how the command ended. The watchdog needs nobody to act: when the
// deadline comes near, or the client is gone, it ends the command. It is the
// subreaper of the command, so whatever the command starts, in whatever group
// or session, stays below it in the process table. When the watchdog itself is
// killed, the kernel kills the command with it, and the client, a subreaper
// too, ends the rest.
//
// # Files
//
// command.go: the commands, their flags and the environment. exit.go: exit
// codes. run.go: the client. guard.go: its side of the pipes. watchdog.go: the
// other side. processes.go: how all of the command is signalled. boundary.go:
// the file that says that DDL has begun. console.go: progress. status.go,
// revoke.go: the other commands.
package leases
