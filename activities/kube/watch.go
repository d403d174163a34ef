package kube

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
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
	groups, leases []cache.SharedIndexInformer // one for each namespace of the cluster
	queue          workqueue.TypedRateLimitingInterface[GroupName]
}

// Watch makes a watch; Run starts it.
func (c *Cluster) Watch() (*Watch, error) {
	custom, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("watch the groups: %w", err)
	}
	w := &Watch{
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
	for _, namespace := range c.namespaces {
		groups := groupInformer(custom.Resource(groups).Namespace(namespace))
		_, err = groups.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: changed, UpdateFunc: func(_, object any) { changed(object) }, DeleteFunc: changed,
		})
		if err != nil {
			return nil, fmt.Errorf("watch the groups: %w", err)
		}
		w.groups = append(w.groups, groups)
		w.leases = append(w.leases, leaseInformer(c.leases.Leases(namespace)))
	}
	return w, nil
}

func groupInformer(groups dynamic.ResourceInterface) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return groups.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return groups.Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, relookEvery, cache.Indexers{})
}

func leaseInformer(leases coordinationclient.LeaseInterface) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = lease.LabelKind
			return leases.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = lease.LabelKind
			return leases.Watch(ctx, o)
		},
	}, &coordinationv1.Lease{}, 0, cache.Indexers{})
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	for _, informer := range slices.Concat(w.groups, w.leases) {
		go informer.RunWithContext(ctx)
	}
	<-ctx.Done()
	w.queue.ShutDown()
}

// Ready waits until all groups and leases are known.
func (w *Watch) Ready(ctx context.Context) bool {
	for _, informer := range slices.Concat(w.groups, w.leases) {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return false
		}
	}
	return true
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
	for _, groups := range w.groups {
		for _, object := range groups.GetStore().List() {
			if group, ok := object.(*unstructured.Unstructured); ok && group.GetName() == name {
				return true
			}
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
	for _, groups := range w.groups {
		object, found, err := groups.GetStore().GetByKey(l.Namespace + "/" + owner.Name)
		group, ok := object.(*unstructured.Unstructured)
		if err == nil && found && ok && owner.Kind == groupKind && group.GetUID() == owner.UID {
			return true
		}
	}
	return false
}

// Records are the records of all groups, as far as they can be read.
func (w *Watch) Records() iter.Seq2[wire.LeaseRef, lease.Record] {
	return func(yield func(wire.LeaseRef, lease.Record) bool) {
		for _, object := range w.leaseObjects() {
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

func (w *Watch) leaseObjects() []any {
	var all []any
	for _, leases := range w.leases {
		all = append(all, leases.GetStore().List()...)
	}
	return all
}
