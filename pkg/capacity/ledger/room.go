package ledger

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/reasons"
)

// Watches reports whether the ledger may object to pods on the Node.
func (l *Ledger) Watches(name string) bool {
	_, ok := l.byName[name]
	return ok
}

// Knows reports whether the ledger has the pod.
func (l *Ledger) Knows(uid types.UID) bool {
	_, ok := l.pods[uid]
	return ok
}

// Gate reports whether the pod has to stay out of the scheduling queue, and what it waits for.
func (l *Ledger) Gate(uid types.UID) (closed bool, why string) {
	if !l.Gated(uid) {
		return false, ""
	}
	return true, l.Explain(uid)
}

// Gated is Gate without the reason, which takes longer to find the more pods of the class wait.
func (l *Ledger) Gated(uid types.UID) bool {
	p, ok := l.pods[uid]
	if !ok || p.state != Queued && p.state != Planned {
		return false
	}
	p.held.Store(true)
	return true
}

// Pin gives the pod a slot, the first ready one of its class in plan order, and returns the slot's node; later calls return the same. If
// node is empty and wait is not, a plan is being made or carried out. If both are empty, the pod may go to any node.
func (l *Ledger) Pin(uid types.UID) (node, wait string) {
	p, ok := l.pods[uid]
	if !ok {
		return "", ""
	}
	switch p.state {
	case Queued, Planned:
		p.held.Store(true)
		return "", l.Explain(uid)
	case Refused:
		if p.behind {
			return "", "waiting until pods with the same requirements are bound to the nodes planned for them"
		}
	case Assumed:
		if p.slot != nil {
			return p.slot.node.name, ""
		}
	case Open:
		if p.slot == nil {
			if len(p.class.free) == 0 {
				return "", "the capacity reserved for it is not ready"
			}
			s := p.class.free[0]
			p.unlist()
			s.pod, p.slot = p, s
			s.set(true)
			p.early, p.wake = 0, time.Time{}
		}
		return p.slot.node.name, ""
	}
	return "", ""
}

// Ask is a pod that Object checks against a node.
type Ask struct {
	UID       types.UID
	Class     *capacity.Class
	DaemonSet bool                       // capacity is kept free for it; it may use what is reserved for others
	Apart     map[capacity.ClassKey]bool // classes whose pods must not share a node with it, from Ledger.Apart
}

// Amounts returns what the scheduler counts on a node, per resource.
type Amounts interface {
	Requested(corev1.ResourceName) int64
	Allocatable(corev1.ResourceName) int64
	// Volumes returns how many volumes of the CSI driver the node's pods use.
	Volumes(driver string) int64
	// Daemon reports whether a pod of the DaemonSet (namespace/name) is on the node.
	Daemon(key string) bool
}

// Object returns why the pod may not go to the node, or nil if it may. A pinned pod may only go to its own node. Capacity that is reserved
// for pods of the same or a higher priority, or for DaemonSet pods that are not there yet, stays free. Pods that must not be bound early
// stay off initializing nodes, and no pod may go to a node planned for a pod that it must not share a node with.
func (l *Ledger) Object(name string, ask *Ask, on Amounts) error {
	p := l.pods[ask.UID]
	if p != nil && p.slot != nil && p.slot.node.name != name {
		return reasons.ErrElsewhere
	}
	n, ok := l.byName[name]
	if !ok {
		return nil
	}
	if n.closedTo(ask.DaemonSet) {
		return reasons.ErrRemoved
	}
	if p == nil || p.slot == nil {
		if n.late && !ask.DaemonSet { // DaemonSet pods have no other node
			return reasons.ErrLate
		}
		if err := n.early(ask.Class, ask.DaemonSet); err != nil {
			return err
		}
		if !ask.DaemonSet && n.cached && n.status.Uncertain(ask.Class) {
			return reasons.ErrUncertain // it gets a plan instead, in which it comes after the pods that are planned there already
		}
	}
	if ask.DaemonSet {
		return nil
	}
	return n.room(p, ask, on)
}

// early returns why a pod without a plan can't be bound to the node yet, or nil. A DaemonSet's pod with devices may be the one that removes the
// node's startup taint: without it the node would never be initialized. So it waits only until the kubelet, which reports the devices, registers.
func (n *node) early(c *capacity.Class, daemon bool) error {
	if !n.cached || !n.status.Managed || n.status.Initialized {
		return nil
	}
	if daemon && c.Bind == capacity.BindInitialized {
		return n.waitsUntil(c, capacity.BindRegistered)
	}
	return n.waits(c)
}

