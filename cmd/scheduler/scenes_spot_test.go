//go:build scenes

package main

import (
	"slices"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// Spot capacity that EC2 recommends to leave is left where a pool asks for it, a few nodes at a time; and nodes that were bought on demand for
// want of spot capacity return to it once.

// spotPool is a pool of both kinds of capacity in all zones, that replaces a tenth of its nodes at a time.
func spotPool(rebalance string) *karpv1.NodePool {
	pool := chaos.Pool("default", "default", ec2nc.LabelInstanceCategory+"=c,m,r", ec2nc.LabelInstanceCPU+"=4", karpv1.CapacityTypeLabelKey+"=spot,on-demand")
	pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized
	pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "10%"}}
	if rebalance != "" {
		pool.Annotations = map[string]string{"dovetail.sh/rebalance": rebalance}
	}
	return pool
}

// onSpot starts the product with n nodes, each with one pod.
func onSpot(s *chaos.Stage, n int, pool *karpv1.NodePool) {
	s.NothingOpens()
	s.Limit(4 * n)
	s.Create(chaos.Class("default"), pool)
	s.Create(chaos.Deployment(n, chaos.Template("web", "2", "2Gi", chaos.OnePerNode)))
	s.Start()
	s.Until("all run", 20*time.Minute, s.Running(map[string]int{"web": n}))
}

// of returns the live instances that are, or aren't, spot instances.
func of(s *chaos.Stage, spot bool) []ec2.Instance {
	return slices.DeleteFunc(s.Cloud().Live(), func(in ec2.Instance) bool { return (in.CapacityType == "spot") != spot })
}

// placed fails the scene when fewer than n pods have a Ready node that isn't being ended, or when more instances live than n and a tenth.
func placed(s *chaos.Stage, n, most int) {
	least, highest := n, n
	s.Each(func() {
		up := 0
		for _, c := range s.Claims() {
			if c.DeletionTimestamp == nil && c.StatusConditions().IsTrue(karpv1.ConditionTypeInitialized) {
				up++
			}
		}
		if up < least {
			least = up
			s.Failf("%d nodes are in service, of %d: a drain has begun before the replacement was up", up, n)
		}
		if live := len(s.Cloud().Live()); live > highest {
			if highest = live; live > most {
				s.Failf("%d instances live, at most %d may: the budget is a tenth of %d", live, most, n)
			}
		}
	})
}

// A storm of recommendations for all nodes of a zone's offering, repeated: the nodes are replaced at the pace of the budget, each by one of an
// offering that EC2 doesn't recommend to leave, and each once.
func TestSceneRebalanceStorm(t *testing.T) {
	play(t, chaos.Scene{Program: withArgs("interruptionQueue: dovetail"), Play: func(s *chaos.Stage) {
		const n = 30
		onSpot(s, n, spotPool("replace"))
		s.Pass(15 * time.Minute)
		told := map[string]bool{}
		for _, in := range of(s, true) {
			told[in.ID] = true
		}
		s.AtLeast("spot instances", len(told), n)
		bought := s.Launched()
		placed(s, n, n+2*3)
		for i := range 2 {
			for id := range told {
				_ = s.Cloud().Rebalance(id) // it may have ended already
			}
			s.Pass(time.Minute)
			if i == 0 { // the pool's budget allows three at a time, and a new node needs most of a minute
				s.AtMost("replaced within a minute", s.Launched()-bought, 2*3)
			}
		}
		s.Until("all are replaced", 2*time.Hour, func() string {
			for _, in := range of(s, true) {
				if told[in.ID] {
					return in.ID + " is there"
				}
			}
			return ""
		})
		s.Until("all run", 10*time.Minute, s.Running(map[string]int{"web": n}))
		s.AtMost("launched for it", s.Launched()-bought, n)
		s.AtMost("on demand", len(of(s, false)), 0)
		s.Pass(time.Hour)
		s.AtMost("launched in the end", s.Launched()-bought, n)
		if why := s.Consistent(); why != "" {
			s.Failf("%s", why)
		}
	}})
}

// Where the pool doesn't ask for it, nothing is replaced.
func TestSceneRebalanceWithoutOptIn(t *testing.T) {
	play(t, chaos.Scene{Program: withArgs("interruptionQueue: dovetail"), Play: func(s *chaos.Stage) {
		const n = 10
		onSpot(s, n, spotPool(""))
		heard := s.Listen()
		s.Pass(15 * time.Minute)
		bought := s.Launched()
		for _, in := range of(s, true) {
			if err := s.Cloud().Rebalance(in.ID); err != nil {
				s.Failf("%v", err)
			}
		}
		s.Pass(2 * time.Hour)
		s.AtMost("replaced", s.Launched()-bought, 0)
		told := 0
		for _, x := range heard() {
			if x.Where == "event SpotRebalanceRecommendation" {
				told++
			}
		}
		s.AtLeast("told", told, n)
	}})
}

// Without spot capacity nodes are bought on demand. When it is back, each of them returns to it once, half an hour later; while it flickers,
// none does.
func TestSceneBackToSpot(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		const n = 10
		s.Cloud().SetCapacity(ec2.Any, ec2.Any, "spot", 0)
		onSpot(s, n, spotPool(""))
		s.AtLeast("on demand", len(of(s, false)), n)
		for _, c := range s.Claims() {
			if c.Annotations["dovetail.sh/for-want-of-spot"] != "true" {
				s.Failf("%s isn't marked: %v", c.Name, c.Annotations)
			}
		}
		bought := s.Launched()
		placed(s, n, n+2)
		back := s.Now()
		s.Cloud().SetCapacity(ec2.Any, ec2.Any, "spot", 1000)
		s.Pass(25 * time.Minute)
		s.AtMost("bought within 25 minutes", s.Launched()-bought, 0)
		s.Until("all have returned", 90*time.Minute, func() string {
			if left := len(of(s, false)); left > 0 {
				return "some are left on demand"
			}
			return ""
		})
		s.Note("all have returned %s after there was spot capacity again", s.Now()-back)
		s.Until("all run", 10*time.Minute, s.Running(map[string]int{"web": n}))
		s.Pass(2 * time.Hour)
		s.AtMost("bought for it", s.Launched()-bought, n)
		if why := s.Consistent(); why != "" {
			s.Failf("%s", why)
		}
	}})
}

// Spot capacity that comes and goes is none to return to. It goes each ten minutes, which a pod finds out that comes then.
func TestSceneSpotFlickers(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		const n, cycles = 6, 18
		s.Cloud().SetCapacity(ec2.Any, ec2.Any, "spot", 0)
		onSpot(s, n, spotPool(""))
		batch := chaos.Deployment(0, chaos.Template("batch", "3", "2Gi"))
		s.Create(batch)
		bought := s.Launched()
		for range cycles {
			s.Cloud().SetCapacity(ec2.Any, ec2.Any, "spot", 0)
			chaos.Change(s, batch.DeepCopy(), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](1) })
			s.Pass(3 * time.Minute)
			s.Cloud().SetCapacity(ec2.Any, ec2.Any, "spot", 1000)
			chaos.Change(s, batch.DeepCopy(), func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) })
			s.Pass(7 * time.Minute)
		}
		s.AtMost("spot instances", len(of(s, true)), 0)
		s.AtLeast("bought for the pod", s.Launched()-bought, cycles)
		s.AtMost("bought", s.Launched()-bought, cycles)
		s.Note("kept: %v", s.Kept())
		if s.Kept()["WantOfSpot"] == "" {
			s.Failf("no node is kept for want of spot capacity: %v", s.Kept())
		}
	}})
}
