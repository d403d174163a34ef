// Package processes reads the process table of Linux, for whoever has to end all
// that a process has started: the supervisor of a deployer, and the watchdog of
// the command of a deploy job. Whom they signal, and how, is their own business.
package processes
