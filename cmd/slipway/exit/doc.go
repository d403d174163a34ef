// Package exit has what the commands of slipway end with: errors that carry an
// exit code, and the one for a command that was not used right, which is the
// same for all of them.
//
// A command returns an *Error, by Misuse or With or its own. The program prints
// its text and exits with Code. Strict, on the root, makes the mistakes that cobra
// finds such errors too.
package exit
