package launch

import (
	"fmt"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// buffer returns a CapacityBuffer with chunks of one CPU each.
func (w *world) buffer(name string, chunks int) ledger.Buffer {
	w.t.Helper()
	pod := w.pod(0)
	lowest := int32(math.MinInt32)
	pod.Name, pod.UID, pod.Spec.Priority = name, types.UID(name), &lowest
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "autoscaling.x-k8s.io/v1beta1", Kind: "CapacityBuffer", Name: name, UID: types.UID(name), Controller: new(true)}}
	_, class, err := w.pending.Classes.Successor(pod)
	if err != nil {
		w.t.Fatal(err)
	}
	return ledger.Buffer{UID: types.UID(name), Class: class, Chunks: chunks}
}

// allUp makes all nodes initialized ones.
func (w *world) allUp() {
	w.mu.Lock()
	var nodes []*corev1.Node
	for name, n := range w.nodes {
		up := n.DeepCopy()
		up.Labels[capacity.LabelRegistered], up.Labels[capacity.LabelInitialized] = "true", "true"
		up.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		w.nodes[name], nodes = up, append(nodes, up)
	}
	w.mu.Unlock()
	for _, n := range nodes {
		w.parts.Nodes.NodeCached(n)
	}
}

// takes binds pods as the scheduler does when they pass its filters without a plan.
func (w *world) takes(pods ...int) {
	w.t.Helper()
	for _, i := range pods {
		pod, free := w.pod(i), ""
		w.pods = max(w.pods, i+1)
		for _, n := range w.Nodes(func(n *capacity.Node, _ *corev1.Node) *capacity.Node { return n }) {
			ask := &ledger.Ask{UID: pod.UID, Class: w.buffer("any", 1).Class}
			if n.Free[corev1.ResourceCPU] >= 1000 && w.reservations.Object(n.Name, ask, amountsOf{n}) == nil {
				free = n.Name
			}
		}
		if free == "" {
			w.t.Fatalf("pod %d finds no capacity in its first cycle", i)
		}
		if err := w.reservations.Assume(pod.UID, free, false); err != nil {
			w.t.Fatal(err)
		}
		w.mu.Lock()
		w.bound[pod.UID] = free
		if w.podsOn == nil {
			w.podsOn = map[string][]*corev1.Pod{}
		}
		w.podsOn[free] = append(w.podsOn[free], pod)
		w.mu.Unlock()
		w.reservations.Settled(pod.UID, free)
	}
}

// amountsOf is what the scheduler counts on a node.
type amountsOf struct{ *capacity.Node }

func (a amountsOf) Requested(r corev1.ResourceName) int64 { return a.Node.Allocatable[r] - a.Free[r] }
func (a amountsOf) Allocatable(r corev1.ResourceName) int64 {
	return a.Node.Allocatable[r]
}
func (a amountsOf) Volumes(string) int64 { return 0 }
func (a amountsOf) Daemon(string) bool   { return false }

// chunks waits until buffers have so many chunks on initialized nodes, on other ones, and without capacity.
func (w *world) chunks(ready, launching, missing int) {
	w.t.Helper()
	w.until(fmt.Sprintf("%d chunks ready, %d launching, %d missing", ready, launching, missing), func() bool {
		all, _ := w.parts.Chunks.Report()
		for i := range all {
			ready, launching, missing = ready-all[i].Ready, launching-all[i].Launching, missing-all[i].Missing()
		}
		ok := ready == 0 && launching == 0 && missing == 0
		for i := range all {
			ready, launching, missing = ready+all[i].Ready, launching+all[i].Launching, missing+all[i].Missing()
		}
		return ok
	})
}

func withBuffers(t *testing.T) *world {
	w := newWorld(t)
	w.build()
	w.parts.Chunks.OnChange(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed()
	})
	w.start()
	return w
}

