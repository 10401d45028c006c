package launch

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// ends lets a pod end.
func (w *world) ends(i int) {
	gone := w.pod(i)
	gone.Status.Phase = corev1.PodFailed
	w.pending.Handler().OnUpdate(w.pod(i), gone)
}

// The first call launches nothing and its offerings are fine, so there is a next call. The pod ends before it.
func TestLaunchBatchStopsWhenItsPodsHaveGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.throttled = 1
	w.during["Launch"] = func() { w.ends(0) }
	w.run()
	w.submit(1)
	w.until("a call, and then no claim", func() bool { return w.calls["Launch"] > 0 && len(w.claims) == 0 })
	w.stop()
	if n := len(w.instances); n != 0 || w.calls["Launch"] != 1 {
		t.Errorf("%d instances in %d calls for a pod that has gone", n, w.calls["Launch"])
	}
	if !w.reservations.Idle() {
		t.Error("the ledger remembers a node that is not to be")
	}
}

// The cache shows a claim as the last leader had written it first; the launch that it recorded then is known to the API server only.
func TestLaunchesOfTheLastLeaderAreKept(t *testing.T) {
	w := newWorld(t)
	w.claims["a"] = &capacity.Claim{Name: "a", UID: "a", Pool: "pool"}
	w.claims["b"] = &capacity.Claim{Name: "b", UID: "b", Pool: "pool"}
	w.stored = map[string]*capacity.Claim{"a": {Name: "a", UID: "a", Pool: "pool", Launched: true, ProviderID: "aws:///z/i-a"}}
	w.run()
	w.until("the other is gone", func() bool { return w.claims["b"] == nil && w.calls["Drop"] == 2 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.claims["a"] == nil {
		t.Error("it was deleted, with the pods on its node")
	}
}

// The call was recorded, and perhaps made; then the leader died, and the pods ended.
func TestRestartMakesNoCallForPodsThatHaveGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broken["Launch"] = errors.New("timeout")
	w.run()
	w.submit(8)
	w.until("the call", func() bool { return w.calls["Launch"] > 0 })
	w.stop()
	delete(w.broken, "Launch")
	w.calls["Launch"], w.pods = 0, 0
	w.run()
	w.until("no claims", func() bool { return len(w.claims) == 0 })
	w.stop()
	if w.calls["Launch"] != 0 {
		t.Errorf("%d calls for pods that have gone", w.calls["Launch"])
	}
}

// One of a launch batch's pods still waits: its claim is launched, and whatever else the call returns is ended.
func TestRestartKeepsWhatIsStillNeeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.broken["Launch"] = errors.New("timeout")
	w.run()
	w.submit(8)
	w.until("the call", func() bool { return w.calls["Launch"] > 0 })
	w.stop()
	clear(w.broken)
	w.pods = 1
	w.run()
	w.submit(1)
	w.allBound(1)
	w.exactly(1)
}

func TestNodeOfAnotherMachineIsNotAdopted(t *testing.T) {
	born := time.Unix(1000, 0)
	node := func(id, address string, at time.Time) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: at}}, Spec: corev1.NodeSpec{ProviderID: id}}
		if address != "" {
			n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n"}, {Type: corev1.NodeInternalIP, Address: address}}
		}
		return n
	}
	want := node("aws:///a/i-1", "10.0.0.1", time.Time{})
	for _, tt := range []struct {
		name string
		have *corev1.Node
		own  bool
	}{
		{"made before a restart", node("aws:///a/i-1", "", born.Add(-time.Hour)), true},
		{"of another instance", node("aws:///a/i-0", "10.0.0.1", born.Add(time.Second)), false},
		{"of a kubelet that was faster and has no cloud provider", node("", "10.0.0.1", born.Add(time.Second)), true},
		{"without provider id, of another machine", node("", "10.0.0.2", born.Add(time.Second)), false},
		{"without provider id, of a machine that had the address before", node("", "10.0.0.1", born.Add(-time.Second)), false},
		{"of nobody knows whom", node("", "", born.Add(time.Second)), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := ownNode(&capacity.Claim{CreatedAt: born}, want, tt.have); got != tt.own {
				t.Errorf("adopted: %v, want %v", got, tt.own)
			}
		})
	}
}

