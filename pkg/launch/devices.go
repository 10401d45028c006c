package launch

import (
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
)

// ResourceSlices returns the handler for the scheduler's ResourceSlice informer: pods with ResourceClaims wait until the devices of their node
// have been published. It is registered only where dynamicResources is on.
func (tr *NodeTracker) ResourceSlices() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { tr.resourceSlice(o.(*resourcev1.ResourceSlice), false) },
		UpdateFunc: func(_, o any) { tr.resourceSlice(o.(*resourcev1.ResourceSlice), false) }, // the node that it is for can't change
		DeleteFunc: observe.Deletion(func(s *resourcev1.ResourceSlice) { tr.resourceSlice(s, true) }),
	}
}

func (tr *NodeTracker) resourceSlice(s *resourcev1.ResourceSlice, gone bool) {
	node, learned := tr.states.devices.SliceChanged(s, gone)
	tr.devicesOn(node)
	if learned {
		tr.triggers.Changed()
	}
}

// DevicesOfClaim hears of a claim, which says what instance type a node has: new nodes of the type are expected to get the devices of that node.
func (tr *NodeTracker) DevicesOfClaim(c *capacity.Claim, gone bool) {
	if tr.states.devices.ClaimChanged(c, gone) {
		tr.triggers.Changed()
	}
}

// DevicesDeclared hears that a node class declares other devices than before.
func (tr *NodeTracker) DevicesDeclared() { tr.triggers.Changed() }

// DevicesAsked hears that pods ask for devices in a way in which none have before: existing nodes may have such devices.
func (tr *NodeTracker) DevicesAsked() { tr.devicesOn("") }

// devicesOn updates the ledger's status of a node whose devices have changed; empty: of all nodes.
func (tr *NodeTracker) devicesOn(node string) {
	names := []string{node}
	if node == "" {
		tr.states.mu.Lock()
		names = slices.Collect(maps.Keys(tr.states.objects))
		tr.states.mu.Unlock()
	}
	for _, name := range names {
		tr.states.mu.Lock()
		o := tr.states.objects[name]
		tr.states.mu.Unlock()
		for o != nil {
			usable := tr.states.lockKnowing(o)
			current := tr.states.objects[name]
			if current == o {
				tr.states.usable[name] = usable
				tr.lookAgain(name)
				current = nil
			}
			tr.states.mu.Unlock()
			o = current // the Node changed meanwhile, so again with the new one; nil: it is done, or the node is gone
		}
	}
}
