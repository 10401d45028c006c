package provisioning

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
	"github.com/dovetail-scheduler/dovetail/pkg/moves"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/filterrefusals"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/limits"
)

// snapshot is a World of nodes whose filters refuse nothing.
type snapshot struct {
	filters
	nodes []*capacity.Node
}

func (s *snapshot) Refresh(context.Context) error { return nil }
func (s *snapshot) Has(string) bool               { return true }

func (s *snapshot) Nodes(decorate func(*capacity.Node, *corev1.Node) *capacity.Node) (out []*capacity.Node) {
	for _, n := range s.nodes {
		shown := *n
		shown.Free = n.Free.Clone()
		out = append(out, decorate(&shown, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}))
	}
	return out
}

// oneType is Claims with a pool of one type.
type oneType struct{ claims }

func (*oneType) Pools(func(string) ([]*capacity.InstanceType, error)) []*capacity.Pool {
	small := smallType()
	small.Offers = []capacity.Offer{{Zone: "a", CapacityType: "on-demand", Price: 1, Available: true}}
	return []*capacity.Pool{{Name: "pool", Types: []*capacity.InstanceType{small}}}
}

func (*oneType) ArchitecturesOpen([]capacity.OpenArchitecture) {}

// planningBeside returns planning with a move of the pod of a full node to a node that has capacity for one.
func planningBeside(t *testing.T, w *world, begun bool) *planning {
	t.Helper()
	pod := unscheduled(100)
	pod.UID, pod.Spec.NodeName = "moved", "from"
	next, class, err := w.pending.Classes.Successor(pod)
	if err != nil || next == nil {
		t.Fatal(err)
	}
	size := capacity.Resources{corev1.ResourceCPU: 1000, corev1.ResourcePods: 10}
	node := func(name string, cpu int64) *capacity.Node {
		return &capacity.Node{Name: name, Labels: map[string]string{corev1.LabelHostname: name}, Allocatable: size, Free: capacity.Resources{corev1.ResourceCPU: cpu, corev1.ResourcePods: 9}}
	}
	world := &snapshot{filters: filters{object: func(*corev1.Node) string { return "" }}, nodes: []*capacity.Node{node("from", 0), node("to", 1000)}}
	up := ledger.NodeStatus{Managed: true, Initialized: true}
	m := moves.New(w.reservations, w.pending.Classes)
	w.reservations.Fence("from")
	w.reservations.Step(func(l *ledger.Ledger, at time.Time) {
		l.Existing("to", up)
		if !l.Reserve("m", []capacity.Placement{{Class: class, Owner: "rs", Node: "to"}}, []string{"from"}, at.Add(moves.Hold), at) {
			t.Fatal("nothing is reserved")
		}
	})
	m.Reserved("from", consolidation.Move{Nodes: []string{"from"}}, map[string]bool{"to": true})
	if begun {
		if err := m.Begin("from", map[string][]*corev1.Pod{"from": {pod}}); err != nil {
			t.Fatal(err)
		}
	}
	v := &viewer{claims: &oneType{}, world: world, reservations: w.reservations, pending: w.pending, daemons: func() []*capacity.DaemonSet { return nil },
		live: func() bool { return true }, status: func(*corev1.Node) ledger.NodeStatus { return up }, storage: limits.NewStorage(w.pending.Classes.Storage()), clock: w.clock}
	return &planning{viewer: v, planner: planner.New(), world: world, nodes: builder{}, pending: w.pending, clock: w.clock, refused: filterrefusals.New(w.clock), moves: m}
}

// What is reserved for a move that has not begun goes to pods that wait if nothing has to be bought for them then. If it is of no use to them,
// the move stays: what was bought for it would be bought in vain.
func TestDemandFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		begun    bool
		buys     int
		gone     bool
		selector map[string]string
	}{
		"it would do":             {buys: 0, gone: true},
		"it is begun":             {buys: 1, begun: true},
		"it is for another place": {buys: 0, selector: map[string]string{"no": "where"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			p := planningBeside(t, w, tc.begun)
			pod := unscheduled(1)
			pod.OwnerReferences, pod.Spec.NodeSelector = nil, tc.selector
			w.pending.Handler().OnAdd(pod, false)
			class, err := w.pending.Classes.Class(pod)
			if err != nil {
				t.Fatal(err)
			}
			waiting := []ledger.Waiting{{Ref: capacity.RefOf(pod), Class: class}}
			gangs := map[pending.Group]*Gang{}
			v, plan, err := p.decide(t.Context(), waiting, gangs, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(plan.Nodes)+len(plan.Refused) == 0 {
				t.Fatalf("placed %+v beside the move", plan.Placements)
			}
			_, plan = p.demandFirst(t.Context(), v, plan, waiting, gangs, nil)
			if len(plan.Nodes) != tc.buys {
				t.Errorf("buys %d nodes, want %d", len(plan.Nodes), tc.buys)
			}
			if gone := !p.moves.Empties("from"); gone != tc.gone {
				t.Errorf("given up: %v, want %v", gone, tc.gone)
			}
		})
	}
}

// A proposal that was asked for before a move was reserved leaves the move's nodes alone: forgetting the second would release the first.
func TestNodesAreInOneMove(t *testing.T) {
	w := newWorld()
	p := planningBeside(t, w, false)
	c := &Consolidation{Moves: p.moves, planning: p}
	all := []*attempt{{Move: &consolidation.Move{Nodes: []string{"from"}}}, {Move: &consolidation.Move{Nodes: []string{"another"}}}}
	c.cordon(all)
	if all[0].fenced || all[0].why != "another move empties the node" || !all[1].fenced || all[1].why != "" {
		t.Errorf("first %+v, second %+v", all[0], all[1])
	}
}

// A pod that comes to a move's node between the plan and the cordon has no reservation. Nothing is launched for the move then: it would be given up.
func TestPodsThatComeAfterThePlan(t *testing.T) {
	at := func(uid types.UID, change func(*corev1.Pod)) *corev1.Pod {
		pod := unscheduled(100)
		pod.UID, pod.Name, pod.Spec.NodeName = uid, string(uid), "from"
		if change != nil {
			change(pod)
		}
		return pod
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod) // of the pod that comes
		known  []types.UID
		why    string
	}{
		"it came":             {known: []types.UID{"moved"}, why: "pod d/late has come to the node since the move was planned"},
		"it was there":        {known: []types.UID{"moved", "late"}},
		"it is being deleted": {known: []types.UID{"moved"}, change: func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }},
		"it has ended":        {known: []types.UID{"moved"}, change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"it is of another kind": {known: []types.UID{"moved"}, change: func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "ds", Controller: ptr.To(true)}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			p := planningBeside(t, w, false)
			c := &Consolidation{Moves: p.moves, planning: p}
			moved, late := at("moved", nil), at("late", tc.change)
			_, class, err := w.pending.Classes.Successor(moved)
			if err != nil {
				t.Fatal(err)
			}
			known := map[types.UID]bool{}
			for _, uid := range tc.known {
				known[uid] = true
			}
			a := &attempt{Move: &consolidation.Move{Nodes: []string{"from"}, Placements: []capacity.Placement{{Pod: capacity.RefOf(moved), Class: class, Node: "to"}}}}
			v := &View{}
			v.Nodes = []*capacity.Node{{Name: "from", Pods: []*corev1.Pod{moved, late}}, {Name: "to"}}
			c.match(v, []*attempt{a}, known)
			if a.why != tc.why || len(a.Placements) != 1 {
				t.Errorf("refused because %q, want %q; %d placements", a.why, tc.why, len(a.Placements))
			}
		})
	}
}
