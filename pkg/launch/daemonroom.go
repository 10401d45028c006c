package launch

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// DaemonsChanged tells the Launcher that DaemonSets have been added or removed, or that the requests of their next pods have changed, so that
// the capacity reserved for them on nodes in flight is adjusted. frees: refused pods may fit now. A pod that no longer fits on its node in
// flight is rejected by the filters in its own scheduling cycle and planned for again.
func (m *Launcher) DaemonsChanged(frees bool) {
	if m.reservations.Idle() {
		return
	}
	m.daemonsMoved.Store(true)
	m.replan()
	if frees {
		m.changes.Add(1)
		m.reopen()
	}
}

// keepDaemonRoom adjusts the capacity that nodes in flight reserve for DaemonSet pods to the DaemonSets there are now.
func (m *Launcher) keepDaemonRoom(ctx context.Context) {
	if !m.daemonsMoved.Swap(false) {
		return
	}
	var flights []ledger.InFlight
	m.reservations.read(func(l *ledger.Ledger) { flights = l.InFlight() })
	missing := m.missingDaemons(ctx)
	m.reservations.Step(func(l *ledger.Ledger, _ time.Time) {
		for i := range flights {
			if f := &flights[i]; f.Claim != "" && f.Template != nil && (!f.Initialized || len(f.Daemons) > 0) {
				l.Daemons(f.Claim, daemonRoom(missing(f.Name, f.Template.Labels, f.Template.Taints)))
			}
		}
	})
}

// missingDaemons returns a func that lists the DaemonSets whose pods will run on one of our nodes and don't yet. An empty node name means
// that there is no Node yet.
func (m *Launcher) missingDaemons(ctx context.Context) func(node string, labels map[string]string, taints []corev1.Taint) []*capacity.DaemonSet {
	there := map[string]map[string]bool{} // by node, then by namespace/name
	if err := m.world.Refresh(ctx); err != nil {
		m.log(ctx).V(2).Info("Could not look for DaemonSet pods; their capacity stays reserved for now", "err", err)
	} else {
		m.world.Nodes(func(n *capacity.Node, _ *corev1.Node) *capacity.Node {
			there[n.Name] = map[string]bool{}
			for _, pod := range n.Pods {
				if key := objects.DaemonSetKey(pod); key != "" {
					there[n.Name][key] = true
				}
			}
			return n
		})
	}
	daemons := m.daemons()
	return func(node string, labels map[string]string, taints []corev1.Taint) (out []*capacity.DaemonSet) {
		for _, d := range daemons {
			if d.RunsOn(labels, taints) && !there[node][d.Namespace+"/"+d.Name] {
				out = append(out, d)
			}
		}
		return out
	}
}
