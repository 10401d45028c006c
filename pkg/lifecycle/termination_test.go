package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func (w *world) deleteByName(name string) {
	w.t.Helper()
	if err := w.claims.Delete(w.ctx, w.claim(name)); err != nil {
		w.t.Fatal(err)
	}
}

// left returns what remains of claim a and its node.
func (w *world) left() string {
	var out []string
	if w.claim("a") != nil {
		out = append(out, "claim")
	}
	if w.node("ip-10-0-0-1") != nil {
		out = append(out, "node")
	}
	if i := w.cloud.instances["i-a"]; i != nil && i.State != capacity.InstanceTerminated {
		out = append(out, "instance:"+string(i.State))
	}
	return strings.Join(out, " ")
}

func annotated(k, v string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{k: v} }
}

func TestTerminationInOrder(t *testing.T) {
	for _, tc := range []struct {
		name    string
		trigger func(w *world)
	}{
		{name: "kubectl delete nodeclaim", trigger: func(w *world) { w.deleteByName("a") }},
		{name: "kubectl delete node", trigger: func(w *world) {
			if err := w.kube.CoreV1().Nodes().Delete(w.ctx, "ip-10-0-0-1", metav1.DeleteOptions{}); err != nil {
				w.t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.up("a")
			w.pod("web", "ip-10-0-0-1")
			tc.trigger(w)
			w.pass(2*time.Second, time.Second)
			n := w.node("ip-10-0-0-1")
			if !hasTaint(n.Spec.Taints, &karpv1.DisruptedNoScheduleTaint) || n.Labels[corev1.LabelNodeExcludeBalancers] == "" || n.DeletionTimestamp == nil {
				t.Errorf("the node isn't cordoned: %+v", n)
			}
			if diff := cmp.Diff([]string{"web"}, w.evicted); diff != "" {
				t.Errorf("evicted (-want +got):\n%s", diff)
			}

			// Nothing more happens before the pod has ended.
			w.pass(20*time.Second, time.Second)
			if got := w.left(); got != "claim node instance:running" {
				t.Fatalf("left before the pod ended: %s", got)
			}
			w.endPods()
			w.pass(2*time.Second, time.Second)
			if got := w.left(); got != "claim node instance:shutting-down" {
				t.Fatalf("left after the pod ended: %s", got)
			}
			// The objects don't go before the instance, either.
			w.pass(time.Minute, 5*time.Second)
			if got := w.left(); got != "claim node instance:shutting-down" {
				t.Fatalf("left while the instance shuts down: %s", got)
			}
			c := w.claim("a")
			for _, kind := range []string{karpv1.ConditionTypeDrained, karpv1.ConditionTypeVolumesDetached, karpv1.ConditionTypeInstanceTerminating} {
				if !conditionTrue(c, kind) {
					t.Errorf("%s is not True", kind)
				}
			}
			w.cloud.ends()
			w.pass(10*time.Second, 5*time.Second)
			if got := w.left(); got != "" {
				t.Errorf("left in the end: %s", got)
			}
			if n := w.cloud.calls["Terminate"]; n != 1 {
				t.Errorf("terminated %d times", n)
			}
		})
	}
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

// terminationGracePeriod: each pod is deleted in time for its own grace period, whatever protects it; at the deadline the instance is
// terminated whatever is left.
func TestTerminationGracePeriod(t *testing.T) {
	w := newWorld(t)
	w.up("a", func(c *karpv1.NodeClaim) {
		c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: 10 * time.Minute}
	})
	grace := func(s int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &s }
	}
	w.pod("guarded", "ip-10-0-0-1", grace(60))
	w.pod("never", "ip-10-0-0-1", grace(120), annotated("karpenter.sh/do-not-disrupt", "true"))
	w.pod("slow", "ip-10-0-0-1", grace(3600), annotated("karpenter.sh/do-not-disrupt", "true"))
	w.blocked["guarded"] = true
	w.deleteByName("a")

	ends := map[string]time.Duration{}
	for w.cloud.calls["Terminate"] == 0 && w.clock.Since(epoch) < 15*time.Minute {
		for _, p := range w.podsLeft() {
			if _, ok := ends[p.Name]; !ok && p.DeletionTimestamp != nil {
				ends[p.Name] = w.clock.Since(epoch)
				if p.Name == "slow" && *p.DeletionGracePeriodSeconds > 600 {
					t.Errorf("slow got %d s, more than is left", *p.DeletionGracePeriodSeconds)
				}
			}
		}
		w.pass(5*time.Second, 5*time.Second)
	}
	want := map[string]time.Duration{"slow": 5 * time.Second, "never": 8 * time.Minute, "guarded": 9 * time.Minute}
	for name, at := range want {
		if got := ends[name]; got < at || got > at+10*time.Second {
			t.Errorf("%s was deleted after %s, want about %s", name, got, at)
		}
	}
	if got := w.clock.Since(epoch); got < 10*time.Minute || got > 10*time.Minute+10*time.Second {
		t.Errorf("the instance was ended after %s", got)
	}
	if got := w.claim("a").Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]; got != epoch.Add(10*time.Minute).Format(time.RFC3339) {
		t.Errorf("deadline %q", got)
	}
}

