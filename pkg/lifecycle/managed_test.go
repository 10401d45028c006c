package lifecycle

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// EKS Auto Mode's nodes have Karpenter's labels, finalizer and owners. Whatever happens to them, nothing is written on them, and their
// instances are neither tagged nor terminated, even if those look like ours.
func TestNodesOfEKSAutoModeAreLeftAlone(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"as they are":           {"eks.amazonaws.com/compute-type": "auto", "eks.amazonaws.com/nodeclass": "default"},
		"before their class":    {"eks.amazonaws.com/compute-type": "auto"},
		"without compute type":  {"eks.amazonaws.com/nodeclass": "default"},
		"registered, not ready": {"eks.amazonaws.com/compute-type": "auto", karpv1.NodeRegisteredLabelKey: "true"},
	} {
		for event, happens := range map[string]func(w *world){
			"nothing": func(*world) {},
			"its NodeClaim has gone and its Node is deleted": func(w *world) {
				if err := w.kube.CoreV1().Nodes().Delete(w.ctx, "auto", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			},
			"its instance is not listed": func(w *world) { delete(w.cloud.instances, "i-auto") },
			"its kubelet comes":          func(w *world) { w.kubelet("auto") },
		} {
			t.Run(name+", "+event, func(t *testing.T) {
				w := newWorld(t)
				inst := w.cloud.launch("i-auto", "lost")
				labels := maps.Clone(labels)
				labels[karpv1.NodePoolLabelKey] = "general-purpose"
				w.createNode(&corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: "auto", UID: "auto", Labels: labels, Finalizers: []string{karpv1.TerminationFinalizer},
						OwnerReferences: []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: "general-purpose-1", UID: "theirs"}}},
					Spec: corev1.NodeSpec{ProviderID: inst.ProviderID, Taints: []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}},
				})
				w.pod("web", "auto")
				happens(w)
				before := w.node("auto")
				for range 4 {
					w.clock.Step(time.Minute)
					w.sync()
					if _, err := w.c.reconcile(w.ctx, key{}); err != nil {
						t.Fatal(err)
					}
					w.pass(10*time.Second, time.Second)
				}
				if diff := cmp.Diff(before, w.node("auto")); diff != "" {
					t.Errorf("the Node was written to (-want +got):\n%s", diff)
				}
				for _, call := range []string{"Terminate", "TagClaim"} {
					if w.cloud.calls[call] > 0 {
						t.Errorf("%s was called", call)
					}
				}
				if len(w.evicted) > 0 {
					t.Errorf("evicted: %v", w.evicted)
				}
				seen, err := HideEphemeralTaints(ownClass)(before)
				if err != nil || len(seen.(*corev1.Node).Spec.Taints) != len(before.Spec.Taints) {
					t.Errorf("taints are hidden from the scheduler: %v, %v", seen.(*corev1.Node).Spec.Taints, err)
				}
			})
		}
	}
}

// A Node that is labelled as ours is being deleted, and its claim is another Dovetail's: the API server has it, and the cache doesn't. The claims are
// listed again only after a back-off, and the Node ends when its claim is gone.
func TestDeletedNodeWithTheClaimOfAnother(t *testing.T) {
	w := newWorld(t)
	w.up("a")
	const node = "ip-10-0-0-1"
	live := &counted{Reader: newWorld(t).claims} // theirs
	theirs := w.claim("a").DeepCopy()
	theirs.ResourceVersion, theirs.Labels[objects.LabelManagedBy] = "", "blue"
	if err := live.Reader.(client.Client).Create(w.ctx, theirs); err != nil {
		t.Fatal(err)
	}
	w.c.unclaimed.live = live
	w.removeClaimByForce("a")
	if err := w.kube.CoreV1().Nodes().Delete(w.ctx, node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.sync()
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[key](100*time.Millisecond, time.Minute)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[key]{Clock: w.clock}) // the clock stands still
	defer queue.ShutDown()
	w.c.queue.running.Store(&queue)
	w.c.watcher.nodeChanged(w.node(node))
	for n := 0; queue.Len() > 0 && n < 20; n++ {
		w.c.next(w.ctx, queue)
	}
	if live.lists != 1 || limiter.NumRequeues(key{node: node}) != 1 {
		t.Errorf("the claims were listed %d times, with back-off %d times; want once", live.lists, limiter.NumRequeues(key{node: node}))
	}
	if w.node(node) == nil {
		t.Fatal("the Node of another's claim was ended")
	}
	w.c.unclaimed.live = w.claims // their claim is gone
	for range 10 {
		w.pass(10*time.Second, 10*time.Second)
		w.cloud.ends()
	}
	if w.node(node) != nil {
		t.Error("the Node stays when its claim is gone")
	}
}
