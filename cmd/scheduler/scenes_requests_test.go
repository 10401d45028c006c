//go:build scenes

package main

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	provisioningv1 "github.com/dovetail-scheduler/dovetail/pkg/provisioningrequest/v1"
	"github.com/dovetail-scheduler/dovetail/test/chaos"
)

// ProvisioningRequests: capacity that is asked for before its pods are created.

func workerTemplate() *corev1.PodTemplate {
	return &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "worker"}, Template: chaos.Template("worker", "1", "1Gi")}
}

func requestFor(name string, pods int32) *provisioningv1.ProvisioningRequest {
	return &provisioningv1.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: provisioningv1.Spec{
		ProvisioningClassName: provisioningv1.ClassBestEffortAtomic,
		PodSets:               []provisioningv1.PodSet{{PodTemplateRef: provisioningv1.Reference{Name: "worker"}, Count: pods}}}}
}

// isTrue returns a func that says what a request's condition is as long as it isn't True.
func isTrue(s *chaos.Stage, name, kind string) func() string {
	return func() string {
		pr := requestFor(name, 0)
		chaos.Read(s, pr)
		if meta.IsStatusConditionTrue(pr.Status.Conditions, kind) {
			return ""
		}
		return fmt.Sprintf("conditions %+v", pr.Status.Conditions)
	}
}

// livesNone says how many machines live.
func livesNone(s *chaos.Stage) func() string {
	return func() string {
		if n := len(s.Cloud().Live()); n > 0 {
			return fmt.Sprintf("%d machines live", n)
		}
		return ""
	}
}

// Fifty requests are created and deleted within a few seconds each: what is bought for one serves the next. The program is killed meanwhile. The last
// request gets what is there; after a restart nothing is bought for it; its pods run there, and in the end no node is left.
func TestSceneRequestsComeAndGo(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		s.NothingOpens()
		s.Limit(40)
		s.Create(chaos.Class("default"), chaos.Pool("default", "default"), workerTemplate())
		s.Start()
		for i := range 50 {
			r := requestFor(fmt.Sprint("r-", i), 12)
			s.Create(r)
			s.Pass(time.Duration(1+i%7) * time.Second)
			if i == 25 {
				s.Kill()
				s.Start()
			}
			s.Delete(r)
		}
		s.AtMost("machines", s.Launched(), 12)
		s.Create(requestFor("last", 12))
		s.Until("the last one has its nodes", 20*time.Minute, isTrue(s, "last", provisioningv1.Provisioned))
		s.AtMost("machines", s.Launched(), 12)
		before := s.Launched()
		s.Kill()
		s.Start()
		s.Pass(2 * time.Minute)
		job := chaos.Deployment(12, chaos.Template("last", "1", "1Gi", chaos.Annotated("autoscaling.x-k8s.io/consume-provisioning-request", "last")))
		s.Create(job)
		s.Until("its pods run", time.Minute, s.Running(map[string]int{"last": 12}))
		s.Until("its booking is over", 2*time.Minute, isTrue(s, "last", provisioningv1.BookingExpired))
		s.AtMost("machines bought for its pods or after a restart", s.Launched()-before, 0)
		s.Delete(job)
		s.Until("all nodes end", time.Hour, livesNone(s))
	}})
}

// Nobody uses what a request has asked for: it is kept for ten minutes, also over a restart, and then it ends as empty nodes do, consolidateAfter
// later.
func TestSceneBookingExpires(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		s.NothingOpens()
		s.Limit(20)
		pool := chaos.Pool("default", "default")
		pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("3m")
		s.Create(chaos.Class("default"), pool, workerTemplate(), requestFor("unused", 12))
		s.Start()
		s.Until("it has its nodes", 20*time.Minute, isTrue(s, "unused", provisioningv1.Provisioned))
		bought := len(s.Cloud().Live())
		s.Pass(4 * time.Minute)
		s.Kill()
		s.Start()
		s.Pass(5 * time.Minute)
		s.AtLeast("machines that live", len(s.Cloud().Live()), bought)
		s.Until("the booking has expired", 90*time.Second, isTrue(s, "unused", provisioningv1.BookingExpired))
		s.Pass(2 * time.Minute)
		s.AtLeast("machines that live", len(s.Cloud().Live()), bought)
		s.Until("all nodes end", time.Hour, livesNone(s))
		s.AtMost("machines", s.Launched(), bought)
	}})
}