func TestVolumesAreDetachedFirst(t *testing.T) {
	attachment := func(pv, node string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va-" + pv}, Spec: storagev1.VolumeAttachmentSpec{
			NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}
	}
	for _, tc := range []struct {
		name  string
		add   func(w *world, add func(obj any))
		grace time.Duration // terminationGracePeriod
		waits bool
	}{
		{name: "an attached volume of a drained pod is waited for", waits: true, add: func(w *world, add func(any)) {
			add(attachment("data", "ip-10-0-0-1"))
		}},
		{name: "not one of another node", add: func(w *world, add func(any)) { add(attachment("data", "other")) }},
		{name: "not one that many nodes may attach", add: func(w *world, add func(any)) {
			add(attachment("shared", "ip-10-0-0-1"))
			add(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Spec: corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}}})
		}},
		{name: "not one of a daemon that stays to the end", add: func(w *world, add func(any)) {
			add(attachment("logs", "ip-10-0-0-1"))
			add(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "logs", Namespace: "default"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "logs"}})
			w.pod("agent", "ip-10-0-0-1", func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
				p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "logs"}}}}
			})
		}},
		{name: "nor for longer than the grace period of the node", grace: time.Minute, add: func(w *world, add func(any)) {
			add(attachment("data", "ip-10-0-0-1"))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.up("a", func(c *karpv1.NodeClaim) {
				if tc.grace > 0 {
					c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: tc.grace}
				}
			})
			tc.add(w, func(obj any) { w.addToInformer(obj) })
			w.deleteByName("a")
			w.pass(tc.grace+20*time.Second, time.Second)
			if got := w.cloud.calls["Terminate"] == 0; got != tc.waits {
				t.Errorf("waited = %v, want %v", got, tc.waits)
			}
			if waited := w.happened("ip-10-0-0-1", reasonAwaitingVolumes); waited != (tc.waits || tc.grace > 0) {
				t.Errorf("events %q", w.events)
			}
		})
	}
}

func TestTerminationOfWhatIsGoneAlready(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(w *world)
		done  bool
	}{
		{name: "instance terminated, kubelet silent: ends at once", done: true, setup: func(w *world) {
			w.cloud.instances["i-a"].State = capacity.InstanceTerminated
			w.changeNode("ip-10-0-0-1", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
		}},
		{name: "instance terminated says the cloud, but the kubelet says Ready: it is drained", setup: func(w *world) {
			w.cloud.instances["i-a"].State = capacity.InstanceTerminated
		}},
		{name: "instance unknown to the cloud for the moment, kubelet silent: it is drained", setup: func(w *world) {
			w.cloud.hidden["i-a"] = true
			w.changeNode("ip-10-0-0-1", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.up("a")
			w.pod("web", "ip-10-0-0-1", annotated("karpenter.sh/do-not-disrupt", "true"))
			tc.setup(w)
			w.deleteByName("a")
			w.pass(2*time.Second, time.Second)
			if done := w.claim("a") == nil && w.node("ip-10-0-0-1") == nil; done != tc.done {
				t.Errorf("ended = %v, want %v; left %s", done, tc.done, w.left())
			}
			// Its pods go with it: no kubelet will report their end, and another node may get the name.
			if left := len(w.podsLeft()); left == 0 != tc.done {
				t.Errorf("%d pods are left", left)
			}
		})
	}
}

// A node whose kubelet never registered is not drained: nothing ran there.
func TestTerminationBeforeRegistration(t *testing.T) {
	w := newWorld(t)
	claim, inst := w.launched("a")
	w.createNode(nodeFor(claim, *inst))
	w.pod("early", inst.NodeName, annotated("karpenter.sh/do-not-disrupt", "true"))
	w.deleteByName("a")
	w.pass(2*time.Second, time.Second)
	if diff := cmp.Diff([]string{"early"}, w.killed); diff != "" {
		t.Errorf("pods that can go elsewhere at once (-want +got):\n%s", diff)
	}
	if got := w.left(); got != "claim node instance:shutting-down" {
		t.Errorf("left: %s", got)
	}
	if n := w.node(inst.NodeName); !hasTaint(n.Spec.Taints, &karpv1.DisruptedNoScheduleTaint) {
		t.Error("pods may still be bound there")
	}
	w.cloud.ends()
	w.pass(4*time.Second, 2*time.Second)
	if got := w.left(); got != "" {
		t.Errorf("left in the end: %s", got)
	}
}

// A Node that vanished before its kubelet registered has left its pods behind. They end with the instance: the next Node of that name would
// inherit them.
func TestTerminationWhenTheNodeHasVanished(t *testing.T) {
	for name, other := range map[string]bool{"nobody has its name": false, "another machine has it": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			_, inst := w.launched("a")
			w.pod("left", inst.NodeName)
			w.pod("elsewhere", "another")
			w.deleteByName("a")
			w.pass(2*time.Second, time.Second)
			w.cloud.ends()
			w.sync()
			want := []string{"left"}
			if other {
				w.createNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: inst.NodeName}, Spec: corev1.NodeSpec{ProviderID: "aws:///z1/i-next"}}) // the cache doesn't show it
				want = nil
			}
			w.clock.Step(5 * time.Second)
			if _, err := w.c.reconcile(w.ctx, key{claim: "a"}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, w.killed); diff != "" || w.claim("a") != nil {
				t.Errorf("claim left: %t, killed (-want +got):\n%s", w.claim("a") != nil, diff)
			}
		})
	}
}

