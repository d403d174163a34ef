package kube

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// relookEvery is how often every group is looked at, changed or not.
const relookEvery = 30 * time.Second

// GroupName names a group.
type GroupName struct{ Namespace, Name string }

// Watch hears of groups that change, and knows the leases. What it knows may be
// old: it is for finding out where to look, and for metrics.
type Watch struct {
	groups, leases cache.SharedIndexInformer
	queue          workqueue.TypedRateLimitingInterface[GroupName]
}

// Watch makes a watch; Run starts it.
func (c *Cluster) Watch() (*Watch, error) {
	custom, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("watch the groups: %w", err)
	}
	w := &Watch{
		groups: cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return custom.Resource(groups).List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return custom.Resource(groups).Watch(ctx, o)
			},
		}, &unstructured.Unstructured{}, relookEvery, cache.Indexers{}),
		leases: cache.NewSharedIndexInformer(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector = lease.LabelKind
				return c.leases.Leases(metav1.NamespaceAll).List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = lease.LabelKind
				return c.leases.Leases(metav1.NamespaceAll).Watch(ctx, o)
			},
		}, &coordinationv1.Lease{}, 0, cache.Indexers{}),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[GroupName](100*time.Millisecond, 10*time.Second)),
	}
	changed := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if group, ok := object.(*unstructured.Unstructured); ok {
			w.queue.Add(GroupName{group.GetNamespace(), group.GetName()})
		}
	}
	_, err = w.groups.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, object any) { changed(object) }, DeleteFunc: changed,
	})
	if err != nil {
		return nil, fmt.Errorf("watch the groups: %w", err)
	}
	return w, nil
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	go w.groups.RunWithContext(ctx)
	go w.leases.RunWithContext(ctx)
	<-ctx.Done()
	w.queue.ShutDown()
}

// Ready waits until all groups and leases are known.
func (w *Watch) Ready(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), w.groups.HasSynced, w.leases.HasSynced)
}

// Next waits for a group that changed, or that was not looked at for a while.
// settle is called with the outcome: after an error the group comes again.
func (w *Watch) Next() (name GroupName, settle func(error), ok bool) {
	name, shutdown := w.queue.Get()
	if shutdown {
		return name, nil, false
	}
	return name, func(err error) {
		defer w.queue.Done(name)
		if err == nil || errors.Is(err, ErrNoGroup) {
			w.queue.Forget(name)
			return
		}
		w.queue.AddRateLimited(name)
	}, true
}

// Known reports whether any namespace has a group of this name.
func (w *Watch) Known(name string) bool {
	for _, object := range w.groups.GetStore().List() {
		if group, ok := object.(*unstructured.Unstructured); ok && group.GetName() == name {
			return true
		}
	}
	return false
}

// owned reports whether a Lease belongs to a group that is still there. Those
// of a group that is gone wait for the garbage collector.
func (w *Watch) owned(l *coordinationv1.Lease) bool {
	if len(l.OwnerReferences) != 1 {
		return false
	}
	owner := l.OwnerReferences[0]
	object, found, err := w.groups.GetStore().GetByKey(l.Namespace + "/" + owner.Name)
	group, ok := object.(*unstructured.Unstructured)
	return err == nil && found && ok && owner.Kind == groupKind && group.GetUID() == owner.UID
}

// Records are the records of all groups, as far as they can be read.
func (w *Watch) Records() iter.Seq2[wire.LeaseRef, lease.Record] {
	return func(yield func(wire.LeaseRef, lease.Record) bool) {
		for _, object := range w.leases.GetStore().List() {
			found, ok := object.(*coordinationv1.Lease)
			if !ok || !w.owned(found) {
				continue
			}
			record, err := lease.ParseRecord(found.Annotations[lease.AnnotationRecord])
			if err != nil {
				continue
			}
			ref := wire.LeaseRef{
				Namespace: found.Namespace, Group: found.OwnerReferences[0].Name,
				Kind: record.Kind, OperationID: record.OperationID,
			}
			if !yield(ref, record) {
				return
			}
		}
	}
}
