package coordination

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"

	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// releaseTimeout is how long a release waits for the workflow of the lease. It
// leaves time to release without one.
const releaseTimeout = 3 * time.Second

// showGroup is GET …/groups/{group}.
func (h *Handler) showGroup(c *call) (answer, error) {
	if err := h.admit(c); err != nil {
		return answer{}, err
	}
	observation, pending, err := h.Leases.Observe(c.Context(), c.group)
	switch {
	case err != nil:
		return answer{}, fmt.Errorf("observe: %w", err)
	case pending != nil:
		return answer{}, refusalOf(pending.Verdict)
	}
	return answer{http.StatusOK, observation}, nil
}

// grant is POST …/leases. A refusal starts no workflow.
func (h *Handler) grant(c *call) (answer, error) {
	ttl, err := c.readGrant()
	if err != nil {
		return answer{}, err
	}
	if err := h.admit(c); err != nil {
		return answer{}, err
	}
	holder := lease.Holder{
		OperationID: c.operationID, Instance: c.instance,
		Namespace: c.account.namespace, ServiceAccount: c.account.name,
	}
	considered, err := h.Leases.Consider(c.Context(), c.group, c.kind, holder)
	if err != nil {
		return answer{}, fmt.Errorf("consider a grant: %w", err)
	}
	// Where something has to be swept away first, the grant itself does so.
	if !considered.Sweep && considered.Kind != lease.VerdictGrant && considered.Kind != lease.VerdictRenew {
		return answer{}, refusalOf(considered.Verdict)
	}
	token, err := lease.NewToken(h.Random)
	if err != nil {
		return answer{}, err
	}
	granted, err := h.Workflows.Grant(c.Context(), c.ref(), wire.GrantRequest{Holder: holder, TokenHash: lease.HashToken(token), TTL: ttl})
	if err != nil {
		return answer{}, fmt.Errorf("grant: %w", err)
	}
	body := grantBody{c.kind, c.operationID, token, granted.ExpiresAt, granted.Generation}
	switch granted.Kind {
	case lease.VerdictGrant:
		return answer{http.StatusCreated, body}, nil
	case lease.VerdictRenew:
		return answer{http.StatusOK, body}, nil
	}
	return answer{}, refusalOf(granted.Verdict)
}

// readGrant checks the body of a grant, all of it: it names the instance that
// the caller has to be authorized for.
func (c *call) readGrant() (ttl time.Duration, err error) {
	body, err := c.readBody("kind", "operationId", "instance", "ttlSeconds")
	if err != nil {
		return 0, err
	}
	var kind, operation, instance string
	for _, member := range []struct {
		name  string
		value *string
	}{{"kind", &kind}, {"operationId", &operation}, {"instance", &instance}} {
		if *member.value, err = body.text(member.name); err != nil {
			return 0, err
		}
	}
	if err := c.setLease(kind, operation); err != nil {
		return 0, err
	}
	if !lease.ValidName(instance) {
		return 0, refuse(codeInvalidRequest, "instance is not the name of a database")
	}
	c.instance = instance
	return body.ttl()
}

// renew is PUT …/leases/{kind}/{operationId}. It asks no workflow.
func (h *Handler) renew(c *call) (answer, error) {
	if err := h.admit(c); err != nil {
		return answer{}, err
	}
	body, err := c.readBody("token", "ttlSeconds")
	if err != nil {
		return answer{}, err
	}
	token, err := body.text("token")
	if err != nil {
		return answer{}, err
	}
	ttl, err := body.ttl()
	if err != nil {
		return answer{}, err
	}
	renewed, err := h.Leases.Renew(c.Context(), c.group, c.ref(), c.caller(), lease.HashToken(token), ttl)
	if err != nil {
		return answer{}, fmt.Errorf("renew: %w", err)
	}
	if renewed.Kind != lease.VerdictRenew {
		return answer{}, refusalOf(renewed.Verdict)
	}
	return answer{http.StatusOK, renewBody{renewed.ExpiresAt, renewed.Generation}}, nil
}

// release is DELETE …/leases/{kind}/{operationId}. A lease that is not there, or
// not the caller's, starts no workflow; and one that is there does not stay
// because Temporal is away.
func (h *Handler) release(c *call) (answer, error) {
	if err := h.admit(c); err != nil {
		return answer{}, err
	}
	token := ""
	if values := c.Header.Values("X-Lease-Token"); len(values) == 1 {
		token = values[0]
	}
	request := wire.ReleaseRequest{Caller: c.caller(), TokenHash: lease.HashToken(token)}
	released, err := h.Leases.Peek(c.Context(), c.group, c.ref(), request)
	if err == nil && (released.Kind == lease.VerdictRelease || released.Sweep) {
		released, err = h.end(c, request)
	}
	if err != nil {
		return answer{}, fmt.Errorf("release: %w", err)
	}
	switch released.Kind {
	case lease.VerdictRelease, lease.VerdictRevoked, lease.VerdictNotFound:
		return answer{status: http.StatusNoContent}, nil
	}
	return answer{}, refusalOf(released.Verdict)
}

func (h *Handler) end(c *call, request wire.ReleaseRequest) (wire.LeaseAnswer, error) {
	ctx, cancel := context.WithTimeout(c.Context(), releaseTimeout)
	defer cancel()
	released, err := h.Workflows.Release(ctx, c.ref(), request)
	if err == nil || c.Context().Err() != nil {
		return released, err
	}
	h.Log.Warn("releases a lease without its workflow", append(c.place(), zap.Error(err))...)
	return h.Leases.Release(c.Context(), c.group, c.ref(), request)
}
