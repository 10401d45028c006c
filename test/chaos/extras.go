package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// Marks of what extras draws, counted among the faults.
const (
	buffersEdited = "buffers: a CapacityBuffer is created, changed or deleted"
	nodeFails     = "repair: a node becomes unhealthy"
	recommended   = "spot: EC2 recommends to leave an instance's capacity"
	reclaimed     = "spot: EC2 interrupts an instance"
)

// tolerated is for how long the pool of a history with an unhealthy node tolerates the conditions that make it so.
const tolerated = 4 * time.Minute

// extras is what differs in a history with CapacityBuffers, with a node that becomes unhealthy, or with signals about spot capacity: every third
// one each. It is drawn from a stream of its own, so that everything else in the history of a seed is as it would be without.
type extras struct {
	rng *rand.Rand
	// buffers, recommends and interrupts are when these things happen, after the beginning of the storm.
	buffers, recommends, interrupts []time.Duration
	// fails is when a node becomes unhealthy; 0: never.
	fails time.Duration
	// condition is what tells of it; empty: the instance's status check.
	condition corev1.NodeConditionType
	sick      string // its provider ID
	since     time.Time
	// reclaimed are the provider IDs of instances that EC2 has said it will interrupt.
	reclaimed map[string]bool
}

func drawExtras(r *rand.Rand) *extras {
	e := &extras{rng: r, reclaimed: map[string]bool{}}
	at := func() time.Duration { return time.Duration(r.Int64N(int64(stormMin))) }
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(6) {
			e.buffers = append(e.buffers, at())
		}
	}
	if r.IntN(3) == 0 {
		e.fails = time.Minute + at()
		e.condition = []corev1.NodeConditionType{"KernelReady", "StorageReady", "", ""}[r.IntN(4)]
	}
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(4) {
			e.recommends = append(e.recommends, at())
		}
		for range r.IntN(3) {
			e.interrupts = append(e.interrupts, at())
		}
	}
	return e
}

// queue reports whether the product reads a queue of signals from EC2.
func (e *extras) queue() bool { return len(e.recommends) > 0 }

// shape changes the pool.
func (e *extras) shape(pool *karpv1.NodePool) {
	set := func(key, value string) {
		if pool.Annotations == nil {
			pool.Annotations = map[string]string{}
		}
		pool.Annotations[key] = value
	}
	if e.fails > 0 {
		set("dovetail.sh/repair", fmt.Sprintf("KernelReady=%[1]s, StorageReady=%[1]s", tolerated))
	}
	if e.queue() {
		set("dovetail.sh/rebalance", "replace")
	}
}

// prepareExtras plans them, wait after now, and creates what buffers refer to.
func (h *history) prepareExtras(wait time.Duration) error {
	e := h.extras
	for _, at := range e.buffers {
		h.later(wait+at, h.editBuffer)
	}
	for _, at := range e.recommends {
		h.later(wait+at, func() { h.signal(recommended, h.ec2.Rebalance) })
	}
	for _, at := range e.interrupts {
		h.later(wait+at, func() { h.signal(reclaimed, h.ec2.Interrupt) })
	}
	if e.fails > 0 {
		h.later(wait+e.fails, h.failNode)
	}
	if len(e.buffers) == 0 {
		return nil
	}
	sizes := []string{"500m", "1", "2"}
	t := Template(chunk, sizes[e.rng.IntN(len(sizes))], "512Mi")
	if err := h.objects.Create(h.ctx, &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: chunk}, Template: t}); err != nil {
		return fmt.Errorf("creating the PodTemplate of buffers: %w", err)
	}
	return nil
}

// chunk names the PodTemplate of buffers.
const chunk = "chunk"

