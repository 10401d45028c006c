package launch

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/bookings"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/booked"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// request returns a ProvisioningRequest for pods of one CPU each.
func (w *world) request(name string, pods int, buys bool) bookings.Request {
	w.t.Helper()
	pod := w.pod(0)
	pod.Name, pod.UID, pod.Annotations = name, types.UID(name), map[string]string{objects.AnnotationConsumeRequest: name}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "autoscaling.x-k8s.io/v1", Kind: "ProvisioningRequest", Name: name, UID: types.UID(name), Controller: new(true)}}
	_, class, err := w.pending.Classes.Successor(pod)
	if err != nil {
		w.t.Fatal(err)
	}
	return bookings.Request{UID: types.UID(name), Namespace: pod.Namespace, Name: name, Sets: []bookings.Set{{Class: class, Pods: pods}}, Buys: buys}
}

// withRequests starts a world in which requests are looked at.
func withRequests(t *testing.T, change ...func(*world)) *world {
	w := newWorld(t)
	for _, f := range change {
		f(w)
	}
	w.leadsRequests()
	return w
}

// leadsRequests starts a Launcher on the world, as a new leader would.
func (w *world) leadsRequests() {
	w.build()
	w.parts.Bookings.OnChange(func(bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed()
	})
	w.start()
}

// sets sets the requests again and again, as the controller does each second, until the func that it returns is called.
func (w *world) sets(all ...bookings.Request) (stop func()) {
	return repeat(func() { w.parts.Bookings.Set(all) })
}

