package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Scenes in which nodes are emptied to save money.

// Emptied judges all nodes that are emptied from now on, and all evictions from them; see emptyings. The function it returns returns how
// many nodes were emptied, and how many of their pods were evicted, by now. No node of such a scene ends for another reason while it has pods.
func (s *Stage) Emptied() func() (nodes, evictions int) {
	e := newEmptyings(s.api, s.ec2, func() (time.Duration, bool) { return look, false })
	e.starts(s.starts)
	s.emptied = e
	told := map[string]bool{}
	s.Each(func() {
		if err := e.look(); err != nil {
			s.Failf("%v", err)
		}
		for _, claim := range e.claims() {
			if told[claim] {
				continue
			}
			if _, err := e.outcome(claim, func(string) bool { return true }); err != nil {
				told[claim] = true
				s.Failf("%v", err)
			}
		}
	})
	return func() (int, int) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.nodes), e.evicted
	}
}

func (e *emptyings) claims() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.nodes))
}

// Price returns what the instances that live cost, in dollars per hour.
func (s *Stage) Price() (sum float64) {
	for _, in := range s.ec2.Live() {
		sum += in.Price
	}
	return sum
}

// Consistent describes what isn't consistent; empty: instances, NodeClaims and Nodes correspond to each other, all are initialized, none is
// being terminated or marked for it, and each node has pods.
func (s *Stage) Consistent() string {
	r := newReader()
	v, err := r.look(s.api, s.ec2)
	if err != nil {
		return err.Error()
	}
	live := len(s.ec2.Live())
	if len(v.claims) != live || len(v.nodes) != live {
		return fmt.Sprintf("%d instances, %d claims and %d Nodes", live, len(v.claims), len(v.nodes))
	}
	busy := map[string]bool{}
	for _, p := range v.pods {
		if lives(p) && !daemonic(p) {
			busy[p.Spec.NodeName] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.claims)) {
		claim := v.claims[name]
		node := v.nodes[claim.Status.NodeName]
		switch {
		case claim.DeletionTimestamp != nil:
			return "claim " + name + " is ending"
		case node == nil || !v.live[claim.Status.ProviderID] || !condition(claim, karpv1.ConditionTypeInitialized):
			return "claim " + name + " has no initialized node"
		case !busy[node.Name]:
			return "nobody needs node " + node.Name
		case len(node.Spec.Taints) > 0:
			return fmt.Sprintf("Node %s has taints: %v", node.Name, node.Spec.Taints)
		}
	}
	return ""
}

// Kept returns why the product keeps nodes, by kind: how many, and the text of one of them.
func (s *Stage) Kept() map[string]string {
	r := newReader()
	v, err := r.look(s.api, s.ec2)
	if err != nil {
		return nil
	}
	count, texts := map[string]int{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(v.claims)) {
		kind, text, _ := strings.Cut(v.claims[name].Annotations["dovetail.sh/kept"], ": ")
		count[kind]++
		texts[kind] = text
	}
	for kind, n := range count {
		texts[kind] = fmt.Sprintf("%d, such as: %s", n, texts[kind])
	}
	return texts
}

// mortal are points at which the product is killed, once each.
type mortal struct {
	mu    sync.Mutex
	due   map[point]bool
	kills []string
}

// killsAt reports whether the process that passes the point is to be killed there.
func (m *mortal) killsAt(p *process, at point) bool {
	if m == nil || p.killed.Load() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.due[at] {
		return false
	}
	delete(m.due, at)
	m.kills = append(m.kills, at.String())
	return true
}

// KillOnceAt kills the product once before and once after each of these calls, in the order in which it makes them, and starts it again five
// seconds later. The function it returns returns the points that were passed, and those that were not.
func (s *Stage) KillOnceAt(calls ...string) func() (passed, left []string) {
	m := &mortal{due: map[point]bool{}}
	for _, p := range pointsOf(calls...) {
		m.due[p] = true
	}
	s.mortal = m
	return func() (passed, left []string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for p := range m.due {
			left = append(left, p.String())
		}
		slices.Sort(left)
		return slices.Clone(m.kills), left
	}
}
