package provisioning

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// DaemonCapacity keeps the capacity that nodes in flight reserve for DaemonSet pods. It belongs to the planner's goroutine.
type DaemonCapacity struct {
	reservations *reservations.Ledger
	world        World
	daemons      func() []*capacity.DaemonSet
	triggers     *Triggers
}

// keep adjusts the capacity that nodes in flight reserve for DaemonSet pods to the DaemonSets there are now.
func (da *DaemonCapacity) keep(ctx context.Context) {
	if !da.triggers.daemonsMoved.Swap(false) {
		return
	}
	var flights []ledger.InFlight
	da.reservations.Read(func(l ledger.Reader) { flights = l.InFlight() })
	missing := da.Missing(ctx)
	da.reservations.Step(func(l *ledger.Ledger, _ time.Time) {
		for i := range flights {
			if f := &flights[i]; f.Claim != "" && f.Template != nil && (!f.Initialized || len(f.Daemons) > 0) {
				l.Daemons(f.Claim, DaemonRequests(missing(f.Name, f.Template.Labels, f.Template.Taints)))
			}
		}
	})
}

// Missing returns a func that lists the DaemonSets whose pods will run on one of our nodes and don't yet. An empty node name means
// that there is no Node yet.
func (da *DaemonCapacity) Missing(ctx context.Context) func(node string, labels map[string]string, taints []corev1.Taint) []*capacity.DaemonSet {
	there := map[string]map[string]bool{} // by node, then by namespace/name
	if err := da.world.Refresh(ctx); err != nil {
		klog.FromContext(ctx).V(2).Info("Could not look for DaemonSet pods; their capacity stays reserved for now", "err", err)
	} else {
		da.world.Nodes(func(n *capacity.Node, _ *corev1.Node) *capacity.Node {
			there[n.Name] = map[string]bool{}
			for _, pod := range n.Pods {
				if key := objects.DaemonSetKey(pod); key != "" {
					there[n.Name][key] = true
				}
			}
			return n
		})
	}
	daemons := da.daemons()
	return func(node string, labels map[string]string, taints []corev1.Taint) (out []*capacity.DaemonSet) {
		for _, d := range daemons {
			if d.RunsOn(labels, taints) && !there[node][d.Namespace+"/"+d.Name] {
				out = append(out, d)
			}
		}
		return out
	}
}

// DaemonRequests returns what the pods of DaemonSets request, by namespace and name.
func DaemonRequests(daemons []*capacity.DaemonSet) map[string]capacity.Resources {
	if len(daemons) == 0 {
		return nil
	}
	out := make(map[string]capacity.Resources, len(daemons))
	for _, d := range daemons {
		out[d.Namespace+"/"+d.Name] = d.Class.Requests
	}
	return out
}
