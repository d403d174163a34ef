// Package configuration reads, splits and checks the configuration of a
// deployment. It is pure: bytes and a schema in, a value or errors out.
//
// The order is that of a submit:
//
//	Decode      JSON of bounded size and depth without duplicate keys
//	Split       the values of operator secrets leave the configuration
//	Secrets     what the submit says about each secret, without the values
//	Validate    the rest against the schema of the module source
//	Decide      what is written, copied and set, from what OpenBao has
//
// A configuration is opaque beyond its schema: where a value sits in it is
// the business of the module source. Source reads what the source's schema and
// its annotations tell: the facts that a front-end shows, the applications, what
// changed between two configurations, the sections of a form. It needs no
// evaluation, and takes drafts that are not valid yet.
//
// All of them walk the schema in the same way (expand): down the places of a
// configuration, with the list of schema objects that describe a place. Whoever
// looks for secrets takes every alternative into account, since none may slip
// through; whoever looks for facts takes those that fit.
package configuration
