package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// String is for tests and debugging: one line per node and pod.
func (l *Ledger) String() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(l.nodes)) {
		n := l.nodes[k]
		fmt.Fprintf(&b, "node %s name=%q cached=%t slots=", k, n.name, n.cached)
		for i, s := range n.slots {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%s#%d", s.class.Key, s.order)
			if s.ready {
				b.WriteByte('!')
			}
			if s.pod != nil {
				fmt.Fprintf(&b, "=%s", s.pod.ref.UID)
			}
			if s.owner != "" {
				fmt.Fprintf(&b, "~%s", s.owner)
			}
		}
		fmt.Fprintf(&b, " chunks=%d\n", len(n.chunks))
	}
	for _, uid := range slices.Sorted(maps.Keys(l.pods)) {
		fmt.Fprintf(&b, "pod %s %s %s\n", uid, stateNames[l.pods[uid].state], l.Explain(uid))
	}
	return b.String()
}
