package bao_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/openbao/openbao/api/v2"
	"github.com/stretchr/testify/require"

	"slipway.dev/slipway/cmd/slipway-dev/bao"
	"slipway.dev/slipway/cmd/slipway-dev/ports"
)

func options(t *testing.T) bao.Options {
	t.Helper()
	program, err := bao.Find(os.Getenv("BAO_BIN"), "../../../bin/kvserver")
	require.NoError(t, err)
	free, err := ports.Free(1)
	require.NoError(t, err)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(func() {
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			lines := strings.Split(string(text), "\n")
			t.Log(strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
		require.NoError(t, log.Close())
	})
	return bao.Options{Folder: filepath.Join(t.TempDir(), "bao"), Program: program, Output: log, Listen: ports.Use{For: "secrets", Port: free[0], Choose: "--bao-port"}}
}

func as(t *testing.T, s *bao.Server, token string) *api.Client {
	t.Helper()
	client, err := s.Root()
	require.NoError(t, err)
	client.SetToken(token)
	return client
}

// TestServer is one story, since every start takes a second.
func TestServer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	o := options(t)
	s, err := bao.Start(ctx, o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	for range 2 {
		require.NoError(t, s.Setup(ctx, nil), "it may be repeated")
	}
	require.ErrorContains(t, s.StartProcess(ctx), "runs already")
	_, err = bao.Start(ctx, o)
	require.ErrorContains(t, err, "a server runs on")

	root, err := s.Root()
	require.NoError(t, err)
	token, err := bao.Token(ctx, root, bao.TokenOptions{Policies: []string{bao.Name}, Period: bao.TokenTime})
	require.NoError(t, err)
	const path = "secret/data/deployments/one/secret/forum-operator-secrets/key"
	_, err = as(t, s, token).Logical().WriteWithContext(ctx, path, map[string]any{"data": map[string]any{"value": "v"}})
	require.NoError(t, err)
	self, err := as(t, s, token).Auth().Token().LookupSelfWithContext(ctx)
	require.NoError(t, err)
	require.Equal(t, []any{bao.Name}, self.Data["policies"])
	require.Equal(t, true, self.Data["renewable"])
	_, err = as(t, s, "").Logical().ReadWithContext(ctx, path)
	require.Error(t, err, "a stranger")

	roleID, secretID, err := bao.AppRole(ctx, root, bao.Name)
	require.NoError(t, err)
	login, err := as(t, s, "").Logical().WriteWithContext(ctx, "auth/approle/login", map[string]any{"role_id": roleID, "secret_id": secretID})
	require.NoError(t, err)
	require.Equal(t, []string{bao.Name}, login.Auth.Policies)

	require.NoError(t, s.Seal(ctx))
	_, err = as(t, s, token).Logical().ReadWithContext(ctx, path)
	require.ErrorContains(t, err, "sealed")
	require.NoError(t, s.Unseal(ctx))
	s.Kill()
	require.NoError(t, s.StartProcess(ctx))
	read, err := as(t, s, token).Logical().ReadWithContext(ctx, path)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"value": "v"}, read.Data["data"])

	pid := s.PID()
	arguments, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	require.NoError(t, err)
	environment, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	require.NoError(t, err)
	for _, secret := range []string{root.Token(), token} {
		require.NotContains(t, string(arguments)+string(environment), secret)
	}
	s.Close()
	require.Equal(t, syscall.ESRCH, syscall.Kill(pid, 0))

	t.Run("Run goes on with the folder", func(t *testing.T) { goesOn(t, o, path) })
}

// goesOn is Run on the folder of an earlier server.
func goesOn(t *testing.T, o bao.Options, path string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- bao.Run(ctx, o, nil, func() error {
			close(ready)
			return nil
		})
	}()
	select {
	case <-ready:
	case err := <-done:
		require.NoError(t, err, "it did not start")
	}
	for _, name := range []string{"token", "nodes-token", "role-id", "secret-id", "init.json", "server.hcl"} {
		info, err := os.Stat(filepath.Join(o.Folder, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
	token, err := os.ReadFile(filepath.Join(o.Folder, "token"))
	require.NoError(t, err)
	config := api.NewConfig()
	config.Address = "http://" + ports.Address(o.Listen.Port)
	client, err := api.NewClient(config)
	require.NoError(t, err)
	client.SetToken(strings.TrimSpace(string(token)))
	read, err := client.Logical().ReadWithContext(ctx, path)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"value": "v"}, read.Data["data"])

	token, err = os.ReadFile(filepath.Join(o.Folder, "nodes-token"))
	require.NoError(t, err)
	client.SetToken(strings.TrimSpace(string(token)))
	read, err = client.Logical().ReadWithContext(ctx, path)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"value": "v"}, read.Data["data"])
	_, err = client.Logical().WriteWithContext(ctx, path, map[string]any{"data": map[string]any{"value": "w"}})
	require.ErrorContains(t, err, "permission denied", "a node only reads")
	_, err = client.Logical().ListWithContext(ctx, strings.Replace(filepath.Dir(path), "/data/", "/metadata/", 1))
	require.ErrorContains(t, err, "permission denied")
	cancel()
	require.NoError(t, <-done)
	require.NoError(t, ports.Check([]ports.Use{o.Listen}))
}

func TestFind(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	built, given, installed := filepath.Join(folder, "kvserver"), filepath.Join(folder, "given"), filepath.Join(folder, "bao")
	_, err := bao.Find("", built)
	require.ErrorContains(t, err, "install OpenBao (bao), set BAO_BIN, or run `make kvserver`")
	for _, path := range []string{built, given, installed} {
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho the reason\nexit 3\n"), 0o755))
		if path == built {
			found, err := bao.Find("", built)
			require.NoError(t, err)
			require.Equal(t, built, found)
		}
	}
	found, err := bao.Find("", built)
	require.NoError(t, err)
	require.Equal(t, installed, found)
	found, err = bao.Find(given, built)
	require.NoError(t, err)
	require.Equal(t, given, found)
	_, err = bao.Find(filepath.Join(folder, "nowhere"), built)
	require.True(t, errors.Is(err, os.ErrNotExist), err)
}

func TestAServerThatDoesNotStartSaysWhy(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Program = filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(o.Program, []byte("#!/bin/sh\necho the reason\nexit 3\n"), 0o755))
	_, err := bao.Start(t.Context(), o)
	require.ErrorContains(t, err, "the secrets server did not start: exit status 3\n")
	require.ErrorContains(t, err, "\nthe reason\n")
	require.NoError(t, ports.Check([]ports.Use{o.Listen}))
}
