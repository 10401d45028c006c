package simulate

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/devices"
)

// Decorate adds to a node what the scheduler's cache doesn't know: that it is being launched and which claim it belongs to, which
// taints will be removed, which capacity is reserved. It returns the node itself, a changed copy, or nil to leave the node out. The
// node it is given is shared between calls: neither it nor its maps and slices may be changed.
type Decorate func(n *capacity.Node, object *corev1.Node) *capacity.Node

// nodeEntry is a converted node and what it was converted from.
type nodeEntry struct {
	generation int64
	csiNode    *storagev1.CSINode
	storage    map[string]int64
	node       *capacity.Node
}

// Nodes returns the last Refresh's snapshot as capacity.Nodes, sorted by name. Free is what bound and assumed pods leave. Nodes that
// haven't changed since the last call are the same objects, so that 5,000 nodes cost little when few have changed. decorate may be
// nil.
func (w *World) Nodes(decorate Decorate) []*capacity.Node {
	out := make([]*capacity.Node, 0, len(w.byName))
	following, free := w.storage.Following(), w.freeDevices()
	for _, info := range w.byName {
		object := info.Node()
		csiNode := w.volumes.csiNode(object.Name)
		storage := w.published(object, following)
		if on := free.On(object); on != nil {
			maps.Copy(on, storage)
			storage = on
		}
		entry, ok := w.nodes[object.Name]
		if !ok || entry.generation != info.GetGeneration() || entry.csiNode != csiNode || !maps.Equal(entry.storage, storage) {
			entry = nodeEntry{generation: info.GetGeneration(), csiNode: csiNode, storage: storage, node: w.nodeOf(info, csiNode, storage)}
			w.nodes[object.Name] = entry
		}
		node := entry.node
		if decorate != nil {
			node = decorate(node, object)
		}
		if node != nil {
			out = append(out, node)
		}
	}
	return out
}

// freeDevices returns what is free of the devices that nodes have published; nil: no pod asks for any.
func (w *World) freeDevices() *devices.Free {
	if w.devices == nil {
		return nil
	}
	return w.devices.source.Free()
}

// published returns the capacity for volumes of classes with node-local storage, 0 where none has been published.
func (w *World) published(node *corev1.Node, following []*storagev1.StorageClass) map[string]int64 {
	if len(following) == 0 {
		return nil
	}
	on := w.storage.On(node.Labels)
	out := make(map[string]int64, len(following))
	for _, class := range following {
		key := capacity.StorageOf(class.Name)
		out[key] = on[key]
	}
	return out
}

func (w *World) nodeOf(info fwk.NodeInfo, csiNode *storagev1.CSINode, storage map[string]int64) *capacity.Node {
	object := info.Node()
	allocatable := resourcesOf(info.GetAllocatable())
	allocatable[corev1.ResourcePods] = int64(info.GetAllocatable().GetAllowedPodNumber())
	requested := resourcesOf(info.GetRequested())
	requested[corev1.ResourcePods] = int64(len(info.GetPods()))
	free := allocatable.Clone()
	free.Sub(requested)
	pods := make([]*corev1.Pod, 0, len(info.GetPods()))
	for _, p := range info.GetPods() {
		pods = append(pods, p.GetPod())
	}
	return &capacity.Node{
		Name:          object.Name,
		Labels:        object.Labels,
		Taints:        object.Spec.Taints,
		Unschedulable: object.Spec.Unschedulable,
		Allocatable:   allocatable,
		Free:          free,
		Pods:          pods,
		VolumesFree:   w.volumes.free(info, csiNode, storage),
	}
}

// resourcesOf converts the framework's amounts, which have the same units, except pods, which are counted elsewhere.
func resourcesOf(r fwk.Resource) capacity.Resources {
	out := capacity.Resources{
		corev1.ResourceCPU:              r.GetMilliCPU(),
		corev1.ResourceMemory:           r.GetMemory(),
		corev1.ResourceEphemeralStorage: r.GetEphemeralStorage(),
	}
	for name, v := range r.GetScalarResources() {
		out[name] = v
	}
	return out
}
