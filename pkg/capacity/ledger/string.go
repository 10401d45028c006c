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
			fmt.Fprintf(&b, "%s%s#%d", strings.Repeat(",", min(i, 1)), s.class.Key, s.order)
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
		if len(n.chunks) > 0 {
			fmt.Fprintf(&b, " chunks=%d", len(n.chunks))
		}
		b.WriteByte('\n')
	}
	for _, uid := range slices.Sorted(maps.Keys(l.pods)) {
		fmt.Fprintf(&b, "pod %s %s %s\n", uid, stateNames[l.pods[uid].state], l.Explain(uid))
	}
	return b.String()
}
