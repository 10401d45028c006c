package main

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
	schedulerserverconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/clustermetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
)

// metrics are what the process exports beside the counters of its parts.
type metrics struct {
	source     *clustermetrics.Source
	pods       *clustermetrics.Pods
	conditions *clustermetrics.Conditions
	listener   *clustermetrics.Listener // nil: only the scheduler's own port serves metrics
}

// metrics connects the gauges of the cluster's state with what they are computed from, and listens for scrapes if the arguments say so.
func (d *dovetail) metrics(cc *schedulerserverconfig.CompletedConfig, args *provision.Args, p *parts) (*metrics, error) {
	core := cc.InformerFactory.Core().V1()
	conditions, err := clustermetrics.NewConditions(clustermetrics.Informers{
		NodeClaims: p.store.Informer(karpenter.NodeClaims.Kind), NodePools: p.store.Informer(karpenter.NodePools.Kind), NodeClasses: p.store.Informer(d.cloud.nodeClass.Kind),
		Nodes: core.Nodes().Informer(), CapacityBuffers: p.store.Informer(karpenter.CapacityBuffers.Kind),
	}, d.cloud.nodeClass.Label(), d.clock)
	if err != nil {
		return nil, err
	}
	m := &metrics{
		conditions: conditions,
		pods:       clustermetrics.NewPods(core.Nodes().Lister(), d.clock),
		source: &clustermetrics.Source{
			Clock: d.clock, NodeClass: d.cloud.nodeClass.Label(), Nodes: core.Nodes().Lister(), Pods: core.Pods().Lister(), Objects: p.store.Client(), Claims: p.store.Claims,
			Pools:   func() []*capacity.Pool { return p.store.Pools(p.provider.InstanceTypes) },
			Problem: p.store.Problem, Ledger: d.reservations.Summary, Conditions: conditions, Objectless: args.DisableClusterStateObservability,
			Cost: func(claims []*capacity.Claim) map[string]float64 {
				byName := make(map[string]*capacity.Claim, len(claims))
				for _, c := range claims {
					byName[c.Name] = c
				}
				return p.spending.Cost(byName).Running
			},
		},
	}
	if _, err := core.Pods().Informer().AddEventHandler(m.pods.Handler()); err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	if args.MetricsBindAddress == "" {
		return m, nil
	}
	if m.listener, err = clustermetrics.Listen(args.MetricsBindAddress); err != nil {
		return nil, fmt.Errorf("%s arguments: metricsBindAddress: %w", provision.Name, err)
	}
	return m, nil
}

// listen answers scrapes. Without metrics the process goes on.
func (m *metrics) listen(ctx context.Context) {
	if m.listener == nil {
		return
	}
	logger := klog.FromContext(ctx)
	logger.Info("Serving metrics over plain HTTP", "address", m.listener.Address())
	if err := m.listener.Serve(ctx); err != nil && ctx.Err() == nil {
		logger.Error(err, "Metrics are no longer served over plain HTTP")
	}
}

// lead exports the cluster's state until ctx ends.
func (m *metrics) lead(ctx context.Context) {
	m.pods.Lead()
	m.conditions.Lead()
	clustermetrics.Serve(ctx, m.source)
}
