// Package temporalserver runs a whole Temporal on one machine: the server's
// four services and the Web UI in this process, with an SQLite file.
//
// The configuration is a file in the format of the Temporal server
// (temporal-dev.yaml at the top of the repository) with one more section,
// dynamicConfig, which the server itself would read from a second file. Ports
// and the database file come from Options. The internal services get free
// ports at every start, which only this process needs to know; hosts are
// static, so nothing gossips.
//
// # Ready
//
// Run calls ready once the namespace is there, the search attributes of slipway
// are registered, the frontend accepts queries by them, and the Web UI answers.
//
// # After a crash
//
// The schema is made in a file of another name, which is renamed when it is
// complete, so a half-made one is never used. The file is in WAL mode: killing
// the process at any moment loses nothing that was committed. A lock keeps a
// second server off the file.
package temporalserver
