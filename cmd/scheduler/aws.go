package main

import (
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

// dedicatedClasses are the node classes of pools that ask for machines nobody else shares.
func dedicatedClasses(store *karpenter.Store) map[string]bool {
	out := map[string]bool{}
	for _, p := range store.Pools(func(string) ([]*capacity.InstanceType, string) { return nil, "" }) {
		if r, ok := p.Requirements[ec2nc.LabelInstanceTenancy]; ok && r.Has("dedicated") {
			out[p.NodeClass] = true
		}
	}
	return out
}
