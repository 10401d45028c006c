package main

import (
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/commitments"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
)

// consolidates sets the parts of the disruption controller's configuration that it needs to consolidate nodes with pods.
func consolidates(cfg *disruption.Config, p *parts, profiles []profile, classes *pending.Classes) {
	ours := names(profiles)
	o := &capacity.Options{NodeSurcharge: profiles[0].args.NodeSurchargeDollarsPerHour, PriceFactor: profiles[0].args.PriceFactors}
	cfg.Consolidation = p.launch.Consolidation
	cfg.Class = func(pod *corev1.Pod) (*capacity.Class, error) {
		if classes.Devices() != nil && len(pod.Spec.ResourceClaims) > 0 {
			return nil, errUsesClaims
		}
		_, class, err := classes.Successor(pod)
		return class, err
	}
	cfg.Ours = func(pod *corev1.Pod) bool { return slices.Contains(ours, pod.Spec.SchedulerName) }
	paid := commitments.New(profiles[0].args.Committed())
	cfg.Price = (&priceList{read: func() *consolidation.NodePrices {
		pools := p.store.Pools(p.provider.InstanceTypes)
		return consolidation.NodePricesOf(pools, paid.Of(pools, byName(p.store.Claims())), o)
	}, clock: cfg.Clock}).of
}

// errUsesClaims keeps a node whose pods use devices: pods that replace them get new ResourceClaims, and which devices those get elsewhere isn't known.
var errUsesClaims = errors.New("it uses ResourceClaims, so that consolidation doesn't move it")

func byName(claims []*capacity.Claim) map[string]*capacity.Claim {
	out := make(map[string]*capacity.Claim, len(claims))
	for _, c := range claims {
		out[c.Name] = c
	}
	return out
}

// priceList keeps the prices of all nodes for pricesHold, because a pass asks for them node by node. Only one goroutine uses it.
type priceList struct {
	read   func() *consolidation.NodePrices
	clock  clock.PassiveClock
	prices *consolidation.NodePrices
	at     time.Time
}

// pricesHold is for how long prices are kept: longer than a consolidation pass takes.
const pricesHold = 2 * time.Second

// of returns what a claim's node costs now, beside what is paid anyway; false: that is unknown.
func (l *priceList) of(claim *karpv1.NodeClaim) (dollarsPerHour float64, known bool) {
	if now := l.clock.Now(); l.prices == nil || now.Sub(l.at) >= pricesHold {
		l.prices, l.at = l.read(), now
	}
	of := claim.Labels
	return l.prices.Of(claim.Name, of[karpv1.NodePoolLabelKey], of[corev1.LabelInstanceTypeStable], of[corev1.LabelTopologyZone], of[karpv1.CapacityTypeLabelKey])
}
