// Package ports finds out, before anything is started, whether the ports that
// the programs of a development machine want are free, and picks free ones
// where nobody cares which.
//
// Everything here is about 127.0.0.1: no program of slipway-dev listens
// anywhere else.
package ports
