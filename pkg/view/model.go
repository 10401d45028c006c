package view

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/explain"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Model is all that the page shows of one look at the cluster. Times are milliseconds since 1970, durations milliseconds, prices $/h.
type Model struct {
	Head     Head
	Nodes    []Node // by pool, the dearest first
	Timeline []Entry
	History  []Point
}

// Head is what stands above the nodes.
type Head struct {
	// Process is random, and the same while one 'dovetail view' runs. A page that another process has served is loaded again.
	Process string `json:"process"`
	// At is when the cluster was looked at, ReadAt when 'dovetail view' had read it: it differs only if what it reads is a file. Interval is how often it looks
	// if nothing prevents it.
	At       int64 `json:"at"`
	ReadAt   int64 `json:"readAt"`
	Interval int64 `json:"interval"`
	// PerHour is what the nodes cost, without Unpriced nodes.
	PerHour  float64 `json:"perHour"`
	Unpriced int     `json:"unpriced"`
	// Bound is what the pods of Managed nodes cost at least, ManagedPerHour what these nodes cost; 0: not known. BoundAt is when the look was that they
	// come from; 0: they are of this one. NotCounted says which pods the bound leaves out, so that the two can't be compared; NoBound why there is none.
	Bound          float64 `json:"bound"`
	NotCounted     string  `json:"notCounted"`
	NoBound        string  `json:"noBound"`
	BoundAt        int64   `json:"boundAt"`
	Managed        int     `json:"managed"`
	ManagedPerHour float64 `json:"managedPerHour"`
	// NodeCount is the number of nodes, Running of pods with a node, NoSuchNode of those on nodes that don't exist, and WaitingPods of those without one.
	NodeCount   int       `json:"nodeCount"`
	Running     int       `json:"running"`
	NoSuchNode  int       `json:"noSuchNode"`
	WaitingPods int       `json:"waitingPods"`
	Waiting     []Waiting `json:"waiting"`
	HeldBack    []string  `json:"heldBack"`
	Notes       []string  `json:"notes"`
	// Problem is why the cluster can't be read, Since since when; empty: it can.
	Problem string `json:"problem"`
	Since   int64  `json:"since"`
}

// Waiting is pods that wait for the same reason, First one of them.
type Waiting struct {
	Reason string `json:"reason"`
	Pods   int    `json:"pods"`
	First  string `json:"first"`
	Oldest int64  `json:"oldest"` // since when it waits, rounded to a second; 0: not known
}

// Node is a node, or a NodeClaim without one yet. It is compared by ==.
type Node struct {
	Name         string  `json:"name"`
	Pool         string  `json:"pool"`
	Type         string  `json:"type"`
	Zone         string  `json:"zone"`
	CapacityType string  `json:"capacityType"`
	State        string  `json:"state"`
	Created      int64   `json:"created"`
	Price        float64 `json:"price"`
	Priced       bool    `json:"priced"`
	Pods         int     `json:"pods"`
	CPU          Bar     `json:"cpu"`    // millicores
	Memory       Bar     `json:"memory"` // bytes
	Boot         Boot    `json:"boot"`
}

// Bar is what a node's allocatable capacity of one resource is used for. Parts of an overcommitted node add up to more than Total.
type Bar struct {
	Total    int64 `json:"total"`
	Bound    int64 `json:"bound"`    // pods on it, without those of DaemonSets
	Daemons  int64 `json:"daemons"`  // pods of DaemonSets on it
	Reserved int64 `json:"reserved"` // pods for which it is launched or that are planned there, also those of a node that is being replaced
	Kept     int64 `json:"kept"`     // for pods of DaemonSets that are still to come
	Free     int64 `json:"free"`
}

// ModelOf returns what the page shows. Nodes and money are those of o, which must be c's.
func ModelOf(c *explain.Cluster, o *explain.Overview, notes []string) *Model {
	m := &Model{Head: headOf(c, o, notes), Timeline: timelineOf(c)}
	claims := map[string]*karpv1.NodeClaim{} // by the name that o uses
	for _, nc := range manifest.All[*karpv1.NodeClaim](c.Set) {
		claims[nc.Name] = nc
		if nc.Status.NodeName != "" {
			claims[nc.Status.NodeName] = nc
		}
	}
	daemons := daemonPods(c)
	typical := typicalOf(manifest.All[*karpv1.NodeClaim](c.Set))
	for i := range o.Nodes {
		use := &o.Nodes[i]
		nc := claims[use.Name]
		n := Node{Name: use.Name, Pool: use.Pool, Type: use.Type, Zone: use.Zone, CapacityType: use.CapacityType, State: use.State,
			Created: millis(use.Created), Price: use.Price, Priced: use.Priced, Pods: use.Pods}
		if nc != nil && !isTrue(nc, karpv1.ConditionTypeInitialized) && nc.DeletionTimestamp.IsZero() {
			n.Boot = typical.boot(nc)
		}
		n.CPU = barOf(corev1.ResourceCPU, use, nc, daemons[use.Name])
		n.Memory = barOf(corev1.ResourceMemory, use, nc, daemons[use.Name])
		m.Nodes = append(m.Nodes, n)
	}
	return m
}

