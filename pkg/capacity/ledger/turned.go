package ledger

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// TurnAway remembers a pod that Ledger.Object kept off the node; no scheduler event would requeue it, so the ledger does:
//
//   - A pod of a DaemonSet is requeued whenever the node has changed: nothing is planned for it.
//   - A pod that the ledger doesn't know is requeued when a reservation is released, when the node is initialized, and when it leaves the ledger.
//
// Pods that no plan has capacity for need not be remembered: see recallApart.
func (l *Ledger) TurnAway(name string, ref capacity.PodRef, daemon bool) {
	n, ok := l.byName[name]
	if !ok {
		return
	}
	who := &n.rejectedPods
	if daemon {
		who = &n.turned
	}
	if *who == nil {
		*who = map[types.UID]capacity.PodRef{}
	}
	(*who)[ref.UID] = ref
}

func (l *Ledger) recall(n *node) {
	for _, uid := range slices.Sorted(maps.Keys(n.turned)) {
		l.out.Activate = append(l.out.Activate, n.turned[uid])
	}
	n.turned = nil
}

// recallUnknown activates pods that were rejected on the node and that the ledger doesn't know.
func (l *Ledger) recallUnknown(n *node) {
	for _, uid := range slices.Sorted(maps.Keys(n.rejectedPods)) {
		if l.pods[uid] == nil {
			l.out.Activate = append(l.out.Activate, n.rejectedPods[uid])
			delete(n.rejectedPods, uid)
		}
	}
}

// recallAllUnknown is recallUnknown for all nodes.
func (l *Ledger) recallAllUnknown() {
	for n := range l.nodesIn(func(n *node) bool { return len(n.rejectedPods) > 0 }) {
		l.recallUnknown(n)
	}
}

// leave removes the node from the ledger and activates the pods that were rejected on it.
func (l *Ledger) leave(n *node) {
	l.recall(n)
	l.recallUnknown(n)
	maps.Copy(l.left, n.meant)
	n.rejectedPods = nil
	delete(l.nodes, n.key)
}

// recallApart activates refused pods that had to keep apart from pods planned on nodes that have left the ledger. From now on the scheduler's own
// filter says whether pods that are there reject them, and which event would change that; no event has told the queue of it. Thousands of such
// pods may have been kept off each of thousands of nodes, so it isn't remembered which pod was kept off which node, and each pod is activated
// once for all nodes that have left since the last call.
func (l *Ledger) recallApart() {
	found, most := map[*pod]bool{}, 2_000 // classes in this round
	for key, c := range l.left {
		if most--; most < 0 {
			break
		}
		delete(l.left, key)
		for key := range l.apart.Apart(c, func(key capacity.ClassKey) bool {
			return len(l.classes[key].refusedPods)+len(l.classes[key].queued) > 0
		}) {
			maps.Copy(found, l.classes[key].refusedPods)
			for p := range l.classes[key].queued {
				p.told = "" // if it is refused again, for whatever reason, it is activated then
			}
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(found), byArrival) {
		l.out.Activate = append(l.out.Activate, p.ref)
	}
}
