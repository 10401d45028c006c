package main

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
)

// Events that are normal in every cluster open no breaker.

// quiet runs a scene in which no breaker may open.
func quiet(t *testing.T, scene chaos.Scene) {
	t.Helper()
	do := scene.Play
	scene.Play = func(s *chaos.Stage) {
		s.NothingOpens()
		s.Limit(1000)
		do(s)
		bill(s)
	}
	play(t, scene)
}

// withArgs is the whole scheduler with more arguments of Provision.
func withArgs(args string) chaos.Program {
	config := withArg(hostedConfig, args)
	return func(ctx context.Context, p chaos.Process) error { return host(ctx, p, config, nil) }
}

// basics creates a node class and a pool.
func basics(s *chaos.Stage) (*ec2nc.EC2NodeClass, *karpv1.NodePool) {
	class, pool := chaos.Class("default"), chaos.Pool("default", "default")
	s.Create(class, pool)
	return class, pool
}

func TestSceneCrashLoop(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		basics(s)
		s.Create(chaos.Deployment(5, chaos.Template("web", "3", "1Gi", chaos.Annotated(kubelet.CrashAfter, "20s"))))
		s.Start()
		s.Pass(whole(6*time.Hour, 2*time.Hour))
		s.AtMost("machines", s.Launched(), 5)
	}})
}

func TestSceneInitCrashLoop(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		basics(s)
		s.Create(chaos.Deployment(5, chaos.Template("web", "3", "1Gi", chaos.Annotated(kubelet.InitCrashAfter, "5s"), func(t *corev1.PodTemplateSpec) {
			t.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "registry.invalid/init"}}
		})))
		s.Start()
		s.Pass(whole(6*time.Hour, 2*time.Hour))
		s.AtMost("machines", s.Launched(), 5)
	}})
}

// shortJobs creates n Jobs of 30 seconds, 500 a minute, and deletes each as soon as it has ended.
func shortJobs(s *chaos.Stage, n int) {
	s.Create(chaos.Class("default"), chaos.Pool("default", "default", ec2nc.LabelInstanceCategory+"=c,m,r", ec2nc.LabelInstanceCPU+"=4,8,16"))
	s.Start()
	for i := 0; i < n; i += 500 {
		for k := i; k < min(n, i+500); k++ {
			s.Create(chaos.Job(fmt.Sprintf("short-%d", k), 30*time.Second, chaos.Template("short", "200m", "128Mi")))
		}
		s.Pass(time.Minute)
	}
	s.Until("all have ended and are gone", 10*time.Minute, func() string {
		if left := len(s.Pods(map[string]string{"app": "short"})); left > 0 {
			return fmt.Sprintf("%d pods are there", left)
		}
		return ""
	})
	s.Pass(time.Hour)
}

func TestSceneManyShortJobs(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) { shortJobs(s, whole(10000, 500)) }})
}

func TestSceneVolumeComesLate(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		basics(s)
		var allowed atomic.Bool
		s.Storage("fast", allowed.Load)
		s.Create(chaos.VolumeClaim("data", "fast"), chaos.Deployment(1, chaos.Template("db", "3", "1Gi", chaos.Mounting("data"))))
		s.Start()
		s.Pass(time.Hour)
		s.Note("%d machines in the hour", s.Launched())
		allowed.Store(true)
		s.Until("it runs", 30*time.Minute, s.Running(map[string]int{"db": 1}))
		s.Pass(time.Hour)
	}})
}

func TestSceneSlowImage(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		basics(s)
		s.Create(chaos.Deployment(10, chaos.Template("web", "3", "1Gi", chaos.Annotated(kubelet.PullFor, "12m"))))
		s.Start()
		s.Until("all run", 15*time.Minute, s.Running(map[string]int{"web": 10}))
		s.Pass(time.Hour)
		s.AtMost("machines", s.Launched(), 10)
	}})
}

func TestSceneSlowStartupTaint(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		pool := chaos.Pool("default", "default")
		pool.Spec.Template.Spec.StartupTaints = []corev1.Taint{{Key: "example.com/agent", Effect: corev1.TaintEffectNoExecute}}
		s.Untaint("example.com/agent", 20*time.Minute)
		s.Create(chaos.Class("default"), pool, chaos.Deployment(10, chaos.Template("web", "3", "1Gi")))
		s.Start()
		s.Until("all run", 25*time.Minute, s.Running(map[string]int{"web": 10}))
		s.Pass(time.Hour)
		s.AtMost("machines", s.Launched(), 10)
	}})
}

