package launch

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/observe"
	"github.com/dovetail-scheduler/dovetail/pkg/storage"
)

// StorageCapacities returns the handler for the scheduler's CSIStorageCapacity informer: volumes of drivers whose capacity depends on the
// node wait until it has been published.
func (tr *NodeTracker) StorageCapacities() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { tr.storageCapacity(o.(*storagev1.CSIStorageCapacity)) },
		UpdateFunc: func(_, o any) { tr.storageCapacity(o.(*storagev1.CSIStorageCapacity)) }, // the node that it is for can't change
		DeleteFunc: observe.Deletion(tr.storageCapacity),
	}
}

func (tr *NodeTracker) storageCapacity(c *storagev1.CSIStorageCapacity) {
	if tr.storageOn(c) {
		tr.triggers.Changed() // pods may have been refused because nodes of this type were thought to have less storage
	}
}

// storageOn updates the ledger's status of the nodes that the capacity is for, and reports whether one of them has more storage now.
func (tr *NodeTracker) storageOn(c *storagev1.CSIStorageCapacity) (more bool) {
	tr.states.mu.Lock()
	defer tr.states.mu.Unlock()
	selects := storage.Selector(c)
	for name, node := range tr.states.objects {
		if selects(node.Labels) && tr.lookAgain(name) {
			more = true
		}
	}
	return more
}
