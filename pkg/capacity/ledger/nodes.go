package ledger

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/nodestatus"
)

type node struct {
	key, name string // key in Ledger.nodes; name of the Node object, "" until it is known
	// arrival is the node's position in the order in which nodes were added.
	arrival int
	claim   string
	// providerID is what the Node must have. A Node of the same name that belongs to another instance is not this node.
	providerID string
	// template is the node as it was planned, for plans made while it is in flight.
	template   *capacity.Node
	launched   bool // an instance exists or may exist: the claim can no longer be cancelled
	launchedAt time.Time
	// recovered: it was launched before this process began, and launchedAt is when this process learned of it.
	recovered bool
	// cached: the scheduler's cache has the Node; status is what it shows.
	cached bool
	status NodeStatus
	slots  []*slot
	// chunks yield to all pods, so they are not among the slots.
	chunks []*chunk
	// reserved is the sum of the slots' requests per priority.
	reserved map[int32]capacity.Resources
	// daemons are the DaemonSets whose pods will be bound to the node and have not been yet. Most DaemonSet pods are created only when
	// the node is Ready and without startup taints, which is when it is initialized; after that, capacity for them is kept for
	// daemonGrace, until daemonsEnd.
	daemons    map[string]capacity.Resources
	daemonsEnd time.Time
	// turned are DaemonSet pods that the ledger kept off the node, rejectedPods other such pods; they are activated later (see TurnAway).
	turned, rejectedPods map[types.UID]capacity.PodRef
	// fenced: the node is cordoned, nothing may go there. closed: its removal has begun and can't be undone (see Close).
	fenced, closed bool
	// nameTaken: the Node that has the name now belongs to another instance and is being removed.
	nameTaken bool
	// others: pods were bound here that were not planned here.
	others bool
	// late: the node has not registered in time; it gets no further pods.
	late bool
	// used: a pod was bound here, planned or not.
	used bool
	// served: a pod was bound to its reservation here.
	served bool
	// unneededSince is when the plan that the node was launched for was given up, or when its end was last requested; zero: neither.
	unneededSince time.Time
	// endRequested: Effects.End has requested the node's end.
	endRequested bool
	// took are the classes of pods that were bound here before the kubelet registered. If it never does, class.lost counts that for each of them.
	took map[capacity.ClassKey]*capacity.Class
	// meant are the classes of all pods that were ever planned on this node, bound or not.
	meant map[capacity.ClassKey]*capacity.Class
	// tainted are the taints that Effects.Tainted has listed for this node, so that each is listed once.
	tainted []corev1.Taint
	// surprises are NoExecute taints of others (capacity.OthersTaint) that appeared when the kubelet had been Ready without them.
	surprises []corev1.Taint
	// planned is the memory in bytes of the DaemonSets and of all pods that were planned here, bound ones among them.
	planned int64
	// fitted: the kubelet has posted how much memory there is, and fitMemory has dropped the slots that it is too little for.
	fitted bool
}

// daemonGrace is how long capacity for a DaemonSet's pod is kept on an initialized node where the pod is missing. It is long because the
// DaemonSet controller creates its pods at the rate of its client's limits.
const daemonGrace = time.Minute

// NodeStatus is what the scheduler's cache shows of a Node.
type NodeStatus = nodestatus.Status

// AddNode adds a node that is to be launched or (after a restart) is being launched, under its claim's name.
func (l *Ledger) AddNode(claim string, template *capacity.Node, daemons map[string]capacity.Resources, launched bool, now time.Time) {
	n := l.node(claim)
	n.claim, n.template, n.launched, n.launchedAt = claim, template, launched, now
	n.daemons = daemons
	for _, d := range daemons {
		n.planned += d[corev1.ResourceMemory]
	}
}

// RecoverNode is AddNode for a node that was launched before this process began. Its time limits start now: its kubelet may have
// registered meanwhile, and the ledger hasn't seen the Node yet.
func (l *Ledger) RecoverNode(claim string, template *capacity.Node, daemons map[string]capacity.Resources, now time.Time) {
	l.AddNode(claim, template, daemons, true, now)
	l.nodes[claim].recovered = true
}

// Has reports whether the ledger has the claim's node.
func (l *Ledger) Has(claim string) bool { return l.nodes[claim] != nil }

// find returns the node with that key or name, or nil.
func (l *Ledger) find(key string) *node {
	if n, ok := l.nodes[key]; ok {
		return n
	}
	return l.byName[key]
}

