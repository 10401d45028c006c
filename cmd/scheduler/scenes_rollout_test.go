//go:build scenes

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
)

// Drifted nodes are replaced, as their pools' budgets allow.

// rolling is a cluster of pools of the same class, each with a Deployment with one pod per node.
type rolling struct {
	*chaos.Stage
	class *ec2nc.EC2NodeClass
	pools []*karpv1.NodePool
	nodes int // of each pool
	moved map[string]map[types.UID]bool
}

// scarce is the instance type of the first pool.
const scarce = "c6i.xlarge"

func rollingOut(s *chaos.Stage, pools, nodes int, budget string) *rolling {
	r := &rolling{Stage: s, class: chaos.Class("default"), nodes: nodes, moved: map[string]map[types.UID]bool{}}
	s.Create(r.class)
	for i := range pools {
		types := "m6i.xlarge,r6i.xlarge"
		if i == 0 {
			types = scarce
		}
		np := chaos.Pool(r.pool(i), "default", corev1.LabelInstanceTypeStable+"="+types)
		np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: budget}}
		r.pools = append(r.pools, np)
		s.Create(np, chaos.Deployment(nodes, chaos.Template(r.app(i), "2", "2Gi", chaos.OnePerNode, func(t *corev1.PodTemplateSpec) {
			t.Spec.NodeSelector = map[string]string{karpv1.NodePoolLabelKey: np.Name}
		})))
	}
	s.Start()
	s.Until("all run", 20*time.Minute, s.Running(r.all()))
	s.Each(func() {
		for _, p := range s.Pods(nil) {
			app := p.Labels["app"]
			if r.moved[app] == nil {
				r.moved[app] = map[types.UID]bool{}
			}
			r.moved[app][p.UID] = true
		}
	})
	s.Pass(5 * time.Minute)
	return r
}

func (r *rolling) pool(i int) string { return fmt.Sprintf("pool-%d", i) }
func (r *rolling) app(i int) string  { return fmt.Sprintf("app-%d", i) }

func (r *rolling) all() map[string]int {
	out := map[string]int{}
	for i := range r.pools {
		out[r.app(i)] = r.nodes
	}
	return out
}

// left returns how many nodes of a pool are drifted, or that none is known to be yet.
func (r *rolling) left(pool string) (n int) {
	drifted := r.Drifted()
	for _, c := range r.Claims() {
		if c.Labels[karpv1.NodePoolLabelKey] == pool && drifted[c.Name] != "" {
			n++
		}
	}
	return n
}

func (r *rolling) edit(change func(*ec2nc.EC2NodeClassSpec)) {
	chaos.Change(r.Stage, r.class.DeepCopy(), func(nc *ec2nc.EC2NodeClass) { change(&nc.Spec) })
	r.Until("all have drifted", 5*time.Minute, func() string {
		for i := range r.pools {
			if n := r.left(r.pool(i)); n < r.nodes-1 {
				return fmt.Sprintf("%d of %s", n, r.pool(i))
			}
		}
		return ""
	})
}

// rolledOut waits until no node of the pools from first on is drifted, and checks that each of their pods was moved once.
func (r *rolling) rolledOut(first int, most time.Duration) {
	r.Until("no node is drifted any more", most, func() string {
		for i := first; i < len(r.pools); i++ {
			if n := r.left(r.pool(i)); n > 0 {
				return fmt.Sprintf("%d of %s", n, r.pool(i))
			}
		}
		return ""
	})
	r.Until("all run", 5*time.Minute, r.Running(r.all()))
	for i := first; i < len(r.pools); i++ {
		r.AtMost("pods that "+r.app(i)+" has had, if each moved once", len(r.moved[r.app(i)]), 2*r.nodes)
	}
}

// One pool has no capacity: the others are rolled out in the time that their budgets need, and each pod moves once.
func TestSceneRollOut(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		s.NothingOpens()
		s.Limit(whole(1500, 100))
		r := rollingOut(s, whole(10, 3), whole(50, 10), "10%")
		emptied := s.Emptied()
		s.Cloud().SetCapacity(scarce, ec2.Any, ec2.Any, 0)
		r.edit(func(s *ec2nc.EC2NodeClassSpec) { s.UserData = ptr.To("#!/bin/sh\ntrue") })
		r.rolledOut(1, 45*time.Minute)
		nodes, evictions := emptied()
		s.Note("%d nodes emptied, %d evictions, %d launched", nodes, evictions, s.Launched())
		s.AtMost("pods that the pool without capacity has had", len(r.moved[r.app(0)]), r.nodes)
		s.AtMost("nodes launched in all", s.Launched(), 2*r.nodes*len(r.pools))

		s.Cloud().SetCapacity(scarce, ec2.Any, ec2.Any, ec2.Unlimited)
		r.rolledOut(0, 90*time.Minute)
		s.Pass(10 * time.Minute)
		if why := s.Consistent(); why != "" {
			s.Failf("%s", why)
		}
	}})
}

