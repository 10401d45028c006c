package provisioning

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/buffers"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/commitments"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/limits"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// viewer takes views of the cluster for plans. It belongs to the planner's goroutine.
type viewer struct {
	claims       Claims
	types        func(nodeClass string) ([]*capacity.InstanceType, error)
	world        World
	reservations *reservations.Ledger
	pending      *pending.Pods
	owners       *pending.Owners
	daemons      func() []*capacity.DaemonSet
	spending     *spending.Guard
	live         func() bool                          // the ledger knows the claims of nodes that boot
	status       func(*corev1.Node) ledger.NodeStatus // of an existing node
	storage      *limits.Storage
	devices      *limits.Devices
	clock        clock.PassiveClock
	commitments  *commitments.Source // nil: there are none
}

// View is a Scene, and what is needed besides to write its plan to the ledger.
type View struct {
	Scene
	live bool                        // the ledger knows the claims of nodes that boot: it doesn't where plans are only proposed
	pod  func(types.UID) *corev1.Pod // returns a pending pod; nil: the pod isn't pending
	// Existing are the nodes of the snapshot, for the ledger.
	Existing map[string]Existing
	// chunks are the chunks of CapacityBuffers, by node. Pods may take their capacity, so it counts as free.
	chunks buffers.Chunks
}

// view takes a view of the cluster. The ledger is read before the snapshot is taken: a pod that is assumed in between is then counted
// twice, which does no harm, and is recognized by its UID; in the other order its capacity would be given away.
func (vi *viewer) view(ctx context.Context, waiting []ledger.Waiting) (*View, error) {
	return vi.without(ctx, waiting, nil)
}

// without takes a view as if the moves that would empty these nodes were given up: what is reserved for them is free.
func (vi *viewer) without(ctx context.Context, waiting []ledger.Waiting, moves map[string]bool) (*View, error) {
	var flights []ledger.InFlight
	var adopted map[types.UID][]types.UID
	vi.reservations.Read(func(l ledger.Reader) { flights, adopted = l.InFlight(), l.Adopted() })
	for i := range flights {
		f := &flights[i]
		f.Slots = slices.DeleteFunc(f.Slots, func(s ledger.Promise) bool { return moves[s.Leaving] })
		f.Fenced = f.Fenced && (f.Closed || !moves[f.Name])
		f.Template = vi.launched(f)
	}
	slices.SortFunc(flights, func(a, b ledger.InFlight) int {
		return cmp.Or(cmp.Compare(a.Claim, b.Claim), cmp.Compare(a.Name, b.Name))
	})
	if err := vi.world.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("taking a snapshot of the scheduler's cache: %w", err)
	}
	v := &View{live: vi.live(), pod: vi.pending.Get, Existing: map[string]Existing{}, chunks: buffers.Chunks{}}
	v.DaemonSets = vi.daemons()
	v.Namespaces = vi.pending.Classes.Namespaces
	v.Pools = vi.devices.On(vi.storage.On(vi.claims.Pools(vi.types)))
	if vi.commitments != nil {
		v.Coverage = vi.commitments.Of(v.Pools, vi.claims.All())
	}
	expecting := slices.DeleteFunc(slices.Clone(waiting), func(w ledger.Waiting) bool { return vi.spending.Unfulfilled(vi.pending.Get(w.Ref.UID)) })
	v.Demand = append(demand(waiting), pending.Anticipated(expecting, vi.pending, vi.owners, held(flights, adopted, vi.pending.Has), vi.clock.Now())...)

	byName := map[string]*ledger.InFlight{}
	for i := range flights {
		f := &flights[i]
		if f.Name != "" { // also if the cache had no such Node when the ledger was read: it may have it by now
			byName[f.Name] = f
		}
	}
	v.Nodes = vi.world.Nodes(func(n *capacity.Node, o *corev1.Node) *capacity.Node {
		shown := o
		f, st := byName[n.Name], vi.status(o)
		known := Existing{Status: st}
		if f != nil {
			known.Claim = f.Claim
		}
		v.Existing[n.Name] = known
		out := v.promise(n, f, st, vi.planned(f))
		if later := vi.withoutStartupTaints(o, out); later != nil {
			out.Taints = later.Spec.Taints
			o = later
		}
		if later := withReserved(o, out); later != nil {
			o = later
		}
		if o != shown || awaitsStorage(n, f, st) {
			v.Hypothetical = append(v.Hypothetical, capacity.TrialNode{Node: o, Devices: out.Kind.Devices})
		}
		return out
	})
	for i := range flights {
		f := &flights[i]
		if _, there := v.Existing[f.Name]; there || f.Cached || f.Template == nil {
			continue
		}
		n := *f.Template
		n.Name, n.Claim, n.InFlight = f.Claim, f.Claim, true
		v.Nodes = append(v.Nodes, v.promise(&n, f, ledger.NodeStatus{Managed: true}, vi.planned(f)))
		v.Hypothetical = append(v.Hypothetical, capacity.TrialNode{Node: objectOf(&n), Devices: n.Kind.Devices})
	}
	return v, nil
}