func headOf(c *explain.Cluster, o *explain.Overview, notes []string) Head {
	h := Head{At: millis(c.Now), PerHour: o.PerHour, Unpriced: o.Unpriced,
		NodeCount: len(o.Nodes), Running: o.Running, NoSuchNode: o.NoSuchNode, HeldBack: o.HeldBack, Notes: notes}
	h.putBound(&o.Least)
	for _, w := range o.Waiting {
		oldest := int64(0)
		if w.Oldest > 0 {
			oldest = millis(c.Now.Add(-w.Oldest).Round(time.Second))
		}
		h.Waiting = append(h.Waiting, Waiting{Reason: w.Reason, Pods: w.Pods, First: w.First, Oldest: oldest})
		h.WaitingPods += w.Pods
	}
	return h
}

// putBound puts in what the pods cost at least.
func (h *Head) putBound(l *explain.Least) {
	h.Bound, h.NotCounted, h.NoBound, h.Managed, h.ManagedPerHour = l.Bound, l.NotCounted, l.NoBound, l.Managed, l.ManagedPerHour
	if h.BoundAt = millis(l.BoundAt); h.BoundAt == h.At {
		h.BoundAt = 0
	}
}

// comparable is the bound that may be drawn beside the cost of all nodes; 0: there is none.
func (h *Head) comparable() float64 {
	if h.NotCounted != "" {
		return 0
	}
	return h.Bound
}

// daemonPods returns what pods of DaemonSets request, by node.
func daemonPods(c *explain.Cluster) map[string]corev1.ResourceList {
	out := map[string]corev1.ResourceList{}
	for _, pod := range manifest.All[*corev1.Pod](c.Set) {
		name := pod.Spec.NodeName
		if name == "" || !objects.OfDaemonSet(pod) || objects.Ended(pod) {
			continue
		}
		if out[name] == nil {
			out[name] = corev1.ResourceList{}
		}
		explain.Add(out[name], resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
	}
	return out
}

// barOf splits a node's capacity.
func barOf(name corev1.ResourceName, use *explain.NodeUse, nc *karpv1.NodeClaim, daemons corev1.ResourceList) Bar {
	amount := func(of corev1.ResourceList) int64 {
		q := of[name]
		if name == corev1.ResourceCPU {
			return q.MilliValue()
		}
		return q.Value()
	}
	b := Bar{Total: amount(use.Allocatable), Daemons: amount(daemons), Reserved: amount(use.Reserved), Kept: amount(use.Kept)}
	b.Bound = amount(use.Requested) - b.Daemons
	if b.Total == 0 && nc != nil { // nothing is launched yet: what was asked for is all that is known
		b.Total = max(amount(nc.Spec.Resources.Requests), b.Bound+b.Daemons+b.Reserved+b.Kept)
	}
	b.Free = max(b.Total-b.Bound-b.Daemons-b.Reserved-b.Kept, 0)
	return b
}

func isTrue(nc *karpv1.NodeClaim, condition string) bool { return !when(nc, condition).IsZero() }

// when returns since when a condition is true; zero: it isn't.
func when(nc *karpv1.NodeClaim, condition string) time.Time {
	for i := range nc.Status.Conditions {
		if c := &nc.Status.Conditions[i]; c.Type == condition && c.IsTrue() {
			if c.LastTransitionTime.IsZero() { // written by hand
				return nc.CreationTimestamp.Time.Add(time.Nanosecond)
			}
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Boot is how far a starting node has come. Typical is how long nodes of its kind take to be initialized, 0 if none of this cluster has
// been; Of is how many nodes that is the median of.
type Boot struct {
	Stage   string `json:"stage"` // Creating, Launched, Registered; empty: it doesn't start
	Typical int64  `json:"typical"`
	Of      int    `json:"of"`
}

// typical is how long nodes took from their NodeClaim to being initialized, by pool, and "" for all.
type typical map[string][]time.Duration

// fewest is how many nodes of a pool must have started before they count as typical of it.
const fewest = 3

func typicalOf(claims []*karpv1.NodeClaim) typical {
	t := typical{}
	for _, nc := range claims {
		if at := when(nc, karpv1.ConditionTypeInitialized); !at.IsZero() && !nc.CreationTimestamp.IsZero() {
			took := at.Sub(nc.CreationTimestamp.Time)
			pool := nc.Labels[karpv1.NodePoolLabelKey]
			if t[""] = append(t[""], took); pool != "" {
				t[pool] = append(t[pool], took)
			}
		}
	}
	for _, all := range t {
		slices.SortFunc(all, cmp.Compare)
	}
	return t
}

func (t typical) boot(nc *karpv1.NodeClaim) Boot {
	b := Boot{Stage: "Creating"}
	for _, stage := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered} {
		if isTrue(nc, stage) {
			b.Stage = stage
		}
	}
	all := t[nc.Labels[karpv1.NodePoolLabelKey]]
	if len(all) < fewest {
		all = t[""]
	}
	if len(all) > 0 {
		b.Typical, b.Of = all[len(all)/2].Milliseconds(), len(all)
	}
	return b
}