// editBuffer creates one of two buffers, changes its number of chunks or deletes it.
func (h *history) editBuffer() {
	r := h.extras.rng
	b := &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("spare-", r.IntN(2))}}
	n, deletes := int32(1+r.IntN(8)), r.IntN(4) == 0
	var err error
	what := fmt.Sprintf("%d chunks", n)
	switch exists := h.objects.Get(h.ctx, keyOf(b), b) == nil; {
	case !exists:
		b.Spec = autoscalingv1beta1.CapacityBufferSpec{PodTemplateRef: &autoscalingv1beta1.LocalObjectRef{Name: chunk}, Replicas: &n}
		err = h.objects.Create(h.ctx, b)
	case deletes:
		what = "deleted"
		err = h.objects.Delete(h.ctx, b)
	default:
		b.Spec.Replicas = &n
		err = h.objects.Update(h.ctx, b)
	}
	if err == nil {
		h.faults.injected(buffersEdited)
		h.note("buffer %s: %s", b.Name, what)
	}
}

// signal makes EC2 send a signal about a random spot instance.
func (h *history) signal(kind string, send func(instance string) error) {
	live := slices.DeleteFunc(h.ec2.Live(), func(in ec2.Instance) bool { return in.CapacityType != karpv1.CapacityTypeSpot })
	if len(live) == 0 {
		return
	}
	in := live[h.extras.rng.IntN(len(live))]
	if send(in.ID) == nil {
		if kind == reclaimed {
			h.extras.reclaimed[providerID(in)] = true
		}
		h.faults.injected(kind)
		h.note("%s: %s", kind, in.ID)
	}
}

// failNode makes a random initialized node unhealthy, for good.
func (h *history) failNode() {
	e, v := h.extras, h.check.last
	if v == nil {
		return
	}
	var ids []string
	for _, in := range h.ec2.Live() {
		if c := claimOf(v, providerID(in)); c != nil && condition(c, karpv1.ConditionTypeInitialized) && c.DeletionTimestamp == nil {
			ids = append(ids, in.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	id := ids[e.rng.IntN(len(ids))]
	what := string(e.condition)
	if what == "" {
		what = "its status check"
		if h.ec2.Impair(id, ec2.SystemStatus, 0) != nil {
			return
		}
	} else {
		h.boots.Fail(id, e.condition)
	}
	for _, in := range h.ec2.Live() {
		if in.ID == id {
			e.sick, e.since = providerID(in), time.Now()
		}
	}
	h.faults.injected(nodeFails)
	h.note("%s: %s, %s", nodeFails, id, what)
}

// repaired reports whether an instance may be ended because it is unhealthy.
func (e *extras) repaired(providerID string, now time.Time, jumped time.Duration) bool {
	if e.sick != providerID {
		return false
	}
	least := tolerated
	if e.condition == "" {
		least = 2 * time.Minute
	}
	return now.Sub(e.since)+jumped+step >= least
}

// unrepaired describes the node that is unhealthy and hasn't been replaced yet.
func (e *extras) unrepaired(v *view) string {
	if !v.live[e.sick] {
		return ""
	}
	return fmt.Sprintf("instance %s is unhealthy since %s", e.sick, e.since.Format(time.TimeOnly))
}

// unfilled describes the buffers that lack chunks; empty: all are full, or there is none.
func (h *history) unfilled() string {
	for _, b := range h.buffers() {
		c := meta.FindStatusCondition(b.Status.Conditions, autoscalingv1beta1.ProvisioningCondition)
		switch {
		case c == nil:
			return fmt.Sprintf("buffer %s has no condition: %+v", b.Name, b.Status)
		case c.Status != metav1.ConditionTrue:
			return fmt.Sprintf("buffer %s isn't full: %s", b.Name, c.Message)
		}
	}
	return ""
}

func (h *history) buffers() []autoscalingv1beta1.CapacityBuffer {
	if len(h.extras.buffers) == 0 {
		return nil
	}
	var list autoscalingv1beta1.CapacityBufferList
	if err := h.objects.List(h.ctx, &list); err != nil {
		h.note("listing buffers: %v", err)
	}
	return list.Items
}

// dropBuffers deletes all buffers, and reports whether there were any.
func (h *history) dropBuffers() bool {
	all := h.buffers()
	for i := range all {
		_ = h.objects.Delete(h.ctx, &all[i])
	}
	if len(all) > 0 {
		h.note("all buffers are full, and are deleted")
		h.check.buffered = false
	}
	return len(all) > 0
}
