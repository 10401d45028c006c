package ledger

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Watches says whether the ledger has anything to say about the Node.
func (l *Ledger) Watches(name string) bool {
	_, ok := l.byName[name]
	return ok
}

// Knows says whether the ledger has anything to say about the pod.
func (l *Ledger) Knows(uid types.UID) bool {
	_, ok := l.pods[uid]
	return ok
}

// Gate says whether the pod has to stay out of the scheduling queue, and what it waits for.
func (l *Ledger) Gate(uid types.UID) (closed bool, why string) {
	if !l.Gated(uid) {
		return false, ""
	}
	return true, l.Explain(uid)
}

// Gated is Gate without the reason, which costs more the more pods of the class wait.
func (l *Ledger) Gated(uid types.UID) bool {
	p, ok := l.pods[uid]
	if !ok || p.state != Queued && p.state != Planned {
		return false
	}
	p.held.Store(true)
	return true
}

// Pin hands the pod its slot: the class's first ready one in plan order, and the same one ever after. An empty node with
// wait set: a plan is being made or carried out. Both empty: the pod is free to go anywhere.
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
			return "", "pods like it are placed first, where they were planned"
		}
	case Assumed:
		if p.slot != nil {
			return p.slot.node.name, ""
		}
	case Open:
		if p.slot == nil {
			s := p.class.free()
			if s == nil {
				return "", "its room is not ready"
			}
			s.pod, p.slot = p, s
			p.early, p.wake = 0, time.Time{}
			p.class.open--
		}
		return p.slot.node.name, ""
	}
	return "", ""
}

// Ask is a pod that wants to go to a node.
type Ask struct {
	UID       types.UID
	Class     *capacity.Class
	DaemonSet bool                       // its room is what others must leave free
	Apart     map[capacity.ClassKey]bool // as Ledger.Apart says
}

// Amounts is what the scheduler knows of a node, per resource.
type Amounts interface {
	Requested(corev1.ResourceName) int64
	Allocatable(corev1.ResourceName) int64
	// Volumes is how many volumes of the CSI driver its pods use.
	Volumes(driver string) int64
	// Daemon says whether a pod of the DaemonSet (namespace/name) is among the node's pods.
	Daemon(key string) bool
}

// Object says why the pod may not go to the node, or "" when it may: a pinned pod goes to its own node only; promised
// room of the same or a higher priority and room for DaemonSet pods that have not come yet is kept; pods that must not be
// bound early stay off initializing nodes; pods that must not share a node with one that is planned there stay off, too.
func (l *Ledger) Object(name string, ask *Ask, on Amounts) string {
	p := l.pods[ask.UID]
	if p != nil && p.slot != nil && p.slot.node.name != name {
		return "the pod has room on another node"
	}
	n, ok := l.byName[name]
	if !ok {
		return ""
	}
	if n.closedTo(ask.DaemonSet) {
		return "the node is being removed"
	}
	if p == nil || p.slot == nil {
		if n.late && !ask.DaemonSet { // theirs have nowhere else to go
			return "the node has not come in time"
		}
		if why := n.early(ask.Class); why != "" {
			return why
		}
	}
	if ask.DaemonSet {
		return ""
	}
	return n.room(p, ask, on)
}

// early says why a pod without a plan can't be bound to the node yet.
func (n *node) early(c *capacity.Class) string {
	if !n.cached || !n.status.Managed || n.status.Initialized {
		return ""
	}
	return n.waits(c)
}

// room says what the pod would take from others.
func (n *node) room(p *pod, of *Ask, on Amounts) string {
	if len(n.reserved) == 0 && len(n.daemons) == 0 {
		return ""
	}
	ask := of.Class
	var missing []capacity.Resources
	for key, d := range n.daemons {
		if !on.Daemon(key) { // whoever says that it was bound may be slower than the scheduler's cache
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
			return fmt.Sprintf("%s is kept for pods planned for the node", r)
		}
	}
	for i := range ask.HostPorts {
		for _, s := range n.slots {
			if s.pod != nil && s.pod == p || s.class.Priority < ask.Priority {
				continue
			}
			for j := range s.class.HostPorts {
				if capacity.PortConflict(&ask.HostPorts[i], &s.class.HostPorts[j]) {
					return fmt.Sprintf("host port %d is kept for a pod planned for the node", ask.HostPorts[i].HostPort)
				}
			}
		}
	}
	if why := n.apart(p, of); why != "" {
		return why
	}
	return n.attachments(p, ask, on)
}

// Apart is what Object says to a pod that must not share the node with one that is planned there.
const Apart = "anti-affinity to a pod planned for the node"

// Apart are the classes with room promised somewhere whose pods must not share a node with those of c. It is asked once for
// each cycle, as it looks at every class.
func (l *Ledger) Apart(c *capacity.Class) map[capacity.ClassKey]bool {
	var out map[capacity.ClassKey]bool
	own := c.Repels()
	for key, k := range l.classes {
		if len(k.slots) > 0 && (own || k.Repels()) && capacity.Apart(c, k.Class) {
			if out == nil {
				out = map[capacity.ClassKey]bool{}
			}
			out[key] = true
		}
	}
	return out
}

// apart says that the pod and one that is planned for the node must not share it. The scheduler's own filter sees that only once
// one of them is there, and then the other would have no place.
func (n *node) apart(p *pod, ask *Ask) string {
	if len(ask.Apart) == 0 || p != nil && p.slot != nil && p.slot.node == n {
		return "" // or its own place was planned with the others in mind
	}
	for _, s := range n.slots {
		if ask.Apart[s.class.Key] && s.class.Priority >= ask.Class.Priority {
			return Apart
		}
	}
	return ""
}

// attachments says which driver's volumes the pod would take from others. A driver whose CSINode states no number has no limit.
func (n *node) attachments(p *pod, ask *capacity.Class, on Amounts) string {
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
			if class, ok := capacity.StorageClassOf(driver); ok {
				return fmt.Sprintf("storage of class %s is kept for pods planned for the node", class)
			}
			return fmt.Sprintf("attachments of %s are kept for pods planned for the node", driver)
		}
	}
	return ""
}

// InFlight is a node with its promises, for the next plan.
type InFlight struct {
	Claim, Name string
	Template    *capacity.Node
	Cached      bool
	Fenced      bool
	Late        bool
	Initialized bool
	Managed     bool
	Slots       []Promise
	Daemons     map[string]capacity.Resources
}

// Promise is a slot: room for one pod of a class. UID is the pod when it is settled, Owner who it is held for until one comes.
type Promise struct {
	Class *capacity.Class
	UID   types.UID
	Owner types.UID
}

// InFlight lists every node the ledger knows, in no order.
func (l *Ledger) InFlight() []InFlight {
	out := make([]InFlight, 0, len(l.nodes))
	for _, n := range l.nodes {
		f := InFlight{Claim: n.claim, Name: n.name, Template: n.template, Cached: n.cached, Fenced: n.fenced, Late: n.late,
			Initialized: n.status.Initialized, Managed: n.status.Managed, Daemons: maps.Clone(n.daemons)}
		for _, s := range n.slots {
			pr := Promise{Class: s.class.Class, Owner: s.owner}
			if s.pod != nil {
				pr.UID = s.pod.ref.UID
			}
			f.Slots = append(f.Slots, pr)
		}
		out = append(out, f)
	}
	return out
}
