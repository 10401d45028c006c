package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func (w *world) lease(node string) *coordv1.Lease {
	obj, err := w.objects.Get(leaseResource, corev1.NamespaceNodeLease, node)
	if err != nil {
		return nil
	}
	return obj.(*coordv1.Lease)
}

func TestRecreate(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(w *world, inst *capacity.Instance)
		want  bool
	}{
		{name: "a Node that vanished before its kubelet came is back under the same name", setup: func(*world, *capacity.Instance) {}, want: true},
		{name: "also when events can't be read", setup: func(w *world, _ *capacity.Instance) {
			w.kube.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", nil)
			})
		}, want: true},
		{name: "not when its name went to another instance", setup: func(w *world, inst *capacity.Instance) {
			w.createNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: inst.NodeName}, Spec: corev1.NodeSpec{ProviderID: "aws:///z1/i-other"}})
		}},
		{name: "not when the instance has ended", setup: func(w *world, inst *capacity.Instance) { inst.State = capacity.InstanceTerminated }},
		{name: "not while the cloud does not know the instance", setup: func(w *world, inst *capacity.Instance) { w.cloud.hidden[inst.ID] = true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			claim, inst := w.launched("a")
			w.createNode(nodeFor(claim, *inst))
			first := w.node(inst.NodeName).UID
			w.step()
			w.cloudSays(first, inst.NodeName)
			w.deleteNode(inst.NodeName)
			tc.setup(w, inst)
			w.step()
			n := w.node(inst.NodeName)
			if got := n != nil && n.UID != first && n.Spec.ProviderID == inst.ProviderID; got != tc.want {
				t.Errorf("recreated = %v, want %v", got, tc.want)
			}
			if w.happened("a", reasonNodeRecreated) != tc.want {
				t.Errorf("events %q", w.events)
			}
		})
	}
}

// cloudSays adds the event of the cloud controller manager about a Node that it deletes.
func (w *world) cloudSays(uid types.UID, node string) {
	w.t.Helper()
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "deleting-" + string(uid)}, Reason: "DeletingNode",
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: node, UID: uid}}
	if _, err := w.kube.CoreV1().Events("default").Create(w.ctx, event, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) deleteNode(node string) {
	w.t.Helper()
	if err := w.kube.CoreV1().Nodes().Delete(w.ctx, node, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// A Node that anyone but the cloud controller manager deletes has to end, also before its kubelet has registered. An event about an earlier
// Node of the same name doesn't change that; a late event about this one does.
func TestNodeDeletedWhileItBoots(t *testing.T) {
	for _, tc := range []struct {
		name string
		late bool // the event is written a moment after the deletion
	}{{"by a user", false}, {"by the cloud controller manager, whose event is late", true}} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			claim, inst := w.launched("a")
			w.createNode(nodeFor(claim, *inst))
			w.step()
			w.cloudSays(w.node(inst.NodeName).UID, inst.NodeName)
			w.deleteNode(inst.NodeName)
			w.step()
			second := w.node(inst.NodeName).UID
			w.step()
			w.deleteNode(inst.NodeName)
			w.step()
			if w.node(inst.NodeName) != nil || w.claim("a").DeletionTimestamp != nil {
				t.Fatal("it is decided before the event can have come")
			}
			if tc.late {
				w.cloudSays(second, inst.NodeName)
			}
			w.clock.Step(eventGrace)
			w.step()
			c := w.claim("a")
			if ends := c == nil || c.DeletionTimestamp != nil; ends == tc.late || w.happened("a", reasonNodeDeleted) == tc.late {
				t.Errorf("the claim ends: %v, events %q", ends, w.events)
			}
			if there := w.node(inst.NodeName) != nil; there != tc.late {
				t.Errorf("the Node is there: %v", there)
			}
		})
	}
}

// The cloud controller manager doesn't see an instance that the cloud doesn't show to us, either, and its event may be lost.
func TestNodeThatVanishedBeforeItsInstanceWasShown(t *testing.T) {
	w := newWorld(t)
	claim, inst := w.launched("a")
	w.createNode(nodeFor(claim, *inst))
	w.step()
	w.cloud.hidden[inst.ID] = true
	w.deleteNode(inst.NodeName)
	w.step()
	delete(w.cloud.hidden, inst.ID)
	w.step()
	if w.node(inst.NodeName) == nil || !w.happened("a", reasonNodeRecreated) {
		t.Errorf("events %q", w.events)
	}
}

// A new leader hasn't seen the Node, and creates it again.
func TestNodeThatVanishedBeforeThisLeaderCame(t *testing.T) {
	w := newWorld(t)
	_, inst := w.launched("a")
	w.step()
	if w.node(inst.NodeName) == nil || !w.happened("a", reasonNodeRecreated) {
		t.Errorf("events %q", w.events)
	}
}

