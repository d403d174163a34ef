package deployments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/cmd/slipway/exit"
	"slipway.dev/slipway/schema/deployment"
)

func (c *cli) sbom() *cobra.Command {
	var node string
	var list, diff bool
	cmd := &cobra.Command{
		Use:   "sbom <id>",
		Short: "Get the SBOM of a node, or see what changed in it",
		Long: `Get the SBOM of a node: the CycloneDX document of the software that the deploy put
there, byte for byte as the deployer wrote it. Without --node it is that of the
only node; of a deployment with several the state of their SBOMs is listed.

The document goes to standard output, or with -o to a file, which is replaced
only once the document has come as a whole and its SHA-256 is right. On a
terminal, characters that would control it are made visible. A node whose SBOM is
not available is refused with the reason (exit code 4).

With --diff: the components that its last change added, removed and changed.
With -o json the list and the differences are JSON, as the document always is; a
file of the name json is ./json.`,
		Example: `  slipway deployments sbom example
  slipway deployments sbom example --node web -o web.cdx.json
  slipway deployments sbom example --node web | grype
  slipway deployments sbom example --node web --diff`,
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			file := ""
			switch {
			case c.output == "":
				return exit.Misuse(`--output is text, json or a file, not ""`)
			case c.output != "text" && c.output != "json":
				file, c.output = c.output, "text"
			}
			switch {
			case cmd.Flags().Changed("node") && node == "":
				return exit.Misuse("--node is empty")
			case list && (diff || node != ""):
				return exit.Misuse("--list comes without --node and --diff")
			case file != "" && (list || diff):
				return exit.Misuse("only a document goes to a file; --output is text or json here, not %q", file)
			}
			return c.run(cmd, false, "the API", func(ctx context.Context, api *client.Client, out *console) error {
				if diff {
					changes, err := api.SBOMDiff(ctx, args[0], node)
					if err != nil {
						return err
					}
					return out.diff(changes)
				}
				if node == "" {
					nodes, err := api.SBOMs(ctx, args[0])
					switch {
					case err != nil:
						return err
					case list, len(nodes) != 1 && file == "":
						return out.sboms(args[0], nodes)
					case len(nodes) != 1:
						return exit.Misuse("%s has %s: name one with --node", args[0], count(len(nodes), "node"))
					}
					node = nodes[0].Node
				}
				document, err := api.SBOM(ctx, args[0], node)
				if err != nil {
					return err
				}
				defer func() { _ = document.Close() }()
				if file != "" {
					return out.save(document, file)
				}
				_, terminal := c.terminal(out.out)
				return copyText(document, func(text string) {
					if terminal {
						text = safe(text)
					}
					out.print(text)
				})
			})
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "the node (default: the only one)")
	cmd.Flags().BoolVar(&list, "list", false, "list the state of the SBOM of each node, also where there is one")
	cmd.Flags().BoolVar(&diff, "diff", false, "show what changed against the SBOM that the node had before")
	// In the place of the flag of the other subcommands.
	cmd.Flags().StringVarP(&c.output, "output", "o", "text", "text, json, or the file that takes the document")
	return cmd
}

func (c *console) sboms(id string, nodes []deployment.NodeSBOM) error {
	if c.json {
		return c.document(map[string]any{"nodes": append([]deployment.NodeSBOM{}, nodes...)})
	}
	if len(nodes) == 0 {
		c.note("%s has no nodes: nothing was deployed yet, or it was destroyed", id)
		return nil
	}
	rows := make([][]string, len(nodes))
	for i, n := range nodes {
		when, components := "", ""
		if n.Time != nil {
			when = c.when(*n.Time)
		}
		if n.Components != nil {
			components = strconv.Itoa(*n.Components)
		}
		rows[i] = []string{n.Node, string(n.Status), live(n.Build), when, n.SpecVersion, components, short(cell(n.Reason), maxCell)}
	}
	c.table([]string{"NODE", "SBOM", "BUILD", "SINCE", "CYCLONEDX", "COMPONENTS", "REASON"}, rows)
	return nil
}

func (c *console) diff(d deployment.SBOMDiff) error {
	if c.json {
		return c.document(d)
	}
	c.line("%s: build %d against build %d: %d added, %d removed, %d changed", cell(d.Node), d.Build, d.Before,
		len(d.Added), len(d.Removed), len(d.Changed))
	var rows [][]string
	for _, a := range d.Added {
		rows = append(rows, []string{"added", a.Name, "", a.Version})
	}
	for _, r := range d.Removed {
		rows = append(rows, []string{"removed", r.Name, r.Version, ""})
	}
	for _, x := range d.Changed {
		rows = append(rows, []string{"changed", x.Name, x.Before.Version, x.Version})
	}
	if len(rows) > 0 {
		c.table([]string{"CHANGE", "COMPONENT", "BEFORE", "NOW"}, rows)
	}
	return nil
}

// save writes a document to a file as a whole or not at all. What is no file,
// such as a pipe, is written as it comes.
func (c *console) save(document io.Reader, path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return exit.Misuse("%s is a folder", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return exit.Misuse("output: %v", err)
	}
	target, whole := path, err != nil || info.Mode().IsRegular()
	flags := os.O_WRONLY
	if whole {
		// The file behind a link is replaced, not the link.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		target, flags = fmt.Sprintf("%s.%d.part", path, os.Getpid()), os.O_WRONLY|os.O_CREATE|os.O_EXCL
	}
	file, err := os.OpenFile(target, flags, 0o666)
	if err != nil {
		return exit.Misuse("output: %v", err)
	}
	size, err := io.Copy(file, document)
	if closed := file.Close(); err == nil && closed != nil {
		err = fmt.Errorf("output: %w", closed)
	}
	if whole {
		if err == nil {
			err = os.Rename(target, path)
		}
		if err != nil {
			_ = os.Remove(target)
		}
	}
	if err == nil {
		c.note("wrote %s, %s", strings.TrimSpace(safe(path)), count(int(size), "byte"))
	}
	return err
}