// The control plane is upgraded: the nodes follow.
func TestSceneNodesFollowTheControlPlane(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		r := rollingOut(s, 2, 3, "50%")
		s.Cloud().SetKubernetesVersion("1.37")
		s.Until("nodes have drifted", 15*time.Minute, func() string {
			if r.left(r.pool(0))+r.left(r.pool(1)) == 0 {
				return "none"
			}
			return ""
		})
		s.Pass(time.Minute)
		r.rolledOut(0, 30*time.Minute)
		s.Pass(10 * time.Minute)
		r.rolledOut(0, time.Minute)
	}})
}

// A bad image costs two nodes at most in the first hour, over all pools of its class, and then one per pause of the guard. The condition of a
// pool says why. With a good image the roll-out goes on.
func TestSceneRollOutOfABadImage(t *testing.T) {
	var good []string
	bad := func(m ec2.Machine) kubelet.Fate { return kubelet.Fate{Never: !slices.Contains(good, m.ImageID)} }
	play(t, chaos.Scene{World: chaos.World{Fate: func(m ec2.Machine) kubelet.Fate {
		if len(good) == 0 {
			return kubelet.Fate{}
		}
		return bad(m)
	}}, Play: func(s *chaos.Stage) {
		s.Limit(100)
		r := rollingOut(s, 3, 4, "50%")
		for _, in := range s.Cloud().Live() {
			good = append(good, in.ImageID)
		}
		launched := s.Launched()
		begun := s.Now()
		r.edit(func(s *ec2nc.EC2NodeClassSpec) { s.AMISelectorTerms[0].Alias = "al2023@v20260814" })
		s.Pass(time.Hour - (s.Now() - begun))
		s.AtMost("nodes in the first hour", s.Launched()-launched, 2)
		s.AtLeast("nodes in the first hour", s.Launched()-launched, 1)
		why := ""
		for _, np := range r.pools {
			now := np.DeepCopy()
			chaos.Read(s, now)
			for _, c := range now.Status.Conditions {
				if c.Type == "dovetail.sh/RollOutPaused" && c.Status == "True" {
					why = c.Reason + ": " + c.Message
				}
			}
		}
		s.Note("%s", why)
		if !strings.HasPrefix(why, "CanaryFailed: ") {
			s.Failf("no condition says why the roll-out pauses")
		}
		s.Pass(5 * time.Hour)
		s.AtMost("nodes in six hours", s.Launched()-launched, 6)
		s.AtMost("pods that were moved", len(r.moved[r.app(0)])+len(r.moved[r.app(1)])+len(r.moved[r.app(2)]), 3*r.nodes)
		r.edit(func(s *ec2nc.EC2NodeClassSpec) {
			s.AMISelectorTerms[0].Alias, s.UserData = "al2023@latest", ptr.To("#!/bin/sh\ntrue")
		})
		r.rolledOut(0, time.Hour)
	}})
}

// The nodes of a static pool whose limit is its replicas are replaced one by one: there is never more than one node too many, nor one too few.
func TestSceneStaticRollOut(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		const nodes = 3
		class, static := chaos.Class("default"), chaos.Pool("static", "default")
		static.Spec.Replicas, static.Spec.Disruption.ConsolidateAfter = ptr.To[int64](nodes), karpv1.MustParseNillableDuration("Never")
		static.Spec.Limits = karpv1.Limits{"nodes": resource.MustParse(fmt.Sprint(nodes))}
		s.Create(class, static, chaos.Deployment(nodes, chaos.Template("web", "2", "2Gi", chaos.OnePerNode)))
		s.Start()
		s.Until("all run", 10*time.Minute, s.Running(map[string]int{"web": nodes}))
		s.Pass(5 * time.Minute)
		most, least := 0, nodes
		s.Each(func() {
			ready := 0
			for _, c := range s.Claims() {
				if c.DeletionTimestamp == nil && c.StatusConditions().IsTrue(karpv1.ConditionTypeInitialized) {
					ready++
				}
			}
			most, least = max(most, len(s.Claims())), min(least, ready)
		})
		chaos.Change(s, class, func(nc *ec2nc.EC2NodeClass) { nc.Spec.UserData = ptr.To("#!/bin/sh\ntrue") })
		s.Pass(time.Minute)
		s.Until("no node is drifted any more", time.Hour, func() string {
			for claim, reason := range s.Drifted() {
				if reason != "" {
					return claim
				}
			}
			return ""
		})
		s.Pass(10 * time.Minute)
		s.AtMost("claims at a time", most, nodes+1)
		s.AtLeast("initialized nodes at a time", least, nodes)
		s.AtMost("nodes launched in all", s.Launched(), 2*nodes)
		if n := len(s.Claims()); n != nodes {
			s.Failf("%d claims in the end, want %d", n, nodes)
		}
		s.Until("all run", 5*time.Minute, s.Running(map[string]int{"web": nodes}))
	}})
}
