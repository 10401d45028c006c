package fidelity

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// TestRandomWorlds plans random worlds and checks the plans with the real filters. FIDELITY_WORLDS=N sets the number of worlds,
// FIDELITY_SEED=N runs only the world with that seed.
func TestRandomWorlds(t *testing.T) {
	worlds, first := uint64(150), uint64(0)
	for name, value := range map[string]*uint64{"FIDELITY_WORLDS": &worlds, "FIDELITY_SEED": &first} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			*value = n
		}
	}
	if os.Getenv("FIDELITY_SEED") != "" {
		worlds = 1
	}
	j := newJudge(t, shared()...)
	placed, bought, refused, failed := 0, 0, 0, 0
	for seed := first; seed < first+worlds; seed++ {
		w := j.plan(t, seed)
		placed, bought, refused = placed+len(w.plan.Placements), bought+len(w.plan.Nodes), refused+len(w.plan.Refused)
		wrong := w.check()
		if worlds == 1 && wrong > 0 {
			t.Log(w)
		}
		w.leave()
		if failed += wrong; failed > 10 {
			t.FailNow()
		}
	}
	t.Logf("%d pods placed, %d nodes bought, %d classes refused", placed, bought, refused)
	if os.Getenv("FIDELITY_SEED") == "" && (placed < 5*int(worlds) || bought < int(worlds)) {
		t.Errorf("%d worlds in which %d pods are placed and %d nodes bought aren't worth asking about", worlds, placed, bought)
	}
}

// TestWorldsThatFailed repeats worlds in which TestRandomWorlds once found a fault.
func TestWorldsThatFailed(t *testing.T) {
	j := newJudge(t, shared()...)
	for _, seed := range []uint64{
		4524, // pods that no node could hold kept other pods, spread over zones, out of the cheaper pool
		8869, // the last pod of a class counted its classmates on the node, and was refused although a node could host it
	} {
		w := j.plan(t, seed)
		w.check()
		w.leave()
	}
}

// planned is a world with its plan.
type planned struct {
	*judge
	tb    testing.TB
	seed  uint64
	scene *scene
	view  *provisioning.Scene
	pods  map[types.UID]*corev1.Pod
	plan  *capacity.Plan
	leave func()
}

func (j *judge) plan(tb testing.TB, seed uint64) *planned {
	w := &planned{judge: j, tb: tb, seed: seed, scene: newScene(seed)}
	w.leave = j.enter(tb, w.scene)
	w.view, w.pods = j.look(w.scene)
	w.plan = planner.Decide(&w.view.View, w.scene.opts)
	return w
}

// check returns how many checks the plan fails.
func (w *planned) check() (failed int) {
	for _, holds := range []func() error{w.accepted, w.nobodyLost, w.notInVain, w.notDearer, w.again} {
		if err := holds(); err != nil {
			w.tb.Errorf("world %d (FIDELITY_SEED=%d tells more): %v", w.seed, w.seed, err)
			failed++
		}
	}
	return failed
}

// accepted checks that the filters accept every placement on its node, in the plan's order.
func (w *planned) accepted() error {
	if refused := w.verify(w.tb, trial(w.view, w.plan, w.pods)); len(refused) > 0 {
		return fmt.Errorf("the filters refuse %d placements: %s", len(refused), strings.Join(refused, "\n"))
	}
	return nil
}

