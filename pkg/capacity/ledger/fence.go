package ledger

import "time"

// Fence keeps everything off the node from now on, unless something is planned for it or on its way there.
func (l *Ledger) Fence(name string) bool {
	n, ok := l.byName[name]
	if ok && len(n.slots) > 0 || len(l.assumed[name]) > 0 {
		return false
	}
	if !ok {
		n = l.node(name)
		n.name = name
		l.byName[name] = n
	}
	n.fenced = true
	return true
}

// Unfence ends a fence, unless the node's end has begun meanwhile.
func (l *Ledger) Unfence(name string) {
	if n, ok := l.byName[name]; ok && !n.closed {
		n.fenced = false
		l.openNode(n) // a plan made before the fence may have been booked under it
		l.tidy(n)
	}
}

// Close says that the end of a Node has begun, which nobody takes back: the one that the scheduler's cache shows with this
// status. It is fenced until it has gone, or another machine has its name, and what is promised there is planned anew. It
// answers whether pods that were assumed before are still being bound there. It may be said again and again.
func (l *Ledger) Close(name string, st NodeStatus, now time.Time) (bindsInFlight bool) {
	bindsInFlight = l.BindsInFlight(name)
	n, ok := l.byName[name]
	switch {
	case ok && (!n.is(st) || n.providerID != "" && st.ProviderID == ""):
		// A claim waits for the name. A Node that doesn't say whose it is may be an earlier machine's: the claim's own isn't fenced for it.
		n.nameTaken = true
		return bindsInFlight
	case ok && n.closed:
		return bindsInFlight
	case !ok:
		n = l.node(name)
		n.name = name
		l.byName[name] = n
	}
	n.cached, n.status, n.providerID = true, st, st.ProviderID
	n.fenced, n.closed = true, true
	l.lose(n, "its node is ending", true, now)
	return bindsInFlight
}

// BindsInFlight says whether pods are being bound to the node.
func (l *Ledger) BindsInFlight(name string) bool { return len(l.assumed[name]) > 0 }

// closedTo says that the pod may not go to the node because that is being removed. A node that was up and ends may take long to drain,
// and needs its daemons until then; whether they bear its taints is for other filters to say.
func (n *node) closedTo(daemon bool) bool {
	return n.fenced && !(daemon && n.closed && n.status.Initialized) || n.nameTaken
}

// releaseName takes its name from a node that ends.
func (l *Ledger) releaseName(n *node) {
	delete(l.byName, n.name)
	if n.claim == "" {
		l.leave(n)
		return
	}
	n.name, n.cached, n.status = "", false, NodeStatus{} // it stays fenced until the claim has gone
}
