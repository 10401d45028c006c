//go:build scenes

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// Unhealthy nodes are repaired: few at a time, their pods first, and not for ever.

// twoZones is a pool with as many nodes in each of two zones, and one pod on each.
type twoZones struct {
	*chaos.Stage
	nodes int // of a zone
	heard func() []chaos.Sentence
}

func inTwoZones(s *chaos.Stage, nodes int) *twoZones {
	w := &twoZones{Stage: s, nodes: nodes}
	pool := chaos.Pool("default", "default")
	pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}} // for what needn't be
	s.Create(chaos.Class("default"), pool)
	for i := range 2 {
		s.Create(chaos.Deployment(nodes, chaos.Template(fmt.Sprintf("app-%d", i), "2", "2Gi", chaos.OnePerNode, func(t *corev1.PodTemplateSpec) {
			t.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: s.Zone(i)}
		})))
	}
	w.heard = s.Listen()
	s.Start()
	s.Until("all run", 20*time.Minute, w.run())
	s.Pass(20 * time.Minute)
	return w
}

func (w *twoZones) run() func() string {
	return w.Running(map[string]int{"app-0": w.nodes, "app-1": w.nodes})
}

// some returns instances of a zone.
func (w *twoZones) some(zone, n int) []ec2.Instance {
	live := slices.DeleteFunc(w.Cloud().Live(), func(in ec2.Instance) bool { return in.Zone != w.Zone(zone) })
	return live[:n]
}

// ended returns how many of the instances are no more.
func (w *twoZones) ended(of []ec2.Instance) (n int) {
	for _, was := range of {
		if !slices.ContainsFunc(w.Cloud().Live(), func(in ec2.Instance) bool { return in.ID == was.ID }) {
			n++
		}
	}
	return n
}

// heardOf returns how often a text with these parts was heard.
func (w *twoZones) heardOf(parts ...string) (n int) {
	for _, s := range w.heard() {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(s.String(), part) }) {
			n++
		}
	}
	return n
}

// A quarter of a zone isn't Ready: that is the zone's fault, and nothing is repaired. When only one node is left that isn't, it is.
func TestSceneZoneOutageRepairsNothing(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		s.NothingOpens()
		s.Limit(100)
		w := inTwoZones(s, 20)
		unhealthy := w.some(0, 5)
		for _, in := range unhealthy {
			s.Kubelets().Fail(in.ID, corev1.NodeReady)
		}
		s.Pass(whole(3*time.Hour, 90*time.Minute))
		s.AtMost("repaired", w.ended(unhealthy), 0)
		s.AtLeast("events on the pool", w.heardOf("NodePool default", "NodeRepairBlocked", "5 of "), 1)
		s.Note("kept: %v", s.Kept())
		if kept := s.Kept()["NotRepaired"]; !strings.Contains(kept, "of NodePool default in zone "+s.Zone(0)+" are unhealthy") {
			s.Failf("nothing says why the nodes are kept: %v", s.Kept())
		}
		for _, in := range unhealthy[1:] {
			s.Kubelets().Recover(in.ID)
		}
		s.Until("the one that is left is repaired", 15*time.Minute, func() string {
			if n := w.ended(unhealthy[:1]); n == 0 {
				return "it is there"
			}
			return ""
		})
		s.Until("all run", 10*time.Minute, w.run())
		s.AtMost("ended", w.ended(unhealthy), 1)
	}})
}

// Three nodes of a large pool: repaired, and their pods have somewhere to go before.
func TestSceneThreeNodesAreRepaired(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		s.NothingOpens()
		s.Limit(100)
		w := inTwoZones(s, 20)
		unhealthy := w.some(0, 3)
		s.Kubelets().Fail(unhealthy[0].ID, "KernelReady")
		s.Kubelets().Fail(unhealthy[1].ID, "NetworkingReady")
		if err := s.Cloud().Impair(unhealthy[2].ID, ec2.SystemStatus, 0); err != nil {
			s.Failf("%v", err)
		}
		least := 2 * w.nodes
		s.Each(func() {
			up := 0
			for _, c := range s.Claims() {
				if c.DeletionTimestamp == nil && c.StatusConditions().IsTrue(karpv1.ConditionTypeInitialized) {
					up++
				}
			}
			if up < least {
				least = up
				s.Failf("%d nodes are in service, of %d: a drain has begun before the replacement was up", up, 2*w.nodes)
			}
		})
		s.Until("all are repaired", 45*time.Minute, func() string {
			if n := w.ended(unhealthy); n < len(unhealthy) {
				return fmt.Sprintf("%d of %d", n, len(unhealthy))
			}
			return ""
		})
		s.Until("all run", 10*time.Minute, w.run())
		s.AtMost("launched", s.Launched(), 2*w.nodes+len(unhealthy))
		s.AtLeast("planned replacements", w.heardOf("NodeClaim", "ReplacementPlanned", "it is unhealthy"), len(unhealthy))
		s.Pass(10 * time.Minute)
		if why := s.Consistent(); why != "" {
			s.Failf("%s", why)
		}
	}})
}

// A kubelet that hangs: its pods come up elsewhere as soon as Kubernetes evicts them, and the node ends although no pod there ends.
func TestSceneSilentNodeIsRepaired(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		s.NothingOpens()
		s.Limit(100)
		w := inTwoZones(s, 5)
		unhealthy := w.some(0, 1)
		s.Kubelets().Silence(unhealthy[0].ID)
		s.Until("it is repaired", time.Hour, func() string {
			if w.ended(unhealthy) == 0 {
				return "it is there"
			}
			return ""
		})
		s.Until("all run", 10*time.Minute, w.run())
		s.Pass(10 * time.Minute)
		if why := s.Consistent(); why != "" {
			s.Failf("%s", why)
		}
	}})
}

// Each new node becomes unhealthy, too. The spending guard stops that, also after restarts, and says so.
func TestSceneRepairLoop(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		s.Limit(60)
		w := inTwoZones(s, 5)
		first := s.Launched()
		s.Pass(30 * time.Minute)
		s.Kubelets().Fail(w.some(0, 1)[0].ID, "StorageReady")
		old := map[string]bool{}
		for _, in := range s.Cloud().Instances() {
			old[in.ID] = true
		}
		s.Each(func() {
			for _, in := range s.Cloud().Live() {
				if !old[in.ID] && time.Since(in.Launched) > 10*time.Minute {
					old[in.ID] = true
					s.Kubelets().Fail(in.ID, "StorageReady")
				}
			}
		})
		day := whole(24*time.Hour, 12*time.Hour)
		for range 4 {
			s.Pass(day / 4)
			s.Kill()
			s.Start()
		}
		s.AtMost("launched in that time", s.Launched()-first, whole(8, 6))
		s.AtLeast("launched in that time", s.Launched()-first, 3)
		s.AtLeast("events on the pool", w.heardOf("NodePool default", "NodeRepairBlocked"), 1)
		s.AtLeast("events of the guard", w.heardOf("NodePool default", "RepairsPaused"), 1)
		s.AtMost("conditions that launches are paused", w.heardOf("LaunchesPaused"), 0)
		s.Until("all run", 10*time.Minute, w.run())
	}})
}
