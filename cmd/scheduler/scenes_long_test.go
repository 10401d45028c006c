//go:build scenes

package main

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
)

// Scenes that take too long for make test: make scenes runs them.

// registrationTimeout is the product's, as shipped.
const registrationTimeout = 15 * time.Minute

// One of the 50 pods pulls its image for an hour, on a node that isn't tainted: that its instance has no verdict yet says nothing about the
// others.
func TestSceneDrivenOffBesideASlowImage(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		pool := chaos.Pool("default", "default")
		s.Create(chaos.Class("default"), pool)
		want := deployments(s, 49)
		// At first only some instances of a new image are bought; this pod's is one of them, because of its priority.
		s.Create(chaos.Deployment(1, chaos.Template("slow", "3", "1Gi", chaos.Annotated(kubelet.PullFor, "1h"), func(t *corev1.PodTemplateSpec) { t.Spec.Priority = ptr.To[int32](100) })))
		want["slow"] = 1
		f := s.TaintBusy(0, false, func(p *corev1.Pod) bool { return p.Labels["app"] == "slow" })
		s.Limit(200)
		s.Start()
		s.Pass(day())
		spent(s, 50, 12)
		f.Mend()
		chaos.Change(s, pool, func(p *karpv1.NodePool) { chaos.Retry(p, "1") })
		s.Until("all run", mended, s.Running(want))
	}})
}

// No instance of an image ever registers: 200 classes of pods, three zones, two pools.
func TestSceneBadImage(t *testing.T) {
	var f chaos.Fault
	play(t, chaos.Scene{
		World: chaos.World{Fate: func(ec2.Machine) kubelet.Fate { return kubelet.Fate{Never: f.Lasts()} }},
		Play: func(s *chaos.Stage) {
			class := chaos.Class("default")
			s.Create(class, chaos.Pool("first", "default"), chaos.Pool("second", "default"))
			want := map[string]int{}
			for i := range 200 {
				app := fmt.Sprintf("web%d", i)
				want[app] = 1
				s.Create(chaos.Deployment(1, chaos.Template(app, "3", "1Gi", func(t *corev1.PodTemplateSpec) {
					t.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: s.Zone(i % 3), karpv1.NodePoolLabelKey: []string{"first", "second"}[i%2]}
				})))
			}
			s.Limit(500)
			s.Start()
			s.Pass(day())
			spent(s, 200, 12)
			f.Mend()
			chaos.Change(s, class, func(c *ec2nc.EC2NodeClass) { c.Spec.Tags = map[string]string{"image": "mended"} })
			s.Until("all run", mended, s.Running(want))
		},
	})
}

// One instance in twenty never registers. The last of the 200 that are wanted registers, with a guard, at most one registration timeout
// later than without: that took two timeouts and three boots.
func TestSceneSomeNeverRegister(t *testing.T) {
	var machines atomic.Int64
	quiet(t, chaos.Scene{
		World: chaos.World{Fate: func(ec2.Machine) kubelet.Fate { return kubelet.Fate{Never: machines.Add(1)%20 == 8} }},
		Play: func(s *chaos.Stage) {
			basics(s)
			s.Create(chaos.Deployment(200, chaos.Template("web", "3", "1Gi")))
			s.Start()
			s.Until("all run", 3*registrationTimeout+3*chaos.LongestBoot, s.Running(map[string]int{"web": 200}))
			s.Pass(time.Hour)
		},
	})
}

// A CronJob makes a Job a minute, which the filters refuse as launched. Beside it another workload of the same pool grows by an instance
// each half hour, and does its work there: that is no reason to go on trying for the one that is refused, and the other does not wait
// because of it.
func TestSceneRefusedBesideOthers(t *testing.T) {
	var f chaos.Fault
	play(t, chaos.Scene{Program: withPicky("report", &f), Play: func(s *chaos.Stage) {
		web := chaos.Deployment(1, chaos.Template("web", "3", "1Gi"))
		s.Create(chaos.Class("default"), chaos.Pool("default", "default"), web,
			chaos.CronJob(20*time.Second, batchv1.ReplaceConcurrent, chaos.Template("report", "3", "1Gi")))
		s.Limit(150)
		s.Start()
		grown := 0
		for at := time.Duration(0); at < day(); at += 30 * time.Minute {
			grown++
			began := time.Now()
			chaos.Change(s, web, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(grown)) })
			s.Until("the other one has grown", mended, s.Running(map[string]int{"web": grown}))
			s.Pass(30*time.Minute - time.Since(began))
		}
		bill(s)
		s.AtMost("machines beside those that the other workload needs", s.Launched()-grown, 12)
	}})
}