func TestSceneSpotReclaimed(t *testing.T) {
	quiet(t, chaos.Scene{Program: withArgs("interruptionQueue: dovetail"), Play: func(s *chaos.Stage) {
		s.Create(chaos.Class("default"), chaos.Pool("default", "default", karpv1.CapacityTypeLabelKey+"=spot", ec2nc.LabelInstanceCategory+"=c,m,r", ec2nc.LabelInstanceCPU+"=4"),
			chaos.Deployment(50, chaos.Template("web", "3", "1Gi")))
		s.Start()
		s.Until("all run", 5*time.Minute, s.Running(map[string]int{"web": 50}))
		s.Pass(10 * time.Minute)
		s.Reclaim(10, 10*time.Minute)
		s.Pass(12 * time.Minute)
		s.Until("all run again", 5*time.Minute, s.Running(map[string]int{"web": 50}))
		s.Pass(time.Hour)
	}})
}

func TestSceneScaledUpAndDown(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		basics(s)
		web := chaos.Deployment(10, chaos.Template("web", "900m", "1Gi"))
		s.Create(web)
		s.Start()
		for range whole(12, 2) {
			for _, n := range []int32{100, 10} {
				s.Pass(5 * time.Minute)
				chaos.Change(s, web, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(n) })
			}
		}
		s.Until("all run", 5*time.Minute, s.Running(map[string]int{"web": 10}))
	}})
}

func TestSceneStatefulSetRollsOut(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		basics(s)
		db := chaos.StatefulSet(10, chaos.Template("db", "3", "1Gi"))
		s.Create(db)
		s.Start()
		s.Until("all run", 20*time.Minute, s.Running(map[string]int{"db": 10}))
		for i := range 3 {
			image := fmt.Sprintf("registry.invalid/db:%d", i)
			chaos.Change(s, db, func(d *appsv1.StatefulSet) { d.Spec.Template.Spec.Containers[0].Image = image })
			s.Until("all run the new one", 40*time.Minute, func() string {
				for _, p := range s.Pods(map[string]string{"app": "db"}) {
					if p.Spec.Containers[0].Image != image {
						return p.Name + " runs the old one"
					}
				}
				return s.Missing("db", 10)
			})
		}
		s.Pass(time.Hour)
	}})
}

func TestSceneDaemonSetAddedMeanwhile(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		s.Create(chaos.Class("default"), chaos.Pool("default", "default", ec2nc.LabelInstanceCategory+"=c,m,r", ec2nc.LabelInstanceCPU+"=4,8"))
		s.Create(chaos.Deployment(20, chaos.Template("web", "3", "1Gi")))
		s.Start()
		s.In(15*time.Second, func() {
			s.Create(chaos.DaemonSet(chaos.Template("agent", "1", "64Mi", func(t *corev1.PodTemplateSpec) { t.Spec.PriorityClassName = "system-node-critical" })))
		})
		s.Pass(30 * time.Second)
		s.Note("%d machines boot", s.Launched())
		// The instances are too small for both, which could not be known: those pods are evicted once.
		s.Until("all run", 15*time.Minute, s.Running(map[string]int{"web": 20}))
		s.Pass(time.Hour)
	}})
}

func TestSceneStaticPool(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		pool := chaos.Pool("fixed", "default")
		pool.Spec.Replicas = ptr.To[int64](5)
		pool.Spec.Disruption = karpv1.Disruption{}
		s.Create(chaos.Class("default"), pool)
		s.Start()
		s.Pass(10 * time.Minute)
		for _, n := range []int64{8, 3, 6} {
			chaos.Change(s, pool, func(p *karpv1.NodePool) { p.Spec.Replicas = &n })
			s.Pass(20 * time.Minute)
			s.AtLeast("machines that live", len(s.Cloud().Live()), int(n))
			s.AtMost("machines that live", len(s.Cloud().Live()), int(n))
		}
		s.Pass(time.Hour)
	}})
}

