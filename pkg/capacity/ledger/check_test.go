package ledger

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/boots"
)

var usualPatience = boots.UsualPatience

// reopen, changed and relieved are a round of TickPods after reserved capacity was released, and after Changed and Relieved.
func reopen(l *Ledger, now time.Time) {
	l.next.freed = true
	for l.TickPods(now) {
	}
}

func changed(l *Ledger, now time.Time) {
	l.Changed()
	for l.TickPods(now) {
	}
}

func relieved(l *Ledger, now time.Time) {
	l.Relieved()
	for l.TickPods(now) {
	}
}

func set(pods []*pod) map[*pod]bool {
	out := map[*pod]bool{}
	for _, p := range pods {
		out[p] = true
	}
	return out
}

// check returns what is inconsistent in the ledger, or nil.
func check(l *Ledger) error {
	held, surges := map[types.UID][]*slot{}, map[string]int{}
	for _, c := range l.classes {
		for _, s := range c.slots {
			if s.owner != "" {
				held[s.owner] = inserted(held[s.owner], s)
			}
			if s.deployment != "" {
				surges[s.deployment]++
			}
		}
	}
	if !maps.EqualFunc(held, l.held, slices.Equal) {
		return fmt.Errorf("counts slots held for owners as %v, has %v", l.held, held)
	}
	if !maps.Equal(surges, l.surges) {
		return fmt.Errorf("counts slots held for Deployments as %v, has %v", l.surges, surges)
	}
	queued := map[*pod]bool{}
	for _, p := range l.pods {
		if p.state == Queued {
			queued[p] = true
		}
	}
	if !maps.Equal(queued, set(l.queued)) || len(queued) != len(l.queued) {
		return fmt.Errorf("keeps %d pods as queued, has %d", len(l.queued), len(queued))
	}
	for i, p := range l.queued {
		if p.at != i {
			return fmt.Errorf("pod %s is said to be at %d of the queue, is at %d", p.ref.UID, p.at, i)
		}
	}
	if l.apart.Len() != len(l.classes) {
		return fmt.Errorf("knows what keeps %d classes apart, has %d", l.apart.Len(), len(l.classes))
	}
	for key, c := range l.classes {
		var ready []*slot
		for _, s := range c.slots {
			if s.ready && s.pod == nil && s.owner == "" {
				ready = append(ready, s)
			}
			if s.free != slices.Contains(c.free, s) {
				return fmt.Errorf("class %s: slot #%d: free is %v", key, s.order, s.free)
			}
		}
		if !slices.IsSortedFunc(c.open, bySince) {
			return fmt.Errorf("class %s: open pods out of order", key)
		}
		if !slices.Equal(ready, c.free) {
			return fmt.Errorf("class %s: lists %d slots as ready and free, has %d", key, len(c.free), len(ready))
		}
		lists := map[string]map[*pod]bool{}
		for _, p := range l.pods {
			state := p.state.String()
			if p.class == c && (p.state != Open || p.slot == nil) {
				if lists[state] == nil {
					lists[state] = map[*pod]bool{}
				}
				lists[state][p] = true
			}
		}
		for state, list := range map[State]map[*pod]bool{Queued: c.queued, Open: set(c.open), Refused: c.refusedPods} {
			if len(list)+len(lists[state.String()]) > 0 && !maps.Equal(list, lists[state.String()]) {
				return fmt.Errorf("class %s: lists %d pods as %s, has %d", key, len(list), state, len(lists[state.String()]))
			}
		}
		free, owned := 0, 0
		for i, s := range c.slots {
			if i > 0 && c.slots[i-1].order >= s.order {
				return fmt.Errorf("class %s: slots out of order", key)
			}
			if s.class != c {
				return fmt.Errorf("class %s: slot of class %s", key, s.class.Key)
			}
			if slices.Index(s.node.slots, s) < 0 {
				return fmt.Errorf("class %s: slot #%d is not on its node's books", key, s.order)
			}
			if l.nodes[s.node.key] != s.node {
				return fmt.Errorf("class %s: slot #%d is on a forgotten node %s", key, s.order, s.node.key)
			}
			if s.behind && (s.ready || s.group != nil || s.pod != nil || s.owner != "") {
				return fmt.Errorf("slot #%d waits for other pods and is in use", s.order)
			}
			switch {
			case s.pod != nil && s.owner != "":
				return fmt.Errorf("slot #%d has two holders", s.order)
			case s.pod != nil:
				if s.pod.slot != s || s.pod.state != Open {
					return fmt.Errorf("slot #%d: pinned to %s, which is %s", s.order, s.pod.ref.UID, s.pod.state)
				}
			case s.owner != "":
				owned++
			default:
				free++
			}
		}
		open, waiting, known := 0, 0, 0
		for _, p := range l.pods {
			if p.class == c {
				known++
			}
			if p.class == c && p.state == Open && p.slot == nil {
				open++
			}
			if p.class == c && p.state == Planned {
				waiting++
			}
		}
		if known != c.pods {
			return fmt.Errorf("class %s: counts %d pods, has %d", key, c.pods, known)
		}
		if open != len(c.open) || waiting != len(c.waiting) {
			return fmt.Errorf("class %s: counts %d open, %d waiting; has %d, %d", key, len(c.open), len(c.waiting), open, waiting)
		}
		if free != open+waiting {
			return fmt.Errorf("class %s: %d free slots for %d open and %d waiting pods", key, free, open, waiting)
		}
		if open > len(ready) {
			return fmt.Errorf("class %s: %d pods let go for %d ready slots", key, open, len(ready))
		}
		if waiting > 0 && len(ready) > open {
			return fmt.Errorf("class %s: %d pods wait though %d slots are ready", key, waiting, len(ready)-open)
		}
	}
	for uid, b := range l.buffers {
		if len(b.chunks) > b.Chunks {
			return fmt.Errorf("buffer %s has %d chunks, wants %d", uid, len(b.chunks), b.Chunks)
		}
		for _, c := range b.chunks {
			if c.buffer != b || l.nodes[c.node.key] != c.node || slices.Index(c.node.chunks, c) < 0 || c.node.fenced {
				return fmt.Errorf("buffer %s: a chunk on %s is not on its node's books, or the node is going", uid, c.node.key)
			}
		}
	}
	for key, n := range l.nodes {
		for _, c := range n.chunks {
			if l.buffers[c.buffer.UID] != c.buffer || slices.Index(c.buffer.chunks, c) < 0 {
				return fmt.Errorf("node %s: a chunk of %s is not on its buffer's books", key, c.buffer.UID)
			}
		}
	}
	recorded := map[types.UID]bool{}
	for key := range l.nodes {
		for _, s := range l.Slots(key) {
			if s.Pod.UID == "" && s.Owner == "" || recorded[s.Pod.UID] && s.Pod.UID != "" {
				return fmt.Errorf("node %s: slot #%d is recorded for %q", key, s.Order, s.Pod.UID)
			}
			recorded[s.Pod.UID] = true
		}
	}
	pinned := map[types.UID]bool{}
	for key, n := range l.nodes {
		if n.key != key {
			return fmt.Errorf("node %s is filed under %s", n.key, key)
		}
		sums := map[int32]int64{}
		for _, s := range n.slots {
			if s.node != n || slices.Index(s.class.slots, s) < 0 {
				return fmt.Errorf("node %s: slot #%d is not on its class's books", key, s.order)
			}
			sums[s.class.Priority] += s.class.Requests["cpu"]
			if s.pod != nil {
				if pinned[s.pod.ref.UID] {
					return fmt.Errorf("pod %s has two slots", s.pod.ref.UID)
				}
				pinned[s.pod.ref.UID] = true
			}
		}
		for prio, sum := range n.reserved {
			if sum["cpu"] != sums[prio] {
				return fmt.Errorf("node %s: reserves %d cpu at priority %d, slots ask for %d", key, sum["cpu"], prio, sums[prio])
			}
		}
	}
	return nil
}
