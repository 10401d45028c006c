package clustermetrics

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// Freshness is how old the values of a scrape may be: a second scraper, or an impatient one, costs nothing more.
const Freshness = 5 * time.Second

// Source is what the gauges are computed from. All functions answer from memory.
type Source struct {
	Clock clock.PassiveClock
	Nodes corelisters.NodeLister
	Pods  corelisters.PodLister
	// NodeClass says which nodes are managed. Those of another Dovetail aren't, so that sums over several count each managed node once.
	NodeClass capacity.NodeClassLabel
	// Objects reads NodePools from a cache.
	Objects client.Reader
	// Claims returns all NodeClaims, Pools the pools with the instance types that they can be launched from.
	Claims func() []*capacity.Claim
	Pools  func() []*capacity.Pool
	// Cost returns what the running nodes of each pool cost, in dollars per hour.
	Cost func(claims []*capacity.Claim) map[string]float64
	// Problem returns why NodeClaims can't be read now, or nil.
	Problem func() error
	// Ledger counts the pods that wait.
	Ledger func() ledger.Summary
	// Conditions are those of objects; nil: none are exported.
	Conditions *Conditions
	// Objectless leaves out what has a series per node or pod.
	Objectless bool
}

// Serve exports the gauges that are computed from s, until ctx ends. Call it when this process leads.
func Serve(ctx context.Context, s *Source) {
	state := &state{source: s, since: s.Clock.Now()}
	registered.current.Store(state)
	<-ctx.Done()
	registered.current.CompareAndSwap(state, nil)
}

var registered = &collector{}

func init() { legacyregistry.RawMustRegister(registered) }

// collector is what the process registers. It exports nothing unless there is a state to export.
type collector struct{ current atomic.Pointer[state] }

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, g := range gauges {
		out <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := c.current.Load()
	if s == nil {
		return
	}
	for _, m := range s.collect() {
		out <- m
	}
}

// state is what is known of the cluster, and when that was computed.
type state struct {
	source *Source

	// mu is held while the gauges are computed, so that scrapes at the same time compute them once. Only scrapes take it.
	mu     sync.Mutex
	at     time.Time
	latest []prometheus.Metric
	// since is when the cluster's state was last known completely.
	since time.Time
	// bound are the lower bounds of pools, worked out at boundAt; nil: not yet.
	bound   map[string]float64
	boundAt time.Time
}

func (s *state) collect() []prometheus.Metric {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.source.Clock.Now()
	if s.latest != nil && now.Sub(s.at) < Freshness {
		return s.latest
	}
	l := &list{all: make([]prometheus.Metric, 0, len(s.latest))}
	ctx := context.Background()
	if err := panics.Catch(ctx, "metrics", func() error { return s.compute(ctx, l, now) }); err != nil {
		klog.Background().Error(err, "Some metrics of the cluster's state could not be computed")
	}
	s.at, s.latest = now, l.all
	return s.latest
}

// compute adds all series.
func (s *state) compute(ctx context.Context, l *list, now time.Time) error {
	src := s.source
	claims := src.Claims()
	s.clusterState(l, claims, now)
	waiting(l, src.Ledger())
	inFlight(l, claims)
	pools := src.Pools()
	offerings(l, pools)
	if err := s.bounds(l, pools, now); err != nil {
		return err
	}
	if err := nodePools(ctx, l, src.Objects, src.Cost(claims)); err != nil {
		return err
	}
	if src.Conditions != nil {
		src.Conditions.add(l, src.Objectless, now)
	}
	return objects(l, src, now)
}
