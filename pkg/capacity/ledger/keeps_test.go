package ledger

import (
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A DaemonSet's pod preempts the pod that a node was launched for. While it is being bound, nothing holds up the verdict on the node, or
// the next one is bought before it is known that this one failed; a pod of any other kind may be what the node is for.
func TestDaemonsBeingBoundKeepNoNode(t *testing.T) {
	for _, daemon := range []bool{true, false} {
		l := New()
		l.AddNode("claim", &capacity.Node{}, nil, true, epoch)
		l.Named("claim", "node", "id")
		l.Cached("node", NodeStatus{ProviderID: "id", Managed: true}, epoch)
		if why := l.Assume("pod", "node", daemon); why != nil {
			t.Fatal(why)
		}
		if got := l.Keeps([]string{"claim", "unknown"}); got["claim"] == daemon || got["unknown"] {
			t.Errorf("daemon=%t: kept: %v", daemon, got)
		}
		if !l.BindsInFlight("node") {
			t.Errorf("daemon=%t: nobody would wait for the pod that is being bound", daemon)
		}
		l.Settled("pod", "node")
		if l.Keeps([]string{"claim"})["claim"] || l.BindsInFlight("node") {
			t.Errorf("daemon=%t: the binding has ended, and the node is kept", daemon)
		}
	}
}
