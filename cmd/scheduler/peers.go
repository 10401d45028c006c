package main

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	schedulerserverconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter/store"
	"github.com/dovetail-scheduler/dovetail/pkg/peers"
)

// newPeers returns the Peers that watch for other Dovetails in the cluster.
func newPeers(kube kubernetes.Interface, c clock.WithTicker, cc *schedulerserverconfig.CompletedConfig, profiles []profile, store *store.Store) *peers.Peers {
	cfg := peers.Config{Kube: kube, Clock: c, Scope: scopeOf(profiles), Pools: store.PoolLabels}
	if le := cc.ComponentConfig.LeaderElection; le.LeaderElect {
		cfg.Lease = types.NamespacedName{Namespace: le.ResourceNamespace, Name: le.ResourceName}
	}
	return peers.New(cfg)
}

// scopeOf returns what this process manages, by its profiles.
func scopeOf(profiles []profile) peers.Scope {
	args := profiles[0].args
	out := peers.Scope{Name: args.Name, Schedulers: append(names(profiles), provisionFor(profiles)...), Queue: args.InterruptionQueue}
	for _, p := range profiles {
		selector := labels.Everything()
		if of := p.args.NodePoolSelector; of != nil {
			selector, _ = metav1.LabelSelectorAsSelector(of) // it was validated
		}
		if text := selector.String(); args.Name != "" && !slices.Contains(out.NodePools, text) {
			out.NodePools = append(out.NodePools, text)
		}
	}
	return out
}
