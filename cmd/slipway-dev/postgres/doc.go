// Package postgres runs a private PostgreSQL: the machine's own binaries, on a
// data folder of its own, on a port of its own. The machine's other clusters
// are not touched, and none needs to run.
//
// A folder is laid out as
//
//	lock       held while a server runs on the folder
//	password   of the role slipway, made at random, mode 0600
//	cluster    the data folder of PostgreSQL, or a link to it (below)
//
// # The user
//
// PostgreSQL refuses to run as root. Started as root, this package runs it as
// the user postgres, or nobody where there is none. That user must be able to
// reach its data, and a clone below /root is closed to it; then the data lives
// in /var/lib/slipway-dev/<hash of the folder> and cluster is a link there.
// Remove takes both away.
//
// # After a crash
//
// The cluster is made under another name and renamed when it is complete, so a
// half-made one is never used. When this program is killed, the kernel sends
// PostgreSQL SIGQUIT, its immediate shutdown. When PostgreSQL is killed itself,
// its processes may live on for a moment. So a start first ends every process
// whose working folder is the cluster; only then is a postmaster.pid that is
// left over known to be stale, and removed. PostgreSQL then recovers from its
// log as after a power cut. fsync stays on.
package postgres
