package launch

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// Nodes and CSINodes are reported by the goroutines of two informers. While one waits for the lock of the ledger, which a scheduling
// cycle may hold, the other must not overtake it: the ledger would keep the older status, and pods with volumes would wait for a driver
// that is there.
func TestStatusesReachTheLedgerInTheOrderInWhichTheyAreWorkedOut(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{labelPool: "pool", labelRegistered: "true"}}}
	node.Spec.ProviderID = "aws:///a/i-1"
	drivers := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "ebs"}}}}
	for name, tell := range map[string]func(m *NodeTracker){
		"a Node is cached":       func(m *NodeTracker) { m.NodeCached(node) },
		"a CSINode changes":      func(m *NodeTracker) { m.csiNode(drivers, false) },
		"a claim gets its name":  func(m *NodeTracker) { m.named("claim", "node", "aws:///a/i-1") },
		"a Node is lost":         func(m *NodeTracker) { m.NodeUncached(node) },
		"a Node's end has begun": func(m *NodeTracker) { m.Close("node", "aws:///a/i-1") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.build()
			w.parts.Nodes.NodeCached(node)
			var told sync.WaitGroup
			w.reservations.Read(func(ledger.Reader) {
				told.Go(func() { tell(w.parts.Nodes) })
				if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
					begun, done := make(chan struct{}), make(chan struct{})
					go func() {
						close(begun)
						w.reservations.Read(func(ledger.Reader) {})
						close(done)
					}()
					<-begun
					select {
					case <-done:
						return false, nil
					case <-time.After(200 * time.Millisecond):
						return true, nil // readers wait, because a writer does
					}
				}); err != nil {
					t.Error("the ledger is not told")
				}
				if w.parts.Nodes.states.mu.TryLock() {
					w.parts.Nodes.states.mu.Unlock()
					t.Error("another status can be worked out before the ledger has been told of this one")
				}
			})
			told.Wait()
		})
	}
}

// Nodes of EKS Auto Mode register by themselves, with Karpenter's labels: the ledger neither waits for them nor keeps pods off.
func TestNodesOfEKSAutoModeAreNotWatched(t *testing.T) {
	w := newWorld(t)
	w.build()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "auto", Labels: map[string]string{
		labelPool: "general-purpose", labelRegistered: "true", "eks.amazonaws.com/compute-type": "auto", "eks.amazonaws.com/nodeclass": "default",
	}}}
	n.Spec.ProviderID = "aws:///a/i-auto"
	w.parts.Nodes.NodeCached(n)
	if w.reservations.Watches("auto") || !w.reservations.Idle() {
		t.Error("the ledger watches it")
	}
	class := &capacity.Class{Bind: capacity.BindInitialized, BindReason: "it has volumes"}
	if why := w.reservations.Object("auto", &ledger.Ask{UID: "u", Class: class}, nil); why != nil {
		t.Errorf("a pod is kept off: %s", why)
	}
	if nodes := w.parts.Nodes.states.ofMachine(n.Spec.ProviderID); len(nodes) > 0 {
		t.Errorf("known as a machine of ours: %v", nodes)
	}
	n.Labels = map[string]string{labelPool: "pool", labelRegistered: "true"}
	w.parts.Nodes.NodeCached(n)
	if !w.reservations.Watches("auto") {
		t.Error("a managed node is not watched")
	}
}

// Pods that need a Ready node also wait until the not-ready taint is gone: it follows the condition with a lag, and it is the taint that
// would evict them, whether the scheduler sees it or not.
func TestReadyIsWithoutItsTaint(t *testing.T) {
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}
	for _, tc := range []struct {
		name   string
		says   corev1.ConditionStatus
		hidden []corev1.Taint
		want   bool
	}{
		{"no word of its kubelet", "", nil, false},
		{"not Ready", corev1.ConditionFalse, []corev1.Taint{notReady}, false},
		{"Ready, and the taint is still there", corev1.ConditionTrue, []corev1.Taint{notReady}, false},
		{"Ready", corev1.ConditionTrue, []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoSchedule}}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := nodeStates{taints: func(*corev1.Node) []corev1.Taint { return tc.hidden }}
			n := &corev1.Node{}
			if tc.says != "" {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tc.says}}
			}
			if got := s.status(n).Ready; got != tc.want {
				t.Errorf("ready: %t, want %t", got, tc.want)
			}
		})
	}
}
