package main

import (
	"fmt"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	batchv1 "k8s.io/api/batch/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
)

// A fault that lasts for a day costs a few instances, and when its cause is fixed all pods run soon.

// mended is how soon all pods run once the cause is fixed.
const mended = 4*time.Minute + 2*chaos.LongestBoot

// day returns how long a fault lasts.
func day() time.Duration { return whole(24*time.Hour, 4*time.Hour) }

// spent checks what was bought for a demand that needs so many instances: at most so many after the first round.
func spent(s *chaos.Stage, need, most int) {
	bill(s)
	s.AtMost("machines after the first round", s.Launched()-s.FirstRound(need), most)
}

func bill(s *chaos.Stage) {
	hours, dollars := s.Hours()
	s.Note("%d machines in all, %.0f machine hours, $%.2f; open: %q", s.Launched(), hours, dollars, s.Opened())
}

// 100 pods request a GPU, an instance each, and the device plugin never registers.
func TestSceneDevicesNeverCome(t *testing.T) {
	var f chaos.Fault
	play(t, chaos.Scene{
		World: chaos.World{Fate: func(ec2.Machine) kubelet.Fate { return kubelet.Fate{NoDevices: f.Lasts()} }},
		Play: func(s *chaos.Stage) {
			class := chaos.Class("gpu")
			s.Create(class, chaos.Pool("gpu", "gpu", ec2nc.LabelInstanceFamily+"=g4dn", ec2nc.LabelInstanceCPU+"=4"),
				chaos.Deployment(100, chaos.Template("train", "1", "1Gi", chaos.Asking("nvidia.com/gpu", "1"))))
			s.Limit(300)
			s.Start()
			s.Pass(day())
			spent(s, 100, 8)
			f.Mend()
			chaos.Change(s, class, func(c *ec2nc.EC2NodeClass) { c.Spec.Tags = map[string]string{"plugin": "installed"} })
			s.Until("all run", mended, s.Running(map[string]int{"train": 100}))
		},
	})
}

// A CronJob makes a Job a minute; the profile's filters accept its node as a plan and refuse it once it is launched.
func TestSceneRefusedAsLaunched(t *testing.T) {
	var f chaos.Fault
	play(t, chaos.Scene{Program: withPicky("report", &f), Play: func(s *chaos.Stage) {
		cron := chaos.CronJob(20*time.Second, batchv1.ReplaceConcurrent, chaos.Template("report", "3", "1Gi"))
		s.Create(chaos.Class("default"), chaos.Pool("default", "default"), cron)
		s.Limit(100)
		s.Start()
		s.Pass(day())
		bill(s)
		s.AtMost("machines in the day", s.Launched(), 12)
		f.Mend()
		since := time.Now()
		chaos.Change(s, cron, func(c *batchv1.CronJob) { c.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image += ":2" })
		s.Until("a Job has succeeded", mended, func() string {
			chaos.Read(s, cron)
			if last := cron.Status.LastSuccessfulTime; last == nil || last.Time.Before(since) {
				return fmt.Sprintf("the last one did so at %v", last)
			}
			return ""
		})
	}})
}

// A webhook denies every Node; ten are wanted.
func TestSceneNodesDenied(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		pool := chaos.Pool("default", "default")
		s.Create(chaos.Class("default"), pool, chaos.Deployment(10, chaos.Template("web", "3", "1Gi")))
		f := s.DenyNodes()
		s.Limit(100)
		s.Start()
		s.Pass(day())
		spent(s, 10, 10)
		f.Mend()
		chaos.Change(s, pool, func(p *karpv1.NodePool) { chaos.Retry(p, "1") })
		s.Until("all run", mended, s.Running(map[string]int{"web": 10}))
	}})
}

// Something drives the pods off every new node: a taint that an agent adds as soon as a pod is bound (so that no plan can know it), one
// that is there before any pod (e2e.md F3 as it was found), or a pod of higher priority that was not counted (F1).
var expulsions = []struct {
	name string
	do   func(*chaos.Stage) *chaos.Fault
}{
	{"tainted when bound", func(s *chaos.Stage) *chaos.Fault { return s.TaintBusy(0, false, nil) }},
	{"tainted when new", func(s *chaos.Stage) *chaos.Fault { return s.TaintNew() }},
	{"preempted", func(s *chaos.Stage) *chaos.Fault { return s.FillNodes("2") }},
}

func TestSceneDrivenOff(t *testing.T) {
	for _, x := range expulsions {
		t.Run(x.name+", one pod", func(t *testing.T) {
			play(t, chaos.Scene{Play: func(s *chaos.Stage) {
				pool := chaos.Pool("default", "default")
				s.Create(chaos.Class("default"), pool)
				want := deployments(s, 1)
				f := x.do(s)
				s.Limit(50)
				s.Start()
				s.Pass(time.Hour)
				s.AtMost("machines in the first hour", s.Launched(), 4)
				s.Pass(day() - time.Hour)
				bill(s)
				s.AtMost("machines in the day", s.Launched(), 9)
				f.Mend()
				chaos.Change(s, pool, func(p *karpv1.NodePool) { chaos.Retry(p, "1") })
				s.Until("all run", mended, s.Running(want))
			}})
		})
		if x.name != "tainted when bound" && !*wholeScenes {
			continue // make test runs only one of them
		}
		t.Run(x.name+", 50 Deployments", func(t *testing.T) {
			play(t, chaos.Scene{Play: func(s *chaos.Stage) {
				pool := chaos.Pool("default", "default")
				s.Create(chaos.Class("default"), pool)
				want := deployments(s, 50)
				f := x.do(s)
				s.Limit(200)
				s.Start()
				s.Pass(day())
				spent(s, 50, 12)
				f.Mend()
				chaos.Change(s, pool, func(p *karpv1.NodePool) { chaos.Retry(p, "1") })
				s.Until("all run", mended, s.Running(want))
			}})
		})
	}
}

// The taint is added when the pod has run for a while; after three minutes the instance has served.
func TestSceneTaintedLater(t *testing.T) {
	for _, after := range []time.Duration{30 * time.Second, 3 * time.Minute} {
		t.Run(after.String(), func(t *testing.T) {
			play(t, chaos.Scene{Play: func(s *chaos.Stage) {
				pool := chaos.Pool("default", "default")
				s.Create(chaos.Class("default"), pool)
				want := deployments(s, 1)
				f := s.TaintBusy(after, true, nil)
				s.Limit(100)
				s.Start()
				s.Pass(day())
				bill(s)
				s.AtMost("machines in the day", s.Launched(), 12)
				f.Mend()
				chaos.Change(s, pool, func(p *karpv1.NodePool) { chaos.Retry(p, "1") })
				s.Until("all run", mended, s.Running(want))
			}})
		})
	}
}

// deployments creates n Deployments of one pod, each of which needs an instance of its own.
func deployments(s *chaos.Stage, n int) map[string]int {
	want := map[string]int{}
	for i := range n {
		app := fmt.Sprintf("web%d", i)
		s.Create(chaos.Deployment(1, chaos.Template(app, "3", "1Gi")))
		want[app] = 1
	}
	return want
}
