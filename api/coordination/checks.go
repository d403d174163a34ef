package coordination

import (
	"fmt"
	"strings"

	"slipway.dev/slipway/schema/lease"
)

// maxToken is the longest bearer token, in bytes.
const maxToken = 16384

// authenticate finds out who asks.
func (h *Handler) authenticate(c *call) error {
	token, ok := bearer(c.Header.Values("Authorization"))
	if !ok {
		return refuse(codeUnauthorized, "there is not exactly one bearer token of at most 16,384 bytes")
	}
	key := keyOf(token)
	if account, ok := h.callers.find(key); ok {
		c.account = account
		return nil
	}
	username, ok, err := h.Cluster.Review(c.Context(), token, h.Audience)
	if err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	if !ok {
		return refuse(codeUnauthorized, "the token is not accepted for the audience")
	}
	c.account.namespace, c.account.name, ok = lease.ParseServiceAccount(username)
	if !ok {
		return refuse(codeUnauthorized, "the user is no ServiceAccount")
	}
	h.callers.add(key, c.account)
	return nil
}

// bearer is the token of the one Authorization header (RFC 6750, 2.1).
func bearer(headers []string) (token string, ok bool) {
	if len(headers) != 1 {
		return "", false
	}
	fields := strings.Fields(headers[0])
	if len(fields) != 2 || !strings.EqualFold(fields[0], "Bearer") || len(fields[1]) > maxToken {
		return "", false
	}
	return fields[1], true
}

// readPath checks the values of the path, where the route has any.
func (c *call) readPath() error {
	if !strings.Contains(c.match.pattern, "{operation}") {
		return nil
	}
	return c.setLease(c.match.kind, c.match.operation)
}

// setLease checks which lease is asked for.
func (c *call) setLease(kind, operation string) error {
	parsed, ok := lease.ParseKind(kind)
	if !ok {
		return refuse(codeInvalidRequest, "kind is neither migration nor failover-hold")
	}
	if !lease.ValidOperation(operation) {
		return refuse(codeInvalidRequest, "operationId is not 1 to 128 bytes of UTF-8 without control characters")
	}
	c.kind, c.operationID = parsed, operation
	return nil
}

// admit finds out whether the caller may ask about the group, without looking
// at the group, and reads it then. Last it makes sure that this process still
// leads, because what comes next is decided.
func (h *Handler) admit(c *call) error {
	databases, err := h.Cluster.Databases(c.Context())
	if err != nil {
		return fmt.Errorf("authorize: %w", err)
	}
	namespace, instances, ok := lease.Authorize(databases, c.match.group, c.instance, c.account.namespace, c.account.name)
	if !ok {
		return refuse(codeForbidden, "no database of one namespace has the group, the instance and the caller")
	}
	group, err := h.Cluster.Group(c.Context(), namespace, c.match.group)
	if err != nil {
		return err
	}
	c.namespace, c.instances, c.group = namespace, instances, group
	if !h.Leading() {
		return refuse(codeNotLeader, "")
	}
	return nil
}
