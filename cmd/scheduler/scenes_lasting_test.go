package main

import (
	"fmt"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
)

// A fault that lasts for a day costs a few machines, and when its cause is mended all pods run soon.

const (
	day = 24 * time.Hour
	// mended is how soon all pods run when the cause is mended.
	mended = 4*time.Minute + 2*chaos.LongestBoot
)

// spent judges what was bought for a demand that needs so many machines: at most so many after the first round.
func spent(s *chaos.Stage, need, most int) {
	hours, dollars := s.Hours()
	s.Film("%d machines in all, %.0f machine hours, $%.2f; open: %q", s.Launched(), hours, dollars, s.Opened())
	s.AtMost("machines after the first round", s.Launched()-s.FirstRound(need), most)
}

// 100 pods ask for a GPU, a machine each, and the device plugin never comes.
func TestSceneDevicesNeverCome(t *testing.T) {
	var f chaos.Fault
	play(t, chaos.Scene{
		World: chaos.World{Fate: func(ec2.Machine) kubelet.Fate { return kubelet.Fate{NoDevices: f.Lasts()} }},
		Play: func(s *chaos.Stage) {
			class := chaos.Class("gpu")
			s.Create(class, chaos.Pool("gpu", "gpu", ec2nc.LabelInstanceFamily+"=g4dn", ec2nc.LabelInstanceCPU+"=4"),
				chaos.Deployment(100, chaos.Template("train", "1", "1Gi", chaos.Asking("nvidia.com/gpu", "1"))))
			s.Limit(700)
			s.Start()
			s.Pass(day)
			spent(s, 100, 8)
			f.Mend()
			chaos.Change(s, class, func(c *ec2nc.EC2NodeClass) { c.Spec.Tags = map[string]string{"plugin": "installed"} })
			s.Until("all run", mended, s.Running(map[string]int{"train": 100}))
		},
	})
}

// A webhook denies every Node; ten machines are wanted.
func TestSceneNodesDenied(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		pool := chaos.Pool("default", "default")
		s.Create(chaos.Class("default"), pool, chaos.Deployment(10, chaos.Template("web", "3", "1Gi")))
		f := s.DenyNodes()
		s.Limit(200)
		s.Start()
		s.Pass(day)
		spent(s, 10, 10)
		f.Mend()
		chaos.Change(s, pool, func(p *karpv1.NodePool) { chaos.Retry(p, "1") })
		s.Until("all run", mended, s.Running(map[string]int{"web": 10}))
	}})
}

// An agent has every new node's pods evicted: it taints the node as soon as a pod has it. First one pod, then 50 Deployments of one.
func TestSceneTaintedWhenBound(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		pool := chaos.Pool("default", "default")
		s.Create(chaos.Class("default"), pool, chaos.Deployment(1, chaos.Template("web", "3", "1Gi")))
		f := s.TaintBusy(0, false, nil)
		s.Limit(200)
		s.Start()
		s.Pass(time.Hour)
		s.AtMost("machines in the first hour", s.Launched(), 4)
		s.Pass(day - time.Hour)
		s.AtMost("machines in the day", s.Launched(), 9)
		spent(s, 1, 8)
		f.Mend()
		chaos.Change(s, pool, func(p *karpv1.NodePool) { chaos.Retry(p, "1") })
		s.Until("all run", mended, s.Running(map[string]int{"web": 1}))
	}})
}

// The same with the taint there as soon as the Node is (e2e.md F3 as it was found).
func TestSceneTaintedWhenNew(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		pool := chaos.Pool("default", "default")
		s.Create(chaos.Class("default"), pool, chaos.Deployment(1, chaos.Template("web", "3", "1Gi")))
		f := s.TaintNew()
		s.Limit(200)
		s.Start()
		s.Pass(time.Hour)
		s.AtMost("machines in the first hour", s.Launched(), 4)
		s.Pass(day - time.Hour)
		s.AtMost("machines in the day", s.Launched(), 9)
		spent(s, 1, 8)
		f.Mend()
		chaos.Change(s, pool, func(p *karpv1.NodePool) { chaos.Retry(p, "1") })
		s.Until("all run", mended, s.Running(map[string]int{"web": 1}))
	}})
}

// deployments are so many of one pod, each of which needs a machine of its own.
func deployments(s *chaos.Stage, n int) map[string]int {
	want := map[string]int{}
	for i := range n {
		app := fmt.Sprintf("web%d", i)
		s.Create(chaos.Deployment(1, chaos.Template(app, "3", "1Gi")))
		want[app] = 1
	}
	return want
}
