//go:build scenes

package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// Used nodes are emptied to save money: the bill comes close to that of a fresh plan, no pod is evicted before there is room for it, and
// whatever breaks meanwhile leaves nothing behind.

func createAll(s *chaos.Stage, all map[string]*appsv1.Deployment) {
	for _, app := range slices.Sorted(maps.Keys(all)) {
		s.Create(all[app].DeepCopy())
	}
}

// resize sets the numbers of replicas.
func resize(s *chaos.Stage, all map[string]*appsv1.Deployment, to map[string]int) {
	for _, app := range slices.Sorted(maps.Keys(to)) {
		chaos.Change(s, all[app].DeepCopy(), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(to[app])) })
	}
}

// freshPrice returns what the product buys for pods in a cluster without nodes, in one plan.
func freshPrice(t *testing.T, nodes int, share float64) float64 {
	t.Helper()
	price := 0.0
	report := chaos.RunScene(t, cluster.Scheme, chaos.Scene{Program: hosted, Play: func(s *chaos.Stage) {
		all := chaos.Services(nodes)
		for app, n := range chaos.Scaled(all, share) {
			all[app].Spec.Replicas = ptr.To(int32(n))
		}
		s.Create(chaos.Class("default"), chaos.Saving("", "0"))
		createAll(s, all)
		s.Pass(time.Minute)
		s.Start()
		s.Until("all run", 15*time.Minute, s.Running(chaos.Scaled(chaos.Services(nodes), share)))
		price = s.Price()
	}}, nil)
	if len(report.Failures) > 0 {
		t.Fatalf("a fresh plan:\n%s", strings.Join(report.Failures, "\n"))
	}
	return price
}

// scaledIn scales 40 % of the pods in, and checks what the instances cost in the end.
func scaledIn(t *testing.T, restart string, within float64) {
	prepare()
	nodes := whole(200, 30)
	fresh := freshPrice(t, nodes, 0.6)
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		all := chaos.Services(nodes)
		s.Create(chaos.Class("default"), chaos.Saving(restart, "10%"))
		createAll(s, all)
		s.Pass(time.Minute)
		emptied := s.Emptied()
		s.Start()
		s.Until("all run", 15*time.Minute, s.Running(chaos.Scaled(all, 1)))
		before, bought := s.Price(), s.Launched()
		s.Pass(65 * time.Minute)
		to := chaos.Scaled(all, 0.6)
		resize(s, all, to)
		tell := func() {
			n, evictions := emptied()
			s.Note("$%.2f/h for %d machines, %.3f of a fresh plan's; %d emptied, %d evictions, %d bought", s.Price(), len(s.Cloud().Live()), s.Price()/fresh, n, evictions, s.Launched()-bought)
		}
		s.Note("$%.2f/h for %d machines at first", before, bought)
		for range 9 {
			s.Pass(5 * time.Minute)
			tell()
		}
		for kind, why := range s.Kept() {
			s.Note("kept, %s: %s", kind, why)
		}
		if got := s.Price() / fresh; got > within {
			s.Failf("after 45 minutes the bill is %.3f of a fresh plan's, at most %.2f", got, within)
		}
		s.Until("all run", 5*time.Minute, s.Running(to))
	}})
}

// After 45 minutes the bill is within 8 % of a fresh plan's, with default settings.
func TestSceneScaledIn(t *testing.T) { scaledIn(t, "", 1.08) }

// If moving pods costs nothing, it is within 3 %.
func TestSceneScaledInWithoutRestartCost(t *testing.T) { scaledIn(t, "0s", 1.03) }

// underused starts the product with services for about so many nodes, and scales them in.
func underused(s *chaos.Stage, pool *karpv1.NodePool, nodes int, share float64) (all map[string]*appsv1.Deployment, left map[string]int) {
	all = chaos.Services(nodes)
	s.Create(chaos.Class("default"), pool)
	createAll(s, all)
	s.Pass(time.Minute)
	s.Start()
	s.Until("all run", 15*time.Minute, s.Running(chaos.Scaled(all, 1)))
	s.Pass(5 * time.Minute)
	left = chaos.Scaled(all, share)
	resize(s, all, left)
	return all, left
}

// settled waits until all run and nothing is left of what was begun.
func settled(s *chaos.Stage, most time.Duration, want map[string]int) {
	running := s.Running(want)
	s.Until("all run, and nothing is left over", most, func() string {
		if m := running(); m != "" {
			return m
		}
		return s.Consistent()
	})
}

// The scheduler is killed once before and once after each call of a move.
func TestSceneKilledWhileItConsolidates(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		emptied := s.Emptied()
		all, left := underused(s, chaos.Saving("0s", "30%"), whole(40, 20), 0.6)
		kills := s.KillOnceAt("create nodeclaims", "patch nodeclaims", "CreateFleet", "patch nodeclaims/status", "create nodes", "patch nodes", "delete nodeclaims",
			"create pods/eviction", "create pods/binding", "TerminateInstances", "delete nodes")
		for _, share := range []float64{0.5, 0.75, 0.4, 0.6, 0.3, 0.5, 0.25} {
			s.Pass(15 * time.Minute)
			left = chaos.Scaled(all, share)
			resize(s, all, left)
		}
		s.Pass(20 * time.Minute)
		settled(s, 30*time.Minute, left)
		passed, missed := kills()
		n, evictions := emptied()
		s.Note("killed %q; never passed: %q; %d nodes emptied, %d evictions", passed, missed, n, evictions)
		s.AtLeast("kills", len(passed), 18)
		s.AtLeast("nodes emptied", n, 5)
	}})
}

