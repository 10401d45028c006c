package capacity

import (
	"fmt"
	"slices"
)

// Removal says why a placement has to leave a plan.
type Removal struct {
	// Message is the reason with which its pod is refused for now.
	Message string
	// Soon: within the time that a node takes to boot it will be known whether the pod gets a node after all (Refusal.Soon).
	Soon bool
	// RestHolds: the other placements were verified without this one, so they stay valid without it. Otherwise the rest of its group has
	// to go as well: pods that were placed relative to others may not be allowed there any more.
	RestHolds bool
}

// Remove removes placements from the plan, by their index, and refuses their pods for now. With a placement it removes
//
//   - the other placements of its group, unless they were verified without it (Removal.RestHolds);
//   - its gang, if fewer pods of the gang would be left than it needs to run, and then the groups of its members;
//   - planned nodes whose last placement it removes.
//
// The remaining placements keep their order.
func (p *Plan) Remove(out map[int]Removal) {
	if len(out) == 0 {
		return
	}
	gone := make([]*Removal, len(p.Placements))
	for i, r := range out {
		gone[i] = &r
	}
	for p.removeGroups(gone) || p.removeGangs(gone) {
	}
	p.refuse(gone)
	empty := map[string]bool{}
	kept := p.Placements[:0]
	for i, pl := range p.Placements {
		if gone[i] != nil {
			empty[pl.Node] = true
		} else {
			kept = append(kept, pl)
		}
	}
	for _, pl := range kept {
		delete(empty, pl.Node)
	}
	p.Placements = kept
	p.LowerBound = 0 // it counts what was removed
	p.drop(func(id string) bool { return empty[id] })
}

// RemoveNodes removes planned nodes from the plan, by their ID, and their placements as Remove does. A node that never had a placement, such as one
// for a static pool, leaves the plan only if out names it.
func (p *Plan) RemoveNodes(out map[string]Removal) {
	gone := map[int]Removal{}
	for i, pl := range p.Placements {
		if r, ok := out[pl.Node]; ok {
			gone[i] = r
		}
	}
	p.Remove(gone)
	p.drop(func(id string) bool {
		_, named := out[id]
		return named
	})
}

// drop removes the planned nodes for whose ID gone returns true. Their placements have been removed before.
func (p *Plan) drop(gone func(id string) bool) {
	p.Nodes = slices.DeleteFunc(p.Nodes, func(n *PlannedNode) bool {
		if !gone(n.ID) {
			return false
		}
		p.CostPerHour -= n.Price
		return true
	})
}

// removeGroups marks, in gone, the other placements of groups that lose a placement, unless they were verified without it. It reports whether it has
// marked any.
func (p *Plan) removeGroups(gone []*Removal) (some bool) {
	groups := map[int]*Removal{}
	for i, pl := range p.Placements {
		if gone[i] != nil && !gone[i].RestHolds && pl.Group != 0 && groups[pl.Group] == nil {
			groups[pl.Group] = gone[i]
		}
	}
	for i, pl := range p.Placements {
		if r := groups[pl.Group]; r != nil && gone[i] == nil {
			gone[i], some = r, true
		}
	}
	return some
}

// removeGangs marks, in gone, the other placements of gangs that have lost too many pods, and reports whether it has marked any.
func (p *Plan) removeGangs(gone []*Removal) (some bool) {
	type count struct {
		left, missing int
		lost          *Removal
	}
	gangs := map[string]*count{}
	for i, pl := range p.Placements {
		if pl.Gang == nil {
			continue
		}
		g := gangs[pl.Gang.Key]
		if g == nil {
			g = &count{}
			gangs[pl.Gang.Key] = g
		}
		g.missing = max(g.missing, pl.Gang.Missing)
		if gone[i] == nil {
			g.left++
		} else if g.lost == nil {
			g.lost = gone[i]
		}
	}
	for i, pl := range p.Placements {
		if pl.Gang == nil || gone[i] != nil {
			continue
		}
		if g := gangs[pl.Gang.Key]; g.lost != nil && g.left < g.missing {
			gone[i] = &Removal{Message: fmt.Sprintf("not all of the %d pods that its group needs can be placed: %s", g.missing, g.lost.Message), Soon: g.lost.Soon}
			some = true
		}
	}
	return some
}

// refuse refuses the pods of removed placements. Those of a class with the same reason become one Refusal.
func (p *Plan) refuse(gone []*Removal) {
	type key struct {
		class   ClassKey
		message string
	}
	at := map[key]int{}
	for i, pl := range p.Placements {
		if gone[i] == nil || pl.Owner != "" { // an anticipated pod doesn't exist yet
			continue
		}
		k := key{pl.Class.Key, gone[i].Message}
		if _, ok := at[k]; !ok {
			at[k] = len(p.Refused)
			p.Refused = append(p.Refused, Refusal{Class: pl.Class, Message: gone[i].Message, Retryable: true, Soon: gone[i].Soon})
		}
		p.Refused[at[k]].Pods = append(p.Refused[at[k]].Pods, pl.Pod)
	}
}
