// Package deployments is "slipway deployments": the deployments API for a
// person or a script at a command line.
//
//	command.go   the command, its flags, and how each subcommand runs
//	read.go      list, show, preview
//	change.go    submit, destroy, cancel
//	logs.go      logs
//	sbom.go      sbom
//	follow.go    follows one build to its end, for submit and destroy
//	console.go   everything that is printed: tables, colours, progress, JSON
//	text.go      makes text of the server safe for a terminal
//	exit.go      errors and exit codes
//
// Results go to standard output. Progress, notes and errors go to standard
// error, so that a pipe only gets what was asked for.
//
// The program that has the command does three things for it: it gives it a
// context that ends on an interrupt (ExecuteContext), prints the error that it
// returns, which is written for the user and has no token in it, and exits
// with ExitCode of that error. Cobra prints neither error nor usage.
//
// Text of the server, a build log above all, is not trusted: it comes from
// configurations and deployers of others. Outside of JSON nothing of it reaches
// the output without safe or cell; JSON escapes the same characters.
package deployments
