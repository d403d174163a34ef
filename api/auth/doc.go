// Package auth says who calls the deployments API and what they may do.
//
// A caller shows a JWT of a trusted issuer (Verifier). What is believed of it:
//
//	signature    asymmetric algorithms only, by a key of the issuer's set
//	iss, aud     exactly those of a trusted issuer
//	exp          required; may lie less than Skew in the past, but a stream ends at it
//	nbf, iat     may lie at most Skew in the future
//	scope        a string with ScopeRead and ScopeWrite among its words
//	deployments  optional: an array of the identifiers that the token is for
//
// Writing does not imply reading: a token with ScopeWrite alone may submit and
// cannot look. A claim deployments that is not an array of strings refuses the
// token, for its issuer meant to limit it; an empty array allows none.
//
// EventSource of a browser sends no header, so a caller may buy a ticket for
// one channel (Tickets). A ticket is a signed statement; no replica keeps it.
//
// The keys of an issuer come from a file, which is read again when it changes,
// or from a URL, given or found by OpenID Connect Discovery:
//
//	token whose key is known     no fetch
//	token whose key is not       one fetch for all who wait, at most one in 5 s
//	every 5 minutes              a fetch, so that a withdrawn key goes (Run)
//
// A fetch is bounded in time, size and redirects. An issuer that is away stops
// neither the start nor the others: its keys stay as they were, and where a
// token needs others the error is ErrKeysAway, since nobody can say that the
// token is bad.
package auth
