// Command kube-apiserver is the API server of Kubernetes, for tests and for
// `make dev KUBE=1`. It is a module of its own, because Kubernetes is no library
// and pins its parts by replace directives; the tests start it as a process.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
