package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"slipway.dev/slipway/worker/codec"
)

// apiKeyFileVariable names the file with the API key of Temporal, also for
// commands that read no other setting.
const apiKeyFileVariable = "SLIPWAY_TEMPORAL_API_KEY_FILE"

// commandClient is the client of a command that has no configuration but
// environment variables.
func commandClient() (client.Client, error) {
	payloads, err := readCodec(os.Getenv(codecKeysVariable))
	if err != nil {
		return nil, err
	}
	t, _, err := temporalClient(payloads, os.Getenv(apiKeyFileVariable), zap.NewNop())
	return t, err
}

// temporalClient makes a client from Temporal's own variables, and the file of
// its API key if there is one. It connects when it is first used. What changes
// of the files that hold its credentials is used without a restart.
func temporalClient(payloads *codec.Codec, apiKeyFile string, log *zap.Logger, adjust ...func(*client.Options)) (client.Client, string, error) {
	profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("read the TEMPORAL_ variables: %w", err)
	}
	readKey := func(context.Context) (string, error) { return readAPIKey(apiKeyFile) }
	if apiKeyFile != "" {
		if profile.APIKey != "" {
			return nil, "", fmt.Errorf("TEMPORAL_API_KEY and %s are both set; give one", apiKeyFileVariable)
		}
		// Turns TLS on too.
		if profile.APIKey, err = readKey(context.Background()); err != nil {
			return nil, "", err
		}
	}
	options, err := profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
	if err != nil {
		return nil, "", fmt.Errorf("read the TEMPORAL_ variables: %w", err)
	}
	if apiKeyFile != "" {
		options.Credentials = client.NewAPIKeyDynamicCredentials(readKey)
	}
	if connection := &options.ConnectionOptions; connection.TLS != nil {
		connection.DialOptions = append(connection.DialOptions,
			grpc.WithTransportCredentials(currentTLS{credentials.NewTLS(connection.TLS), profile}))
	}
	if options.Namespace == "" {
		options.Namespace = client.DefaultNamespace
	}
	payloads.Apply(&options)
	options.Logger = temporalLogger{log.WithOptions(zap.AddCallerSkip(1)).Sugar()}
	for _, f := range adjust {
		f(&options)
	}
	t, err := client.NewLazyClient(options)
	if err != nil {
		return nil, "", fmt.Errorf("make the client of Temporal: %w", err)
	}
	return t, options.Namespace, nil
}

func readAPIKey(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", apiKeyFileVariable, err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", fmt.Errorf("%s: %s is empty", apiKeyFileVariable, file)
	}
	return key, nil
}

// currentTLS reads the files of a profile (certificate, key, authority) for each
// connection. While they cannot be read, or do not fit in the middle of a
// change, gRPC tries again.
type currentTLS struct {
	credentials.TransportCredentials // from the start
	profile                          envconfig.ClientConfigProfile
}

func (c currentTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	options, err := c.profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(options.ConnectionOptions.TLS).ClientHandshake(ctx, authority, conn)
}

func (c currentTLS) Clone() credentials.TransportCredentials { return c }

// temporalLogger gives the SDK's lines to zap.
type temporalLogger struct{ *zap.SugaredLogger }

func (l temporalLogger) Debug(msg string, keyvals ...any) { l.Debugw(msg, keyvals...) }
func (l temporalLogger) Info(msg string, keyvals ...any)  { l.Infow(msg, keyvals...) }
func (l temporalLogger) Warn(msg string, keyvals ...any)  { l.Warnw(msg, keyvals...) }
func (l temporalLogger) Error(msg string, keyvals ...any) { l.Errorw(msg, keyvals...) }
