package bench

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/simulate"
)

// BenchmarkFindPool searches the one pool of many that a filter accepts, with a filter that the planner doesn't know: for one pod, in
// three zones with the whole catalogue, beside the real filters and 5,000 full nodes. trials is how often the filters were called.
// Times are the sum over all CPUs.
func BenchmarkFindPool(b *testing.B) {
	for _, bc := range []struct{ pools, others int }{{3, 0}, {100, 0}, {100, 1000}} {
		b.Run(fmt.Sprintf("%d pools, %d other pods", bc.pools, bc.others), func(b *testing.B) {
			r := newRig(b)
			r.fullNodes(5000)
			s := r.burst(offered(b), bc.others, 20, func(*corev1.Pod) {})
			s.demand = slices.DeleteFunc(s.demand, func(d capacity.Demand) bool { return len(d.Pods) == 0 })
			p := r.pod("picky", "500m", func(*corev1.Pod) {})
			class := r.class(p)
			s.demand = append(s.demand, capacity.Demand{Class: class, Pods: []capacity.PodRef{{UID: p.UID, Namespace: p.Namespace, Name: p.Name}}})
			s.pods[p.UID] = p
			var pools []*capacity.Pool
			for i := range bc.pools {
				pool := *s.pool
				pool.Name, pool.Weight = fmt.Sprintf("pool-%d", i+1), int32(bc.pools-i)
				pool.Labels = map[string]string{"team": pool.Name}
				pools = append(pools, &pool)
			}
			f := &byTeam{World: s.world, class: class.Key, team: pools[len(pools)-1].Name}
			if err := s.world.Refresh(s.ctx); err != nil {
				b.Fatal(err)
			}
			scene := &provisioning.Scene{View: capacity.View{Nodes: s.world.Nodes(nil), Pools: pools, Demand: s.demand}}
			decider, _ := s.decider()
			decider.World, decider.Patience, decider.Clock = f, time.Minute, clock.RealClock{}
			var cpu samples
			for b.Loop() {
				f.tries = 0
				before := cpuTime(b)
				plan, err := decider.Decide(s.ctx, scene, capacity.Options{Effort: provisioning.DefaultEffort})
				if err != nil {
					b.Fatal(err)
				}
				cpu = append(cpu, cpuTime(b)-before)
				if len(plan.Refused) > 0 {
					b.Fatalf("refused: %s", plan.Refused[0].Message)
				}
			}
			report(b, map[string]float64{"ms-CPU": 1000 * cpu.seconds(), "first-ms-CPU": 1000 * cpu[0].Seconds(), "trials": float64(f.tries)})
		})
	}
}

// byTeam refuses pods of a class that the real filters accept, on nodes of any other team's pool.
type byTeam struct {
	*simulate.World
	class capacity.ClassKey
	team  string
	tries int
}

func (f *byTeam) Verify(ctx context.Context, t capacity.Trial) ([]capacity.Rejection, error) {
	f.tries++
	out, err := f.World.Verify(ctx, t)
	teams := map[string]string{}
	for _, n := range t.Nodes {
		teams[n.Node.Name] = n.Node.Labels["team"]
	}
	for i, s := range t.Steps {
		if s.Class == f.class && teams[s.Node] != f.team {
			out = append(out, capacity.Rejection{Step: i, Plugin: "Team", Reason: "not for this team"})
		}
	}
	return out, err
}
