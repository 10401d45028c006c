package ledger

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// TurnAway remembers a pod that Object kept off the node and that no event known to the scheduler would bring back. Nothing is
// planned for a pod of a DaemonSet: it gets another try whenever the node has changed. Another pod was kept off by the Apart of
// pods planned here: it gets one when the node has left the ledger, so that the scheduler's own filter can tell whether those
// that have come keep it off, and what event would change that.
func (l *Ledger) TurnAway(name string, ref capacity.PodRef, daemon bool) {
	n, ok := l.byName[name]
	if !ok {
		return
	}
	who := &n.parted
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

// leave takes the node off the books.
func (l *Ledger) leave(n *node) {
	l.recall(n)
	for _, uid := range slices.Sorted(maps.Keys(n.parted)) {
		l.out.Activate = append(l.out.Activate, n.parted[uid])
	}
	n.parted = nil
	delete(l.nodes, n.key)
}
