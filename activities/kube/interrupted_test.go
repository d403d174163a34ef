package kube

import (
	"context"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// interrupted is the real client of leases, in whose way something happens
// once, just before the first write.
type interrupted struct {
	coordinationclient.LeasesGetter
	do   func()
	once sync.Once
}

func (i *interrupted) Leases(namespace string) coordinationclient.LeaseInterface {
	return &interruptedLeases{i.LeasesGetter.Leases(namespace), i}
}

type interruptedLeases struct {
	coordinationclient.LeaseInterface
	by *interrupted
}

func (i *interruptedLeases) Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	i.by.once.Do(i.by.do)
	return i.LeaseInterface.Create(ctx, l, o)
}

func (i *interruptedLeases) Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	i.by.once.Do(i.by.do)
	return i.LeaseInterface.Update(ctx, l, o)
}
