package ledger

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// String is for tests and debugging: one line per node and pod.
func (l *Ledger) String() string {
	var b strings.Builder
	keys := make([]string, 0, len(l.nodes))
	for k := range l.nodes {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
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
		if len(n.chunks) > 0 {
			fmt.Fprintf(&b, " chunks=%d", len(n.chunks))
		}
		b.WriteByte('\n')
	}
	uids := make([]types.UID, 0, len(l.pods))
	for uid := range l.pods {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	for _, uid := range uids {
		fmt.Fprintf(&b, "pod %s %s %s\n", uid, stateNames[l.pods[uid].state], l.Explain(uid))
	}
	return b.String()
}
