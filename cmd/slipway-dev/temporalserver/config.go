package temporalserver

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	"gopkg.in/yaml.v3"

	"slipway.dev/slipway/cmd/slipway-dev/ports"
)

// configFile is what a configuration file holds.
type configFile struct {
	config.Config `yaml:",inline"`
	// DynamicConfig is in the format of the server's dynamic configuration
	// files.
	DynamicConfig yaml.Node `yaml:"dynamicConfig"`
}

// settings is a configuration with the ports and the database filled in.
type settings struct {
	config  *config.Config
	dynamic dynamicconfig.StaticClient
	hosts   map[primitives.ServiceName]static.Hosts
}

// load reads a configuration file. A key that is unknown, also one of the
// dynamic configuration, is an error.
func load(options Options) (settings, error) {
	content, err := os.ReadFile(options.ConfigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return settings{}, fmt.Errorf("%w; it is at the top of the repository: run from there, or say where it is", err)
	}
	if err != nil {
		return settings{}, err
	}
	var file configFile
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		return settings{}, fmt.Errorf("%s: %w", options.ConfigFile, err)
	}
	dynamic, err := loadDynamic(file.DynamicConfig)
	if err != nil {
		return settings{}, fmt.Errorf("%s: dynamicConfig: %w", options.ConfigFile, err)
	}
	s := settings{config: &file.Config, dynamic: dynamic}
	if err := s.fill(options); err != nil {
		return settings{}, fmt.Errorf("%s: %w", options.ConfigFile, err)
	}
	return s, nil
}

func loadDynamic(node yaml.Node) (dynamicconfig.StaticClient, error) {
	if node.IsZero() {
		return dynamicconfig.StaticClient{}, nil
	}
	text, err := yaml.Marshal(&node)
	if err != nil {
		return nil, err
	}
	loaded := dynamicconfig.LoadYamlFile(text)
	if err := errors.Join(append(loaded.Errors, loaded.Warnings...)...); err != nil {
		return nil, err
	}
	client := make(dynamicconfig.StaticClient, len(loaded.Map))
	for key, values := range loaded.Map {
		client[key] = values
	}
	return client, nil
}

// fill puts in the ports and the database file.
func (s *settings) fill(options Options) error {
	database, err := filepath.Abs(options.Database)
	if err != nil {
		return err
	}
	stores := s.config.Persistence
	for name, file := range map[string]string{
		stores.DefaultStore:    database,
		stores.VisibilityStore: visibilityFile(database),
	} {
		store, there := stores.DataStores[name]
		if !there || store.SQL == nil {
			return fmt.Errorf("there is no data store %q with a section sql", name)
		}
		// A copy: the stores may share one section by a YAML alias.
		section := *store.SQL
		section.DatabaseName = file
		section.ConnectAttributes = maps.Clone(section.ConnectAttributes)
		store.SQL = &section
		stores.DataStores[name] = store
	}

	internal, err := ports.Free(len(s.config.Services) - 1)
	if err != nil {
		return err
	}
	s.hosts = make(map[primitives.ServiceName]static.Hosts, len(s.config.Services))
	for name, service := range s.config.Services {
		port := options.Port
		if name != string(primitives.FrontendService) {
			if len(internal) == 0 {
				return fmt.Errorf("there is no service %s", primitives.FrontendService)
			}
			port, internal = internal[0], internal[1:]
		}
		service.RPC.GRPCPort = port
		service.RPC.BindOnLocalHost, service.RPC.BindOnIP = false, ports.Host
		s.config.Services[name] = service
		s.hosts[primitives.ServiceName(name)] = static.SingleLocalHost(ports.Address(port))
	}
	s.config.PublicClient.HostPort = ports.Address(options.Port)
	for name, cluster := range s.config.ClusterMetadata.ClusterInformation {
		cluster.RPCAddress = ports.Address(options.Port)
		s.config.ClusterMetadata.ClusterInformation[name] = cluster
	}
	return nil
}

// visibilityFile is the file with what the lists of workflows show, beside the
// one with the workflows.
func visibilityFile(database string) string {
	extension := filepath.Ext(database)
	return strings.TrimSuffix(database, extension) + ".visibility" + extension
}
