package chaos

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
)

// The node lifecycle controller's taint meets conflicts while the zone of the tainted node becomes fully disrupted: one goroutine of
// the controller holds the zone's rate limiter between its tries, another wants to replace it.
func TestConflictsOfTaintsDoNotStopTheClock(t *testing.T) {
	const conflicts = 3
	var given atomic.Int32
	connection := func(c *kubeapi.Client) {
		c.Before = func(call *kubeapi.Call) *kubeapi.Fault {
			evicts := call.Verb == "patch" && call.Resource.Resource == "nodes" && strings.Contains(string(call.Body), string(corev1.TaintEffectNoExecute))
			if !evicts || given.Add(1) > conflicts {
				return nil
			}
			return &kubeapi.Fault{Err: apierrors.NewConflict(call.Resource.GroupResource(), call.Name, nil)}
		}
	}
	inBubble(t, func(t *testing.T) {
		// The controller taints every 100 ms. It looks at other moments, so that its cache shows a silent node by then.
		s := setting{seed: 1, monitor: 70 * time.Millisecond, patience: 50 * time.Second, controllers: connection}
		w, err := newWorld(cluster.Scheme, s, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		ready := func(name, zone string) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
			if err := w.objects.Create(w.ctx, n); err != nil {
				t.Fatal(err)
			}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
			if err := w.objects.Status().Update(w.ctx, n); err != nil {
				t.Fatal(err)
			}
		}
		// No kubelet writes again. The second node of the zone is silent for too long when the first one's taint has met a conflict.
		ready("first", "a")
		<-time.After(200 * time.Millisecond)
		ready("second", "a")
		<-time.After(40 * time.Second)
		ready("healthy", "b")
		<-time.After(30 * time.Second)
		n, err := w.kube.CoreV1().Nodes().Get(w.ctx, "first", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		have := sets.New[string]()
		for _, taint := range n.Spec.Taints {
			have.Insert(taint.Key + ":" + string(taint.Effect))
		}
		if !have.Has(corev1.TaintNodeUnreachable+":"+string(corev1.TaintEffectNoExecute)) || given.Load() <= conflicts {
			t.Errorf("after %d tries, taints %v", given.Load(), sets.List(have))
		}
	})
}

// inBubble runs f in a bubble, at the time at which histories begin. A watchdog ends the process if its clock stands still.
func inBubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	watchdog := &watchdog{name: t.Name(), stalled: endProcess}
	end := watchdog.run(time.Second, 30)
	defer end()
	synctest.Test(t, func(t *testing.T) {
		watchdog.entered()
		<-time.After(time.Until(begin))
		watchdog.stepped()
		f(t)
	})
}