func (l *Ledger) node(key string) *node {
	if n := l.find(key); n != nil {
		return n
	}
	l.arrivals++
	n := &node{key: key, arrival: l.arrivals, reserved: map[int32]capacity.Resources{}, meant: map[capacity.ClassKey]*capacity.Class{}}
	l.nodes[key] = n
	l.everyNode.Add(n)
	return n
}

// Launching records that the call that launches the claim's instance is about to be made, so that the claim can't be cancelled any more.
// It returns false if no pod needs the claim any more; then it must not be launched.
func (l *Ledger) Launching(claim string, now time.Time) bool {
	n, ok := l.nodes[claim]
	if !ok || n.idle() {
		return false
	}
	n.launched, n.launchedAt = true, now
	return true
}

// Named records the name and the provider id that the claim's Node will have. It is called before the Node is created.
func (l *Ledger) Named(claim, name, providerID string) {
	n, ok := l.nodes[claim]
	if !ok {
		return
	}
	if n.name != "" && n.name != name {
		// It was expected under another name: what was seen there was not this node.
		if l.byName[n.name] == n {
			delete(l.byName, n.name)
		}
		n.cached, n.status = false, NodeStatus{}
		l.unready(n.slots...)
	}
	n.name, n.providerID = name, providerID
	other := l.byName[name]
	l.byName[name] = n
	if other != nil && other != n && n.is(NodeStatus{ProviderID: other.machine()}) {
		// The Node was seen before its name was recorded (after a restart): what is known of it belongs to the claim's node.
		n.cached, n.status, n.fenced, n.closed = other.cached, other.status, other.fenced, other.closed
		n.turned, n.rejectedPods, other.turned, other.rejectedPods = other.turned, other.rejectedPods, nil, nil
		for _, s := range slices.Clone(other.slots) {
			other.remove(s)
			s.node = n
			n.add(s)
		}
		n.planned += other.planned
		maps.Copy(n.meant, other.meant)
		for _, c := range other.chunks {
			c.node = n
			n.chunks = append(n.chunks, c)
		}
		delete(l.nodes, other.key)
	} else if other != nil && other != n && other.claim == "" && other.idle() {
		l.leave(other) // the node of an earlier instance with that name
		n.nameTaken = other.closed
	}
	l.openNode(n)
}

// IsNamed reports whether the claim's node has that name, or the ledger doesn't have the claim.
func (l *Ledger) IsNamed(claim, name string) bool {
	n, ok := l.nodes[claim]
	return !ok || n.name == name
}

// machine returns the provider id of the node's instance, or "" if it isn't known.
func (n *node) machine() string { return cmp.Or(n.providerID, n.status.ProviderID) }

// is reports whether the status can belong to this node's instance: the provider ids are equal, or one of them isn't known.
func (n *node) is(st NodeStatus) bool {
	return n.providerID == "" || st.ProviderID == "" || n.providerID == st.ProviderID
}

// Cached records that the Node was added to the scheduler's cache or has changed there.
func (l *Ledger) Cached(name string, st NodeStatus, now time.Time) {
	n, ok := l.byName[name]
	if ok && n.closed && !n.is(st) {
		l.releaseName(n) // another instance has its name
		ok = false
	}
	if ok && !n.is(st) {
		return
	}
	if !ok {
		if n, ok = l.nodes[name]; !ok {
			if !st.Managed || st.Initialized {
				return
			}
			n = l.node(name)
		}
		n.name = name
		l.byName[name] = n
	}
	if st.Registered && !n.status.Registered && n.cached {
		l.booted(n, now)
	}
	if st.Initialized && !n.status.Initialized {
		l.recallUnknown(n)
	}
	n.surprises = append(n.surprises, n.status.Surprises(&st)...)
	n.cached, n.status, n.nameTaken = true, st, false
	if st.Memory.Posted && !n.fitted {
		l.fitMemory(n, now)
	}
	if st.Registered {
		l.came(n)
	}
	n.late = n.late && !st.Registered
	l.notice(n)
	if st.Initialized && len(n.daemons) > 0 && n.daemonsEnd.IsZero() {
		n.daemonsEnd = now.Add(daemonGrace)
	}
	l.unready(slices.DeleteFunc(slices.Clone(n.slots), func(s *slot) bool { return !s.ready || s.waits() == nil })...)
	l.openNode(n)
	l.tidy(n)
}

// Existing adds a Node that is in the scheduler's cache and about to be planned on.
func (l *Ledger) Existing(name string, st NodeStatus) {
	n, ok := l.byName[name]
	if !ok {
		n = l.node(name)
		n.name = name
		l.byName[name] = n
	}
	if n.claim == "" && !n.cached { // new, or known only because it is fenced
		n.cached, n.status = true, st
	}
}

