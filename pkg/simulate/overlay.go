package simulate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// switchingLister is the lister that the plugins keep for ever: it shows the snapshot, or an overlay during Verify.
type switchingLister struct{ fwk.SharedLister }

// overlay is the snapshot with hypothetical nodes and placed pods. The snapshot below is never written to, so dropping the overlay
// undoes everything.
type overlay struct {
	*internalcache.Snapshot
	position map[string]int // index in list of each node of the snapshot
	list     []fwk.NodeInfo
	// own are the overlay's copies by node name: hypothetical nodes and nodes that got pods.
	own    map[string]*framework.NodeInfo
	claims sets.Set[string] // "namespace/name" of PVCs used by placed pods
	left   sets.Set[string] // PVCs used by the pods of emptied nodes
}

var _ fwk.SharedLister = &overlay{}

// newOverlay returns an overlay of the snapshot with the given nodes. A given node with the name of a real one replaces it: the
// filters see its object, and its pods are added to those of the real node.
func (w *World) newOverlay(nodes []capacity.TrialNode) *overlay {
	o := &overlay{
		Snapshot: w.snapshot,
		position: w.position,
		list:     make([]fwk.NodeInfo, len(w.list), len(w.list)+len(nodes)),
		own:      make(map[string]*framework.NodeInfo, len(nodes)),
		claims:   sets.New[string](),
		left:     sets.New[string](),
	}
	copy(o.list, w.list)
	for _, n := range nodes {
		info := o.writable(n.Node.Name)
		if info == nil {
			info = framework.NewNodeInfo()
			o.list = append(o.list, info)
			o.own[n.Node.Name] = info
		}
		if n.Instead || otherMachine(info.Node(), n.Node) {
			info = o.emptied(n.Node.Name)
		}
		info.SetNode(n.Node)
		for _, pod := range n.Pods {
			// Like the scheduler's cache, ignore terms that can't be parsed.
			podInfo, _ := framework.NewPodInfo(pod)
			o.place(podInfo, info)
		}
	}
	return o
}

// otherMachine reports whether a Node in the snapshot belongs to an older instance, which is being terminated: the new instance has got
// the address of the older one and therefore its name, but none of its pods.
func otherMachine(there, coming *corev1.Node) bool {
	return there != nil && there.Spec.ProviderID != "" && coming.Spec.ProviderID != "" && there.Spec.ProviderID != coming.Spec.ProviderID
}

// writable returns the overlay's own copy of a node, or nil when there is no such node.
func (o *overlay) writable(name string) *framework.NodeInfo {
	if info, ok := o.own[name]; ok {
		return info
	}
	at, ok := o.position[name]
	if !ok {
		return nil
	}
	info := o.list[at].(*framework.NodeInfo).SnapshotConcrete()
	o.list[at], o.own[name] = info, info
	return info
}

// emptied replaces the overlay's own copy of a node by one without pods.
func (o *overlay) emptied(name string) *framework.NodeInfo {
	info := framework.NewNodeInfo()
	for _, pod := range o.own[name].GetPods() {
		for _, claim := range claimNames(pod.GetPod()) {
			o.left.Insert(framework.GetNamespacedName(pod.GetPod().Namespace, claim))
		}
	}
	if at, ok := o.position[name]; ok {
		o.list[at] = info
	} else {
		o.list[slices.Index(o.list, fwk.NodeInfo(o.own[name]))] = info
	}
	o.own[name] = info
	return info
}

// place adds a pod to a node returned by writable.
func (o *overlay) place(pod fwk.PodInfo, node *framework.NodeInfo) {
	node.AddPodInfo(pod)
	for _, name := range claimNames(pod.GetPod()) {
		o.claims.Insert(framework.GetNamespacedName(pod.GetPod().Namespace, name))
	}
}

func (o *overlay) NodeInfos() fwk.NodeInfoLister       { return o }
func (o *overlay) StorageInfos() fwk.StorageInfoLister { return o }

func (o *overlay) List() ([]fwk.NodeInfo, error) { return o.list, nil }

// Get implements fwk.NodeInfoLister.
func (o *overlay) Get(name string) (fwk.NodeInfo, error) {
	if info, ok := o.own[name]; ok {
		return info, nil
	}
	return o.Snapshot.Get(name)
}

// HavePodsWithAffinityList implements fwk.NodeInfoLister. It scans all nodes, which costs little compared with the PreFilter that
// calls it.
func (o *overlay) HavePodsWithAffinityList() ([]fwk.NodeInfo, error) {
	return o.having(fwk.NodeInfo.GetPodsWithAffinity), nil
}

// HavePodsWithRequiredAntiAffinityList implements fwk.NodeInfoLister.
func (o *overlay) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) {
	return o.having(fwk.NodeInfo.GetPodsWithRequiredAntiAffinity), nil
}

func (o *overlay) having(pods func(fwk.NodeInfo) []fwk.PodInfo) []fwk.NodeInfo {
	var out []fwk.NodeInfo
	for _, info := range o.list {
		if len(pods(info)) > 0 {
			out = append(out, info)
		}
	}
	return out
}

// IsPVCUsedByPods implements fwk.StorageInfoLister.
func (o *overlay) IsPVCUsedByPods(key string) bool {
	return o.claims.Has(key) || !o.left.Has(key) && o.Snapshot.IsPVCUsedByPods(key)
}

// claimNames returns the names of the PVCs a pod refers to.
func claimNames(pod *corev1.Pod) []string {
	var out []string
	for i := range pod.Spec.Volumes {
		if pvc := pod.Spec.Volumes[i].PersistentVolumeClaim; pvc != nil {
			out = append(out, pvc.ClaimName)
		}
	}
	return out
}
