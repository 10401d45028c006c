package main

import (
	"context"
	"fmt"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1alpha2"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"sigs.k8s.io/scheduler-plugins/pkg/coscheduling"
	"sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned"
	"sigs.k8s.io/scheduler-plugins/pkg/generated/informers/externalversions"
	grouplisters "sigs.k8s.io/scheduler-plugins/pkg/generated/listers/scheduling/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/pending"
)

// gangs reads the groups of pods that start together, of the kinds that are in use here.
type gangs struct {
	coscheduling grouplisters.PodGroupLister      // nil: no profile has Coscheduling
	inTree       schedulinglisters.PodGroupLister // nil: the feature is off
	run          func(ctx context.Context)
	changed      func() // a group was added or changed
}

// newGangs registers the informers of the groups. The scheduler starts its own; the informer for Coscheduling's PodGroup is started by run. The
// CRD of that PodGroup has to be installed where a profile uses the plugin: the plugin itself requires it.
func newGangs(cfg *rest.Config, f informers.SharedInformerFactory, sched *scheduler.Scheduler, profiles []profile) (*gangs, error) {
	g := &gangs{run: func(context.Context) {}, changed: func() {}}
	tell := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { g.changed() }, UpdateFunc: func(any, any) { g.changed() }}
	if utilfeature.DefaultFeatureGate.Enabled(features.GangScheduling) {
		in := f.Scheduling().V1alpha2().PodGroups()
		g.inTree = in.Lister()
		if _, err := in.Informer().AddEventHandler(tell); err != nil {
			return nil, fmt.Errorf("watching PodGroups: %w", err)
		}
	}
	used := false
	for _, p := range profiles {
		for _, e := range sched.Profiles[p.config.SchedulerName].ListPlugins().Permit.Enabled {
			used = used || e.Name == coscheduling.Name
		}
	}
	if !used {
		return g, nil
	}
	client, err := versioned.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client for PodGroups: %w", err)
	}
	groups := externalversions.NewSharedInformerFactory(client, 0)
	in := groups.Scheduling().V1alpha1().PodGroups()
	g.coscheduling = in.Lister()
	if _, err := in.Informer().AddEventHandler(tell); err != nil {
		return nil, fmt.Errorf("watching PodGroups: %w", err)
	}
	g.run = func(ctx context.Context) {
		groups.Start(ctx.Done())
		<-ctx.Done()
		groups.Shutdown()
	}
	return g, nil
}

// Min implements provisioning.Gangs.
func (g *gangs) Min(group pending.Group) (int, bool) {
	switch {
	case group.InTree && g.inTree != nil:
		pg, err := g.inTree.PodGroups(group.Namespace).Get(group.Name)
		if err != nil {
			return 0, true
		}
		if gang := pg.Spec.SchedulingPolicy.Gang; gang != nil {
			return int(gang.MinCount), true
		}
		return 0, false // its pods are scheduled one by one
	case !group.InTree && g.coscheduling != nil:
		pg, err := g.coscheduling.PodGroups(group.Namespace).Get(group.Name)
		if err != nil {
			return 0, true
		}
		return int(pg.Spec.MinMember), true
	}
	return 0, false
}
