package leases

import (
	"strconv"
	"strings"
	"syscall"
)

// The exit codes of "lease run"; exitCodes tells the user. The other
// commands have those of package exit.
const (
	exitRefused   = 73
	exitLost      = 75 // EX_TEMPFAIL of sysexits.h
	exitLostInDDL = 76
	exitNotRun    = 126 // as shells have it
	exitNotFound  = 127
	exitSignal    = 128
)

const exitCodes = `Exit codes:
  0     the command ended with 0
  1     something unexpected happened
  2     slipway was not used right; no lease was asked for
  73    no lease: refused, held by another until the end of --wait, or no answer
  75    authority was lost before DDL had begun; the job may be run again
  76    authority was lost when DDL had begun: verify the schema by hand
  126, 127  the command cannot be run, or does not exist
  128+n the command was ended by signal n, or slipway was while it waited
  any other code is that of the command`

const exitCodesOfStatus = `Exit codes:
  0  shown
  1  something unexpected happened
  2  the command was not used right
  4  the API refused
  5  the API or its leader is away, or did not answer in time`

const exitCodesOfRevoke = `Exit codes:
  0  Temporal has the request
  1  something unexpected happened
  2  the command was not used right
  5  Temporal is away, or did not answer in time; the lease may not be revoked`

// codeOf is the exit code that a shell shows.
func codeOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}

// safe keeps what others wrote, operations too, from steering a terminal.
func safe(text string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, text)
}