// DaemonBound records that the DaemonSet's pod was bound to the node.
func (l *Ledger) DaemonBound(name, daemon string) {
	if n, ok := l.byName[name]; ok {
		delete(n.daemons, daemon)
		if n.status.Initialized {
			l.tidy(n)
		}
	}
}

// Daemons sets which DaemonSets' pods the claim's node has yet to get.
func (l *Ledger) Daemons(claim string, daemons map[string]capacity.Resources) {
	if n, ok := l.nodes[claim]; ok {
		n.daemons = daemons
		if n.status.Initialized {
			l.tidy(n)
		}
	}
}

// Uncached records that the scheduler's cache has lost the Node. The slots of a claim's node wait for the Node to return; if it doesn't,
// the claim's own end drops them (ClaimGone).
func (l *Ledger) Uncached(name, providerID string, now time.Time) {
	n, ok := l.byName[name]
	if !ok {
		return
	}
	n.nameTaken = false
	if !n.is(NodeStatus{ProviderID: providerID}) {
		return
	}
	if n.status.Initialized { // an initialized node waits for nothing more
		n.daemons = nil
		if l.tidy(n); l.nodes[n.key] != n {
			return
		}
	}
	n.cached, n.status = false, NodeStatus{}
	n.closed = n.closed && n.claim != "" // if its removal has begun, nothing may go there until its NodeClaim is gone
	n.fenced = n.closed
	if n.claim == "" {
		l.lose(n, "the node was deleted", true, now)
		return
	}
	l.unready(n.slots...)
	l.tidy(n)
}

// unready marks slots as not usable any more. Where more pods of a class are open than it has slots for now, those planned last are Planned again.
func (l *Ledger) unready(slots ...*slot) {
	first := map[*class]*slot{}
	for _, s := range slots {
		if !s.ready {
			continue
		}
		if p := s.pod; p != nil {
			p.slot, s.pod = nil, nil
			p.list()
		}
		s.set(false)
		first[s.class] = cmp.Or(first[s.class], s)
	}
	for c, s := range first {
		back := slices.Clone(c.open[min(len(c.free), len(c.open)):])
		for _, p := range slices.Backward(back) {
			l.become(p, Planned)
			p.why = waitReason(s)
		}
		c.waiting = slices.Insert(c.waiting, 0, back...)
	}
}

// remove removes a slot from the node.
func (n *node) remove(s *slot) {
	i := slices.Index(n.slots, s)
	if i < 0 {
		return
	}
	n.slots = slices.Delete(n.slots, i, i+1)
	sum := n.reserved[s.class.Priority]
	sum.Sub(s.class.Requests)
	if !slices.ContainsFunc(n.slots, func(o *slot) bool { return o.class.Priority == s.class.Priority }) {
		delete(n.reserved, s.class.Priority)
	}
}

func (n *node) add(s *slot) {
	n.slots = append(n.slots, s)
	n.intend(s.class.Class)
	sum, ok := n.reserved[s.class.Priority]
	if !ok {
		sum = capacity.Resources{}
		n.reserved[s.class.Priority] = sum
	}
	sum.Add(s.class.Requests, 1)
}

// intend notes that pods of the class are to use the node.
func (n *node) intend(c *capacity.Class) {
	n.meant[c.Key] = c
}

// keptFor reports whether a pod is being bound to its slot on the node: if that fails, the pod gets the slot back.
func (l *Ledger) keptFor(n *node) bool {
	for uid := range l.assumed[n.name] {
		if p := l.pods[uid]; p != nil && p.slot != nil && p.slot.node == n {
			return true
		}
	}
	return false
}

// tidy forgets a node that nothing depends on, and cancels a claim that no pod needs and that was not launched.
func (l *Ledger) tidy(n *node) {
	if !n.idle() || n.fenced || n.status.Initialized && len(n.daemons) > 0 || l.keptFor(n) {
		return
	}
	switch {
	case n.claim != "" && !n.launched && !n.cached:
		l.out.Cancel = append(l.out.Cancel, n.claim)
	case n.cached && n.status.Managed && !n.status.Initialized: // watched until it is initialized
		return
	case n.claim != "" && !n.cached: // launched: its capacity can be used by later plans
		return
	}
	l.leave(n)
	if n.name != "" && l.byName[n.name] == n {
		delete(l.byName, n.name)
	}
}
