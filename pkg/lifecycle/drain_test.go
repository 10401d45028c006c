package lifecycle

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

func annotated(k, v string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{k: v} }
}

func TestMinimumDrainTime(t *testing.T) {
	w := newWorld(t)
	w.up("a")
	w.deleteByName("a")
	w.step()
	w.pass(minDrain-time.Second, time.Second)
	if got := w.left(); got != "claim node instance:running" {
		t.Fatalf("left before a late pod could show: %s", got)
	}
	w.pod("late", "ip-10-0-0-1")
	w.pass(10*time.Second, time.Second)
	if !slices.Contains(w.evicted, "late") || w.left() != "claim node instance:running" {
		t.Errorf("a pod bound just before the taint was seen was not evicted: %q, left %s", w.evicted, w.left())
	}
}

// Pods that only the API server knows keep the node, too.
func TestDrainAsksTheAPIBeforeItIsOver(t *testing.T) {
	w := newWorld(t)
	w.up("a")
	w.deleteByName("a")
	w.step()
	w.clock.Step(time.Minute)
	w.sync()
	w.pod("unseen", "ip-10-0-0-1")
	if _, err := w.c.reconcile(w.ctx, key{claim: "a"}); err != nil {
		t.Fatal(err)
	}
	if conditionTrue(w.claim("a"), karpv1.ConditionTypeDrained) || w.cloud.calls["Terminate"] > 0 {
		t.Error("drained although a pod is there")
	}
}

// A pod that our own scheduler let through before the termination began may be bound late, by a slow call. The drain waits for it and
// evicts it like any other; no more pods are let through.
func TestDrainWaitsForPodsThatAreBeingBound(t *testing.T) {
	w := newWorld(t)
	w.up("a")
	w.bindsInFlight["ip-10-0-0-1"] = 1
	w.deleteByName("a")
	w.sync()
	w.kube.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if w.closed["ip-10-0-0-1"] == "" {
			t.Error("the node was tainted before the scheduler was told")
		}
		return false, nil, nil
	})
	w.pass(time.Minute, time.Second)
	if got := w.left(); got != "claim node instance:running" || conditionTrue(w.claim("a"), karpv1.ConditionTypeDrained) {
		t.Fatalf("left while a pod is being bound: %s, drained: %t", got, conditionTrue(w.claim("a"), karpv1.ConditionTypeDrained))
	}
	w.pod("late", "ip-10-0-0-1")
	w.bindsInFlight["ip-10-0-0-1"] = 0
	w.pass(2*time.Second, time.Second)
	if got := w.left(); !slices.Contains(w.evicted, "late") || got != "claim node instance:running" {
		t.Errorf("evicted %q, left %s", w.evicted, got)
	}
	w.endPods()
	w.pass(2*time.Second, time.Second)
	w.cloud.ends()
	w.bindsInFlight["ip-10-0-0-1"] = 1 // a DaemonSet's pod, for example
	w.pass(10*time.Second, 5*time.Second)
	if got := w.left(); got != "claim node" {
		t.Errorf("left while a pod is being bound to a node without machine: %s", got)
	}
	w.pod("last", "ip-10-0-0-1")
	w.bindsInFlight["ip-10-0-0-1"] = 0
	w.pass(10*time.Second, 5*time.Second)
	if got := w.left(); got != "" || !slices.Contains(w.killed, "last") {
		t.Errorf("left in the end: %s, killed %q", got, w.killed)
	}
}

func TestDrainGroups(t *testing.T) {
	daemon := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d"}}
	}
	critical := func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }
	w := newWorld(t)
	w.up("a")
	const node = "ip-10-0-0-1"
	w.pod("4-critical-daemon", node, daemon, critical)
	w.pod("3-critical", node, critical)
	w.pod("2-daemon", node, daemon)
	w.pod("1-plain", node)
	w.pod("1-other", node)
	w.pod("tolerant", node, daemon, func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	})
	w.pod("static", node, annotated(corev1.MirrorPodAnnotationKey, "x"))
	w.pod("stuck", node, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: epoch.Add(-2 * time.Minute)} })
	w.deleteByName("a")
	for _, want := range []string{"1-other 1-plain", "2-daemon", "3-critical", "4-critical-daemon", ""} {
		w.evicted = nil
		w.pass(3*time.Second, time.Second)
		slices.Sort(w.evicted)
		if diff := cmp.Diff(want, strings.Join(w.evicted, " ")); diff != "" {
			t.Fatalf("evicted (-want +got):\n%s", diff)
		}
		for _, p := range w.podsLeft() {
			if p.Name != "stuck" && p.DeletionTimestamp != nil {
				_ = w.objects.Delete(podsResource, p.Namespace, p.Name)
			}
		}
	}
	w.pass(3*time.Second, time.Second)
	if w.cloud.calls["Terminate"] == 0 {
		t.Error("pods that no drain ends kept the instance")
	}
}