// room returns which reserved capacity the pod would take, or nil if none.
func (n *node) room(p *pod, of *Ask, on Amounts) error {
	if len(n.reserved) == 0 && len(n.daemons) == 0 {
		return nil
	}
	ask := of.Class
	var missing []capacity.Resources
	for key, d := range n.daemons {
		if !on.Daemon(key) { // DaemonBound may be called later than the scheduler's cache has the pod
			missing = append(missing, d)
		}
	}
	for r, want := range ask.Requests {
		if want <= 0 {
			continue
		}
		kept := int64(0)
		for prio, sum := range n.reserved {
			if prio >= ask.Priority {
				kept += sum[r]
			}
		}
		if p != nil && p.slot != nil && p.slot.node == n && p.class.Priority >= ask.Priority {
			kept -= p.class.Requests[r]
		}
		for _, d := range missing {
			kept += d[r]
		}
		if kept > 0 && on.Requested(r)+kept+want > on.Allocatable(r) {
			return reasons.Reserved(r)
		}
	}
	for i := range ask.HostPorts {
		for _, s := range n.slots {
			if s.pod != nil && s.pod == p || s.class.Priority < ask.Priority {
				continue
			}
			for j := range s.class.HostPorts {
				if capacity.PortConflict(&ask.HostPorts[i], &s.class.HostPorts[j]) {
					return reasons.PortReserved{ContainerPort: &ask.HostPorts[i]}
				}
			}
		}
	}
	if err := n.apart(p, of); err != nil {
		return err
	}
	return n.attachments(p, ask, on)
}

// Apart returns the classes that have slots somewhere and whose pods must not share a node with those of c. preempts leaves out classes of
// a lower priority: it is for a pod that could preempt their pods if these were bound already. Any other pod has a plan or gets one; if it
// went to a node on which such pods are planned, none of these could be bound there.
func (l *Ledger) Apart(c *capacity.Class, preempts bool) map[capacity.ClassKey]bool {
	return l.apart.Apart(c, func(key capacity.ClassKey) bool {
		k := l.classes[key]
		return len(k.slots) > 0 && (!preempts || k.Priority >= c.Priority)
	})
}

// apart returns an error if the pod and one that is planned for the node must not share it. The scheduler's own filter sees the conflict
// only once one of them is on the node, and then there would be no place for the other.
func (n *node) apart(p *pod, ask *Ask) error {
	if len(ask.Apart) == 0 || p != nil && p.slot != nil && p.slot.node == n {
		return nil // there is no conflict, or its own slot is on this node: the plan has taken the other pods into account
	}
	for _, s := range n.slots {
		if ask.Apart[s.class.Key] {
			return reasons.ErrApart
		}
	}
	return nil
}

// attachments returns an error if the pod would take volume attachments from planned pods. A driver without a number on its CSINode has
// no limit.
func (n *node) attachments(p *pod, ask *capacity.Class, on Amounts) error {
	for driver, want := range ask.Volumes {
		limit, limited := n.status.VolumeLimits[driver]
		if !limited {
			continue
		}
		kept := int64(0)
		for _, s := range n.slots {
			if (s.pod == nil || s.pod != p) && s.class.Priority >= ask.Priority {
				kept += s.class.Volumes[driver]
			}
		}
		if kept > 0 && on.Volumes(driver)+kept+want > limit {
			return reasons.VolumesReserved(driver)
		}
	}
	return nil
}

// InFlight is a node with its reservations, as input for the next plan.
type InFlight struct {
	Claim, Name string
	Template    *capacity.Node
	Cached      bool
	// Fenced: it is cordoned, or being removed. Closed: it is being removed.
	Fenced, Closed bool
	Late           bool // it gets no further pods: it has not registered in time, or it has a taint that isn't waited for (nodestatus.Drives)
	Initialized    bool
	Managed        bool
	Slots          []Promise
	Chunks         []Chunk
	Daemons        map[string]capacity.Resources
}

// Promise is a reservation for one pod of a class. UID is the pod that it was given to, if any; Owner is set while it is reserved for the next pod
// of a controller or ProvisioningRequest. Leaving is the node that the owner's present pod will leave, as long as that node's drain has not begun.
type Promise struct {
	Class   *capacity.Class
	UID     types.UID
	Owner   types.UID
	Leaving string
	// Likely is the pod that will probably get the slot, if no pod is pinned to it yet: pods of a class take its slots in the order of their plans.
	Likely types.UID
}

// likely returns the pod that will probably get a slot, for slots of classes with ResourceClaims: there it matters which pod it is, because the
// pods of a class may have different claims.
func (l *Ledger) likely() map[*slot]*pod {
	out := map[*slot]*pod{}
	for _, c := range l.classes {
		if c.Pod == nil || len(c.Pod.Spec.ResourceClaims) == 0 {
			continue
		}
		left := c.waiting
		for _, s := range c.slots {
			if len(left) > 0 && !s.ready && s.pod == nil && s.owner == "" {
				out[s], left = left[0], left[1:]
			}
		}
	}
	return out
}

// InFlight returns every node of the ledger, in no particular order.
func (l *Ledger) InFlight() []InFlight {
	out, likely := make([]InFlight, 0, len(l.nodes)), l.likely()
	for _, n := range l.nodes {
		f := InFlight{Claim: n.claim, Name: n.name, Template: n.template, Cached: n.cached, Fenced: n.fenced, Closed: n.closed, Late: n.late || n.status.Drives(n.surprises),
			Initialized: n.status.Initialized, Managed: n.status.Managed, Daemons: maps.Clone(n.daemons), Chunks: n.chunkList()}
		for _, s := range n.slots {
			pr := Promise{Class: s.class.Class, Owner: s.owner}
			if s.pod != nil {
				pr.UID = s.pod.ref.UID
			} else if p := likely[s]; p != nil {
				pr.Likely = p.ref.UID
			}
			if s.early {
				pr.Leaving = s.leaving
			}
			f.Slots = append(f.Slots, pr)
		}
		out = append(out, f)
	}
	return out
}
