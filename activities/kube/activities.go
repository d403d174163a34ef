package kube

import (
	"context"
	"errors"

	"go.temporal.io/sdk/temporal"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// Activities are those of the queue wire.QueueLease. Only the process that
// holds leader election runs them, and each asks whether it still does: one
// that was paused must not judge by a clock of long ago.
type Activities struct {
	Leases *Leases
	// Leading reports whether this process holds leader election now.
	Leading func() bool
}

// GrantInput is the input of GrantLease.
type GrantInput struct {
	wire.LeaseRef
	wire.GrantRequest
}

// ReleaseInput is the input of ReleaseLease.
type ReleaseInput struct {
	wire.LeaseRef
	wire.ReleaseRequest
}

// RevokeInput is the input of RevokeLease.
type RevokeInput struct {
	wire.LeaseRef
	Reason lease.Reason `json:"reason"`
}

// OperationInput is the input of ReservePlanned and LookAtPlanned.
type OperationInput struct {
	Namespace string `json:"namespace"`
	Group     string `json:"group"`
	wire.PlannedRequest
}

// WithdrawInput is the input of WithdrawPlanned.
type WithdrawInput struct {
	OperationInput
	// Reason is shown in the status of the group.
	Reason string `json:"reason"`
	// KeepRequest leaves the annotation that asks for a planned failover, so
	// that it is asked for once more.
	KeepRequest bool `json:"keepRequest,omitempty"`
}

// ClearInput is the input of ClearPlanned.
type ClearInput struct {
	OperationInput
	// Overdue: the operator has had its time.
	Overdue bool `json:"overdue,omitempty"`
}

// GrantLease grants a lease or says why not; see Leases.Grant.
func (a *Activities) GrantLease(ctx context.Context, in GrantInput) (wire.LeaseAnswer, error) {
	return led(a, func() (wire.LeaseAnswer, error) { return a.Leases.Grant(ctx, in.LeaseRef, in.GrantRequest) })
}

// ReleaseLease releases a lease or says why not; see Leases.Release.
func (a *Activities) ReleaseLease(ctx context.Context, in ReleaseInput) (wire.LeaseAnswer, error) {
	return led(a, func() (wire.LeaseAnswer, error) {
		g, err := a.Leases.Cluster.Group(ctx, in.Namespace, in.Group)
		if err != nil {
			return wire.LeaseAnswer{}, err
		}
		return a.Leases.Release(ctx, g, in.LeaseRef, in.ReleaseRequest)
	})
}

// LookAtLease says how a lease is; see Leases.Look.
func (a *Activities) LookAtLease(ctx context.Context, ref wire.LeaseRef) (wire.LeaseState, error) {
	return led(a, func() (wire.LeaseState, error) { return a.Leases.Look(ctx, ref) })
}

// RevokeLease revokes a lease; see Leases.Revoke.
func (a *Activities) RevokeLease(ctx context.Context, in RevokeInput) (wire.LeaseState, error) {
	return led(a, func() (wire.LeaseState, error) { return a.Leases.Revoke(ctx, in.LeaseRef, in.Reason) })
}

// ReservePlanned reserves a group for a planned operation and looks at it; see
// Leases.ReservePlanned.
func (a *Activities) ReservePlanned(ctx context.Context, in OperationInput) (wire.PlannedState, error) {
	return led(a, func() (wire.PlannedState, error) { return a.Leases.ReservePlanned(ctx, in) })
}

// LookAtPlanned hands an operation over when no hold defers it any more; see
// Leases.LookAtPlanned.
func (a *Activities) LookAtPlanned(ctx context.Context, in OperationInput) (wire.PlannedState, error) {
	return led(a, func() (wire.PlannedState, error) { return a.Leases.LookAtPlanned(ctx, in) })
}

// WithdrawPlanned gives an operation up; see Leases.WithdrawPlanned.
func (a *Activities) WithdrawPlanned(ctx context.Context, in WithdrawInput) (wire.PlannedState, error) {
	return led(a, func() (wire.PlannedState, error) { return a.Leases.WithdrawPlanned(ctx, in) })
}

// ClearPlanned removes what an operation that was handed over reserved; see
// Leases.ClearPlanned.
func (a *Activities) ClearPlanned(ctx context.Context, in ClearInput) (wire.PlannedState, error) {
	return led(a, func() (wire.PlannedState, error) { return a.Leases.ClearPlanned(ctx, in) })
}

// led does something as the leader. An object that only a person can mend is
// not tried again.
func led[A any](a *Activities, do func() (A, error)) (A, error) {
	if !a.Leading() {
		var none A
		return none, temporal.NewApplicationError("this process does not lead any more", wire.ErrorNotLeader)
	}
	result, err := do()
	var broken *BrokenError
	if errors.As(err, &broken) {
		return result, temporal.NewNonRetryableApplicationError(broken.Error(), wire.ErrorBrokenLease, nil)
	}
	return result, err
}
