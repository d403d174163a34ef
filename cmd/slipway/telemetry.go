package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.uber.org/zap"
)

// flushTime bounds sending the last spans of a process that ends.
const flushTime = 5 * time.Second

// temporalMetrics gives the metrics of Temporal's SDK to registerer: workflows,
// activities, slots and requests, as temporal_….
func temporalMetrics(registerer prometheus.Registerer, log *zap.Logger) (client.MetricsHandler, error) {
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registerer),
		otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("register the metrics of Temporal's SDK: %w", err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithView(sdkmetric.NewView(
		sdkmetric.Instrument{Kind: sdkmetric.InstrumentKindHistogram},
		// Seconds: those of the SDK are from milliseconds to a deploy of an hour.
		sdkmetric.Stream{Aggregation: sdkmetric.AggregationExplicitBucketHistogram{
			Boundaries: []float64{.005, .025, .1, .5, 1, 5, 15, 60, 300, 1200, 3600},
		}},
	)))
	return opentelemetry.NewMetricsHandler(opentelemetry.MetricsHandlerOptions{
		Meter: provider.Meter("temporal-sdk-go"), UseMonotonicCounters: true,
		OnError: func(err error) { log.Warn("a metric of Temporal's SDK", zap.Error(err)) },
	}), nil
}

// tracing sends spans by OTLP where OpenTelemetry's own variables name an
// endpoint (OTEL_EXPORTER_OTLP_ENDPOINT or …_TRACES_ENDPOINT), and else makes
// none: the tracer is nil. A collector that is away costs spans and nothing
// else. stop sends what is left.
func tracing(ctx context.Context, log *zap.Logger) (tracer trace.Tracer, stop func(), err error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return nil, func() {}, nil
	}
	// Its own way would be lines that are no JSON.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("OpenTelemetry", zap.Error(err)) }))
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("send traces (the OTEL_ variables): %w", err)
	}
	// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "slipway")), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("read the OTEL_ variables: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return provider.Tracer("slipway.dev/slipway"), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last spans were not sent", zap.Error(err))
		}
	}, nil
}

// observed adds metrics and, where there is a tracer, spans to a client of
// Temporal and to the workers that use it.
func observed(registerer prometheus.Registerer, tracer trace.Tracer, log *zap.Logger) (func(*client.Options), error) {
	metrics, err := temporalMetrics(registerer, log)
	if err != nil {
		return nil, err
	}
	if tracer == nil {
		return func(o *client.Options) { o.MetricsHandler = metrics }, nil
	}
	// Without baggage: what a browser sends would end up in histories.
	spans, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{
		Tracer: tracer, TextMapPropagator: propagation.TraceContext{}, DisableBaggage: true, AllowInvalidParentSpans: true,
	})
	if err != nil {
		return nil, fmt.Errorf("trace workflows: %w", err)
	}
	return func(o *client.Options) {
		o.MetricsHandler = metrics
		o.Interceptors = append(o.Interceptors, spans)
	}, nil
}
