// Package api is the deployments API: what a front-end calls over HTTP. The
// contract is schema/openapi.yaml, served at /openapi.yaml and, readable, at
// /docs; a test holds it against the handlers.
//
// A handler decodes, makes the pure checks of schema/…, does one thing through
// a narrow interface, and encodes:
//
//	Reader     what the store has (reads never go through Temporal)
//	Listener   when that changed
//	Workflows  submit, preview, destroy and cancel, as workflows (Temporal)
//
// # A request
//
//	observe     its ID, its log line, its metrics, its panic
//	handle      token or ticket (401), scope (403), identifier (400),
//	            the token's deployments (403), time limit;
//	            public procedures: the limit of the address (429)
//	the handler media type (415), size (413), JSON and members (400), …
//
// A token that may not read a deployment gets 403 whether or not it exists,
// since the store has not been asked yet.
//
// # What is shown
//
// Every read of a deployment goes through shown, which adds the facts of its
// configurations and takes out what is a secret today. Facts are derived at the
// read, each configuration by the schema of the snapshot that it was recorded
// with; a few of those are kept compiled (sources).
//
// # Public procedures
//
// They read their body and the schema of the module source, and no deployment.
// What an address may ask for is a token bucket, in each process (limiter); the
// address is that of the peer, or what trusted proxies say it is (clientOf).
//
// # Errors
//
// A handler returns an error and writes nothing then. fail is the one place
// where an error becomes an answer: a *failure is for the caller, with a code
// whose status is in one table; the types of application errors that workflows
// return are mapped to codes in another. Everything else is a 500, logged with
// the request ID and not told. A store or a Temporal that does not answer is
// 503 with Retry-After: what was asked may be asked again.
//
// # SBOMs
//
// A document is served byte for byte as it was stored, so it is in memory while
// it is written. All of them together have a budget, which a request waits for
// a while and then is 503; a client that takes its document too slowly is cut
// off, as one of a stream is. HEAD and If-None-Match need no document.
//
// # Streams
//
// The channel (api/channel), a followed log and the list answer as they read.
// Where such an answer cannot be completed, the connection is broken off, so
// that nobody takes a part for the whole; the channel alone just ends, since
// its clients resume. Streams end with the context of NewHandler, so a server
// that shuts down ends that first.
package api
