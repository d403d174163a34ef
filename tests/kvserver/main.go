// Command kvserver is a secrets server with the KV v2 engine, for tests and for
// `make dev BAO=1` on a machine without OpenBao: the last release of the line
// that OpenBao forked from under its licence (MPL-2.0). It is a module of its
// own, because it pins old versions of much that slipway uses; the tests start
// it as a process. It knows the commands of `bao` (server, status, …).
//
// It needs GODEBUG=x509negativeserial=1 where certificates are concerned, which
// go.mod sets.
package main

import (
	"os"

	"github.com/hashicorp/vault/command"
)

func main() {
	os.Exit(command.Run(os.Args[1:]))
}