// Its kubelet registers while the termination begins: what runs there is drained as usual.
func TestTerminationWhileTheKubeletComes(t *testing.T) {
	w := newWorld(t)
	claim, inst := w.launched("a")
	w.createNode(nodeFor(claim, *inst))
	w.pod("early", inst.NodeName)
	w.deleteByName("a")
	w.sync()
	w.kubelet(inst.NodeName) // the cache doesn't show it
	if _, err := w.c.reconcile(w.ctx, key{claim: "a"}); err != nil {
		t.Fatal(err)
	}
	if len(w.killed) > 0 || w.cloud.calls["Terminate"] > 0 {
		t.Errorf("ended without grace: pods %q, calls %v", w.killed, w.cloud.calls)
	}
}

// Terminate may be lost, throttled or answered with "not found" although the instance lives.
func TestTerminateIsRepeatedUntilItSucceeds(t *testing.T) {
	w := newWorld(t)
	w.up("a")
	w.cloud.hidden["i-a"] = true
	w.deleteByName("a")
	w.pass(time.Minute, 5*time.Second)
	if got := w.left(); got != "claim node instance:running" {
		t.Fatalf("left while the cloud doesn't know the instance: %s", got)
	}
	w.cloud.hidden["i-a"] = false
	w.cloud.fail["Terminate"] = fmt.Errorf("terminating: %w", capacity.ErrThrottled)
	for range 3 {
		w.clock.Step(5 * time.Second)
		w.sync()
		if _, err := w.c.reconcile(w.ctx, key{claim: "a"}); err == nil {
			t.Fatal("the failure was not reported")
		}
	}
	if !w.happened("a", reasonTerminationFailed) {
		t.Errorf("events %q", w.events)
	}
	delete(w.cloud.fail, "Terminate")
	w.pass(5*time.Second, 5*time.Second)
	w.cloud.ends()
	w.pass(10*time.Second, 5*time.Second)
	if got := w.left(); got != "" {
		t.Errorf("left in the end: %s", got)
	}
}

// A managed Node whose claim was removed by force is terminated all the same, with its instance.
func TestTerminationOfANodeWithoutClaim(t *testing.T) {
	w := newWorld(t)
	w.up("a")
	w.pod("web", "ip-10-0-0-1")
	w.removeClaimByForce("a")
	w.step()
	if err := w.kube.CoreV1().Nodes().Delete(w.ctx, "ip-10-0-0-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.pass(3*time.Second, time.Second)
	if diff := cmp.Diff([]string{"web"}, w.evicted); diff != "" {
		t.Errorf("evicted (-want +got):\n%s", diff)
	}
	w.endPods()
	w.pass(20*time.Second, time.Second)
	w.cloud.ends()
	w.pass(10*time.Second, time.Second)
	if got := w.left(); got != "" {
		t.Errorf("left in the end: %s", got)
	}
}

func TestHoldKeepsEverythingAsItIs(t *testing.T) {
	w := newWorld(t)
	w.up("a")
	w.deleteByName("a")
	w.c.hold = func() string { return "another controller is alive" }
	before := len(w.kube.Actions())
	w.pass(time.Minute, 10*time.Second)
	for _, a := range w.kube.Actions()[before:] {
		if a.GetVerb() != "list" {
			t.Errorf("%s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
	if w.cloud.calls["Terminate"] > 0 {
		t.Error("terminated")
	}
}
