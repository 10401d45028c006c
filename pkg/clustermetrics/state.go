package clustermetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

var (
	synced = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "cluster_state", Name: "synced",
		Help: "1 if NodeClaims can be read and are known, otherwise 0: nothing is launched then."})
	unsynced = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "cluster_state", Name: "unsynced_time_seconds",
		Help: "For how long NodeClaims have not been known completely; 0: they are."})
	nodeCount = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "cluster_state", Name: "node_count",
		Help: "Nodes, and instances that have no Node yet."})

	queueDepth = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "scheduler", Name: "queue_depth",
		Help: "Pods that wait to be planned for."}, "controller")
	unschedulable = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "scheduler", Name: "unschedulable_pods_count",
		Help: "Pods for which no node can be launched."}, "controller")
	podsWaiting = newGauge(prometheus.Opts{Namespace: "dovetail", Name: "pods",
		Help: "Pods that wait, by state: queued (for the next plan), planned (their node is being launched or is booting), open (they may be bound), assumed (they are being bound), refused (no node can be launched for them)."}, "state")
	nodesInFlight = newGauge(prometheus.Opts{Namespace: "dovetail", Name: "nodes_in_flight",
		Help: "Nodes that pods can't use fully yet, by pool and state: launching, booting (the kubelet has not registered), initializing."}, "nodepool", "state")
)

// clusterState adds whether the cluster's state is known.
func (s *state) clusterState(l *list, claims []*capacity.Claim, now time.Time) {
	known := s.source.Problem() == nil
	if known {
		s.since = now
		l.add(synced, nil, 1)
	} else {
		l.add(synced, nil, 0)
	}
	l.add(unsynced, nil, now.Sub(s.since).Seconds())
	n := 0
	for _, c := range claims {
		if !c.Launched {
			continue
		}
		if _, err := s.source.Nodes.Get(c.NodeName); err != nil {
			n++
		}
	}
	l.add(nodeCount, nil, float64(n+s.nodes()))
}

func (s *state) nodes() int {
	all, err := s.source.Nodes.List(everything)
	if err != nil {
		return 0 // a cache doesn't fail
	}
	return len(all)
}

// waiting adds the pods that the ledger knows.
func waiting(l *list, of ledger.Summary) {
	controller := pairs("controller", "provisioner")
	l.add(queueDepth, controller, float64(of.Pods[ledger.Queued.String()]))
	l.add(unschedulable, controller, float64(of.Pods[ledger.Refused.String()]))
	for _, s := range []ledger.State{ledger.Queued, ledger.Planned, ledger.Open, ledger.Assumed, ledger.Refused} {
		l.add(podsWaiting, pairs("state", s.String()), float64(of.Pods[s.String()]))
	}
}

// states of nodes in flight.
var states = []string{"launching", "booting", "initializing"}

// inFlight adds the nodes that aren't initialized.
func inFlight(l *list, claims []*capacity.Claim) {
	byPool := map[string]map[string]int{}
	for _, c := range claims {
		if byPool[c.Pool] == nil {
			byPool[c.Pool] = map[string]int{}
		}
		switch {
		case c.Deleting || c.Initialized:
		case c.Registered:
			byPool[c.Pool][states[2]]++
		case c.Launched:
			byPool[c.Pool][states[1]]++
		default:
			byPool[c.Pool][states[0]]++
		}
	}
	for pool, n := range byPool {
		for _, state := range states {
			l.add(nodesInFlight, pairs("nodepool", pool, "state", state), float64(n[state]))
		}
	}
}
