// Package issuer makes the tokens of a development machine: one ECDSA P-256
// key pair in a folder, its public half as a JWKS file that slipway trusts,
// and JWTs signed with it.
//
//	<folder>/key.pem    the private key, PKCS #8, mode 0600
//	<folder>/jwks.json  the public key, for jwksFile of SLIPWAY_TRUSTED_ISSUERS
//
// A token says what the deployments API reads: scope, and optionally the
// deployments it is limited to. Production never uses this package; there the
// front-ends' own identity provider is trusted.
package issuer
