package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// action is something that a user, the cloud or a machine does to the cluster.
type action struct {
	name   string
	weight int
	do     func(h *history, r *rand.Rand) (what string)
}

// actions of a storm. If there is nothing to act on, an action does nothing and returns "".
var actions = []action{
	{"scale", 5, func(h *history, r *rand.Rand) string {
		a := h.apps[r.IntN(len(h.apps))]
		if a.name == impossible || a.guarded {
			return ""
		}
		a.replicas = r.IntN(12)
		h.scale(a)
		return a.name
	}},
	{"delete some pods", 3, func(h *history, r *rand.Rand) string {
		list, err := h.kube.CoreV1().Pods(namespace).List(h.ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return ""
		}
		for range 1 + r.IntN(4) {
			p := &list.Items[r.IntN(len(list.Items))]
			h.check.deletes(p.UID)
			_ = h.kube.CoreV1().Pods(namespace).Delete(h.ctx, p.Name, metav1.DeleteOptions{})
		}
		return "of all"
	}},
	{"kubectl delete node", 2, func(h *history, r *rand.Rand) string {
		list, err := h.kube.CoreV1().Nodes().List(h.ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return ""
		}
		n := &list.Items[r.IntN(len(list.Items))]
		h.check.userEnds(n)
		_ = h.kube.CoreV1().Nodes().Delete(h.ctx, n.Name, metav1.DeleteOptions{})
		return n.Name
	}},
	{"kubectl delete nodeclaim", 2, func(h *history, r *rand.Rand) string {
		var list karpv1.NodeClaimList
		if h.objects.List(h.ctx, &list) != nil || len(list.Items) == 0 {
			return ""
		}
		c := &list.Items[r.IntN(len(list.Items))]
		h.check.userEndsClaim(c.Name)
		_ = h.objects.Delete(h.ctx, c)
		return c.Name
	}},
	{"EC2: instance dies", 2, func(h *history, r *rand.Rand) string {
		live := h.ec2.Live()
		if len(live) == 0 {
			return ""
		}
		in := live[r.IntN(len(live))]
		h.ec2.Kill(in.ID)
		h.faults.injected("EC2: instance terminated behind our back")
		return in.ID
	}},
	{"EC2: out of capacity", 1, func(h *history, r *rand.Rand) string {
		zone := h.ec2.Zones()[r.IntN(3)]
		h.ec2.SetCapacity(ec2.Any, zone, ec2.Any, 0)
		h.later(time.Duration(1+r.IntN(4))*time.Minute, func() { h.ec2.SetCapacity(ec2.Any, zone, ec2.Any, ec2.Unlimited) })
		h.faults.injected("EC2: a zone without capacity")
		return zone
	}},
	{"watches are lost", 2, func(h *history, r *rand.Rand) string {
		for _, p := range h.running {
			p.kube.Cut()
		}
		h.faults.injected("API server: watches lost")
		return "all"
	}},
	{"history is forgotten", 1, func(h *history, r *rand.Rand) string {
		h.api.Expire()
		for _, p := range h.running {
			p.kube.Cut()
		}
		h.faults.injected("API server: watches lost and expired")
		return "410 for whoever comes back"
	}},
	{"watches are slow", 2, func(h *history, r *rand.Rand) string {
		slow := time.Duration(1+r.IntN(15)) * time.Second
		h.faults.slowWatches(slow)
		h.later(time.Duration(20+r.IntN(60))*time.Second, func() { h.faults.slowWatches(0) })
		h.faults.injected("API server: slow watches")
		return slow.String()
	}},
	{"kill", 2, func(h *history, r *rand.Rand) string {
		for _, p := range h.running {
			h.faults.injected("kill at any moment")
			h.killed(p)
		}
		return "all processes"
	}},
	{"restart", 1, func(h *history, r *rand.Rand) string {
		for _, p := range h.running {
			h.faults.injected("restart in order")
			h.retire(p)
		}
		return "all processes"
	}},
	{"somebody else writes", 2, func(h *history, r *rand.Rand) string {
		for range 10 {
			h.later(time.Duration(r.IntN(20000))*time.Millisecond, h.scribble)
		}
		return "on every claim and Node, for a while"
	}},
	{"two leaders", 1, func(h *history, r *rand.Rand) string {
		if len(h.running) != 1 {
			return ""
		}
		old := h.running[0]
		h.running = append(h.running, h.start())
		h.later(time.Duration(r.IntN(15000))*time.Millisecond, func() { h.killed(old) })
		h.faults.injected("two leaders for a moment")
		return "for a moment"
	}},
	{"pod replaced", 2, (*history).replace},
	{"clock jumps", 1, func(h *history, r *rand.Rand) string {
		by := time.Duration(r.IntN(480)-240) * time.Second
		for _, p := range h.running {
			p.clock.jump(by)
		}
		h.check.jumps(by)
		h.faults.injected("clock jump")
		return by.String()
	}},
}

// act does one random action.
func (h *history) act(r *rand.Rand) {
	all := 0
	for _, a := range actions {
		all += a.weight
	}
	n := r.IntN(all)
	for _, a := range actions {
		if n -= a.weight; n < 0 {
			if what := a.do(h, r); what != "" {
				h.note("%s: %s", a.name, what)
			}
			return
		}
	}
}

// scribble writes a new annotation on every claim and every Node, as other controllers do, so that writes based on an older version
// get a conflict.
func (h *history) scribble() {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/touched":"%d"}}}`, time.Now().UnixNano()))
	for name := range h.check.last.claims {
		_ = h.objects.Patch(h.ctx, &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch)
	}
	for name := range h.check.last.nodes {
		_ = h.objects.Patch(h.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch)
	}
	h.faults.injected("API server: all claims and Nodes changed by somebody else")
}

// giveIn does what a user does about pods that ask not to be disrupted, or whose disruption budget allows nothing, and so keep a deleted
// node from terminating: otherwise the node would wait for ever.
func (h *history) giveIn() {
	for _, p := range h.check.last.podsInOrder() {
		node := h.check.last.nodes[p.Spec.NodeName]
		if (p.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" || p.Labels[appLabel] == soleApp) && p.DeletionTimestamp == nil && node != nil && node.DeletionTimestamp != nil {
			h.check.deletes(p.UID)
			_ = h.kube.CoreV1().Pods(namespace).Delete(h.ctx, p.Name, metav1.DeleteOptions{})
			h.note("the user gives in: pod %s", p.Name)
		}
	}
}

// slowWatches delays watch events by up to d.
func (f *faults) slowWatches(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.calm {
		f.slow = d
	}
}
