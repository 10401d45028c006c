// Package moves keeps the moves of the consolidation for which capacity is reserved, from their reservation until they are given up for pods
// that wait, or forgotten once their nodes have gone. It reserves nothing and ends nothing: the planner's goroutine reserves
// (pkg/provisioning), the disruption controller begins and forgets (pkg/disruption).
package moves

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// Hold is how long capacity is reserved for a move that has not begun, from the last time that its reservations were extended (Ready, Keep).
const Hold = time.Minute

// drainHold is how long capacity is reserved for a move that has begun, likewise. It is longer than Hold, because the claims of the move's nodes are
// deleted, which can't be undone: their pods are evicted even if nothing extends the reservations for a while, because disruption is paused, a call
// to the API server takes long, the process stood still, or its clock has jumped. Forget releases what is left at the end.
const drainHold = 15 * time.Minute

// Moves are the consolidation's moves for which capacity is reserved. As long as a move has not begun to drain its nodes it is given up when
// pods that wait need its capacity. Safe for concurrent use.
//
//	reserved -> begun -> forgotten: by the disruption controller (Begin, or Surge before; Forget)
//	reserved -> given up:           by the planner's goroutine, for demand
type Moves struct {
	reservations *reservations.Ledger
	classes      *pending.Classes

	// mu is held while a move begins or is given up, so that only one of them happens. It is taken before the ledger's.
	mu   sync.Mutex
	open map[string]*openMove // by key
	// gone says, by key, why moves were given up, until they are forgotten.
	gone map[string]error
	// unpaid are the moves that have begun since the last pass: their cost has to be taken from what has accrued.
	unpaid []consolidation.Move
}

// openMove is a move with reserved capacity.
type openMove struct {
	consolidation.Move
	begun bool
	// surges: it has begun, and waits for the pods of Deployments before the other pods are evicted.
	surges bool
	// uses are the nodes on which capacity is reserved: by name or, if they were launched for the move, by claim.
	uses map[string]bool
}

// until returns until when its reservations last if they are extended now.
func (mv *openMove) until(now time.Time) time.Time {
	if mv.begun {
		return now.Add(drainHold)
	}
	return now.Add(Hold)
}

// New returns Moves without any.
func New(r *reservations.Ledger, classes *pending.Classes) *Moves {
	return &Moves{reservations: r, classes: classes, open: map[string]*openMove{}, gone: map[string]error{}}
}

// Ready is told the reschedulable pods that are on each of a move's nodes now. It extends the reservations, and reports whether
// there is capacity for all of them on initialized nodes; otherwise the error says why the move can't be made any more, or is nil while nodes
// are being launched.
func (m *Moves) Ready(key string, now map[string][]*corev1.Pod) (ready bool, err error) {
	return m.check(key, now, nil)
}

// Surge does what Ready does, and from then on the move is no longer given up for pending pods. surging are those of its pods that their Deployments
// replace by a roll-out: what is reserved for these is for the next pods of their Deployments, of whatever ReplicaSet. No pod gets the other
// reservations before Begin. After an error nothing has changed.
func (m *Moves) Surge(key string, now map[string][]*corev1.Pod, surging []*corev1.Pod) error {
	ready, err := m.check(key, now, func(mv *openMove, l *ledger.Ledger) {
		mv.surges = true
		for _, pod := range surging {
			l.Surge(pod.Spec.NodeName, objects.Controller(pod), objects.DeploymentOf(pod))
		}
	})
	if err == nil && !ready {
		return errLaunching
	}
	return err
}

// errLaunching is why a move can't begin yet.
var errLaunching = errors.New("the nodes for its pods are not initialized yet")

// Newcomer returns a pod on one of a move's nodes that was bound there after the move was planned, and for whose replacement nothing is reserved;
// nil: there is none. bound are the pods on the nodes now, known those from which the move was planned. A pod counts only if placements reserve
// capacity for other pods of its controller and class: it isn't known here which further pods need another node.
func (m *Moves) Newcomer(bound map[types.UID]*corev1.Pod, placements []capacity.Placement, known map[types.UID]bool) *corev1.Pod {
	leaving := map[ledger.Successor]bool{}
	for i := range placements {
		leaving[ledger.Successor{Owner: objects.Controller(bound[placements[i].Pod.UID]), Class: placements[i].Class.Key}] = true
	}
	for uid, pod := range bound {
		if known[uid] || pod.DeletionTimestamp != nil || objects.Ended(pod) {
			continue
		}
		if _, class, err := m.classes.Successor(pod); err == nil && leaving[ledger.Successor{Owner: objects.Controller(pod), Class: class.Key}] {
			return pod
		}
	}
	return nil
}

// Begin does what Ready does, and from then on the move is no longer given up for pending pods, and its reservations are for the pods that the
// controllers of its pods create in their place. After an error the move has not begun.
func (m *Moves) Begin(key string, now map[string][]*corev1.Pod) error {
	ready, err := m.check(key, now, func(mv *openMove, l *ledger.Ledger) {
		mv.surges = false
		for _, node := range mv.Nodes {
			l.Begin(node)
		}
	})
	if err == nil && !ready {
		return errLaunching
	}
	return err
}