// The pod must not go to a Node that merely has the right name.
func TestNodeIsCreatedWhenItsNameIsFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.nodes["node-i-0001"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-i-0001"}}
	w.during["GetNode"] = func() { delete(w.nodes, "node-i-0001") } // it is deleted right after it was read
	w.run()
	w.submit(1)
	w.allBound(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.nodes["node-i-0001"].Spec.ProviderID; got != "aws:///a/i-0001" {
		t.Errorf("the pod was bound to a Node with the provider id %q", got)
	}
}

// A claim is deleted at the moment in which a reservation on it is being recorded.
func TestClaimThatHasGoneIsNotRemembered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	told := make(chan struct{})
	w.mu.Lock()
	w.claims["c"] = &capacity.Claim{Name: "c", Pool: "pool", Launched: true}
	w.during["Claim"] = func() {
		delete(w.during, "Claim")
		go func() {
			w.mu.Lock()
			delete(w.claims, "c")
			w.mu.Unlock()
			w.parts.Claims.ClaimGone("c", "deleted")
			close(told)
		}()
	}
	w.mu.Unlock()
	w.parts.slots.recordSlots(t.Context(), "c", []capacity.Slot{{Order: 1}})
	<-told
	w.parts.claims.keep(&capacity.Claim{Name: "c"}) // a late answer
	if c := w.parts.claims.Current("c"); c != nil {
		t.Errorf("remembered: %+v", c)
	}
}

// One subnet is full, another has addresses: the same offerings are tried again at once, under the same claim.
func TestFullSubnetIsNoFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.full = 3
	w.run()
	w.submit(1)
	w.allBound(1)
	w.exactly(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.handed) != 1 || strings.Contains(strings.Join(w.notes, "\n"), "LaunchFailed") {
		t.Errorf("%d claims, events %q; want one claim and no failure", len(w.handed), w.notes)
	}
}

func TestDaemonRoomSurvivesARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	daemon := func(name string, taint string) *capacity.DaemonSet {
		d := &capacity.DaemonSet{Namespace: "d", Name: name, Class: &capacity.Class{Requests: capacity.Resources{corev1.ResourceCPU: 100}}}
		d.Class.Terms = []capacity.Requirements{{labelPool: capacity.ValueIn(labelPool, "pool")}}
		if taint != "" {
			d.Class.Tolerations = []corev1.Toleration{{Key: taint, Operator: corev1.TolerationOpExists}}
		}
		return d
	}
	w.daemons = []*capacity.DaemonSet{daemon("missing", "team"), daemon("there", "team"), daemon("elsewhere", "")}
	yes := true
	w.onNode = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "there-1",
		OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "there", Controller: &yes}}}}}
	w.claims["c"] = &capacity.Claim{Name: "c", Pool: "pool", Launched: true, ProviderID: "aws:///a/i-1", NodeName: "n",
		Labels: map[string]string{labelPool: "pool"}, Taints: []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectNoSchedule}},
		Allocatable: capacity.Resources{corev1.ResourceCPU: 4000}}
	w.nodes["n"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{labelPool: "pool"}}, Spec: corev1.NodeSpec{ProviderID: "aws:///a/i-1"}}
	w.run()
	w.submit(1)
	w.allBound(1) // after the new leader has recovered
	var kept map[string]capacity.Resources
	w.reservations.Read(func(l ledger.Reader) {
		for _, f := range l.InFlight() {
			if f.Claim == "c" {
				kept = f.Daemons
			}
		}
	})
	if len(kept) != 1 || kept["d/missing"] == nil {
		t.Errorf("room is kept for %v, want it for the one DaemonSet pod that is missing", kept)
	}
}

func TestLaunchIsRecordedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	w.submit(1)
	w.allBound(1)
	w.exactly(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.calls["RecordLaunched"]; n != 1 {
		t.Errorf("recorded %d times", n)
	}
}

// The kubelet of a launch that was never recorded registered before the next leader started, and its node took the pods: the instance is
// used, although no pod waits for it any more.
func TestRestartKeepsAMachineThatItsPodsHaveFound(t *testing.T) {
	w := newWorld(t)
	w.lost["Launch"] = 1 << 30
	w.run()
	w.submit(4)
	w.until("a launch", func() bool { return len(w.instances) == 1 })
	w.stop()
	w.mu.Lock()
	clear(w.lost)
	for i := range 4 {
		w.bound[w.pod(i).UID] = "made-by-its-kubelet"
	}
	w.mu.Unlock()
	w.run()
	w.exactly(1)
	if len(w.tokens) != 1 {
		t.Errorf("launched under %d tokens, want one", len(w.tokens))
	}
}

