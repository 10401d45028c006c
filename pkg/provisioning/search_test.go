package provisioning

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/filterrefusals"
)

const teamLabel = "team"

// teams has one pool per team, the first of the highest weight, for a pod that doesn't name its team. The filters know the team, the
// planner doesn't.
func teams(t *testing.T, pools int, zones ...string) *Scene {
	class, err := capacity.ClassOf(unscheduled(0), capacity.VolumeInfo{})
	if err != nil {
		t.Fatal(err)
	}
	small := *smallType()
	small.Offers = nil
	for _, zone := range zones {
		for _, ct := range []string{"on-demand", "spot"} {
			small.Offers = append(small.Offers, capacity.Offer{Zone: zone, CapacityType: ct, Price: 1, Available: true})
		}
	}
	types := []*capacity.InstanceType{&small}
	s := &Scene{View: capacity.View{Demand: []capacity.Demand{{Class: class, Pods: []capacity.PodRef{capacity.RefOf(unscheduled(0))}}}}}
	for i := range pools {
		name := fmt.Sprintf("pool-%d", i+1)
		s.Pools = append(s.Pools, &capacity.Pool{Name: name, Weight: int32(pools - i), Types: types, Labels: map[string]string{teamLabel: name}})
	}
	return s
}

// only returns filters that accept nodes with these labels.
func only(labels map[string]string) *filters {
	return &filters{object: func(n *corev1.Node) string {
		for k, v := range labels {
			if n.Labels[k] != v {
				return "not for this team"
			}
		}
		return ""
	}}
}

func deciderFor(world Filters, clock *clocktesting.FakePassiveClock) *Decider {
	return &Decider{Planner: planner.New(), World: world, Nodes: builder{}, Pod: func(types.UID) *corev1.Pod { return nil },
		Patience: defaultPatience, Clock: clock, memory: filterrefusals.New(clock)}
}

