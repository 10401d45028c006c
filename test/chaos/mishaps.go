package chaos

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
	"github.com/dovetail-scheduler/dovetail/test/outside"
)

// Incidents that happen to a cluster.

// Cloud returns the simulated account, for causing incidents there.
func (s *Stage) Cloud() *ec2.Sim { return s.ec2 }

// Kubelets returns the simulated kubelets, for making nodes unhealthy.
func (s *Stage) Kubelets() *kubelet.Kubelets { return s.boots }

// Reclaim makes EC2 interrupt n random spot instances, spread over a time.
func (s *Stage) Reclaim(n int, within time.Duration) {
	live := s.ec2.Live()
	r := rand.New(rand.NewPCG(s.scene.Seed, 7))
	r.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
	for i, in := range live[:min(n, len(live))] {
		s.In(time.Duration(i)*within/time.Duration(n), func() { _ = s.ec2.Interrupt(in.ID) })
	}
}

// KillAt kills the product alternately before and after each call for which deadly is true, and starts it again five seconds later.
// The result counts the kills.
func (s *Stage) KillAt(deadly func(*kubeapi.Call) bool) *atomic.Int64 {
	s.deadly = deadly
	return &s.kills
}

// before and after are called for each call of a process.
func (s *Stage) before(p *process, c *kubeapi.Call) *kubeapi.Fault {
	if s.emptied != nil {
		s.emptied.called(c)
	}
	if s.mortal.killsAt(p, point{named(c), false}) {
		return &kubeapi.Fault{Call: p.kill, Drop: true}
	}
	if s.deadly == nil || !s.deadly(c) || s.kills.Load()%2 != 0 || p.killed.Load() {
		return nil
	}
	s.kills.Add(1)
	return &kubeapi.Fault{Call: p.kill, Drop: true}
}

func (s *Stage) after(p *process, c *kubeapi.Call, err error) *kubeapi.Fault {
	if s.emptied != nil {
		s.emptied.answered(c, err)
	}
	if err == nil && s.mortal.killsAt(p, point{named(c), true}) {
		return &kubeapi.Fault{Call: p.kill, Drop: true}
	}
	if err != nil || s.deadly == nil || !s.deadly(c) || s.kills.Load()%2 != 1 || p.killed.Load() {
		return nil
	}
	s.kills.Add(1)
	return &kubeapi.Fault{Call: p.kill, Drop: true}
}

// cloudKills reports whether the process is killed at a call to the cloud.
func (s *Stage) cloudKills(p *process, at point) bool {
	if !s.mortal.killsAt(p, at) {
		return false
	}
	p.kill()
	return true
}

// Untaint adds the agent that a startup taint waits for: it removes the taint this long after the node is Ready.
func (s *Stage) Untaint(key string, after time.Duration) {
	s.watch(s.factory.Core().V1().Nodes().Informer(), func(obj any) {
		n := obj.(*corev1.Node)
		if !outside.Ready(n) {
			return
		}
		time.AfterFunc(after, func() { s.untaint(n.Name, key) })
	})
}

func (s *Stage) untaint(node, key string) {
	for range 20 {
		n, err := s.kube.CoreV1().Nodes().Get(s.ctx, node, metav1.GetOptions{})
		if err != nil {
			return
		}
		for i := range n.Spec.Taints {
			if n.Spec.Taints[i].Key == key {
				n.Spec.Taints = append(n.Spec.Taints[:i:i], n.Spec.Taints[i+1:]...)
				_, err = s.kube.CoreV1().Nodes().Update(s.ctx, n, metav1.UpdateOptions{})
				break
			}
		}
		if err == nil {
			return
		}
	}
}

func (s *Stage) untaintAll(key string) {
	nodes, err := s.factory.Core().V1().Nodes().Lister().List(labels.Everything())
	if err != nil {
		return
	}
	for _, n := range nodes {
		s.untaint(n.Name, key)
	}
}

// Storage adds a storage class for volumes that are created for the node of their first pod, and the provisioner, which works while it
// is allowed to.
func (s *Stage) Storage(name string, allowed func() bool) {
	s.Create(storageClass(name, volumeDriver))
	s.Each(func() {
		if !allowed() {
			return
		}
		for _, c := range s.selected(name) {
			s.provide(c, volumeDriver, corev1.LabelTopologyZone)
		}
	})
}

// OtherScheduler binds pods that ask for it: it reports at once that it finds no node, and binds to the named one a while later.
func (s *Stage) OtherScheduler(name string, after time.Duration, node func() string) {
	seen := map[string]bool{} // used by the informer's goroutine only
	s.watch(s.factory.Core().V1().Pods().Informer(), func(obj any) {
		p := obj.(*corev1.Pod)
		if p.Spec.SchedulerName != name || p.Spec.NodeName != "" || seen[string(p.UID)] {
			return
		}
		seen[string(p.UID)] = true
		p = p.DeepCopy()
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/1 nodes are available: 1 Insufficient cpu.", LastTransitionTime: metav1.Now()})
		if _, err := s.kube.CoreV1().Pods(p.Namespace).UpdateStatus(s.ctx, p, metav1.UpdateOptions{}); err != nil {
			s.logger.Error(err, "The other scheduler could not say that it finds no node")
		}
		time.AfterFunc(after, func() {
			_ = s.kube.CoreV1().Pods(p.Namespace).Bind(s.ctx, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: node()},
			}, metav1.CreateOptions{})
		})
	})
}
