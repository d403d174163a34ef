// Command containerlint is BuildKit's linter of container files, the one behind
// `docker build --check`, without an engine: it prints what is wrong with a file,
// and ends with 1 where that is anything. Bases are not fetched; each is taken
// for an image without a configuration of its own. It is a module of its own,
// because BuildKit is a large dependency; the tests start it as a process.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/opencontainers/go-digest"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: containerlint <container file>")
		os.Exit(2)
	}
	clean, err := lint(context.Background(), os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "containerlint:", err)
		os.Exit(2)
	}
	if !clean {
		os.Exit(1)
	}
}

// lint prints what is wrong with a file, and says whether that is nothing.
func lint(ctx context.Context, path string) (clean bool, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	source := llb.NewSourceMap(nil, path, "Dockerfile", text)
	source.Definition = &llb.Definition{} // of how an engine would get the file
	results, err := dockerfile2llb.DockerfileLint(ctx, text, dockerfile2llb.ConvertOpt{SourceMap: source, MetaResolver: anyBase{}})
	if err != nil {
		return false, err
	}
	if err := results.PrintTo(os.Stdout, nil); err != nil {
		return false, err
	}
	results.PrintErrorTo(os.Stdout, nil)
	return len(results.Warnings) == 0 && results.Error == nil, nil
}

// anyBase answers for every base.
type anyBase struct{}

func (anyBase) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	config := []byte(`{"architecture":"amd64","os":"linux","config":{},"rootfs":{"type":"layers"}}`)
	return ref, digest.FromBytes(config), config, nil
}
