package clustermetrics

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/testutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

func TestPodsWait(t *testing.T) {
	for name, c := range map[string]struct {
		node   map[string]string // labels; nil: the Node isn't known
		older  bool              // than the pod
		bind   string
		forged bool // the pod was bound when it was first seen
	}{
		"on a booting node":           {node: map[string]string{}, bind: bindEarly},
		"on a registered node":        {node: map[string]string{karpv1.NodeRegisteredLabelKey: "true"}, bind: bindRegistered},
		"on a new node":               {node: map[string]string{karpv1.NodeRegisteredLabelKey: "true", karpv1.NodeInitializedLabelKey: "true"}, bind: bindInitialized},
		"on a node that was there":    {node: map[string]string{karpv1.NodeInitializedLabelKey: "true"}, older: true, bind: bindExisting},
		"on one that was booting":     {node: map[string]string{}, older: true, bind: bindEarly},
		"on a node that isn't known":  {bind: bindExisting},
		"a pod that was bound before": {node: map[string]string{}, forged: true},
	} {
		t.Run(name, func(t *testing.T) {
			podWait.Reset()
			w := newWorld()
			m := NewPods(w.Nodes, w.clock)
			handler := m.Handler()
			if c.node != nil {
				c.node[karpv1.NodePoolLabelKey] = "default"
				n := w.node("a", c.node)
				if !c.older {
					n.CreationTimestamp = metav1.NewTime(w.clock.Now().Add(time.Second))
				}
			}
			before := w.pod("web", "", func(p *corev1.Pod) { p.UID, p.CreationTimestamp = types.UID("1"), metav1.NewTime(w.clock.Now()) })
			if c.forged {
				before.Spec.NodeName = "a"
			}
			m.Lead()
			handler.OnAdd(before, false)
			w.clock.Step(3 * time.Second)
			bound := before.DeepCopy()
			bound.Spec.NodeName = "a"
			handler.OnUpdate(before, bound)
			w.clock.Step(4 * time.Second)
			running := bound.DeepCopy()
			running.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
			handler.OnUpdate(bound, running)
			handler.OnUpdate(running, running)
			for _, bind := range []string{bindExisting, bindEarly, bindRegistered, bindInitialized} {
				sum, err := testutil.GetHistogramMetricValue(podWait.WithLabelValues(bind))
				want := 0.0
				if bind == c.bind {
					want = 3
				}
				if err != nil || sum != want {
					t.Errorf("%s: waited %v s, want %v: %v", bind, sum, want, err)
				}
			}
			if len(m.pending) > 0 {
				t.Errorf("%d pods are never forgotten", len(m.pending))
			}
		})
	}
}

// A replica that doesn't lead measures nothing, and pods that never start are forgotten when they are gone.
func TestPodsOfAnotherLeader(t *testing.T) {
	w := newWorld()
	m := NewPods(w.Nodes, w.clock)
	handler := m.Handler()
	p := w.pod("web", "")
	handler.OnAdd(p, true)
	if len(m.pending) > 0 {
		t.Error("a replica that doesn't lead watches a pod")
	}
	m.Lead()
	handler.OnUpdate(p, p)
	if len(m.pending) != 1 {
		t.Error("the leader doesn't watch a pod that waits")
	}
	handler.OnDelete(p)
	if len(m.pending) > 0 {
		t.Error("a pod that is gone is still watched")
	}
}
