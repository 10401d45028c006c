package aws

import (
	"context"
	"errors"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const metricsNamespace, metricsSubsystem = "dovetail", "aws"

var (
	requests = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "requests_total",
		Help:           "Requests to AWS, each attempt counted separately, by service, action and error code (empty: success; Connection: there was no answer).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"service", "action", "code"})
	requestSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "request_duration_seconds",
		Help: "Time that AWS took to answer a request, by service and action.", StabilityLevel: metrics.ALPHA,
		Buckets: metrics.ExponentialBuckets(0.025, 2, 11),
	}, []string{"service", "action"})
	throttled = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "requests_throttled_total",
		Help: "Requests that AWS throttled, by service and action.", StabilityLevel: metrics.ALPHA,
	}, []string{"service", "action"})
	turnSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "turn_wait_seconds",
		Help: "Time that calls waited for the client-side rate limits, which stay below AWS's documented limits, by service and action.", StabilityLevel: metrics.ALPHA,
		Buckets: []float64{0.001, 0.1, 0.5, 1, 5, 15, 60, 300},
	}, []string{"service", "action"})
	launchSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "launch_duration_seconds",
		Help:           "Time from a launch call to its answer, including the wait for the client-side rate limit, by capacity type and outcome (full, partial, insufficient, throttled, refused, error).",
		StabilityLevel: metrics.ALPHA, Buckets: metrics.ExponentialBuckets(0.1, 2, 12),
	}, []string{"capacity_type", "outcome"})
	launchedInstances = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "instances_launched_total",
		Help: "Instances that were launched, by capacity type and zone. A launch that is repeated after a restart counts again.", StabilityLevel: metrics.ALPHA,
	}, []string{"capacity_type", "zone"})
	fleetErrorsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "fleet_errors_total",
		Help: "Errors in the answers of launch calls, with or without instances, by capacity type and error code.", StabilityLevel: metrics.ALPHA,
	}, []string{"capacity_type", "code"})
	exhaustedOffers = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "exhausted",
		Help: "Number of pools and wider scopes that are treated as having no capacity for now, by kind (pool, type, capacity-type, subnet, placement-group).", StabilityLevel: metrics.ALPHA,
	}, []string{"kind"})
	factsRefreshed = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "facts_refreshed_timestamp_seconds",
		Help: "When a part of the catalogue (types, zones, on-demand-prices, spot-prices) was last read, in seconds since 1970; 0: never.", StabilityLevel: metrics.ALPHA,
	}, []string{"part"})
	interruptionMessages = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "interruption_messages_total",
		Help: "Messages received from the interruption queue, by kind (other: not about an interruption; unknown: not understood). A message that is received again is counted again.", StabilityLevel: metrics.ALPHA,
	}, []string{"kind"})
	pricesEstimated = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "prices_estimated",
		Help: "1 while prices of a capacity type are estimated from instance sizes because none could be read.", StabilityLevel: metrics.ALPHA,
	}, []string{"capacity_type"})
)

func init() {
	legacyregistry.MustRegister(requests, requestSeconds, throttled, turnSeconds, launchSeconds, launchedInstances, fleetErrorsTotal,
		exhaustedOffers, factsRefreshed, pricesEstimated, interruptionMessages)
}

// noAnswer is the code of an attempt that AWS did not answer.
const noAnswer = "Connection"

// countRequest counts an attempt in the metrics.
func countRequest(service, action string, took time.Duration, err error) {
	c := code(err)
	if err != nil && c == "" {
		c = noAnswer
	}
	requests.WithLabelValues(service, action, c).Inc()
	requestSeconds.WithLabelValues(service, action).Observe(took.Seconds())
	if throttleCode(c) {
		throttled.WithLabelValues(service, action).Inc()
	}
}

// countLaunch counts a launch call in the metrics.
func countLaunch(w *capacity.LaunchBatch, res *capacity.LaunchResult, took time.Duration, err error) {
	outcome := "full"
	switch {
	case errors.Is(err, context.Canceled):
		return
	case errors.Is(err, capacity.ErrInsufficientCapacity):
		outcome = "insufficient"
	case errors.Is(err, capacity.ErrThrottled):
		outcome = "throttled"
	case errors.Is(err, capacity.ErrRefused):
		outcome = "refused"
	case err != nil:
		outcome = "error"
	case len(res.Instances) < len(w.Claims):
		outcome = "partial"
	}
	launchSeconds.WithLabelValues(w.CapacityType, outcome).Observe(took.Seconds())
	for i := range res.Instances {
		launchedInstances.WithLabelValues(res.Instances[i].CapacityType, res.Instances[i].Zone).Inc()
	}
}

// kind returns the kind of a scope, as metrics name it.
func (s scope) kind() string {
	switch {
	case s.subnet != "":
		return "subnet"
	case s.capacityType == "":
		return "placement-group"
	case s.instanceType == "":
		return "capacity-type"
	case s.zone == "":
		return "type"
	}
	return "pool"
}

// count sets the gauge of what counts as without capacity now: pools, types, capacity types, subnets and placement groups.
func (x *exhaustion) count() {
	n := map[string]int{"subnet": 0, "placement-group": 0, "capacity-type": 0, "type": 0, "pool": 0}
	for s := range x.until {
		n[s.kind()]++
	}
	for kind, k := range n {
		exhaustedOffers.WithLabelValues(kind).Set(float64(k))
	}
}

// partNames are the parts of the region data as metrics name them.
var partNames = map[string]string{partTypes: "types", partZones: "zones", partOnDemand: "on-demand-prices", partSpot: "spot-prices"}

func countRegionData(f *regionData, part string, refreshed time.Time) {
	if !refreshed.IsZero() {
		factsRefreshed.WithLabelValues(partNames[part]).Set(float64(refreshed.Unix()))
	}
	estimated := func(capacityType string, unknown bool) {
		v := 0.0
		if unknown && f.settled {
			v = 1
		}
		pricesEstimated.WithLabelValues(capacityType).Set(v)
	}
	estimated("on-demand", f.onDemand == nil)
	estimated("spot", f.spot == nil)
}
