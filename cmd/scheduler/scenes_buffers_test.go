//go:build scenes

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
)

// CapacityBuffers: capacity that is there before its pods are.

func podTemplate() *corev1.PodTemplate {
	return &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "chunk"}, Template: chaos.Template("chunk", "1", "1Gi")}
}

func capacityBuffer(name string, chunks int32) *autoscalingv1beta1.CapacityBuffer {
	return &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: autoscalingv1beta1.CapacityBufferSpec{PodTemplateRef: &autoscalingv1beta1.LocalObjectRef{Name: "chunk"}, Replicas: &chunks}}
}

// full returns a func that says what a buffer still lacks.
func full(s *chaos.Stage, name string) func() string {
	return func() string {
		b := capacityBuffer(name, 0)
		chaos.Read(s, b)
		c := meta.FindStatusCondition(b.Status.Conditions, autoscalingv1beta1.ProvisioningCondition)
		switch {
		case c == nil:
			return fmt.Sprintf("no condition; %+v", b.Status)
		case c.Status != metav1.ConditionTrue:
			return c.Message
		}
		return ""
	}
}

// A hundred chunks. A burst takes them in one scheduling cycle per pod, and they are bought again exactly once; when the burst has ended, so do the
// nodes that nothing needs, and when the buffer is deleted all do.
func TestSceneBurstOnBufferedCapacity(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		s.NothingOpens()
		s.Limit(100)
		s.Create(chaos.Class("default"), chaos.Pool("default", "default"), podTemplate(), capacityBuffer("spare", 100))
		heard := s.Listen()
		s.Start()
		s.Until("the buffer is full", 20*time.Minute, full(s, "spare"))
		s.Pass(10 * time.Minute)
		bought := s.Launched()
		s.AtMost("machines", bought, 34)
		burst := chaos.Deployment(100, chaos.Template("burst", "1", "1Gi"))
		s.Create(burst)
		s.Until("the burst runs", time.Minute, s.Running(map[string]int{"burst": 100}))
		s.AtMost("events of pods that fitted nowhere at first", heardAny(heard(), "FailedScheduling", "Nominated", "FailedProvisioning"), 0)
		s.Until("the buffer is full again", 20*time.Minute, full(s, "spare"))
		s.Pass(30 * time.Minute)
		s.AtMost("machines", s.Launched(), 2*bought)
		s.AtLeast("machines", s.Launched(), 2*bought-1)
		s.AtLeast("machines that live", len(s.Cloud().Live()), 2*bought-1)
		chaos.Change(s, burst, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) })
		s.Until("what nothing needs has ended", time.Hour, func() string {
			if n := len(s.Cloud().Live()); n > bought {
				return fmt.Sprintf("%d machines live", n)
			}
			return full(s, "spare")()
		})
		s.Pass(time.Hour)
		s.AtLeast("machines that live", len(s.Cloud().Live()), bought)
		s.AtMost("machines", s.Launched(), 2*bought)
		s.Delete(capacityBuffer("spare", 0))
		s.Until("nothing is kept", 20*time.Minute, func() string {
			if n := len(s.Cloud().Live()); n > 0 {
				return fmt.Sprintf("%d machines live", n)
			}
			return ""
		})
		s.AtMost("machines", s.Launched(), 2*bought)
	}})
}

// heardAny returns how many of the sentences have one of the words.
func heardAny(all []chaos.Sentence, words ...string) (n int) {
	for _, one := range all {
		for _, w := range words {
			if strings.Contains(one.String(), w) {
				n++
				break
			}
		}
	}
	return n
}

// Buffers are created and deleted every few seconds: no more is bought than the limit of their pool allows at once, and little overall. The program is
// killed meanwhile, and the last buffer gets what is there.
func TestSceneBuffersComeAndGo(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		s.NothingOpens()
		s.Limit(60)
		pool := chaos.Pool("default", "default")
		pool.Spec.Limits = karpv1.Limits{corev1.ResourceCPU: resource.MustParse("40")}
		s.Create(chaos.Class("default"), pool, podTemplate())
		most := 0
		s.Each(func() { most = max(most, len(s.Cloud().Live())) })
		s.Start()
		for i := range 60 {
			b := capacityBuffer(fmt.Sprint("spare-", i), 100)
			s.Create(b)
			s.Pass(time.Duration(1+i%7) * time.Second)
			if i == 30 {
				s.Kill()
				s.Start()
			}
			s.Delete(b)
		}
		s.AtMost("machines at once", most, 10)
		s.Create(capacityBuffer("last", 24))
		s.Until("the last one is full", 20*time.Minute, full(s, "last"))
		s.Pass(30 * time.Minute)
		s.AtMost("machines at once", most, 10)
		s.AtMost("machines", s.Launched(), 24)
		s.AtMost("machines that live", len(s.Cloud().Live()), 10)
		before := s.Launched()
		s.Kill()
		s.Start()
		s.Pass(30 * time.Minute)
		s.Until("it is full after a restart", time.Minute, full(s, "last"))
		s.AtMost("machines bought after a restart", s.Launched()-before, 0)
		s.Delete(capacityBuffer("last", 0))
		s.Until("nothing is kept", 20*time.Minute, func() string {
			if n := len(s.Cloud().Live()); n > 0 {
				return fmt.Sprintf("%d machines live", n)
			}
			return ""
		})
	}})
}

// A user deletes what was bought for a buffer, again and again, which pauses launches for it. Another buffer of the same kind isn't held back by
// that, and the probe is bought for the one that is paused, although the other one lacks capacity, too.
func TestSceneBufferIsProbedBesideAnother(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		s.Limit(40)
		s.Create(chaos.Class("default"), chaos.Pool("default", "default"), podTemplate(), capacityBuffer("z-paused", 3))
		s.Start()
		for range 3 { // the last one is a probe, so that the next one is a quarter of an hour later
			s.Until("a node is launched", 20*time.Minute, func() string {
				if len(s.Claims()) == 0 {
					return "no NodeClaim"
				}
				return ""
			})
			for _, c := range s.Claims() {
				s.Delete(c)
			}
			s.Pass(30 * time.Second)
		}
		s.AtLeast("pauses", len(s.Opened()), 1)
		s.Create(capacityBuffer("a-other", 12))
		s.Until("the other buffer is full", 5*time.Minute, full(s, "a-other"))
		s.Until("the buffer that was paused is full", 30*time.Minute, full(s, "z-paused"))
		s.AtMost("machines", s.Launched(), 24)
	}})
}
