// Package auth says who calls the deployments API and what they may do.
//
// A caller shows a JWT of a trusted issuer (Verifier). What is believed of it:
//
//	signature    asymmetric algorithms only, by a key of the issuer's set
//	iss, aud     exactly those of a trusted issuer
//	exp          required; no skew, since a stream ends at that moment
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
// The keys of an issuer come from a file that is read again when it changes. A
// file that cannot be read any more leaves the keys as they were. Other sources
// of keys fit in as another oidc.KeySet of a trusted issuer.
package auth
