package configuration

import (
	"strings"

	"golang.org/x/net/idna"
)

// hosts reads names as a browser does before it asks DNS (UTS 46, not
// transitional), but takes hyphens wherever DNS has them.
var hosts = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(true),
	idna.CheckHyphens(false), idna.VerifyDNSLength(true))

// longestHost is more bytes than the name of a host has in any script: 253
// characters of at most 4 bytes.
const longestHost = 1024

// Host writes a domain name as DNS has it: lower case, letters of other scripts
// as A-labels (RFC 5890), no dot at the end. It reports false for what cannot be
// the name of a host.
func Host(name string) (host string, ok bool) {
	// The letters of a name take the square of its length to read.
	if len(name) > longestHost {
		return "", false
	}
	host, err := hosts.ToASCII(name)
	host = strings.TrimSuffix(host, ".")
	if err != nil || strings.HasSuffix(host, ".") { // the library takes more than one dot
		return "", false
	}
	return host, true
}