func mustDecide(t *testing.T, d *Decider, s *Scene) *capacity.Plan {
	t.Helper()
	plan, err := d.Decide(t.Context(), s, capacity.Options{Effort: DefaultEffort})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// A filter that the planner doesn't know accepts one kind of node only. It is found in the first round, wherever it is in the order.
func TestDecideFindsWhatTheFiltersAccept(t *testing.T) {
	for _, tc := range []struct {
		name   string
		pools  int
		accept map[string]string
	}{
		{"the last of three pools", 3, map[string]string{teamLabel: "pool-3"}},
		{"the second of three pools", 3, map[string]string{teamLabel: "pool-2"}},
		{"one zone of the last pool", 3, map[string]string{teamLabel: "pool-3", corev1.LabelTopologyZone: "b"}},
		{"one capacity type in one zone of the second pool", 3, map[string]string{teamLabel: "pool-2", corev1.LabelTopologyZone: "b", "karpenter.sh/capacity-type": "spot"}},
		{"the last of a hundred pools", 100, map[string]string{teamLabel: "pool-100"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := mustDecide(t, deciderFor(only(tc.accept), clocktesting.NewFakePassiveClock(time.Time{})), teams(t, tc.pools, "a", "b"))
			if len(plan.Nodes) != 1 || len(plan.Placements) != 1 || len(plan.Refused) != 0 {
				t.Fatalf("%d nodes, %d pods placed, refused: %v", len(plan.Nodes), len(plan.Placements), plan.Refused)
			}
			if got := plan.Nodes[0].Pool.Name; got != tc.accept[teamLabel] {
				t.Errorf("bought from %s", got)
			}
		})
	}
}

// Demand of other classes is planned for as often as the plan changes, not as often as a filter refuses.
func TestDecideAsksAboutAClassAlone(t *testing.T) {
	scene := teams(t, 20, "a", "b")
	other := unscheduled(1)
	other.Labels = map[string]string{"app": "other"}
	class, err := capacity.ClassOf(other, capacity.VolumeInfo{})
	if err != nil {
		t.Fatal(err)
	}
	d := capacity.Demand{Class: class}
	for i := range 50 {
		d.Pods = append(d.Pods, capacity.RefOf(unscheduled(100+i)))
	}
	scene.Demand = append(scene.Demand, d)
	picky := scene.Demand[0].Class.Key
	f := only(map[string]string{teamLabel: "pool-20"})
	world := &stepFilters{filters: f, of: picky}
	plan := mustDecide(t, deciderFor(world, clocktesting.NewFakePassiveClock(time.Time{})), scene)
	if len(plan.Placements) != 51 {
		t.Errorf("%d of 51 pods placed, refused: %v", len(plan.Placements), plan.Refused)
	}
	if world.large > 3 {
		t.Errorf("everything was planned %d times", world.large)
	}
}

// stepFilters refuse one class only, and count verifications of whole plans.
type stepFilters struct {
	*filters
	of    capacity.ClassKey
	large int
}

func (f *stepFilters) Verify(ctx context.Context, t capacity.Trial) ([]capacity.Rejection, error) {
	if !t.Alone {
		f.large++
	}
	all, err := f.filters.Verify(ctx, t)
	var out []capacity.Rejection
	for _, r := range all {
		if t.Steps[r.Step].Class == f.of {
			out = append(out, r)
		}
	}
	return out, err
}

// Hundreds of nodes have capacity that the pod may not use. The filters are asked about all of them at once.
func TestDecideAsksAboutExistingNodesAtOnce(t *testing.T) {
	scene := teams(t, 3, "a")
	for i := range 500 {
		scene.Nodes = append(scene.Nodes, &capacity.Node{Name: fmt.Sprintf("node-%d", i), Allocatable: capacity.Resources{"cpu": 64000, "memory": 1 << 40, "pods": 100},
			Free: capacity.Resources{"cpu": 64000, "memory": 1 << 40, "pods": 100}, Labels: map[string]string{"kubernetes.io/hostname": fmt.Sprintf("node-%d", i)}})
	}
	f := &filters{object: func(n *corev1.Node) string {
		if n == nil { // an existing node
			return "not for this team"
		}
		return ""
	}}
	plan := mustDecide(t, deciderFor(f, clocktesting.NewFakePassiveClock(time.Time{})), scene)
	if len(plan.Nodes) != 1 || f.trials > 4 {
		t.Errorf("%d new nodes after %d trials, refused: %v", len(plan.Nodes), f.trials, plan.Refused)
	}
}

// A search that time cuts short continues in the next round, and reports only what it knows.
func TestDecideGoesOnWhereItStood(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	scene := teams(t, 10, "a", "b")
	scene.Demand = nil
	const classes = 20
	for i := range classes {
		pod := unscheduled(i)
		pod.Labels = map[string]string{"app": fmt.Sprint(i)}
		class, err := capacity.ClassOf(pod, capacity.VolumeInfo{})
		if err != nil {
			t.Fatal(err)
		}
		scene.Demand = append(scene.Demand, capacity.Demand{Class: class, Pods: []capacity.PodRef{capacity.RefOf(pod)}})
	}
	world := &slowFilters{filters: only(map[string]string{teamLabel: "pool-10"}), clock: clock, took: defaultPatience / 6}
	d := deciderFor(world, clock)
	rounds, placed := 0, 0
	for ; placed < classes && rounds < 10; rounds++ {
		began := clock.Now()
		plan := mustDecide(t, d, scene)
		if took := clock.Since(began); took > defaultPatience+world.took {
			t.Fatalf("a round took %v", took)
		}
		if len(plan.Placements) < placed {
			t.Fatalf("%d pods placed after %d", len(plan.Placements), placed)
		}
		placed = len(plan.Placements)
		for _, r := range plan.Refused {
			if strings.Contains(r.Message, "every node") || !strings.Contains(r.Message, "that were tried") || !r.Retryable {
				t.Fatalf("a pod is refused with %q", r.Message)
			}
		}
	}
	if placed != classes || rounds < 3 {
		t.Errorf("%d of %d pods placed after %d rounds", placed, classes, rounds)
	}
}

// slowFilters take a while for every verification.
type slowFilters struct {
	*filters
	clock *clocktesting.FakePassiveClock
	took  time.Duration
}

func (f *slowFilters) Verify(ctx context.Context, t capacity.Trial) ([]capacity.Rejection, error) {
	f.clock.SetTime(f.clock.Now().Add(f.took))
	return f.filters.Verify(ctx, t)
}

// Refusals are remembered for the next pod of the class, until something changes or time has passed.
func TestDecideRemembersWhatWasRefused(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	accept := map[string]string{teamLabel: "pool-3"}
	f := only(accept)
	d, scene := deciderFor(f, clock), teams(t, 3, "a")
	trials := func() int {
		before := f.trials
		if plan := mustDecide(t, d, scene); len(plan.Nodes) != 1 {
			t.Fatalf("%d nodes, refused: %v", len(plan.Nodes), plan.Refused)
		}
		return f.trials - before
	}
	first := trials()
	if again := trials(); again != 1 {
		t.Errorf("%d tries for the second pod, %d for the first", again, first)
	}
	scene.Pools[0].Limits = capacity.Resources{capacity.ResourceNodes: 100} // filters don't see that
	if again := trials(); again != 1 {
		t.Errorf("%d tries after a pool's limit was changed", again)
	}
	changed := *scene.Pools[0]
	changed.Labels = map[string]string{teamLabel: "pool-3"}
	scene.Pools[0] = &changed
	if plan := mustDecide(t, d, scene); len(plan.Nodes) != 1 || plan.Nodes[0].Pool.Name != "pool-1" {
		t.Errorf("the pool of the highest weight fits by now, refused: %v", plan.Refused)
	}
	clock.SetTime(clock.Now().Add(filterrefusals.Life))
	delete(accept, teamLabel)
	scene = teams(t, 3, "a")
	if plan := mustDecide(t, d, scene); len(plan.Nodes) != 1 || plan.Nodes[0].Pool.Name != "pool-1" {
		t.Errorf("after %v the first pool wasn't asked again", filterrefusals.Life)
	}
}

// A class that is refused everywhere is verified anew whenever it is planned for: no event shows that a filter would decide differently.
func TestDecideAsksAnewAboutWhatWasHopeless(t *testing.T) {
	f := only(map[string]string{teamLabel: "nobody"})
	d, scene := deciderFor(f, clocktesting.NewFakePassiveClock(time.Unix(0, 0))), teams(t, 3, "a")
	plan := mustDecide(t, d, scene)
	if len(plan.Nodes) != 0 || !strings.Contains(plan.Refused[0].Message, "on every node that could be launched for it (6 tried, ") {
		t.Fatalf("%d nodes, refused: %v", len(plan.Nodes), plan.Refused)
	}
	f.object = func(*corev1.Node) string { return "" }
	if plan := mustDecide(t, d, scene); len(plan.Nodes) != 1 {
		t.Errorf("refused still: %v", plan.Refused)
	}
}
