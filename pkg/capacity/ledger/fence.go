package ledger

import "time"

// Fence cordons the node in the ledger: no pod may go there from now on. It returns false, and does nothing, if pods are planned for the
// node or are being bound to it, or if it has chunks of CapacityBuffers (see GiveUpChunks).
func (l *Ledger) Fence(name string) bool {
	n, ok := l.byName[name]
	if ok && !n.idle() || len(l.assumed[name]) > 0 {
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

// Unfence lifts the cordon, unless the node's removal has begun meanwhile.
func (l *Ledger) Unfence(name string) {
	if n, ok := l.byName[name]; ok && !n.closed {
		n.fenced = false
		l.openNode(n) // a plan made before Fence may have been booked meanwhile
		l.tidy(n)
	}
}

// Close records that the removal of a Node has begun, which can't be undone. st is what the scheduler's cache shows of that Node. The Node
// is fenced until it is gone or another instance has its name, and what is reserved there is planned again. Close reports whether pods that
// were assumed before are still being bound there. It may be called repeatedly.
func (l *Ledger) Close(name string, st NodeStatus, now time.Time) (bindsInFlight bool) {
	bindsInFlight = l.BindsInFlight(name)
	n, ok := l.byName[name]
	switch {
	case ok && (!n.is(st) || n.providerID != "" && st.ProviderID == ""):
		// A claim's node is to get this name. A Node without a provider id may belong to an earlier instance, so the claim's own node
		// isn't fenced for it.
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
	l.lose(n, "its node is being removed", true, now)
	return bindsInFlight
}

// BindsInFlight reports whether pods are being bound to the node.
func (l *Ledger) BindsInFlight(name string) bool { return len(l.assumed[name]) > 0 }

// closedTo reports whether the node is being removed and must not take the pod. An initialized node that is being removed may take long
// to drain and needs its DaemonSet pods until then; other filters check whether these tolerate its taints.
func (n *node) closedTo(daemon bool) bool {
	return n.fenced && !(daemon && n.closed && n.status.Initialized) || n.nameTaken
}

// releaseName removes the name from a node that is being removed, because another instance has the name now.
func (l *Ledger) releaseName(n *node) {
	delete(l.byName, n.name)
	if n.claim == "" {
		l.leave(n)
		return
	}
	n.name, n.cached, n.status = "", false, NodeStatus{} // it stays fenced until its claim is gone
}
