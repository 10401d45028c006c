package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// tally counts the pods and slots of one class.
type tally struct {
	// planned pods that were bound, and the number of them that were replanned.
	planned   map[types.UID]bool
	replanned int
	// priority of its pods, and the memory that each requests, in bytes.
	priority int32
	memory   int64
	// want and got are the numbers of slots and of planned pods by node; first is want without slots recorded later.
	want, got, first map[types.UID]int
}

// judgePlacements counts, class by class, how many pods are on slots. It doesn't matter which pod of a class is on which slot.
func (h *history) judgePlacements(r *Report) {
	classes := h.tallies()
	for _, p := range h.pods {
		switch {
		case p.bound == 0:
		case isDaemon(p.last):
			r.Daemons++
		default:
			r.Pods++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		t := classes[name]
		filled, joined, slots := 0, 0, 0
		for n, want := range t.want {
			k := min(want, t.got[n])
			slots += want
			filled += k
			joined += max(0, k-t.first[n])
		}
		// If all slots are filled, no pod is off: pods created later may be on the slot of a pod that a NodeClaim names.
		off := max(0, min(len(t.planned)-t.replanned, slots)-filled)
		displaced := min(off, h.displaced(t, classes))
		off -= displaced
		short := min(off, h.short(t))
		off -= short
		r.Planned += len(t.planned)
		r.Replanned += t.replanned
		r.Displaced += displaced
		r.Short += short
		r.AsPlanned += len(t.planned) - t.replanned - displaced - short - off
		r.Joined += joined
		if off > 0 {
			r.Off = append(r.Off, fmt.Sprintf("%d of class %s: %s", off, name, h.differences(t)))
		}
	}
}

// displaced returns how many slots of the class may be used by pods of a higher priority, beyond those that had slots of their own on
// the node: promised capacity is kept only from pods of the same or a lower priority.
func (h *history) displaced(t *tally, classes map[string]*tally) int {
	n := 0
	for uid, want := range t.want {
		intruders := 0
		for _, p := range h.pods {
			if p.bound != 0 && p.node == uid && !isDaemon(p.last) && priority(p.last) > t.priority {
				intruders++
			}
		}
		for _, o := range classes {
			if o.priority > t.priority {
				intruders -= o.want[uid]
			}
		}
		n += min(max(0, intruders), max(0, want-t.got[uid]))
	}
	return n
}

// short returns how many slots of the class have too little memory on nodes that turned out, when they registered, to have less than was planned.
func (h *history) short(t *tally) int {
	n := 0
	for uid, want := range t.want {
		at := h.nodes[uid]
		if at == nil || at.reported == 0 || at.reported >= at.promised || t.memory == 0 {
			continue
		}
		used := int64(0)
		for _, p := range h.pods {
			if p.bound != 0 && p.node == uid {
				used += memory(p.last)
			}
		}
		free := max(0, at.reported-used) / t.memory
		n += max(0, want-t.got[uid]-int(free))
	}
	return n
}

func memory(p *corev1.Pod) int64 {
	m := requests(p)[corev1.ResourceMemory]
	return m.Value()
}

// tallies returns one tally per class.
func (h *history) tallies() map[string]*tally {
	out := map[string]*tally{}
	of := func(class string) *tally {
		if out[class] == nil {
			out[class] = &tally{planned: map[types.UID]bool{}, want: map[types.UID]int{}, got: map[types.UID]int{}, first: map[types.UID]int{}}
		}
		return out[class]
	}
	class := map[types.UID]string{}  // by pod
	owners := map[types.UID]string{} // class of the slots that are kept for an owner's later pods
	failed := map[types.UID]bool{}
	for _, c := range h.inOrder() {
		for order, s := range c.slots {
			if s.Owner != "" {
				owners[s.Owner] = s.Class
			} else {
				class[s.Pod.UID] = s.Class
			}
			if c.node != "" {
				of(s.Class).want[c.node]++
				if c.first[order] {
					of(s.Class).first[c.node]++
				}
			}
		}
		if n := h.nodes[c.node]; n == nil || n.deleted != 0 && n.taken == 0 { // there was no node, or it was given back
			for uid := range c.named {
				failed[uid] = true
			}
		}
	}
	siblings := h.siblings(class)
	for uid, p := range h.pods {
		name, named := class[uid]
		if s := siblings[p.owner()]; !named && p.bound != 0 && s != "" && owners[p.owner()] == "" {
			// A pod that was planned onto an existing node: no NodeClaim names it, and it may be on the slot of a pod that is named,
			// which was placed on that node instead.
			of(s).got[p.node]++
			continue
		}
		if !named {
			// It may be a pod for which a slot was kept before it was created.
			if name = owners[p.owner()]; name == "" || of(name).want[p.node] == 0 {
				continue
			}
		}
		if p.bound == 0 {
			continue
		}
		t := of(name)
		t.planned[uid] = true
		t.priority, t.memory = priority(p.last), memory(p.last)
		t.got[p.node]++
		if failed[uid] {
			t.replanned++
		}
	}
	return out
}

// siblings returns the class of each owner's pods, as far as NodeClaims state it and if all of them have the same one.
func (h *history) siblings(class map[types.UID]string) map[types.UID]string {
	out := map[types.UID]string{}
	for uid, name := range class {
		p := h.pods[uid]
		if p == nil || p.owner() == "" {
			continue
		}
		if have, ok := out[p.owner()]; ok && have != name {
			name = ""
		}
		out[p.owner()] = name
	}
	return out
}

func priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// differences lists the nodes that have more or fewer pods of a class than slots.
func (h *history) differences(t *tally) string {
	var out []string
	for uid := range h.nodes {
		if want, got := t.want[uid], t.got[uid]; want != got {
			out = append(out, fmt.Sprintf("%s has %d for %d slots", h.nodes[uid].name, got, want))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
