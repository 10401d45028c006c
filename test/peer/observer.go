package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// observer counts what happens to pods and nodes.
type observer struct {
	mu      sync.Mutex
	changed time.Time
	// deleted are the pods that were deleted from a node, launched the nodes that came.
	deleted, launched int
}

func (o *observer) watch(nodes, pods cache.SharedIndexInformer) error {
	if _, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { o.count(0, 1) },
		UpdateFunc: func(before, after any) {
			if disrupted(before.(*corev1.Node)) != disrupted(after.(*corev1.Node)) {
				o.count(0, 0)
			}
		},
		DeleteFunc: func(any) { o.count(0, 0) },
	}); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { o.count(0, 0) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if p, ok := obj.(*corev1.Pod); ok && p.Spec.NodeName != "" {
				o.count(1, 0)
			}
		},
	}); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	return nil
}

func (o *observer) count(deleted, launched int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deleted += deleted
	o.launched += launched
	o.changed = time.Now()
}

// still returns for how long nothing has changed.
func (o *observer) still() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.changed)
}

// usage is what nodes cost and what has happened so far.
type usage struct {
	cost  float64 // $/h
	nodes int
	// evicted are pods, commands are decisions to remove nodes with pods, and replacing are those of them that launch a node.
	evicted, commands, replacing int
	// launched are all new nodes, forPods those that were launched for pods that fitted nowhere.
	launched, forPods int
	// empty are decisions to remove empty nodes, refused are candidates of decisions that were not valid any more when they were to be carried
	// out.
	empty, refused int
}

func (s *system) usage(ctx context.Context) (usage, error) {
	nodes, _, err := s.objects()
	if err != nil {
		return usage{}, err
	}
	c, err := reduce(s.world, nodes, nil)
	if err != nil {
		return usage{}, err
	}
	m, err := s.karpenter.Metrics(ctx)
	if err != nil {
		return usage{}, err
	}
	const decisions = "karpenter_voluntary_disruption_decisions_total"
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	return usage{
		cost: c.Cost(), nodes: len(nodes), evicted: s.seen.deleted, launched: s.seen.launched,
		commands:  m.Sum(decisions, `reason="underutilized"`),
		replacing: m.Sum(decisions, `reason="underutilized"`, `decision="replace"`),
		empty:     m.Sum(decisions, `reason="empty"`),
		refused:   m.Sum("karpenter_voluntary_disruption_failed_validations_total"),
		forPods:   m.Sum("karpenter_nodeclaims_created_total", `reason="provisioned"`),
	}, nil
}

// minus returns what has happened since.
func (u usage) minus(before usage) usage {
	return usage{cost: u.cost, nodes: u.nodes, evicted: u.evicted - before.evicted, commands: u.commands - before.commands,
		replacing: u.replacing - before.replacing, launched: u.launched - before.launched, forPods: u.forPods - before.forPods,
		empty: u.empty - before.empty, refused: u.refused - before.refused}
}
