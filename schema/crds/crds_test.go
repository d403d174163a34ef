package crds

import (
	"io/fs"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

type definition struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		Group, Scope string
		Names        struct {
			Kind, Plural string
			ShortNames   []string `yaml:"shortNames"`
		}
		Versions []struct {
			Name            string
			Served, Storage bool
			Subresources    map[string]any
			Schema          struct {
				OpenAPI property `yaml:"openAPIV3Schema"`
			}
		}
	}
}

type property struct {
	Type       string
	Preserve   bool     `yaml:"x-kubernetes-preserve-unknown-fields"`
	ListType   string   `yaml:"x-kubernetes-list-type"`
	ListKeys   []string `yaml:"x-kubernetes-list-map-keys"`
	Required   []string
	Properties map[string]property
	Items      *property
}

func load(t *testing.T, name string) definition {
	t.Helper()
	raw, err := Files.ReadFile(name)
	require.NoError(t, err)
	var read definition
	require.NoError(t, yaml.Unmarshal(raw, &read))
	return read
}

func TestDefinitions(t *testing.T) {
	names, err := fs.Glob(Files, "*.yaml")
	require.NoError(t, err)
	require.Equal(t, []string{"mysqldatabases.shipstream.io.yaml", "mysqlfailovergroups.shipstream.io.yaml"}, names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			crd := load(t, name)
			require.Equal(t, "apiextensions.k8s.io/v1", crd.APIVersion)
			require.Equal(t, "CustomResourceDefinition", crd.Kind)
			require.Equal(t, crd.Metadata.Name, crd.Spec.Names.Plural+"."+crd.Spec.Group)
			require.Equal(t, name, crd.Metadata.Name+".yaml")
			require.Equal(t, "shipstream.io", crd.Spec.Group)
			require.Equal(t, "Namespaced", crd.Spec.Scope)
			require.Len(t, crd.Spec.Versions, 1)
			version := crd.Spec.Versions[0]
			require.Equal(t, "v1alpha1", version.Name)
			require.True(t, version.Served && version.Storage)
			require.Contains(t, version.Subresources, "status")
			for _, part := range []string{"spec", "status"} {
				require.True(t, version.Schema.OpenAPI.Properties[part].Preserve, "%s drops what it does not know", part)
			}
			structural(t, "", version.Schema.OpenAPI)
		})
	}
}

// structural checks what the API server refuses a definition for, and that no
// object of the operator's loses fields.
func structural(t *testing.T, path string, p property) {
	t.Helper()
	require.NotEmpty(t, p.Type, path)
	if p.Type == "array" {
		require.NotNil(t, p.Items, path)
		for _, key := range p.ListKeys {
			require.Contains(t, p.Items.Required, key, path)
		}
		structural(t, path+"[]", *p.Items)
	}
	known := []string{"", ".metadata", ".spec.deploymentClients[]"}
	if p.Type == "object" && !slices.Contains(known, path) {
		require.True(t, p.Preserve, "%s drops what it does not know", path)
	}
	for name, child := range p.Properties {
		structural(t, path+"."+name, child)
	}
}

func TestDeploymentClientsAreKeyedByNamespace(t *testing.T) {
	crd := load(t, "mysqldatabases.shipstream.io.yaml")
	clients := crd.Spec.Versions[0].Schema.OpenAPI.Properties["spec"].Properties["deploymentClients"]
	require.Equal(t, "map", clients.ListType)
	require.Equal(t, []string{"namespace"}, clients.ListKeys)
	require.ElementsMatch(t, []string{"namespace", "serviceAccount"}, clients.Items.Required)
}

func TestShortNameOfGroups(t *testing.T) {
	require.Equal(t, []string{"mfg"}, load(t, "mysqlfailovergroups.shipstream.io.yaml").Spec.Names.ShortNames)
}
