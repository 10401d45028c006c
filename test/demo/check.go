package main

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

const claimTag = "karpenter.sh/nodeclaim"

// checkPlacement returns the faults in where the pods are, one line per fault. Every pod of a shape must be bound and running on a
// node that exists; no misfit may be bound.
func checkPlacement(list []shape, pods []*corev1.Pod, nodes []*corev1.Node) []string {
	var faults []string
	byName := map[string]*corev1.Node{}
	for _, n := range nodes {
		byName[n.Name] = n
	}
	byApp := map[string][]*corev1.Pod{}
	for _, p := range pods {
		app := p.Labels[appLabel]
		if app == misfit().name && p.Spec.NodeName != "" {
			faults = append(faults, fmt.Sprintf("%s is on %s, where it can't fit", p.Name, p.Spec.NodeName))
		}
		byApp[app] = append(byApp[app], p)
	}
	for _, s := range list {
		mine := byApp[s.name]
		if len(mine) != s.pods {
			faults = append(faults, fmt.Sprintf("%s has %d pods, want %d", s.name, len(mine), s.pods))
		}
		settled := true
		for _, p := range mine {
			if byName[p.Spec.NodeName] == nil || p.Status.Phase != corev1.PodRunning {
				faults = append(faults, fmt.Sprintf("%s is %s on node %q", p.Name, p.Status.Phase, p.Spec.NodeName))
				settled = false
			}
		}
		if s.placed == nil || !settled {
			continue
		}
		if err := s.placed(mine, byName); err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v", s.name, err))
		}
	}
	slices.Sort(faults)
	return faults
}

// checkLaunches returns the faults in everything that was ever launched: a NodeClaim may have only one instance, and every instance
// must have a NodeClaim.
func checkLaunches(instances []ec2.Instance) []string {
	var faults []string
	owner := map[string]string{}
	for _, in := range instances {
		claim := in.Tags[claimTag]
		if claim == "" {
			faults = append(faults, fmt.Sprintf("%s was launched for no claim", in.ID))
			continue
		}
		if other := owner[claim]; other != "" {
			faults = append(faults, fmt.Sprintf("%s and %s were both launched for claim %s", other, in.ID, claim))
		}
		owner[claim] = in.ID
	}
	return faults
}

// checkFleet returns the differences between the simulator and the API server while nothing changes: each live instance must be the
// providerID of exactly one node, and each node must have a live instance.
func checkFleet(live []ec2.Instance, nodes []*corev1.Node) []string {
	var faults []string
	node := map[string]string{}
	for _, n := range nodes {
		if other := node[n.Spec.ProviderID]; other != "" {
			faults = append(faults, fmt.Sprintf("%s and %s are both %s", other, n.Name, n.Spec.ProviderID))
		}
		node[n.Spec.ProviderID] = n.Name
	}
	for _, in := range live {
		id := providerID(in)
		if node[id] == "" {
			faults = append(faults, fmt.Sprintf("%s runs without a node", in.ID))
		}
		delete(node, id)
	}
	for id, name := range node {
		faults = append(faults, fmt.Sprintf("%s is %q, and no such instance runs", name, id))
	}
	slices.Sort(faults)
	return faults
}

func providerID(in ec2.Instance) string { return "aws:///" + in.Zone + "/" + in.ID }