// launched returns what a node in flight was planned as, with the devices of the instance type that has been launched once that is known: a plan may
// leave the choice between types with different devices, or without any, to EC2.
func (vi *viewer) launched(f *ledger.InFlight) *capacity.Node {
	if f.Template == nil {
		return nil
	}
	key, known := vi.devices.OfClaim(vi.claims.Current(f.Claim))
	if !known || key == f.Template.Kind.Devices {
		return f.Template
	}
	out := *f.Template
	out.Kind.Devices = key
	return &out
}

// withoutStartupTaints returns the Node of a claim in flight as it will be. Startup taints, and taints that are treated like them, keep
// pods waiting (behind their gates) but not plans, and planner and filters have to see the same node. It returns nil if the Node has none.
func (vi *viewer) withoutStartupTaints(o *corev1.Node, n *capacity.Node) *corev1.Node {
	if !n.InFlight || n.Claim == "" || len(o.Spec.Taints) == 0 {
		return nil
	}
	c := vi.claims.Current(n.Claim)
	if c == nil {
		return nil
	}
	going := slices.Concat(c.StartupTaints, vi.claims.ExpectedTaints(c.Pool))
	left := slices.DeleteFunc(slices.Clone(o.Spec.Taints), func(t corev1.Taint) bool {
		return slices.ContainsFunc(going, func(s corev1.Taint) bool { return s.MatchTaint(&t) })
	})
	if len(left) == len(o.Spec.Taints) {
		return nil
	}
	later := *o
	later.Spec.Taints = left
	return &later
}

// held counts, by owner, the reservations for anticipated pods, and the pods that have taken such a reservation but that package pending doesn't
// count among their owner's pods yet.
func held(flights []ledger.InFlight, adopted map[types.UID][]types.UID, counted func(types.UID) bool) map[types.UID]int {
	out := map[types.UID]int{}
	for owner, pods := range adopted {
		for _, uid := range pods {
			if !counted(uid) {
				out[owner]++
			}
		}
	}
	for i := range flights {
		for _, s := range flights[i].Slots {
			if s.Owner != "" && s.Leaving == "" { // what is reserved for a move is not for pods that come
				out[s.Owner]++
			}
		}
	}
	return out
}

// planned returns the limits that a node in flight was planned with, by driver: of a CSI driver how many volumes may be attached, of a DRA driver
// for how many pods its devices are enough.
func (vi *viewer) planned(f *ledger.InFlight) map[string]int64 {
	if f == nil || f.Template == nil {
		return nil
	}
	counts := vi.devices.Of(f.Template)
	if len(counts) == 0 {
		return f.Template.VolumesFree
	}
	out := maps.Clone(f.Template.VolumesFree)
	if out == nil {
		out = map[string]int64{}
	}
	maps.Copy(out, counts)
	return out
}

// promise returns the node as plans see it, with its reservations taken off, and adds their pods to v.Promised. planned are its limits by driver.
func (v *View) promise(n *capacity.Node, f *ledger.InFlight, st ledger.NodeStatus, planned map[string]int64) *capacity.Node {
	if f == nil && (!st.Managed || st.Initialized) {
		return n
	}
	out := *n
	out.InFlight = st.Managed && !st.Initialized
	// A kubelet may register before this process knows that its node is the NodeClaim's. Until the names are joined the node shows capacity
	// that is reserved under the NodeClaim's name as free: plan nothing there.
	out.Closed = v.live && out.InFlight && (f == nil || f.Claim == "")
	if f != nil && f.Template != nil {
		out.Kind.Devices = f.Template.Kind.Devices
	}
	if out.InFlight || awaitsStorage(n, f, st) {
		out.VolumesFree = expected(n.VolumesFree, planned, st.Drivers)
	}
	if f == nil {
		return &out
	}
	out.Claim = f.Claim
	if len(f.Chunks) > 0 {
		v.chunks[out.Name] = f.Chunks
	}
	out.Free = n.Free.Clone()
	if f.Template != nil && out.InFlight {
		out.Allocatable = expectedAllocatable(n.Allocatable, f.Template.Allocatable)
		for r, q := range out.Allocatable {
			out.Free[r] += q - n.Allocatable[r]
		}
	}
	out.Closed = out.Closed || f.Fenced || f.Late
	there, daemons := map[types.UID]bool{}, map[string]bool{}
	for _, pod := range n.Pods {
		there[pod.UID] = true
		if len(f.Daemons) > 0 {
			daemons[objects.DaemonSetKey(pod)] = true
		}
	}
	for key, d := range f.Daemons {
		if !daemons[key] {
			out.Free.Sub(d)
		}
	}
	if len(f.Slots) == 0 {
		return &out
	}
	out.Pods = slices.Clone(n.Pods)
	out.VolumesFree = maps.Clone(out.VolumesFree)
	for _, s := range f.Slots {
		if s.UID != "" && there[s.UID] {
			continue
		}
		out.Free.Sub(s.Class.Requests)
		out.Pods = append(out.Pods, s.Class.Pod)
		for d, k := range s.Class.Volumes {
			if free, limited := out.VolumesFree[d]; limited {
				out.VolumesFree[d] = free - k
			}
		}
		step := capacity.Step{Pod: s.Class.Pod, Class: s.Class.Key, Node: out.Name}
		if v.pod != nil && len(step.Pod.Spec.ResourceClaims) > 0 {
			if pod := v.pod(cmp.Or(s.UID, s.Likely)); pod != nil {
				step.Pod, step.Own = pod, true
			}
		}
		v.Promised = append(v.Promised, step)
	}
	return &out
}