func TestSceneClaimByHand(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		s.Create(chaos.Class("default"))
		s.Start()
		s.Pass(time.Minute)
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: karpv1.NodeClaimSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"},
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
				{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}},
				{Key: karpv1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"on-demand"}},
			},
			Resources: karpv1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}},
		}}
		s.Create(claim)
		s.Pass(time.Hour)
		s.AtLeast("machines that live", len(s.Cloud().Live()), 1)
		s.Delete(claim)
		s.Pass(time.Hour)
		s.AtMost("machines", s.Launched(), 1)
	}})
}

// The cluster's own scheduler reports that it finds no node for its pods, and when their nodes exist, it has placed them elsewhere.
func TestSceneOtherSchedulerPlacesElsewhere(t *testing.T) {
	quiet(t, chaos.Scene{Program: withArgs("provisionFor: [other]"), Play: func(s *chaos.Stage) {
		basics(s)
		s.Create(chaos.Deployment(1, chaos.Template("web", "500m", "1Gi")))
		s.Start()
		s.Until("all run", 5*time.Minute, s.Running(map[string]int{"web": 1}))
		node := s.Pods(map[string]string{"app": "web"})[0].Spec.NodeName
		for _, after := range []time.Duration{10 * time.Second, 90 * time.Second} {
			app := "theirs-" + after.String()
			s.OtherScheduler("other", after, func() string { return node })
			s.Create(chaos.Deployment(1, chaos.Template(app, "1", "1Gi", func(t *corev1.PodTemplateSpec) {
				t.Spec.SchedulerName = "other"
				t.Spec.NodeSelector = map[string]string{}
			})))
			s.Until("theirs run", 10*time.Minute, s.Running(map[string]int{app: 1}))
			s.Pass(30 * time.Minute)
		}
		s.Pass(time.Hour)
	}})
}

func TestSceneInsufficientCapacity(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		basics(s)
		s.Cloud().SetCapacity(ec2.Any, ec2.Any, ec2.Any, 5)
		s.Create(chaos.Deployment(30, chaos.Template("web", "3", "1Gi")))
		s.Start()
		s.Pass(2 * time.Hour)
		s.AtMost("machines", s.Launched(), 5)
		s.Cloud().SetCapacity(ec2.Any, ec2.Any, ec2.Any, ec2.Unlimited)
		s.Until("all run", 15*time.Minute, s.Running(map[string]int{"web": 30}))
		s.Pass(time.Hour)
	}})
}

func TestSceneThrottled(t *testing.T) {
	quiet(t, chaos.Scene{World: chaos.World{Cloud: func(c *ec2.Config) { c.Throttle = true }}, Play: func(s *chaos.Stage) {
		basics(s)
		s.Create(chaos.Deployment(100, chaos.Template("web", "3", "1Gi")))
		end := s.Cloud().Before("", func(r *ec2.Request) *ec2.Fault {
			if r.Action == "CreateFleet" || r.Action == "DescribeInstances" {
				return &ec2.Fault{Code: "RequestLimitExceeded"}
			}
			return nil
		})
		s.Start()
		s.Pass(20 * time.Minute)
		end()
		s.Until("all run", 20*time.Minute, s.Running(map[string]int{"web": 100}))
		s.Pass(time.Hour)
		s.AtMost("machines", s.Launched(), 100)
	}})
}

// The scheduler is killed before or after each write of a verdict or of the guard's records.
func TestSceneKilledAtEachVerdict(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		basics(s)
		kills := s.KillAt(func(c *kubeapi.Call) bool {
			return c.Writes() && (bytes.Contains(c.Body, []byte(`dovetail.sh/guard`)) || c.Resource.Resource == "nodeclaims" && bytes.Contains(c.Body, []byte(`"Served"`)))
		})
		web := chaos.Deployment(4, chaos.Template("web", "3", "1Gi"))
		s.Create(web)
		s.Start()
		for i := range 8 {
			s.Pass(10 * time.Minute)
			chaos.Change(s, web, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(2 + i%4)) })
			s.Create(chaos.Job(fmt.Sprintf("short-%d", i), 30*time.Second, chaos.Template("short", "3", "1Gi")))
		}
		s.Until("all run", 15*time.Minute, s.Running(map[string]int{"web": 5}))
		s.Note("killed %d times", kills.Load())
	}})
}
