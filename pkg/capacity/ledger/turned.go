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
//   - A pod that was rejected for anti-affinity to pods planned here, or that the ledger doesn't know, is requeued when the node leaves the
//     ledger: from then on the scheduler's own filter says whether pods that are there reject it, and which event would change that.
//   - A pod that the ledger doesn't know is requeued before that, too: when a reservation is released and when the node is initialized.
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
	var keys []string
	for key, n := range l.nodes {
		if len(n.rejectedPods) > 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		l.recallUnknown(l.nodes[key])
	}
}

// leave removes the node from the ledger and activates the pods that were rejected on it.
func (l *Ledger) leave(n *node) {
	l.recall(n)
	for _, uid := range slices.Sorted(maps.Keys(n.rejectedPods)) {
		l.out.Activate = append(l.out.Activate, n.rejectedPods[uid])
	}
	n.rejectedPods = nil
	delete(l.nodes, n.key)
}
