package coordination

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatchPath(t *testing.T) {
	long := strings.Repeat("a", 254)
	for _, test := range []struct {
		method, path string
		handler      string
		// rest is what else a match has: group, kind, operation.
		rest []string
	}{
		{"GET", "/deploy/v1/groups/orders", "group", []string{"orders", "", ""}},
		{"GET", "/deploy/v1/groups/orders.eu-1", "group", []string{"orders.eu-1", "", ""}},
		{"GET", "/deploy/v1/groups/%6frders", "group", []string{"orders", "", ""}},
		{"POST", "/deploy/v1/groups/orders/leases", "grant", []string{"orders", "", ""}},
		{"PUT", "/deploy/v1/groups/orders/leases/migration/op-1", "renew", []string{"orders", "migration", "op-1"}},
		{"DELETE", "/deploy/v1/groups/orders/leases/failover-hold/op-1", "release", []string{"orders", "failover-hold", "op-1"}},
		// Kinds and operations are judged later.
		{"PUT", "/deploy/v1/groups/orders/leases/Migration/op-1", "renew", []string{"orders", "Migration", "op-1"}},
		{"PUT", "/deploy/v1/groups/orders/leases/migration/a%2Fb%2fc%20d+e", "renew", []string{"orders", "migration", "a/b/c d+e"}},
		{"PUT", "/deploy/v1/groups/orders/leases/migration/%c3%a4%ff%00", "renew", []string{"orders", "migration", "ä\xff\x00"}},
		{"PUT", "/deploy/v1/groups/orders/leases/migration/..", "renew", []string{"orders", "migration", ".."}},
		{"PUT", "/deploy/v1/groups/orders/leases/migration/%252F", "renew", []string{"orders", "migration", "%2F"}},

		{"GET", "", handlerNone, nil},
		{"GET", "*", handlerNone, nil},
		{"GET", "/", handlerNone, nil},
		{"GET", "/deploy/v1", handlerNone, nil},
		{"GET", "/deploy/v1/groups", handlerNone, nil},
		{"GET", "/deploy/v1/groups/", handlerNone, nil},
		{"GET", "/deploy/v1/groups/orders/", handlerNone, nil},
		{"GET", "//deploy/v1/groups/orders", handlerNone, nil},
		{"GET", "/deploy//v1/groups/orders", handlerNone, nil},
		{"GET", "/deploy/v1/groups//orders", handlerNone, nil},
		{"GET", "deploy/v1/groups/orders", handlerNone, nil},
		{"GET", "/deploy/v1/groups/..", handlerNone, nil},
		{"GET", "/deploy/v1/groups/../groups/orders", handlerNone, nil},
		{"GET", "/deploy/v1/./groups/orders", handlerNone, nil},
		{"GET", "/DEPLOY/v1/groups/orders", handlerNone, nil},
		{"GET", "/deploy/v1/Groups/orders", handlerNone, nil},
		{"GET", "/deploy/v1/groups/Orders", handlerNone, nil},
		{"GET", "/deploy/v1/groups/ord%2ders", "group", []string{"ord-ers", "", ""}},
		{"GET", "/deploy/v1/groups/ord%2Fers", handlerNone, nil},
		{"GET", "/deploy/v1%2fgroups/orders", handlerNone, nil},
		{"GET", "/deploy%2Fv1%2Fgroups%2Forders", handlerNone, nil},
		{"GET", "/deploy/v1/groups/orders%", handlerNone, nil},
		{"GET", "/deploy/v1/groups/orders%zz", handlerNone, nil},
		{"GET", "/deploy/v1/groups/orders%00", handlerNone, nil},
		{"GET", "/deploy/v1/groups/-orders", handlerNone, nil},
		{"GET", "/deploy/v1/groups/" + long, handlerNone, nil},
		{"GET", "/keyring/escrow", handlerNone, nil},
		{"POST", "/deploy/v1/groups/orders/leases/", handlerNone, nil},
		{"PUT", "/deploy/v1/groups/orders/leases/migration", handlerNone, nil},
		{"PUT", "/deploy/v1/groups/orders/leases/migration/", handlerNone, nil},
		{"PUT", "/deploy/v1/groups/orders/leases//op-1", handlerNone, nil},
		{"PUT", "/deploy/v1/groups/orders/leases/migration/op-1/", handlerNone, nil},
		{"PUT", "/deploy/v1/groups/orders/leases/migration/a/b", handlerNone, nil},
		{"PUT", "/deploy/v1/groups/orders/leases/migration/%2", handlerNone, nil},
	} {
		m := matchPath((&Handler{}).table(), test.method, test.path)
		require.Equal(t, test.handler, m.handler, test.path)
		if test.handler == handlerNone {
			require.Equal(t, codeNotFound, m.refusal.Code, test.path)
			require.Empty(t, m.group, test.path)
			continue
		}
		require.Nil(t, m.refusal)
		require.Equal(t, test.rest, []string{m.group, m.kind, m.operation}, test.path)
	}
}

func TestMatchMethod(t *testing.T) {
	for path, allow := range map[string]string{
		"/deploy/v1/groups/orders":                        "GET",
		"/deploy/v1/groups/orders/leases":                 "POST",
		"/deploy/v1/groups/orders/leases/migration/op-1":  "PUT, DELETE",
		"/deploy/v1/groups/orders/leases/nonsense/op%2F1": "PUT, DELETE",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get", "BREW"} {
			m := matchPath((&Handler{}).table(), method, path)
			if strings.Contains(", "+allow+",", ", "+method+",") {
				require.Nil(t, m.refusal, method+path)
				continue
			}
			require.Equal(t, codeMethodNotAllowed, m.refusal.Code, method+path)
			require.Equal(t, allow, m.refusal.allow)
			require.Equal(t, http.StatusMethodNotAllowed, m.refusal.Code.status())
		}
	}
}
