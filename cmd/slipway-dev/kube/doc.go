// Package kube runs a real Kubernetes API server, with RBAC on, and the etcd
// below it: for `slipway-dev up --kube` and for the tests. There are no
// controllers, scheduler or nodes: what their absence means is that nothing is
// garbage collected, a deleted namespace stays, and no pod runs.
//
// Server has the processes, and can kill and start the API server alone. Run
// adds what a person wants to find: the example and files with credentials that
// are kept fresh.
//
// A folder is laid out as
//
//	lock                    held while a server runs on the folder
//	etcd/                   the data
//	ca.crt, ca.key          the CA of the API server and of etcd
//	apiserver.crt, .key     what they show to clients, and to each other
//	service-account.key     signs the tokens of ServiceAccounts
//	tokens.csv              the administrator's token, made at random
//	kubeconfig              the administrator's (group system:masters)
//	lease-ca.crt, .key      the CA of slipway's own TLS listener
//	tls.crt, tls.key        what that listener shows
//
// and by Run
//
//	slipway.token           of the ServiceAccount slipway/slipway, for 24 h
//	slipway.kubeconfig      the same, for clients; it names the file above
//	token                   of application/application-deploy, for the lease API
//
// Keys and credentials have mode 0600. Tokens are replaced while Run runs, so a
// reader has to read them again. Both servers listen on 127.0.0.1 only, and
// etcd talks only to who has a certificate of the CA.
//
// # Objects
//
// Setup applies what slipway needs: the CRDs of schema/crds and the rights of
// schema/rbac, with the namespace and the ServiceAccount that they are for. It
// is repeatable. A CRD that is there without the label
// app.kubernetes.io/managed-by: slipway is the operator's own, and is left
// alone. Example adds a group and a database; a group that has a status keeps
// it, since a topology generation must never go back.
//
// # After a crash
//
// The processes die with this one (package supervise). etcd recovers from its
// log; with ThrowAway it does not sync to disk, which survives killed
// processes, though no power cut.
package kube
