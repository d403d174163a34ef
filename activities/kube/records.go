package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.dev/slipway/schema/lease"
)

// object is a Lease object of a group as it was read, or the place of one.
type object struct {
	name string
	// lease is nil where there is none.
	lease *coordinationv1.Lease
	// record is nil where there is none of this group.
	record *lease.Record
}

// BrokenError: an object has the name of a record of a group and is none, so
// nobody knows who holds the lease. Only a person can mend that.
type BrokenError struct {
	Namespace, Name string
	Cause           error
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("the Lease %s/%s is no record of its group (%s); look at it, and delete it if it is nobody's", e.Namespace, e.Name, e.Cause)
}

func (e *BrokenError) Unwrap() error { return e.Cause }

// read reads the object of a name. The error is a *BrokenError where there is
// one that cannot be understood, or that belongs to another.
func (c *Cluster) read(ctx context.Context, g lease.Group, name string) (object, error) {
	found, err := c.leases.Leases(g.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return object{name: name}, nil
	}
	if err != nil {
		return object{}, fmt.Errorf("read the lease %s/%s: %w", g.Namespace, name, err)
	}
	record, err := parse(g, found)
	if err != nil {
		return object{}, &BrokenError{Namespace: g.Namespace, Name: name, Cause: err}
	}
	return object{name: name, lease: found, record: &record}, nil
}

// parse reads the record of an object of a group.
func parse(g lease.Group, found *coordinationv1.Lease) (lease.Record, error) {
	if len(found.OwnerReferences) != 1 || string(found.OwnerReferences[0].UID) != g.UID {
		return lease.Record{}, fmt.Errorf("its owner is not the group with the UID %s", g.UID)
	}
	record, err := lease.ParseRecord(found.Annotations[lease.AnnotationRecord])
	if err != nil {
		return record, err
	}
	if found.Name != lease.MutexName(g.Name) && found.Name != lease.OperationName(g.Name, record.Kind, record.OperationID) {
		return record, fmt.Errorf("its name is not the one of a %s of the operation", record.Kind)
	}
	return record, nil
}

// list lists the records of a group, from the server. What is none is left
// out: it gives nobody any right.
func (c *Cluster) list(ctx context.Context, g lease.Group) ([]object, error) {
	var all []object
	options := metav1.ListOptions{LabelSelector: lease.LabelKind, Limit: page}
	for {
		found, err := c.leases.Leases(g.Namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list the leases of %s/%s: %w", g.Namespace, g.Name, err)
		}
		for i := range found.Items {
			item := &found.Items[i]
			if record, err := parse(g, item); err == nil {
				all = append(all, object{name: item.Name, lease: item, record: &record})
			}
		}
		if options.Continue = found.Continue; options.Continue == "" {
			return all, nil
		}
	}
}

// write puts a record into the place of an object, on the condition that it is
// as it was read, and returns what is there then.
func (c *Cluster) write(ctx context.Context, g lease.Group, place object, record lease.Record, now time.Time) (object, error) {
	seconds := record.SecondsLeft(now)
	renewed := metav1.NewMicroTime(now)
	fresh := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: place.name}}
	if place.lease != nil {
		fresh = place.lease.DeepCopy()
	}
	fresh.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: groupVersion.String(), Kind: groupKind, Name: g.Name, UID: types.UID(g.UID),
	}}
	fresh.Labels = with(fresh.Labels, lease.LabelKind, string(record.Kind), lease.LabelState, string(record.State))
	fresh.Annotations = with(fresh.Annotations, lease.AnnotationRecord, record.Encode())
	fresh.Spec.HolderIdentity = &record.OperationID
	fresh.Spec.RenewTime = &renewed
	fresh.Spec.LeaseDurationSeconds = &seconds

	leases := c.leases.Leases(g.Namespace)
	var err error
	if place.lease == nil {
		fresh, err = leases.Create(ctx, fresh, metav1.CreateOptions{})
	} else {
		fresh, err = leases.Update(ctx, fresh, metav1.UpdateOptions{})
	}
	if err != nil {
		return place, fmt.Errorf("write the lease %s/%s: %w", g.Namespace, place.name, err)
	}
	return object{name: place.name, lease: fresh, record: &record}, nil
}

func with(m map[string]string, pairs ...string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// digest makes a name of parts that are none.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}