// repeat calls f now, and again and again until the func that it returns is called.
func repeat(f func()) (stop func()) {
	f()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		again := time.NewTicker(50 * time.Millisecond)
		defer again.Stop()
		for {
			select {
			case <-again.C:
				f()
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// becomes sets the requests until one of them is in that phase.
func (w *world) becomes(uid string, phase bookings.Phase, all ...bookings.Request) bookings.State {
	w.t.Helper()
	defer w.sets(all...)()
	w.until(fmt.Sprintf("%s to be in phase %d", uid, phase), func() bool {
		now := w.parts.Bookings.Report()[types.UID(uid)]
		return now.Tried && now.Phase == phase
	})
	return w.parts.Bookings.Report()[types.UID(uid)]
}

func (w *world) bookedOn(uid string) (s booked.State) {
	w.reservations.Read(func(l ledger.Reader) { s, _ = l.Booked(types.UID(uid)) })
	return s
}

// Nodes are launched for a request and kept for its pods; another one that only asks whether there is capacity gets what is left.
func TestNodesForARequest(t *testing.T) {
	w := withRequests(t)
	train := w.request("train", 6, true)
	if s := w.becomes("train", bookings.Launching, train); !s.Bought {
		t.Errorf("state %+v", s)
	}
	w.exactly(2)
	w.allUp()
	w.becomes("train", bookings.Ready, train)
	if s := w.bookedOn("train"); s.Kept != 6 || s.Up != 6 || len(s.Nodes) != 2 {
		t.Errorf("booked: %+v", s)
	}
	for node := range w.nodes {
		if w.reservations.Fence(node) {
			t.Errorf("node %s can be ended", node)
		}
	}
	if s := w.becomes("three", bookings.Waiting, train, w.request("three", 3, false)); s.Why == "" {
		t.Error("nothing says why there is no capacity for three more pods")
	}
	if s := w.becomes("two", bookings.Ready, train, w.request("two", 2, false)); s.Bought {
		t.Errorf("a request that buys nothing: %+v", s)
	}
	if s := w.bookedOn("three"); s.Kept != 0 {
		t.Errorf("half of a request is booked: %+v", s)
	}
	w.exactly(2)
}

// A new leader books again what was booked, where it was, and buys nothing: for a request that was told of its capacity, and for one whose nodes boot.
func TestNothingIsBoughtTwiceForARequest(t *testing.T) {
	w := withRequests(t)
	told, boots := w.request("told", 4, true), w.request("boots", 4, true)
	w.becomes("told", bookings.Launching, told)
	w.exactly(1)
	w.allUp()
	w.becomes("told", bookings.Ready, told)
	told.Until = w.clock.Now().Add(time.Minute)
	w.becomes("boots", bookings.Launching, told, boots)
	w.exactly(2)
	if !w.parts.Bookings.Known() {
		t.Error("bookings are not known")
	}
	w.stop()
	w.leadsRequests()
	if w.parts.Bookings.Known() {
		t.Error("a new leader knows bookings that it hasn't looked at")
	}
	w.becomes("told", bookings.Ready, told, boots)
	w.becomes("boots", bookings.Launching, told, boots)
	w.allUp()
	w.becomes("boots", bookings.Ready, told, boots)
	w.exactly(2)
	for _, uid := range []string{"told", "boots"} {
		if s := w.bookedOn(uid); s.Kept != 4 || s.Up != 4 {
			t.Errorf("%s: %+v", uid, s)
		}
	}
	if !w.parts.Bookings.Known() {
		t.Error("bookings are not known")
	}
}

// Requests that come and go quickly use what was bought for those before.
func TestRequestsThatComeAndGo(t *testing.T) {
	w := withRequests(t)
	for i := range 50 {
		r := w.request(fmt.Sprint("r", i), 4, true)
		w.parts.Bookings.Set([]bookings.Request{r})
		if i%2 == 0 {
			w.becomes(string(r.UID), bookings.Launching, r)
		}
		w.parts.Bookings.Set(nil)
		w.until("nothing is wanted", func() bool { return len(w.parts.Bookings.Report()) == 0 })
	}
	w.becomes("last", bookings.Launching, w.request("last", 4, true))
	stop := repeat(w.allUp) // what was bought for an earlier one may be there later than the rest
	w.becomes("last", bookings.Ready, w.request("last", 4, true))
	stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.instances); n > 3 {
		t.Errorf("%d instances were launched for requests that one holds", n)
	}
}

// What was booked on a node that ends is booked elsewhere if there is capacity; otherwise the request hears of it.
func TestBookedNodeIsLost(t *testing.T) {
	w := withRequests(t)
	train := w.request("train", 4, true)
	w.becomes("train", bookings.Launching, train)
	w.exactly(1)
	w.allUp()
	w.becomes("train", bookings.Ready, train)
	train.Until = w.clock.Now().Add(time.Hour)
	spare := w.request("spare", 4, true)
	w.becomes("spare", bookings.Launching, train, spare)
	w.exactly(2)
	w.allUp()
	w.becomes("spare", bookings.Ready, train, spare)
	w.becomes("train", bookings.Ready, train) // the other one is deleted, its node stays
	lose := func() {
		t.Helper()
		node := w.bookedOn("train").Nodes[0]
		w.mu.Lock()
		n := w.nodes[node]
		delete(w.nodes, node)
		w.mu.Unlock()
		w.parts.Nodes.Close(node, n.Spec.ProviderID)
	}
	lose()
	w.becomes("train", bookings.Ready, train)
	w.until("it is booked on the other node", func() bool { s := w.bookedOn("train"); return s.Kept == 4 && s.Gone == 0 })
	lose()
	if s := w.becomes("train", bookings.Revoked, train); s.Why == "" {
		t.Error("nothing says why")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.instances) != 2 {
		t.Errorf("%d instances were launched", len(w.instances))
	}
}

// Limits and namespaces hold for requests as for pods, and a request that gets nothing buys nothing.
func TestRequestsRespectLimits(t *testing.T) {
	w := withRequests(t, func(w *world) { w.limits = capacity.Resources{corev1.ResourceCPU: 8000} })
	if s := w.becomes("large", bookings.Waiting, w.request("large", 12, true)); s.Why == "" || s.Bought {
		t.Errorf("state %+v", s)
	}
	w.exactly(0)
	w.becomes("small", bookings.Launching, w.request("large", 12, true), w.request("small", 8, true))
	w.exactly(2)
}

// A pod that is created before its request has capacity has nothing bought for it, and gets its place as soon as there is one. When the request is
// over, a pod that names it is demand like any other.
func TestEarlyPodsWait(t *testing.T) {
	w := withRequests(t, func(w *world) { w.limits = capacity.Resources{corev1.ResourceCPU: 8000} })
	large := w.request("train", 12, true)
	w.becomes("train", bookings.Waiting, large)
	early := func(i int) *corev1.Pod {
		pod := w.pod(i)
		pod.Annotations = map[string]string{objects.AnnotationConsumeRequest: "train"}
		return pod
	}
	submit := func(i int) types.UID {
		pod := early(i)
		w.pending.Handler().OnAdd(pod, false)
		class, err := w.pending.Classes.Class(pod)
		if err != nil {
			t.Fatal(err)
		}
		w.reservations.Submit(capacity.RefOf(pod), class)
		return pod.UID
	}
	uid, stop := submit(0), w.sets(large)
	w.until("the pod is postponed", func() bool { return w.reservations.Refused(uid) })
	stop()
	w.exactly(0)
	small := w.request("train", 4, true)
	small.UID = "second"
	w.becomes("second", bookings.Launching, small) // a new request of the same name
	w.exactly(1)
	if s := w.bookedOn("second"); s.Taken() != 1 || s.Kept != 3 {
		t.Errorf("booked: %+v", s)
	}
	w.parts.Bookings.Set(nil)
	w.until("nothing is wanted", func() bool { return len(w.parts.Bookings.Report()) == 0 })
	for i := range 4 {
		submit(i + 1) // of five pods four fit on the node that is there
	}
	w.exactly(2)
}