// nobodyLost checks that every pod is either placed or refused, exactly once, that no new node is empty, and that gangs are placed as
// a whole or not at all.
func (w *planned) nobodyLost() error {
	answers, used, gangs := map[types.UID]int{}, map[string]bool{}, map[*capacity.Gang]int{}
	for _, p := range w.plan.Placements {
		answers[p.Pod.UID]++
		used[p.Node] = true
		if g := w.scene.gangs[p.Pod.UID]; g != nil {
			gangs[g]++
		}
	}
	for _, r := range w.plan.Refused {
		for _, p := range r.Pods {
			answers[p.UID]++
		}
	}
	for uid := range w.pods {
		if answers[uid] != 1 {
			return fmt.Errorf("%s has %d answers", uid, answers[uid])
		}
	}
	if len(answers) != len(w.pods) {
		return fmt.Errorf("%d pods have answers, there are %d", len(answers), len(w.pods))
	}
	for _, n := range w.plan.Nodes {
		if !used[n.ID] {
			return fmt.Errorf("%s is empty", n.ID)
		}
	}
	for g, n := range gangs {
		if n < g.Missing {
			return fmt.Errorf("%d pods of a gang that needs %d", n, g.Missing)
		}
	}
	return nil
}

// again checks that planning the same world again gives the same plan.
func (w *planned) again() error {
	s := newScene(w.seed)
	view, _ := w.look(s)
	if diff := cmp.Diff(describe(w.plan), describe(planner.Decide(&view.View, s.opts))); diff != "" {
		return fmt.Errorf("planned differently again (-first +second):\n%s", diff)
	}
	return nil
}

// describe formats a plan, one line per node and placement.
func describe(p *capacity.Plan) string {
	var b strings.Builder
	for _, n := range p.Nodes {
		fmt.Fprintf(&b, "%s: %s %s %s %v %v, %d offers\n", n.ID, n.Pool.Name, n.Offers[0].Type.Name, n.CapacityType, n.Offers[0].Offer.Zone, n.Labels, len(n.Offers))
	}
	for _, pl := range p.Placements {
		fmt.Fprintf(&b, "%s -> %s\n", pl.Pod.Name, pl.Node)
	}
	for _, r := range p.Refused {
		fmt.Fprintf(&b, "refused %v: %s\n", r.Pods, r.Message)
	}
	return b.String()
}

func spreads(all []corev1.TopologySpreadConstraint) []string {
	var out []string
	for _, c := range all {
		out = append(out, fmt.Sprintf("{%s %d %s %v %v min %v affinity %v taints %v}", c.TopologyKey, c.MaxSkew, c.WhenUnsatisfiable, c.LabelSelector, c.MatchLabelKeys,
			ptr.Deref(c.MinDomains, 0), ptr.Deref(c.NodeAffinityPolicy, ""), ptr.Deref(c.NodeTaintsPolicy, "")))
	}
	return out
}

// String describes the world for the message of a failed test.
func (w *planned) String() string {
	var b strings.Builder
	for _, n := range w.view.Nodes {
		fmt.Fprintf(&b, "node %s free %v labels %v taints %v cordoned %v\n", n.Name, n.Free, n.Labels, n.Taints, n.Unschedulable)
		for _, p := range n.Pods {
			fmt.Fprintf(&b, "  %s/%s %v deleted %v %v\n", p.Namespace, p.Name, p.Labels, p.DeletionTimestamp != nil, p.Spec.Affinity)
		}
	}
	for _, p := range w.view.Pools {
		fmt.Fprintf(&b, "pool %s weight %d labels %v requirements %v taints %v limits %v used %v %s\n", p.Name, p.Weight, p.Labels, p.Requirements, p.Taints, p.Limits, p.Used, p.Unready)
	}
	for _, d := range w.view.DaemonSets {
		fmt.Fprintf(&b, "daemon %s %v %v\n", d.Name, d.Class.Requests, d.Class.Pod.Spec.NodeSelector)
	}
	for i := range w.view.Demand {
		d := &w.view.Demand[i]
		s := d.Class.Pod.Spec
		fmt.Fprintf(&b, "%d x %s/%v asks %v selector %v affinity %v spread %v tolerations %v volumes %v ports %v gang %v\n", len(d.Pods), d.Class.Namespace, d.Class.Labels, d.Class.Requests,
			s.NodeSelector, s.Affinity, spreads(s.TopologySpreadConstraints), s.Tolerations, s.Volumes, d.Class.HostPorts, d.Gang)
	}
	b.WriteString(describe(w.plan))
	return b.String()
}