// A pod had a reservation on a node that boots, and then another one: the first claim's record may still name it. After a restart the later
// reservation counts.
func TestAfterARestartTheLaterPromiseHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.build()
	pod := w.pod(0)
	w.pending.Handler().OnAdd(pod, false)
	class, err := w.pending.Classes.Class(pod)
	if err != nil {
		t.Fatal(err)
	}
	slot := func(order int) []capacity.Slot {
		return []capacity.Slot{{Pod: capacity.RefOf(pod), Class: class.Key, Order: order}}
	}
	launch := func(token, claim string) *capacity.LaunchBatch {
		return &capacity.LaunchBatch{Token: token, Attempt: 1, Claims: []string{claim}, Pool: "pool", For: capacity.ForPods, Request: []byte("r")}
	}
	w.claims["a"] = &capacity.Claim{Name: "a", UID: "a", Pool: "pool", Slots: slot(7), LaunchBatch: launch("t", "a")}
	w.claims["b"] = &capacity.Claim{Name: "b", UID: "b", Pool: "pool", ProviderID: "aws:///z/i-b", NodeName: "nb", Launched: true, Slots: slot(5)}
	w.parts.recovery.recover(t.Context(), func() {})
	w.parts.calls.wg.Wait()
	var b []capacity.Slot
	w.reservations.Read(func(l ledger.Reader) { b = l.Slots("b") })
	if len(b) > 0 || w.calls["Launch"] != 1 {
		t.Errorf("its place is on b: %v; the launch of a was repeated %d times, want once: its claim was given up", b, w.calls["Launch"])
	}
}

// A new leader's first scheduling cycle waits for Restored: the place of every pod is in the ledger then. Nothing is reserved where another
// controller leads.
func TestRestored(t *testing.T) {
	w := newWorld(t)
	pod := w.pod(0)
	w.pods = 1
	w.claims["a"] = &capacity.Claim{Name: "a", UID: "a", Pool: "pool", ProviderID: "aws:///z/i-a", NodeName: "na", Launched: true,
		Slots: []capacity.Slot{{Pod: capacity.RefOf(pod), Class: "class", Order: 1}}}
	w.run()
	<-w.launcher.Restored()
	var slots []capacity.Slot
	w.reservations.Read(func(l ledger.Reader) { slots = l.Slots("a") })
	if len(slots) != 1 {
		t.Errorf("the pod's place is not in the ledger: %v", slots)
	}
	w.stop()

	w.unread = true
	w.run()
	select {
	case <-w.launcher.Restored():
		t.Error("before the claims are read")
	case <-time.After(20 * time.Millisecond):
	}
	w.stop()

	w.unread, w.ownerUnknown = false, true
	w.run()
	select {
	case <-w.launcher.Restored():
		t.Error("before it is known who owns nodes and claims")
	case <-time.After(20 * time.Millisecond):
	}
	w.mu.Lock()
	w.ownerUnknown, w.owner = false, "Karpenter leads"
	w.mu.Unlock()
	<-w.launcher.Restored() // nothing is reserved where another controller leads
	w.goes()
	w.submitPod(1)
	w.until("a node is launched for another pod", func() bool { return w.calls["Launch"] > 0 })
}

// A pod with an ordinary volume had a reservation on a node that has been initialized since, and then another one elsewhere: claims keep
// every reservation that was ever made. After a restart the later one counts.
func TestAfterARestartAPodWithAVolumeKeepsTheMachineThatIsBoughtForIt(t *testing.T) {
	w := newWorld(t)
	w.nodes["na"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "na", Labels: map[string]string{labelPool: "pool", labelRegistered: "true", labelInitialized: "true"}}}
	w.build()
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv", StorageClassName: ptr.To("c")}}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com"}
	if err := errors.Join(w.informers.Core().V1().PersistentVolumeClaims().Informer().GetStore().Add(pvc), w.informers.Core().V1().PersistentVolumes().Informer().GetStore().Add(pv)); err != nil {
		t.Fatal(err)
	}
	pod := w.pod(0)
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	w.pending.Handler().OnAdd(pod, false)
	class, err := w.pending.Classes.Class(pod)
	if err != nil {
		t.Fatal(err)
	}
	w.claims["a"] = &capacity.Claim{Name: "a", UID: "a", Pool: "pool", ProviderID: "aws:///z/i-a", NodeName: "na", Launched: true, Registered: true, Initialized: true,
		Slots: []capacity.Slot{{Pod: capacity.RefOf(pod), Class: class.Key, Order: 1}}}
	w.claims["b"] = &capacity.Claim{Name: "b", UID: "b", Pool: "pool", Slots: []capacity.Slot{{Pod: capacity.RefOf(pod), Class: class.Key, Order: 2}},
		LaunchBatch: &capacity.LaunchBatch{Token: "t", Attempt: 1, Claims: []string{"b"}, Pool: "pool", For: capacity.ForPods, Request: []byte("r")}}
	w.parts.recovery.recover(t.Context(), func() {})
	w.parts.calls.wg.Wait()
	var a []capacity.Slot
	w.reservations.Read(func(l ledger.Reader) { a = l.Slots("a") })
	if len(a) > 0 {
		t.Errorf("its place is on a, which has come up without it: %v", a)
	}
	if w.calls["Launch"] != 1 {
		t.Errorf("the launch of the machine that was being bought for it was repeated %d times, want once: its claim was given up", w.calls["Launch"])
	}
}
