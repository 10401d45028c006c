package main

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter/store"
	"github.com/dovetail-scheduler/dovetail/pkg/simulate"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
)

// pools gives the store what the profiles say about pools.
func pools(store *store.Store, on cloud, profiles []profile) error {
	if on.legacy != nil {
		store.Derived().SetLegacy(on.legacy(profiles[0].args))
	}
	definitions := karpenter.NewDefinitions(on.nodeClass.Definitions())
	var all []karpenter.Profile
	for _, p := range profiles {
		one := karpenter.Profile{Scheduler: p.config.SchedulerName, Others: p.args.ProvisionFor}
		var err error
		if one.Selects, err = selects(p.args); err != nil {
			return fmt.Errorf("profile %q: %s arguments: nodePoolSelector: %w", p.config.SchedulerName, provision.Name, err)
		}
		nodePools, classes, errs := karpenter.ReadInline(definitions, on.nodeClass, inline(p.args.NodePools), inline(p.args.EC2NodeClasses))
		if len(errs) > 0 {
			return fmt.Errorf("profile %q: %s arguments: %w", p.config.SchedulerName, provision.Name, errs.ToAggregate())
		}
		one.Pools, one.Classes = nodePools, classes
		all = append(all, one)
	}
	return store.Derived().SetProfiles(all)
}

func selects(args *provision.Args) (func(map[string]string) bool, error) {
	if args.NodePoolSelector == nil {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(args.NodePoolSelector)
	if err != nil {
		return nil, err
	}
	return func(of map[string]string) bool { return selector.Matches(labels.Set(of)) }, nil
}

// mayLaunch returns the selector of namespaces whose pods may cause launches; nil: all.
func mayLaunch(args *provision.Args) (labels.Selector, error) {
	if args.NamespaceSelector == nil {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(args.NamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("%s arguments: namespaceSelector: %w", provision.Name, err)
	}
	return selector, nil
}

func inline(of []provision.Inline) []karpenter.Inline {
	var out []karpenter.Inline
	for _, o := range of {
		out = append(out, karpenter.Inline{Name: o.Name, Spec: o.Spec})
	}
	return out
}

// binding configures Reservations and Classes: when pods may be bound, and how long they wait.
func (d *dovetail) binding(profiles []profile, f informers.SharedInformerFactory) {
	first := profiles[0].binder
	d.reservations.SetPatience(ledger.Patience{Gate: first.GateDeadline.Duration, Late: first.LateAfter.Duration, Startup: profiles[0].args.InitializationTimeout.Duration})
	for _, p := range profiles {
		d.classes.SetEarliest(p.config.SchedulerName, p.binder.Earliest())
		d.classes.SetDefaultSpread(p.config.SchedulerName, simulate.DefaultSpread(f, p.config))
	}
}