// A disruption budget that allows one eviction in ten is tightened to none while nodes are being emptied.
func TestSceneBudgetTightened(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "all"},
			Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromString("10%")), Selector: &metav1.LabelSelector{}},
		}
		s.Create(budget)
		emptied := s.Emptied()
		_, left := underused(s, chaos.Saving("0s", "20%"), whole(40, 20), 0.6)
		for i := 0; ; i++ {
			if n, _ := emptied(); n >= 2 {
				break
			}
			if i == 60 {
				s.Failf("in half an hour no two nodes were emptied; kept: %v", s.Kept())
				return
			}
			s.Pass(30 * time.Second)
		}
		chaos.Change(s, budget, func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(0)) })
		s.Pass(20 * time.Second)
		before, _ := emptied()
		s.Pass(20 * time.Minute)
		after, _ := emptied()
		s.AtMost("nodes whose emptying began although the budget allows nothing", after-before, 0)
		if why := s.Kept()["PDB"]; why == "" {
			s.Failf("no node is kept because of the disruption budget: %v", s.Kept())
		}
		chaos.Change(s, budget, func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = ptr.To(intstr.FromString("10%")) })
		s.Pass(20 * time.Minute)
		settled(s, 20*time.Minute, left)
		again, _ := emptied()
		s.AtLeast("nodes emptied when it allows evictions again", again-after, 1)
	}})
}

// EC2 has no capacity for what would replace used nodes, and then only for what is dearer than planned.
func TestSceneReplacementRefused(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		emptied := s.Emptied()
		all := chaos.Services(whole(30, 15))
		s.Create(chaos.Class("default"), chaos.Saving("0s", "20%"))
		createAll(s, all)
		s.Pass(time.Minute)
		s.Start()
		s.Until("all run", 15*time.Minute, s.Running(chaos.Scaled(all, 1)))
		s.Pass(5 * time.Minute)
		s.Cloud().SetCapacity(ec2.Any, ec2.Any, ec2.Any, 0)
		left := chaos.Scaled(all, 0.5)
		bought := s.Launched()
		resize(s, all, left)
		s.Pass(40 * time.Minute)
		settled(s, 20*time.Minute, left)
		refused, _ := emptied()
		s.AtMost("machines without capacity", s.Launched()-bought, 0)
		s.Note("$%.2f/h, %d nodes emptied without buying", s.Price(), refused)
		without := s.Price()
		s.Cloud().SetCapacity(ec2.Any, ec2.Any, ec2.Any, ec2.Unlimited)
		for _, family := range []string{"c6i", "m6i"} {
			for _, size := range []string{"xlarge", "2xlarge"} {
				s.Cloud().SetCapacity(family+"."+size, ec2.Any, ec2.Any, 0) // only dearer types are left
			}
		}
		s.Pass(40 * time.Minute)
		settled(s, 20*time.Minute, left)
		dearer := s.Price()
		s.Cloud().SetCapacity(ec2.Any, ec2.Any, ec2.Any, ec2.Unlimited)
		s.Pass(40 * time.Minute)
		settled(s, 20*time.Minute, left)
		n, evictions := emptied()
		s.Note("$%.2f/h without capacity, $%.2f/h with dear capacity only, $%.2f/h with all; %d emptied, %d evictions, %d bought", without, dearer, s.Price(), n, evictions, s.Launched()-bought)
		if dearer > without+1e-6 || s.Price() > dearer+1e-6 {
			s.Failf("consolidation has made the bill larger")
		}
	}})
}

// A burst comes while capacity is reserved for moves that have not begun, because a new node boots: it gets what the moves had reserved, and
// nothing is bought for it.
func TestSceneDemandComesFirst(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		s.Emptied()
		big := chaos.Deployment(4, chaos.Template("big", "13", "10Gi"))
		small := chaos.Deployment(4, chaos.Template("small", "1500m", "3Gi", chaos.OnePerNode))
		s.Create(chaos.Class("default"), chaos.Saving("0s", "100%"), big, small)
		s.Pass(time.Minute)
		s.Start()
		s.Until("all run", 15*time.Minute, s.Running(map[string]int{"big": 4, "small": 4}))
		s.Pass(5 * time.Minute)
		bought := s.Launched()
		s.AtMost("machines, so that each has one of both", bought, 4)
		chaos.Change(s, big, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) })
		for i := 0; s.Launched() == bought; i++ {
			if i == 120 {
				s.Failf("in ten minutes nothing was bought for a move; kept: %v", s.Kept())
				return
			}
			s.Pass(5 * time.Second)
		}
		reserved := s.Launched()
		s.Note("%d machines boot for moves, %d live", reserved-bought, len(s.Cloud().Live()))
		s.Create(chaos.Deployment(4, chaos.Template("burst", "1500m", "2Gi")))
		s.Until("the burst runs", 3*time.Minute, s.Running(map[string]int{"burst": 4}))
		s.Pass(time.Minute)
		s.Note("%d more were bought", s.Launched()-reserved)
		s.AtMost("machines bought for the burst", s.Launched()-reserved, 0)
		s.Pass(20 * time.Minute)
		settled(s, 20*time.Minute, map[string]int{"small": 4, "burst": 4})
		if s.Price() > 4*0.34 { // not half of what the first four cost
			s.Failf("the bill is still $%.2f/h", s.Price())
		}
	}})
}
