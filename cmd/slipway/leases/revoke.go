package leases

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/cmd/slipway/exit"
	"slipway.dev/slipway/schema/lease"
	"slipway.dev/slipway/schema/wire"
)

// Revoker has the workflow of a lease revoke it; coordination.Temporal is one.
type Revoker interface {
	Revoke(ctx context.Context, ref wire.LeaseRef, reason lease.Reason) error
}

// Connect makes a Revoker, and what closes it.
type Connect func() (revoker Revoker, closer func(), err error)

func revokeCommand(connect Connect) *cobra.Command {
	var ref wire.LeaseRef
	timeout := 15 * time.Second
	c := &cobra.Command{
		Use:   "revoke --namespace <namespace> --group <group> --operation-id <id> [--kind <kind>]",
		Short: "Revoke a lease for ever, whoever holds it",
		Long: `Revokes a lease. Its holder learns so from its next renewal (operator_revoked) and
has to stop; the same operation never gets a lease of this kind again. Where the
workflow of the lease was ended, another one is started for this.

It returns when Temporal has the request; the leader carries it out. To revoke all
leases of a group, annotate it instead, which needs no Temporal:
  kubectl annotate mfg <group> bloodraven.shipstream.io/revoke-deployment-leases=<why>

The address and the credentials of Temporal come from its own variables
(TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_…),
its API key from SLIPWAY_TEMPORAL_API_KEY_FILE where there is one, and the keys of
encrypted histories from SLIPWAY_CODEC_KEYS_FILE.

` + exitCodesOfRevoke,
		Example: `  slipway lease revoke --namespace shop --group orders --operation-id 11111111-1111-4111-8111-111111111111`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := check(ref); err != nil {
				return err
			}
			revoker, closer, err := connect()
			if err != nil {
				return err
			}
			defer closer()
			ctx, cancel := context.WithTimeout(c.Context(), timeout)
			defer cancel()
			err = revoker.Revoke(ctx, ref, lease.ReasonOperatorRevoked)
			if exit.TemporalAway(err) {
				return exit.With(exit.Away, fmt.Errorf("no answer from Temporal (--timeout %s), and the lease may not be revoked: %w", timeout, err))
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "The %s lease of operation %q on %s/%s is being revoked by the workflow %s.\n",
				ref.Kind, ref.OperationID, ref.Namespace, ref.Group, wire.LeaseID(ref))
			return err
		},
	}
	flags := c.Flags()
	flags.StringVarP(&ref.Namespace, "namespace", "n", "", "namespace of the group")
	flags.StringVarP(&ref.Group, "group", "g", "", "name of the MysqlFailoverGroup")
	flags.StringVar((*string)(&ref.Kind), "kind", string(lease.KindMigration), "migration or failover-hold")
	flags.StringVar(&ref.OperationID, "operation-id", "", "the operation that holds the lease")
	flags.DurationVar(&timeout, "timeout", timeout, "how long to wait for Temporal")
	return c
}

func check(ref wire.LeaseRef) error {
	switch _, kind := lease.ParseKind(string(ref.Kind)); {
	case !lease.ValidNamespace(ref.Namespace):
		return exit.Misuse("--namespace is needed: the namespace of the MysqlFailoverGroup, not %q", ref.Namespace)
	case !lease.ValidName(ref.Group):
		return exit.Misuse("--group is needed: the name of a MysqlFailoverGroup, not %q", ref.Group)
	case !kind:
		return exit.Misuse("--kind is migration or failover-hold, not %q", ref.Kind)
	case !lease.ValidOperation(ref.OperationID):
		return exit.Misuse("--operation-id is needed: 1 to 128 bytes without control characters")
	}
	return nil
}