// Capacity is bought for chunks, pods take it in their first cycle, and what they took is bought once.
func TestChunksAreTakenAndRefilledOnce(t *testing.T) {
	w := withBuffers(t)
	if _, known, _ := w.parts.Chunks.Need("any"); known {
		t.Error("it is known which nodes are needed before the buffers are")
	}
	w.parts.Chunks.SetBuffers([]ledger.Buffer{w.buffer("spare", 8)})
	w.exactly(2)
	w.chunks(0, 8, 0)
	w.allUp()
	w.chunks(8, 0, 0)
	w.takes(0, 1, 2)
	w.exactly(3) // three chunks are missing, a large node has four
	w.chunks(5, 3, 0)
	w.allUp()
	w.chunks(8, 0, 0)
	w.takes(3) // there is one place that no chunk has
	w.chunks(8, 0, 0)
	w.exactly(3)
	w.until("three nodes are needed for chunks", func() bool {
		held := 0
		for name := range w.nodes {
			if has, known, last := w.parts.Chunks.Need(name); has && known && !last.IsZero() {
				held++
			}
		}
		return held == 3
	})
	w.parts.Chunks.SetBuffers(nil)
	w.until("nothing is kept", func() bool {
		for name := range w.nodes {
			if has, _, _ := w.parts.Chunks.Need(name); has {
				return false
			}
		}
		return true
	})
}

// Pods come first: they are planned on nodes that boot for chunks, and the chunks get others.
func TestPodsArePlannedWhereChunksAre(t *testing.T) {
	w := withBuffers(t)
	w.parts.Chunks.SetBuffers([]ledger.Buffer{w.buffer("spare", 4)})
	w.exactly(1)
	w.chunks(0, 4, 0)
	w.submit(2)
	w.allBound(2)
	w.exactly(2)
	w.chunks(0, 4, 0)
}

// Buffers that come and go quickly use what was bought for those before, and never exceed the limits of their pool.
func TestLimitsHoldUnderRapidChanges(t *testing.T) {
	w := newWorld(t)
	w.limits = capacity.Resources{corev1.ResourceCPU: 12_000}
	w.build()
	w.parts.Chunks.OnChange(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed()
	})
	w.start()
	for i := range 30 {
		w.parts.Chunks.SetBuffers([]ledger.Buffer{w.buffer(fmt.Sprint("spare-", i), 20)})
		if i%3 == 0 {
			w.parts.Chunks.SetBuffers(nil)
		}
	}
	w.parts.Chunks.SetBuffers([]ledger.Buffer{w.buffer("last", 20)})
	w.chunks(0, 12, 8)
	w.exactly(3)
	w.parts.Chunks.SetBuffers([]ledger.Buffer{w.buffer("other", 12)})
	w.chunks(0, 12, 0)
	w.exactly(3)
	w.until("nothing is said to be missing", func() bool { _, why := w.parts.Chunks.Report(); return len(why) == 0 })
}

// A node that is too small for the chunks it was launched for isn't bought again and again.
func TestMisfitsBackOff(t *testing.T) {
	w := withBuffers(t)
	w.parts.Chunks.SetBuffers([]ledger.Buffer{w.buffer("spare", 4)})
	w.exactly(1)
	w.chunks(0, 4, 0)
	w.mu.Lock()
	for name, n := range w.nodes {
		small := n.DeepCopy()
		small.Status.Allocatable = capacity.Resources{corev1.ResourceCPU: 500, corev1.ResourcePods: 10}.List()
		w.nodes[name] = small
	}
	w.mu.Unlock()
	w.allUp()
	w.parts.Triggers.LookAfterChunks()
	w.chunks(0, 0, 4)
	w.parts.Triggers.LookAfterChunks()
	w.until("it is looked again", func() bool { all, _ := w.parts.Chunks.Report(); return all[0].Misfits == 1 })
	w.exactly(1)
	all, _ := w.parts.Chunks.Report()
	if wait := all[0].Next.Sub(w.clock.Now()); wait < 4*time.Minute || wait > 5*time.Minute {
		t.Errorf("the next one is bought in %v, want 5m", wait)
	}
}