func TestDrainRespectsBudgets(t *testing.T) {
	w := newWorld(t)
	w.up("a")
	w.pod("guarded", "ip-10-0-0-1")
	w.pod("free", "ip-10-0-0-1")
	w.blocked["guarded"] = true
	w.deleteByName("a")

	// The controller tries again when it said it would; the pauses grow from 100 ms to 10 s.
	var asked []time.Duration
	count := func() int {
		n := 0
		for _, a := range w.kube.Actions() {
			if a.GetSubresource() == "eviction" {
				n++
			}
		}
		return n
	}
	at := w.clock.Now()
	for range 100 {
		before := count()
		wait := w.step()
		if count() > before {
			asked = append(asked, w.clock.Since(at))
			at = w.clock.Now()
		}
		w.clock.Step(max(wait, time.Millisecond))
		if w.clock.Since(epoch) > 2*time.Minute {
			break
		}
	}
	if diff := cmp.Diff([]string{"free"}, w.evicted); diff != "" {
		t.Errorf("evicted (-want +got):\n%s", diff)
	}
	for i := 2; i < len(asked); i++ {
		want := min(evictionBackoff<<(i-1), evictionBackoffMax)
		if asked[i] < want || asked[i] > want+1100*time.Millisecond {
			t.Errorf("pause %d was %s, want about %s", i, asked[i], want)
		}
	}
	if last := asked[len(asked)-1]; last < 9*time.Second {
		t.Errorf("the last pause was only %s", last)
	}
	if !w.happened("ip-10-0-0-1", reasonFailedDraining) {
		t.Errorf("nobody was told why: %q", w.events)
	}
	if w.left() != "claim node instance:running" {
		t.Fatalf("left: %s", w.left())
	}

	delete(w.blocked, "guarded")
	w.pass(12*time.Second, time.Second)
	if !slices.Contains(w.evicted, "guarded") {
		t.Error("not evicted when the budget allowed it")
	}
}

func TestDrainWaitsForThoseWhoAskNotToBeDisrupted(t *testing.T) {
	for _, tc := range []struct {
		name       string
		key, value string
		evictedBy  time.Duration // 0: never
	}{
		{name: "do-not-disrupt", key: "karpenter.sh/do-not-disrupt", value: "true"},
		{name: "for a while", key: "karpenter.sh/do-not-disrupt", value: "5m", evictedBy: 6 * time.Minute},
		{name: "what is neither yes nor no", key: "karpenter.sh/do-not-disrupt", value: "please"},
		{name: "no", key: "karpenter.sh/do-not-disrupt", value: "false", evictedBy: 5 * time.Second},
		{name: "the older spelling", key: "karpenter.sh/do-not-evict", value: "true"},
		{name: "the other autoscaler's spelling", key: "cluster-autoscaler.kubernetes.io/safe-to-evict", value: "false"},
		{name: "safe to evict", key: "cluster-autoscaler.kubernetes.io/safe-to-evict", value: "true", evictedBy: 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.up("a")
			w.pod("p", "ip-10-0-0-1", annotated(tc.key, tc.value))
			w.deleteByName("a")
			for w.clock.Since(epoch) < 20*time.Minute {
				w.pass(5*time.Second, 5*time.Second)
				if len(w.evicted) > 0 {
					break
				}
			}
			if got := len(w.evicted) > 0; got != (tc.evictedBy > 0) {
				t.Fatalf("evicted = %v after %s", got, w.clock.Since(epoch))
			}
			if tc.evictedBy > 0 && (w.clock.Since(epoch) > tc.evictedBy || tc.value == "5m" && w.clock.Since(epoch) < 5*time.Minute) {
				t.Errorf("evicted after %s", w.clock.Since(epoch))
			}
		})
	}
}
