package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
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
			counted := grown(t, "karpenter_nodes_terminated_total", "karpenter_nodes_drained_total", "karpenter_nodes_termination_duration_seconds",
				"karpenter_nodes_lifetime_duration_seconds", "karpenter_pods_eviction_requests_total")
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
			for metric, n := range counted() {
				if n != 1 {
					t.Errorf("%s has grown by %v", metric, n)
				}
			}
		})
	}
}

// grown returns a func that returns by how much counters, or the numbers of what histograms and summaries observed, have grown since.
func grown(t *testing.T, names ...string) func() map[string]float64 {
	t.Helper()
	read := func() map[string]float64 {
		families, err := legacyregistry.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]float64{}
		for _, f := range families {
			if slices.Contains(names, f.GetName()) {
				for _, m := range f.Metric {
					out[f.GetName()] += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()+m.GetSummary().GetSampleCount())
				}
			}
		}
		return out
	}
	before := read()
	return func() map[string]float64 {
		out := read()
		for _, name := range names {
			out[name] -= before[name]
		}
		return out
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

// A deadline that was recorded long before the claim's deletion was for another deletion, which never came: it ends no pods. One from shortly
// before it counts, as clocks differ.
func TestStaleDeadline(t *testing.T) {
	for _, tt := range []struct {
		name  string
		grace time.Duration
		after time.Duration // of the deletion, since the recorded deadline
		early bool          // the recorded deadline ends the pods
	}{
		{name: "recorded for this deletion", after: time.Second, early: true},
		{name: "by a clock that is behind", after: 4 * time.Minute, early: true},
		{name: "for one that never came", after: 6 * time.Minute},
		{name: "that one, of a claim with a terminationGracePeriod", after: 6 * time.Minute, grace: 10 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.up("a", func(c *karpv1.NodeClaim) {
				c.Annotations = map[string]string{karpv1.NodeClaimTerminationTimestampAnnotationKey: w.clock.Now().Format(time.RFC3339)}
				if tt.grace > 0 {
					c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: tt.grace}
				}
			})
			w.pod("guarded", "ip-10-0-0-1", annotated("karpenter.sh/do-not-disrupt", "true"))
			w.clock.Step(tt.after)
			w.deleteByName("a")
			w.pass(20*time.Second, 5*time.Second)
			if at := w.clock.Now().Add(-20 * time.Second); tt.grace > 0 {
				if got := w.claim("a").Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]; got != at.Add(tt.grace).Format(time.RFC3339) {
					t.Errorf("the recorded deadline is %q", got)
				}
			}
			if terminated := w.cloud.calls["Terminate"] > 0; terminated != tt.early {
				t.Errorf("the instance was terminated with its pod: %v, want %v", terminated, tt.early)
			}
		})
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
	w.c.hold = func() error { return errors.New("another controller is alive") }
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

// A node that isn't ended after all gets pods and traffic again: the taint goes, and so does the label that the end of a node sets, but not a
// label of somebody else's.
func TestUndisrupt(t *testing.T) {
	for name, tc := range map[string]struct {
		label string
		keeps bool
	}{
		"cordoned at its end":       {label: "karpenter"},
		"excluded by somebody else": {label: "true", keeps: true},
		"never excluded":            {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.up("a")
			n := w.node("ip-10-0-0-1")
			if err := w.c.Disrupt(w.ctx, n); err != nil {
				t.Fatal(err)
			}
			w.changeNode(n.Name, func(n *corev1.Node) {
				if delete(n.Labels, corev1.LabelNodeExcludeBalancers); tc.label != "" {
					n.Labels[corev1.LabelNodeExcludeBalancers] = tc.label
				}
			})
			if err := w.c.Undisrupt(w.ctx, w.node(n.Name)); err != nil {
				t.Fatal(err)
			}
			now := w.node(n.Name)
			if _, excluded := now.Labels[corev1.LabelNodeExcludeBalancers]; excluded != tc.keeps || hasTaint(now.Spec.Taints, &karpv1.DisruptedNoScheduleTaint) {
				t.Errorf("labels %v, taints %v", now.Labels, now.Spec.Taints)
			}
		})
	}
}
