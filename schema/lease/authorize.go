package lease

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Database is what slipway reads of a MysqlDatabase.
type Database struct {
	// Name of the resource, which is the instance of a lease.
	Namespace, Name string
	// Group is spec.groupRef.name; the group is in the database's namespace.
	Group string
	// Clients are spec.deploymentClients, keyed by namespace.
	Clients  []Client
	Deleting bool
}

// Client is a ServiceAccount that may coordinate deployments.
type Client struct {
	Namespace      string `json:"namespace"`
	ServiceAccount string `json:"serviceAccount"`
}

// ParseDatabase reads the JSON of a MysqlDatabase. Members that slipway does not
// read may be anything; one that it does read and that has another type is an error.
func ParseDatabase(raw []byte) (Database, error) {
	var object struct {
		Metadata metadata `json:"metadata"`
		Spec     struct {
			GroupRef struct {
				Name string `json:"name"`
			} `json:"groupRef"`
			DeploymentClients []Client `json:"deploymentClients"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return Database{}, fmt.Errorf("read MysqlDatabase: %w", err)
	}
	if !ValidName(object.Metadata.Name) || !ValidNamespace(object.Metadata.Namespace) {
		return Database{}, fmt.Errorf("read MysqlDatabase: no name or no namespace")
	}
	return Database{
		Namespace: object.Metadata.Namespace, Name: object.Metadata.Name, Group: object.Spec.GroupRef.Name,
		Clients: object.Spec.DeploymentClients, Deleting: object.Metadata.DeletionTimestamp != nil,
	}, nil
}

// Allows says whether the database declares the ServiceAccount as a client.
func (d Database) Allows(namespace, serviceAccount string) bool {
	return namespace != "" && serviceAccount != "" &&
		slices.Contains(d.Clients, Client{Namespace: namespace, ServiceAccount: serviceAccount})
}

// Authorize decides whether the ServiceAccount may ask about the group, from all
// MysqlDatabases of the cluster: one that is not being deleted, refers to a group
// of that name, has the name instance (unless that is empty) and declares the
// caller. It returns the namespace of the group and the names of the databases
// that allow it, sorted. Databases in more than one namespace do not say which
// group is meant, and so allow nothing.
func Authorize(databases []Database, group, instance, namespace, serviceAccount string) (groupNamespace string, instances []string, ok bool) {
	for _, database := range databases {
		if database.Deleting || group == "" || database.Group != group ||
			instance != "" && database.Name != instance || !database.Allows(namespace, serviceAccount) {
			continue
		}
		if len(instances) > 0 && database.Namespace != groupNamespace {
			return "", nil, false
		}
		groupNamespace = database.Namespace
		instances = append(instances, database.Name)
	}
	slices.Sort(instances)
	return groupNamespace, instances, len(instances) > 0
}
