package lease

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseDatabase(t *testing.T) {
	database, err := ParseDatabase([]byte(`{"metadata":{"namespace":"bloodraven","name":"orders-app","deletionTimestamp":"2026-11-30T12:00:00Z"},
		"spec":{"groupRef":{"name":"orders","x":1},"databaseName":"orders","deploymentClients":[{"namespace":"application","serviceAccount":"deploy"}]}}`))
	require.NoError(t, err)
	require.Equal(t, Database{
		Namespace: "bloodraven", Name: "orders-app", Group: "orders", Deleting: true, Clients: []Client{{"application", "deploy"}},
	}, database)
	for _, raw := range []string{``, `{}`, `{"metadata":{"name":"a"}}`, `{"metadata":{"namespace":"a","name":"b"},"spec":{"deploymentClients":{}}}`} {
		_, err := ParseDatabase([]byte(raw))
		require.Error(t, err, raw)
	}
}

func TestAuthorize(t *testing.T) {
	database := func(namespace, name, group string, clients ...Client) Database {
		return Database{Namespace: namespace, Name: name, Group: group, Clients: clients}
	}
	client := Client{"application", "deploy"}
	app := database("bloodraven", "orders-app", "orders", Client{"other", "deploy"}, client)
	jobs := database("bloodraven", "orders-a-jobs", "orders", client)
	elsewhere := database("staging", "orders-app", "orders", client)
	deleted := app
	deleted.Deleting = true
	for name, test := range map[string]struct {
		databases []Database
		instance  string
		namespace string
		instances []string
	}{
		"no databases":                        {nil, "", "", nil},
		"declared":                            {[]Database{app}, "", "bloodraven", []string{"orders-app"}},
		"declared, by instance":               {[]Database{app, jobs}, "orders-app", "bloodraven", []string{"orders-app"}},
		"two in one namespace":                {[]Database{app, jobs}, "", "bloodraven", []string{"orders-a-jobs", "orders-app"}},
		"another instance":                    {[]Database{app}, "orders-web", "", nil},
		"another group":                       {[]Database{database("bloodraven", "orders-app", "users", client)}, "", "", nil},
		"no group":                            {[]Database{database("bloodraven", "orders-app", "", client)}, "", "", nil},
		"nobody declared":                     {[]Database{database("bloodraven", "orders-app", "orders")}, "", "", nil},
		"another account of the namespace":    {[]Database{database("bloodraven", "orders-app", "orders", Client{"application", "web"})}, "", "", nil},
		"same account of another namespace":   {[]Database{database("bloodraven", "orders-app", "orders", Client{"other", "deploy"})}, "", "", nil},
		"being deleted":                       {[]Database{deleted}, "", "", nil},
		"one of two being deleted":            {[]Database{deleted, jobs}, "", "bloodraven", []string{"orders-a-jobs"}},
		"deleted in another namespace":        {[]Database{elsewhere, deleted}, "", "staging", []string{"orders-app"}},
		"two namespaces":                      {[]Database{app, elsewhere}, "", "", nil},
		"two namespaces, three databases":     {[]Database{app, elsewhere, jobs}, "", "", nil},
		"two namespaces, same instance":       {[]Database{app, elsewhere}, "orders-app", "", nil},
		"two namespaces, told apart by name":  {[]Database{jobs, elsewhere}, "orders-a-jobs", "bloodraven", []string{"orders-a-jobs"}},
		"two namespaces, one declares others": {[]Database{app, database("staging", "orders-app", "orders", Client{"x", "y"})}, "", "bloodraven", []string{"orders-app"}},
	} {
		t.Run(name, func(t *testing.T) {
			namespace, instances, ok := Authorize(test.databases, "orders", test.instance, "application", "deploy")
			require.Equal(t, test.namespace, namespace)
			require.Equal(t, test.instances, instances)
			require.Equal(t, len(test.instances) > 0, ok)
		})
	}
	_, _, ok := Authorize([]Database{database("bloodraven", "orders-app", "", client)}, "", "", "application", "deploy")
	require.False(t, ok, "no group is no group")
	require.False(t, database("a", "b", "c", Client{}).Allows("", ""))
}
