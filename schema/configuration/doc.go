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
// the business of the module source.
package configuration
