package temporalserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"slipway.dev/slipway/schema/wire"
)

// prepareNamespace makes the namespace and registers the search attributes
// where they are absent, and waits until queries accept them.
func prepareNamespace(ctx context.Context, address string) error {
	c, err := client.DialContext(ctx, client.Options{HostPort: address, Namespace: Namespace})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace: Namespace, WorkflowExecutionRetentionPeriod: durationpb.New(Retention),
	})
	if exists := (*serviceerror.NamespaceAlreadyExists)(nil); err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("namespace %s: %w", Namespace, err)
	}
	for {
		err := registerAttributes(ctx, c)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func searchAttributes() map[string]enumspb.IndexedValueType {
	return map[string]enumspb.IndexedValueType{
		wire.AttributeDeployment: enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		wire.AttributeGroup:      enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		wire.AttributeLeaseKind:  enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		wire.AttributeBuild:      enumspb.INDEXED_VALUE_TYPE_INT,
	}
}

// registerAttributes is tried again until it succeeds: the services see a new
// namespace, and new attributes, only after their caches were refreshed.
func registerAttributes(ctx context.Context, c client.Client) error {
	listed, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: Namespace})
	if err != nil {
		return fmt.Errorf("list search attributes: %w", err)
	}
	missing := make(map[string]enumspb.IndexedValueType)
	query := ""
	for name, kind := range searchAttributes() {
		if _, there := listed.GetCustomAttributes()[name]; !there {
			missing[name] = kind
		}
		if query != "" {
			query += " AND "
		}
		query += name + " IS NULL"
	}
	if len(missing) > 0 {
		_, err := c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
			Namespace: Namespace, SearchAttributes: missing,
		})
		if err != nil {
			return fmt.Errorf("add search attributes: %w", err)
		}
	}
	if _, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: Namespace, Query: query}); err != nil {
		return fmt.Errorf("query by search attributes: %w", err)
	}
	return nil
}