// expectedAllocatable returns what a starting node will have: what it reports, and more where its kubelet still reports too little. A
// starting kubelet zeroes extended resources until their device plugins register, one by one, and may not have measured everything else
// yet; other amounts that it reports are true. No pod that requests devices is bound before they are there.
func expectedAllocatable(shown, planned capacity.Resources) capacity.Resources {
	out := shown
	for r, want := range planned {
		if have := shown[r]; have < want && (have == 0 || capacity.DeviceResource(r)) {
			if maps.Equal(out, shown) {
				out = shown.Clone()
			}
			out[r] = want
		}
	}
	return out
}

// withReserved returns the Node as the filters have to see it, with all that the planner counts on. It returns nil if the Node reports all
// of it.
func withReserved(o *corev1.Node, n *capacity.Node) *corev1.Node {
	if !n.InFlight {
		return nil
	}
	var later *corev1.Node
	list := n.Allocatable.List()
	for r := range n.Allocatable {
		want := list[r]
		if have := o.Status.Allocatable[r]; have.Cmp(want) >= 0 {
			continue
		}
		if later == nil {
			cp := *o
			later = &cp
			later.Status.Allocatable = maps.Clone(o.Status.Allocatable)
			if later.Status.Allocatable == nil {
				later.Status.Allocatable = corev1.ResourceList{}
			}
		}
		later.Status.Allocatable[r] = want
	}
	return later
}

// expected returns how many volumes can be attached: what the CSINode reports and, until a driver is there, what the node was planned with.
// The same goes for the storage that drivers publish. No pod with volumes of a missing driver is bound yet.
func expected(shown, planned map[string]int64, drivers []string) map[string]int64 {
	out := maps.Clone(shown)
	maps.DeleteFunc(out, func(d string, _ int64) bool { return !slices.Contains(drivers, d) })
	for d, k := range planned {
		if slices.Contains(drivers, d) {
			continue // the driver is there: its limit is reported, or it has none
		}
		if out == nil {
			out = map[string]int64{}
		}
		out[d] = k
	}
	return out
}

// awaitsStorage reports whether a node's drivers have yet to publish storage or devices that pods planned there count on: until they do, the node is
// treated like one that doesn't exist yet. They may do so after its initialization.
func awaitsStorage(n *capacity.Node, f *ledger.InFlight, st ledger.NodeStatus) bool {
	missing := func(d string) bool { return capacity.PublishedLater(d) && !slices.Contains(st.Drivers, d) }
	if st.Managed && !st.Initialized {
		return slices.ContainsFunc(slices.Collect(maps.Keys(n.VolumesFree)), missing)
	}
	return f != nil && slices.ContainsFunc(f.Slots, func(s ledger.Promise) bool { return slices.ContainsFunc(s.Class.Drivers, missing) })
}

// objectOf returns the hypothetical Node of a claim in flight, as it will be when Ready.
func objectOf(n *capacity.Node) *corev1.Node {
	o := &corev1.Node{}
	o.Name, o.Labels = n.Name, n.Labels
	o.Spec.Taints = n.Taints
	o.Status.Allocatable = n.Allocatable.List()
	o.Status.Capacity = o.Status.Allocatable
	o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return o
}

// demand groups waiting pods by class, higher priorities first, then in order of arrival.
func demand(waiting []ledger.Waiting) []capacity.Demand {
	index := map[capacity.ClassKey]int{}
	var out []capacity.Demand
	for _, w := range waiting {
		i, ok := index[w.Class.Key]
		if !ok {
			i = len(out)
			index[w.Class.Key] = i
			out = append(out, capacity.Demand{Class: w.Class})
		}
		out[i].Pods = append(out[i].Pods, w.Ref)
	}
	slices.SortStableFunc(out, func(a, b capacity.Demand) int { return cmp.Compare(b.Class.Priority, a.Class.Priority) })
	return out
}
