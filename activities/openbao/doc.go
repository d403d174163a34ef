// Package openbao keeps operator secrets in OpenBao, and nowhere else (seed B,
// "Secrets of the operator"). What is written, kept, copied and cleared,
// schema/configuration decides; this package reads and writes.
//
//	<mount>/data/<root>/<deployment>/secret/<application>-operator-secrets/<field>
//
// has the value of a field under the key "value".
//
// These hold:
//
//   - An entry has a value when its current version is neither deleted nor
//     destroyed, by the clock of the server. A list of names alone does not say
//     so: it has the deleted ones too.
//   - Every write is check-and-set on the version that was current, deleted or
//     not. A conflict is a success where the value that is there is ours: the
//     answer to an earlier write was lost. Any other is for the caller, who
//     submits again.
//   - A clear deletes what was there when it was asked for (configuration.SecretEntry), and nothing
//     that came after: an entry made anew has another creation time, a newer
//     version keeps the entry.
//   - Everything may be repeated. The client repeats nothing by itself, but for
//     one request after a new login.
//   - No value, token or other credential is in an error. What the server says is
//     left out where the request had a value, since it may say it back.
//
// # Errors
//
// OpenBao that is away, sealed or unwilling is an *UnavailableError, which tells
// the operator what to do; the caller of the API is told nothing of it. A
// response-wrapping token that was used or has expired is ErrWrapSpent.
//
// # Login
//
// A token from a file (read again at every request, so that something else may
// rotate it), AppRole, or Kubernetes auth with the pod's rotating token. Run
// renews the token of the client at two thirds of its time and logs in anew
// where it cannot be renewed any more. A token that was revoked is noticed at
// the first request that is refused, which then logs in and asks again.
//
// # From the API to the worker
//
// Values cross Temporal as a response-wrapping token (Wrap, Unwrap): OpenBao
// keeps them for 60 s and gives them out once.
//
// The rights that all of this needs are in schema/kvpolicy.
package openbao