// check does what Ready does. begin, if set, is called if all is ready: the move has begun then.
func (m *Moves) check(key string, now map[string][]*corev1.Pod, begin func(*openMove, *ledger.Ledger)) (ready bool, err error) {
	wanted := map[string]map[ledger.Successor][]*corev1.Pod{}
	for node, pods := range now {
		if wanted[node], err = m.classes.Successors(pods); err != nil {
			return false, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	mv := m.open[key]
	if mv == nil {
		if why := m.gone[key]; why != nil {
			return false, why
		}
		return false, errors.New("no capacity is reserved for it any more")
	}
	ready = true
	m.reservations.Step(func(l *ledger.Ledger, at time.Time) {
		for _, node := range mv.Nodes {
			l.Extend(node, mv.until(at))
			held, up := l.Held(node)
			total := 0
			for _, n := range held {
				total += n
			}
			if pods := Missing(wanted[node], held); len(pods) > 0 && (!mv.begun || mv.surges) {
				err = fmt.Errorf("no capacity is reserved for %s of node %s (%d without)", klog.KObj(first(pods)), node, len(pods))
				return
			}
			ready = ready && up == total
		}
		if ready && begin != nil {
			begin(mv, l)
			for _, node := range mv.Nodes {
				l.Extend(node, at.Add(drainHold))
			}
		}
	})
	if err != nil {
		return false, err
	}
	if ready && begin != nil && !mv.begun {
		mv.begun = true
		if mv.Reason == consolidation.Underutilized { // what is made for another reason has nothing to pay for
			m.unpaid = append(m.unpaid, mv.Move)
		}
	}
	return ready, nil
}

// first returns the first of some pods by name, so that a message about them stays the same.
func first(pods []*corev1.Pod) *corev1.Pod {
	return slices.MinFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// Missing returns the pods for whose replacements no capacity is reserved, in no particular order.
func Missing(wanted map[ledger.Successor][]*corev1.Pod, held map[ledger.Successor]int) (out []*corev1.Pod) {
	for key, pods := range wanted {
		out = append(out, pods[min(held[key], len(pods)):]...)
	}
	return out
}

// Keep extends the reservations of a move.
func (m *Moves) Keep(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mv := m.open[key]; mv != nil {
		m.reservations.Step(func(l *ledger.Ledger, at time.Time) {
			for _, node := range mv.Nodes {
				l.Extend(node, mv.until(at))
			}
		})
	}
}

// Forget releases what is left of a move's reservations, and lifts the cordon of those of its nodes that are not being removed.
func (m *Moves) Forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.gone, key)
	if mv := m.open[key]; mv != nil {
		m.release(mv)
		delete(m.open, key)
	}
}

// Leave gives up the moves that need a node and have not begun, because the node has to end. Moves that have begun go on: their pods are
// being moved already.
func (m *Moves) Leave(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, mv := range m.open {
		if !mv.begun && (mv.uses[node] || slices.Contains(mv.Nodes, node)) {
			m.gone[key] = fmt.Errorf("node %s, which it needs, has to end", node)
			m.release(mv)
			delete(m.open, key)
		}
	}
}

func (m *Moves) release(mv *openMove) {
	m.reservations.Step(func(l *ledger.Ledger, _ time.Time) {
		for _, node := range mv.Nodes {
			l.Release(node)
		}
		for _, node := range mv.Nodes {
			l.Unfence(node)
		}
	})
}

// Reserved records a move whose capacity is reserved and whose nodes are cordoned in the ledger.
func (m *Moves) Reserved(key string, move consolidation.Move, uses map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[key] = &openMove{Move: move, uses: uses}
	delete(m.gone, key)
}

// Empties reports whether a move that is not forgotten empties the node.
func (m *Moves) Empties(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, mv := range m.open {
		if slices.Contains(mv.Nodes, node) {
			return true
		}
	}
	return false
}

// TakeUnpaid returns the moves that have begun since the last call.
func (m *Moves) TakeUnpaid() []consolidation.Move {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.unpaid
	m.unpaid = nil
	return out
}

// Yielding returns the nodes that would be emptied by moves that have not begun; empty: there are none.
func (m *Moves) Yielding() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]bool{}
	for _, mv := range m.open {
		if !mv.begun {
			for _, node := range mv.Nodes {
				out[node] = true
			}
		}
	}
	return out
}

// GiveUp gives up the moves that are in the way of a plan: it places pods on their nodes, or where capacity is reserved for them. yields is what
// Yielding returned before; claim returns the NodeClaim of a node. If one of these moves has begun meanwhile, GiveUp does nothing and returns false.
func (m *Moves) GiveUp(plan *capacity.Plan, claim func(node string) string, yields map[string]bool) bool {
	used := map[string]bool{}
	for _, pl := range plan.Placements {
		used[pl.Node] = true
		if of := claim(pl.Node); of != "" {
			used[of] = true
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(m.open)) {
		mv := m.open[key]
		touched := slices.ContainsFunc(mv.Nodes, func(node string) bool { return used[node] })
		for node := range mv.uses {
			touched = touched || used[node]
		}
		switch {
		case !touched:
		case mv.begun && yields[mv.Nodes[0]]:
			return false
		case !mv.begun:
			keys = append(keys, key)
		}
	}
	m.drop(keys)
	return true
}

// GiveUpAll gives up all moves that have not begun, and reports whether there were any.
func (m *Moves) GiveUpAll() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(m.open)) {
		if !m.open[key].begun {
			keys = append(keys, key)
		}
	}
	m.drop(keys)
	return len(keys) > 0
}

// drop gives moves up because pending pods need their capacity; mu is held.
func (m *Moves) drop(keys []string) {
	for _, key := range keys {
		m.gone[key] = consolidation.ErrDemand
		m.release(m.open[key])
		delete(m.open, key)
	}
}
