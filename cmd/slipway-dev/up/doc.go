// Package up runs the whole development machine: PostgreSQL, Temporal with its
// Web UI, a Kubernetes API server and a secrets server where they are asked for,
// the example panel, and slipway, in this order, and stops them in the reverse
// one.
//
//	lock → ports → PostgreSQL → Temporal → (Kubernetes) → (secrets server) → panel
//	     → migrate → temporal-setup → serve → dev.env → example → ready … Ctrl-C, or a child ends → stop all
//
// Nothing is started before the folder is locked and every port is known to be
// free. From then on Run waits on one context, which ends when the caller's
// does or when a child ends by itself; whatever step is under way gives up, and
// everything that was started is stopped. Started again on the same folder, all
// goes on where it was.
//
// # The state folder
//
//	dev.lock   locked while Run runs; holds its process ID, and is emptied when
//	           it ends properly
//	dev.env    addresses and a token, as KEY='value' lines, mode 0600
//	logs/      one file for each program; dev.log is the output of a detached run
//	postgres/  temporal/  kube/  bao/  panel/  issuer/  slipway/    the programs' own state
//	profiles/  where the example source's deployer activates
//	runtime/   what its nodes have read from the secrets server
//
// A reset removes these and nothing else, so a folder that was named by mistake
// does not lose what is in it.
//
// # The secrets of the example
//
// Where there is a secrets server, the example is submitted with values for its
// operator secrets, random ones, which go to slipway by a pipe and to no file.
// Beside the configuration <name>.json a file <name>-secrets.json says which they
// are: a part of a configuration in which every member that is no object is a
// secret. An example that is up without secrets is submitted again.
//
// # Detached
//
// Detach starts the same program again in a session of its own, with its output
// in logs/dev.log and one end of a pipe. It shows that log until a byte comes
// through the pipe (ready) or the pipe is closed (failed).
package up