// After registration the deletion of a Node terminates it.
func TestRecreateEndsWithRegistration(t *testing.T) {
	w := newWorld(t)
	w.up("a")
	name := w.claim("a").Status.NodeName
	if err := w.kube.CoreV1().Nodes().Delete(w.ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.step()
	if w.claim("a").DeletionTimestamp == nil {
		t.Error("deleting the Node did not delete the claim")
	}
}

func TestLease(t *testing.T) {
	w := newWorld(t)
	claim, inst := w.launched("a")
	w.createNode(nodeFor(claim, *inst))
	w.pass(leaseEvery-time.Second, time.Second)
	if w.lease(inst.NodeName) != nil {
		t.Fatal("a Lease was written for a kubelet that may still come in time")
	}

	// No gap ever comes near the 60 s after which the node lifecycle controller acts.
	last := w.clock.Now()
	for w.clock.Now().Before(epoch.Add(registrationTimeout - time.Minute)) {
		w.pass(5*time.Second, 5*time.Second)
		if l := w.lease(inst.NodeName); l != nil {
			last = l.Spec.RenewTime.Time
			if *l.Spec.HolderIdentity != inst.NodeName || l.OwnerReferences[0].UID != w.node(inst.NodeName).UID {
				t.Fatalf("the Lease isn't the node's: %+v", l)
			}
		}
		if gap := w.clock.Since(last); gap > 30*time.Second {
			t.Fatalf("the Lease is %s old at %s", gap, w.clock.Since(epoch))
		}
	}

	// The kubelet takes over.
	w.kubelet(inst.NodeName)
	w.step()
	taken := w.lease(inst.NodeName).Spec.RenewTime.Time
	w.pass(2*time.Minute, 5*time.Second)
	if got := w.lease(inst.NodeName).Spec.RenewTime.Time; !got.Equal(taken) {
		t.Error("the Lease was renewed beside the kubelet")
	}
}

func TestLeaseIsLeftToTheKubeletThatRenewsIt(t *testing.T) {
	w := newWorld(t)
	claim, inst := w.launched("a")
	w.createNode(nodeFor(claim, *inst))
	w.pass(40*time.Second, 5*time.Second)
	for range 6 {
		l := w.lease(inst.NodeName).DeepCopy()
		l.Spec.RenewTime = &metav1.MicroTime{Time: w.clock.Now()}
		l.ResourceVersion += "k"
		if err := w.objects.Update(leaseResource, l, l.Namespace); err != nil {
			t.Fatal(err)
		}
		w.pass(10*time.Second, 5*time.Second)
		if got := w.lease(inst.NodeName); got.ResourceVersion != l.ResourceVersion {
			t.Fatal("a Lease that its kubelet renews was overwritten")
		}
	}
}

func TestPodsDeletedWhileTheirNodeBoots(t *testing.T) {
	grace := int64(30)
	deleted := func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: epoch.Add(30 * time.Second)}, &grace
	}
	for _, tc := range []struct {
		name   string
		posted bool
		behind bool // the kubelet has posted, but the cache doesn't show it
		want   []string
	}{
		{name: "end at once while no kubelet has posted", want: []string{"deleted"}},
		{name: "are the kubelet's when it has", posted: true},
		{name: "are the kubelet's even if only the API knows that it has come", behind: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			claim, inst := w.launched("a")
			w.createNode(nodeFor(claim, *inst))
			w.pod("deleted", inst.NodeName, deleted)
			w.pod("wanted", inst.NodeName)
			if tc.posted {
				w.kubelet(inst.NodeName)
			}
			w.sync()
			if tc.behind {
				w.kubelet(inst.NodeName)
			}
			if _, err := w.c.reconcile(w.ctx, key{claim: "a"}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, w.killed); diff != "" {
				t.Errorf("ended (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodEvents(t *testing.T) {
	daemon := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d"}}
	}
	w := newWorld(t)
	w.up("a")
	node := w.claim("a").Status.NodeName
	bound := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: node}}
	last := func() time.Duration {
		at := w.claim("a").Status.LastPodEventTime
		if at.IsZero() {
			return -1
		}
		return at.Sub(epoch)
	}

	ds := bound.DeepCopy()
	daemon(ds)
	w.c.watcher.podChanged(nil, ds)
	w.step()
	if last() != -1 {
		t.Errorf("a daemon counted: %s", last())
	}
	w.clock.Step(5 * time.Second)
	w.c.watcher.podChanged(nil, bound)
	w.step()
	if last() != 5*time.Second {
		t.Errorf("a pod that came was not recorded: %s", last())
	}
	w.clock.Step(3 * time.Second)
	w.c.watcher.podChanged(bound, nil)
	if wait := w.step(); last() != 5*time.Second || wait > 7*time.Second || wait == 0 {
		t.Errorf("written again after 3 s (%s), or not to be looked at again (%s)", last(), wait)
	}
	w.pass(8*time.Second, time.Second)
	if last() != 8*time.Second {
		t.Errorf("the last event was lost: %s", last())
	}
}
