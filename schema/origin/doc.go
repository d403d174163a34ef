// Package origin has the rules on front-ends: which may call in from a browser
// (CORS) and which are called back, one list for both (seed B, "Durability of
// the intent record").
//
// An entry of the list is an origin as a browser writes it (RFC 6454, 6.2):
// scheme, host and, unless it is the default of the scheme, port. A URL to call
// back is parsed, and belongs to an entry where all three are the same:
//
//	https://panel.example           the entry
//	https://panel.example/a?b=c     belongs to it
//	HTTPS://Panel.Example:443/a     belongs to it
//	http://panel.example/a          another scheme
//	https://panel.example:8443/a    another port
//	https://panel.example./a        another host, as for a browser
//	https://me@panel.example/a      refused: userinfo
//	https://2130706433/a            refused: an address written as a number
//
// A name may resolve to anything, so what is called is checked once more as an
// address (CheckAddress). Whoever calls looks a name up once, checks all that it
// got and connects to one of those, so that no second look gives another.
package origin
