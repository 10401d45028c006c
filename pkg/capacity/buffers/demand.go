package buffers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// MostChunks is the largest number of chunks of one buffer. A chunk is capacity for one pod that a CapacityBuffer keeps free.
const MostChunks = 10_000

// Demand returns demand for the chunks that have no capacity yet, with a pod for each. These pods don't exist: their UIDs name the buffer.
func Demand(all []ledger.BufferState) (out []capacity.Demand) {
	for i := range all {
		if n := all[i].Missing(); n > 0 {
			out = append(out, demand(all[i].UID, all[i].Class, n))
		}
	}
	return out
}

// DemandOf returns demand for the chunks on one node, which are to get capacity elsewhere, as Demand does.
func DemandOf(on []ledger.Chunk) (out []capacity.Demand) {
	index := map[types.UID]int{}
	var all []ledger.BufferState
	for _, c := range on {
		i, ok := index[c.Buffer]
		if !ok {
			i = len(all)
			index[c.Buffer] = i
			all = append(all, ledger.BufferState{Buffer: ledger.Buffer{UID: c.Buffer, Class: c.Class}})
		}
		all[i].Chunks++
	}
	return Demand(all)
}

func demand(uid types.UID, c *capacity.Class, n int) capacity.Demand {
	out := capacity.Demand{Class: c}
	for i := range n {
		out.Pods = append(out.Pods, capacity.PodRef{UID: types.UID(fmt.Sprintf("%s#%d", uid, i)), Namespace: c.Namespace, Name: c.Pod.Name})
	}
	return out
}

// Of returns the UID of the buffer that some demand is for.
func Of(d capacity.Demand) types.UID { return bufferOf(d.Pods[0]) }

func bufferOf(ref capacity.PodRef) types.UID {
	uid, _, _ := strings.Cut(string(ref.UID), "#")
	return types.UID(uid)
}

// Own makes the buffers the owners of a plan's placements for such demand, in place of the pods, which don't exist: so no pod is activated or waited
// for. It returns why chunks were refused, by buffer.
func Own(plan *capacity.Plan) map[types.UID]string {
	for i := range plan.Placements {
		pl := &plan.Placements[i]
		pl.Owner, pl.Pod = bufferOf(pl.Pod), capacity.PodRef{}
	}
	why := map[types.UID]string{}
	for _, r := range plan.Refused {
		for _, ref := range r.Pods {
			why[bufferOf(ref)] = r.Message
		}
	}
	return why
}

// Only removes from a plan all new nodes but one. That node is launched as a probe, while a breaker of the spending guard pauses the others.
func Only(plan *capacity.Plan, node string) {
	rest := map[string]capacity.Removal{}
	for _, n := range plan.Nodes {
		if n.ID == node {
			continue
		}
		rest[n.ID] = capacity.Removal{Message: "one node is launched to find out whether such nodes work", RestHolds: true}
	}
	plan.RemoveNodes(rest)
}

// Order returns the nodes in the order in which chunks fill them: those with pods first, the fullest of them first, so that nodes with few
// pods or none can be emptied.
func Order(nodes []*capacity.Node) []*capacity.Node {
	type ranked struct {
		*capacity.Node
		used bool
		free float64
	}
	all := make([]ranked, 0, len(nodes))
	for _, n := range nodes {
		all = append(all, ranked{n, used(n), free(n)})
	}
	slices.SortStableFunc(all, func(a, b ranked) int {
		if a.used != b.used {
			if a.used {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.free, b.free), cmp.Compare(a.Name, b.Name))
	})
	out := make([]*capacity.Node, 0, len(nodes))
	for _, n := range all {
		out = append(out, n.Node)
	}
	return out
}

// free returns the share of the node's CPU and memory that is free, the larger of the two.
func free(n *capacity.Node) (most float64) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if all := n.Allocatable[name]; all > 0 {
			most = max(most, float64(n.Free[name])/float64(all))
		}
	}
	return most
}

// KeptForChunks returns the names of the managed, initialized nodes that have chunks and no pods but DaemonSets' and static ones. Such a node can end
// if its chunks fit elsewhere, so those with the fewest chunks come first. nodes are those of the view, without chunks.
func KeptForChunks(nodes []*capacity.Node, chunks Chunks) (out []string) {
	for _, n := range nodes {
		if _, managed := n.Labels[capacity.LabelNodePool]; managed && len(chunks[n.Name]) > 0 && !n.InFlight && !n.Closed && !used(n) {
			out = append(out, n.Name)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(cmp.Compare(len(chunks[a]), len(chunks[b])), cmp.Compare(a, b)) })
	return out
}

// Closing returns the nodes for a plan that moves the chunks of the node freed: nodes in flight and that node itself are closed, so they get none.
func Closing(nodes []*capacity.Node, freed string) []*capacity.Node {
	out := slices.Clone(nodes)
	for i, n := range out {
		if n.InFlight || n.Name == freed {
			shut := *n
			shut.Closed = true
			out[i] = &shut
		}
	}
	return out
}
