// Package buffers works out what has become of the chunks of CapacityBuffers: which still fit on their nodes, which nodes are kept only for them, and what
// demand is left (docs/design/buffers.md). It reserves nothing: the ledger keeps the chunks, and pkg/provisioning plans for them.
package buffers

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Chunks are the chunks on each node, by the node's name in the view.
type Chunks map[string][]ledger.Chunk

// Sifted is a view's nodes with the chunks that fit there.
type Sifted struct {
	// Nodes are the view's nodes, with less free capacity: that of the chunks that fit is subtracted.
	Nodes []*capacity.Node
	// Promised are the chunks that fit, as pods that the scheduler's filters have to count on these nodes (capacity.Trial).
	Promised []capacity.Step
	// Lost are the chunks that don't fit any more. Fit are the buffers of which a chunk fits on an initialized node that was launched for it.
	Lost []ledger.LostChunks
	Fit  []types.UID
}

// Sift finds out which chunks still fit on their nodes beside the pods that are there or planned there. Chunks on nodes that are closed, because the
// nodes have not registered in time, count as fitting: otherwise each such node would be replaced by another one, without end.
func Sift(nodes []*capacity.Node, chunks Chunks) *Sifted {
	out := &Sifted{Nodes: nodes}
	if len(chunks) == 0 {
		return out
	}
	out.Nodes = slices.Clone(nodes)
	fit := map[types.UID]bool{}
	for i, n := range nodes {
		if on := chunks[n.Name]; len(on) > 0 {
			out.Nodes[i] = out.sift(n, on, fit)
		}
	}
	out.Fit = slices.Sorted(maps.Keys(fit))
	return out
}

// sift returns a node with the chunks that fit there.
func (s *Sifted) sift(n *capacity.Node, on []ledger.Chunk, fit map[types.UID]bool) *capacity.Node {
	out := *n
	out.Free, out.Pods, out.VolumesFree = n.Free.Clone(), slices.Clone(n.Pods), maps.Clone(n.VolumesFree)
	lost := map[types.UID]*ledger.LostChunks{}
	for _, c := range on {
		short := !n.Closed && (n.Unschedulable || !n.InFlight && untolerated(c.Class, n.Taints))
		misfit := !n.Closed && !fits(c.Class, &out)
		if !short && !misfit {
			out.Free.Sub(c.Class.Requests)
			out.Pods = append(out.Pods, c.Class.Pod)
			s.Promised = append(s.Promised, capacity.Step{Pod: c.Class.Pod, Class: c.Class.Key, Node: n.Name})
			if c.Bought && !n.InFlight {
				fit[c.Buffer] = true
			}
			continue
		}
		if lost[c.Buffer] == nil {
			lost[c.Buffer] = &ledger.LostChunks{Node: n.Name, Buffer: c.Buffer}
		}
		lost[c.Buffer].N++
		lost[c.Buffer].Misfit = lost[c.Buffer].Misfit || !short && c.Bought && !n.InFlight && !used(n)
	}
	for _, uid := range slices.Sorted(maps.Keys(lost)) {
		s.Lost = append(s.Lost, *lost[uid])
	}
	return &out
}

// fits reports whether a pod of the class fits on the node. The class's node terms are not checked again: the node met them when the chunk was
// placed, and only a change of its labels could change that.
func fits(c *capacity.Class, n *capacity.Node) bool {
	if !c.Requests.Fits(n.Free) {
		return false
	}
	for _, pod := range n.Pods {
		if repelled(c, pod) || len(c.HostPorts) > 0 && capacity.PortsConflict(c.HostPorts, capacity.HostPorts(pod)) {
			return false
		}
	}
	return true
}

// repelled reports whether required anti-affinity of the class keeps its pods off the pod's node. Anti-affinity of the pod is not checked: if it has
// the same template as the chunk, it has the same terms, and otherwise the filters check them.
func repelled(c *capacity.Class, pod *corev1.Pod) bool {
	other := &capacity.Class{Namespace: pod.Namespace, Labels: pod.Labels}
	return slices.ContainsFunc(c.AntiAffinity, func(t capacity.PodTerm) bool { return t.TopologyKey == capacity.LabelHostname && t.Selects(other) })
}

// untolerated reports whether a taint keeps pods of the class off the node. The node controller's own taints (not ready, under pressure) pass by
// themselves, or the node is repaired.
func untolerated(c *capacity.Class, taints []corev1.Taint) bool {
	lasting := slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool {
		return strings.HasPrefix(t.Key, "node.kubernetes.io/") && t.Key != corev1.TaintNodeUnschedulable
	})
	return capacity.Untolerated(c.Tolerations, lasting) != nil
}

// used reports whether the node has pods of its own, planned ones included; chunks are none.
func used(n *capacity.Node) bool {
	return slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool {
		_, static := p.Annotations[corev1.MirrorPodAnnotationKey]
		owner := metav1.GetControllerOfNoCopy(p)
		return !objects.OfDaemonSet(p) && !static && (owner == nil || owner.Kind != "CapacityBuffer")
	})
}
