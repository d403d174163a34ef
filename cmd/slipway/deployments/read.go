package deployments

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/api/client"
	"slipway.dev/slipway/cmd/slipway/exit"
	"slipway.dev/slipway/schema/deployment"
)

func (c *cli) list() *cobra.Command {
	return &cobra.Command{
		Use:   "list <id>…",
		Short: "Show several deployments, one a line",
		Long: `Show the deployments with these identifiers, one a line.

The API has no list of all deployments: it does not know which of them belong
together, or to whom. So the identifiers are yours to give, at most 10,000.
One that does not exist, or that the token may not read, is left out, and named
on standard error.`,
		Example: `  slipway deployments list example shop
  slipway deployments list $(cat my-deployments) -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Misuse("list takes the identifiers to list: the API has no list of all deployments, because it does not know whose they are")
			}
			return ids(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, false, "the API", func(ctx context.Context, api *client.Client, out *console) error {
				found, err := api.List(ctx, args)
				if err != nil {
					return err
				}
				if out.json {
					err = out.document(map[string]any{"deployments": append([]deployment.Deployment{}, found...)})
				} else {
					out.deployments(found)
				}
				missing := slices.DeleteFunc(slices.Clone(args), func(id string) bool {
					return slices.ContainsFunc(found, func(d deployment.Deployment) bool { return d.ID == id })
				})
				if len(missing) > 0 {
					out.note("unknown, or not for this token: %s", strings.Join(missing, " "))
				}
				return err
			})
		},
	}
}

func (c *console) deployments(found []deployment.Deployment) {
	if len(found) == 0 {
		return
	}
	rows := make([][]string, len(found))
	for i, d := range found {
		latest := ""
		if b := d.LatestBuild; b != nil {
			latest = fmt.Sprintf("%d %s %s", b.Number, b.Action, b.Status)
		}
		rows[i] = []string{d.ID, string(d.State), c.when(d.Since), live(d.Live), latest, short(cell(d.Reason), maxCell)}
	}
	c.table([]string{"DEPLOYMENT", "STATE", "SINCE", "LIVE", "LATEST BUILD", "REASON"}, rows)
}

func live(build *int64) string {
	if build == nil {
		return ""
	}
	return strconv.FormatInt(*build, 10)
}

// maxBuilds is how many builds the API gives at once.
const maxBuilds = 100

func (c *cli) show() *cobra.Command {
	var builds int
	cmd := &cobra.Command{
		Use:   "show <id>",
		Short: "Show a deployment, what it serves, its nodes and its builds",
		Long: `Show the state of a deployment, the instances that it serves with their URLs,
its nodes with their DNS names, and its newest builds.

DEPLOYED is where an instance answers now, by the last build that succeeded;
SUBMITTED is where it will by the last submit.

LIVE is the build whose infrastructure is up; a deploy that fails over a live
one leaves the older number there. With -o json the configuration of the last
submit is shown too, without secret values.`,
		Example: `  slipway deployments show example
  slipway deployments show example --builds 20
  slipway deployments show example -o json`,
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if builds < 0 || builds > maxBuilds {
				return exit.Misuse("--builds is from 0 to %d", maxBuilds)
			}
			return c.run(cmd, false, "the API", func(ctx context.Context, api *client.Client, out *console) error {
				d, err := api.Get(ctx, args[0])
				if err != nil {
					return err
				}
				history := []deployment.Build{}
				if builds > 0 {
					if history, err = api.Builds(ctx, args[0], builds, 0); err != nil {
						return err
					}
				}
				if out.json {
					return out.document(struct {
						deployment.Deployment
						Builds []deployment.Build `json:"builds"`
					}{d, history})
				}
				out.deployment(d, history)
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&builds, "builds", 5, fmt.Sprintf("how many builds to show, at most %d", maxBuilds))
	return cmd
}

func (c *console) deployment(d deployment.Deployment, history []deployment.Build) {
	c.line("deployment  %s", cell(d.ID))
	c.line("state       %s", c.paint(cell(string(d.State))))
	c.line("since       %s", c.when(d.Since))
	if d.Reason != "" {
		c.line("reason      %s", strings.ReplaceAll(safe(strings.TrimSpace(d.Reason)), "\n", "\n            "))
	}
	if d.Live != nil {
		c.line("live        build %d", *d.Live)
	}
	if d.Domain != nil {
		c.line("domain      %s", cell(*d.Domain))
	}
	if d.Method != nil {
		c.line("method      %s", cell(*d.Method))
	}
	c.instances(d.Instances)
	if len(d.Nodes) > 0 {
		c.line("")
		c.nodes(d.Nodes)
	}
	if len(history) > 0 {
		rows := make([][]string, len(history))
		for i, b := range history {
			rows[i] = []string{strconv.FormatInt(b.Number, 10), string(b.Action), string(b.Status), c.when(b.CreatedAt), took(b), short(cell(reason(b)), maxCell)}
		}
		c.line("")
		c.table([]string{"BUILD", "ACTION", "STATUS", "CREATED", "TOOK", "REASON"}, rows)
	}
}

// reason is why a build ended so, and what became of its callback.
func reason(b deployment.Build) string {
	if b.Callback == nil || b.Callback.State == deployment.CallbackNone {
		return b.Reason
	}
	text := "callback " + string(b.Callback.State)
	if b.Callback.Status != 0 {
		text += fmt.Sprintf(" (%d)", b.Callback.Status)
	}
	if b.Callback.Reason != "" {
		text += ": " + b.Callback.Reason
	}
	if b.Reason != "" {
		text = b.Reason + "; " + text
	}
	return text
}

// instances shows what is deployed and what was submitted last, one a line.
func (c *console) instances(all deployment.Instances) {
	type row struct{ instance, deployed, submitted string }
	var rows []row
	add := func(i deployment.Instance, set func(r *row, page string)) {
		name := string(i.Kind) + " " + i.Name
		at := slices.IndexFunc(rows, func(r row) bool { return r.instance == name })
		if at < 0 {
			at, rows = len(rows), append(rows, row{instance: name})
		}
		set(&rows[at], page(i))
	}
	for _, i := range all.Submitted {
		add(i, func(r *row, page string) { r.submitted = page })
	}
	for _, i := range all.Deployed {
		add(i, func(r *row, page string) { r.deployed = page })
	}
	if len(rows) == 0 {
		return
	}
	cells := make([][]string, len(rows))
	for i, r := range rows {
		cells[i] = []string{cell(r.instance), r.deployed, r.submitted}
	}
	c.line("")
	c.table([]string{"INSTANCE", "DEPLOYED", "SUBMITTED"}, cells)
}

func page(i deployment.Instance) string {
	if i.URL == nil {
		return "no page"
	}
	return cell(*i.URL)
}

// took is how long a build ran.
func took(b deployment.Build) string {
	switch {
	case b.StartedAt == nil:
		return ""
	case b.FinishedAt == nil:
		return span(max(0, time.Since(*b.StartedAt))) + " so far"
	default:
		return span(b.FinishedAt.Sub(*b.StartedAt))
	}
}

func (c *cli) preview() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "preview <id> -f <file>",
		Short: "Check a configuration and show what it would stand up",
		Long: `Check and evaluate a configuration as a submit does, and show the nodes that it
would stand up. Nothing is stored or built. The file holds the configuration as
a JSON object; - is standard input.

An evaluation needs a free slot of the service: while all are in use the API
says that it is not available (exit code 5), and when to try again.`,
		Example: `  slipway deployments preview example -f deploy/source/example.json
  generate-configuration | slipway deployments preview example -f - -o json`,
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			configuration, err := readConfiguration(cmd, file)
			if err != nil {
				return err
			}
			return c.run(cmd, false, "the configuration is checked and evaluated", func(ctx context.Context, api *client.Client, out *console) error {
				p, err := api.Preview(ctx, args[0], configuration)
				if err != nil {
					return err
				}
				if out.json {
					return out.document(p)
				}
				out.line("%s is accepted: %s", args[0], count(len(p.Nodes), "node"))
				out.nodes(p.Nodes)
				if len(p.Instances) > 0 {
					rows := make([][]string, len(p.Instances))
					for i, instance := range p.Instances {
						rows[i] = []string{cell(string(instance.Kind) + " " + instance.Name), page(instance)}
					}
					out.line("")
					out.table([]string{"INSTANCE", "URL"}, rows)
				}
				if len(p.DisabledApplications) > 0 {
					out.line("disabled applications: %s", cell(strings.Join(p.DisabledApplications, ", ")))
				}
				if secrets := secretNames(p.SecretsSet); secrets != "" {
					out.line("secrets in the configuration: %s", cell(secrets))
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file with the configuration, - for standard input")
	return cmd
}

// secretNames writes the names of the secrets that a preview found.
func secretNames(byApplication map[string][]string) string {
	var names []string
	for _, application := range slices.Sorted(maps.Keys(byApplication)) {
		for _, field := range byApplication[application] {
			names = append(names, application+"."+field)
		}
	}
	return strings.Join(names, ", ")
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
