package launch

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/launch/planned"
	"github.com/dovetail-scheduler/dovetail/pkg/launch/records"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// restorer puts the nodes and reservations that claims record back into the ledger.
type restorer struct {
	claims       *claimCache
	cloud        Cloud
	cluster      Cluster
	clock        clock.PassiveClock
	reservations *reservations.Ledger
	pending      *pending.Pods
	tracker      *NodeTracker
}

// holding returns the recorded reservations on a claim that are still in force, of pods that still wait. As long as the node isn't initialized, all
// are. After that, those of pods that wait for storage or devices which the node's drivers have yet to publish are, and, for records.KeptFor, also
// those that fit on the node (records.Orders.Holding), since otherwise capacity that their pods have would be bought again.
func (r *restorer) holding(c *capacity.Claim, orders records.Orders, daemons func() []*capacity.DaemonSet) (out []ledger.Restored) {
	if c.Deleting {
		return nil
	}
	classes := map[types.UID]*capacity.Class{}
	for _, s := range c.Slots {
		if pod := r.pending.Get(s.Pod.UID); pod != nil {
			if class, err := r.pending.Classes.Class(pod); err == nil {
				classes[s.Pod.UID] = class
			}
		}
	}
	slots := c.Slots
	if c.Initialized && len(classes) > 0 {
		waits := func(s capacity.Slot) bool {
			return classes[s.Pod.UID] != nil && r.awaitsStorageOf(c, classes[s.Pod.UID])
		}
		if slots = slices.DeleteFunc(slices.Clone(slots), func(s capacity.Slot) bool { return !waits(s) }); records.Kept(c, r.clock.Now()) {
			rest := slices.DeleteFunc(slices.Clone(c.Slots), waits)
			slots = append(slots, orders.Holding(rest, r.onNode(c, daemons()), func(uid types.UID) *capacity.Class { return classes[uid] })...)
		}
	}
	for _, s := range slots {
		if class := classes[s.Pod.UID]; class != nil {
			out = append(out, ledger.Restored{Slot: s, Node: c.Name, Class: class})
		}
	}
	return out
}

// onNode returns the labels, taints and free capacity of an initialized node. If the cache doesn't show the Node, or not as initialized yet,
// labels, taints and capacity are those that the claim records.
func (r *restorer) onNode(c *capacity.Claim, daemons []*capacity.DaemonSet) records.Node {
	out := records.Node{Labels: c.Labels, Taints: c.Taints, Free: c.Allocatable.Clone()}
	r.tracker.states.mu.Lock()
	node := r.tracker.states.objects[c.NodeName]
	r.tracker.states.mu.Unlock()
	if node != nil && node.Labels[labelInitialized] == "true" {
		out = records.Node{Labels: node.Labels, Taints: node.Spec.Taints, Free: capacity.ResourcesOf(node.Status.Allocatable)}
	}
	for _, pod := range r.cluster.PodsOn(c.NodeName) {
		if requests, err := capacity.RequestsOf(pod); err == nil {
			out.Free.Sub(requests)
		}
	}
	for _, d := range provisioning.DaemonRequests(daemons) {
		out.Free.Sub(d)
	}
	return out
}

// awaitsStorageOf reports whether the claim's Node exists and its drivers have yet to publish storage or devices that pods of the class count
// on.
func (r *restorer) awaitsStorageOf(c *capacity.Claim, class *capacity.Class) bool {
	r.tracker.states.mu.Lock()
	st, seen := r.tracker.states.seen[c.NodeName]
	r.tracker.states.mu.Unlock()
	return seen && slices.ContainsFunc(class.Drivers, func(d string) bool { return capacity.PublishedLater(d) && !slices.Contains(st.Drivers, d) })
}

// node adds a claim's node to the ledger.
func (r *restorer) node(c *capacity.Claim, w *capacity.LaunchBatch, daemons []*capacity.DaemonSet) {
	n := &capacity.Node{Labels: c.Labels, Taints: c.Taints, InFlight: true, Allocatable: c.Allocatable}
	least, volumes := r.smallest(c, w)
	if n.VolumesFree = volumes; len(n.Allocatable) == 0 {
		n.Allocatable = least
	}
	n.Free = n.Allocatable.Clone()
	n.Kind.Devices = r.devices(c, w)
	n.Kind.Boot = planned.BootsAs(c.Pool, c.NodeClass, n)
	r.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.RecoverNode(c.Name, n, provisioning.DaemonRequests(daemons), now)
	})
}

// devices returns the key of the devices that a claim's node will have; "" before its launch, unless all requested offerings have the same.
func (r *restorer) devices(c *capacity.Claim, w *capacity.LaunchBatch) string {
	of := r.pending.Classes.Devices()
	if of == nil || c.InstanceType != "" || w == nil || len(w.Offers) == 0 {
		return of.OfClaim(c)
	}
	types, _ := r.cloud.InstanceTypes(c.NodeClass)
	byType := map[string]string{}
	for _, t := range types {
		byType[t.Name] = of.Template(c.NodeClass, t.Name, t.Image)
	}
	key := byType[w.Offers[0].InstanceType]
	if slices.ContainsFunc(w.Offers, func(o capacity.OfferKey) bool { return byType[o.InstanceType] != key }) {
		return ""
	}
	return key
}

// smallest returns, over all instance types that the claim's instance may have, the least of each allocatable resource, and the least number of
// volumes by CSI driver. If the catalog knows none of these types, it returns the claim's requests.
func (r *restorer) smallest(c *capacity.Claim, w *capacity.LaunchBatch) (out capacity.Resources, volumes map[string]int64) {
	types, _ := r.cloud.InstanceTypes(c.NodeClass)
	volumes = map[string]int64{}
	for _, t := range types {
		asked := func(k capacity.OfferKey) bool { return k.InstanceType == t.Name }
		if t.Name != c.InstanceType && (c.InstanceType != "" || w == nil || !slices.ContainsFunc(w.Offers, asked)) {
			continue
		}
		if t = r.claims.Overlaid(c.Pool, t); out == nil {
			out = t.Allocatable.Clone()
		}
		out.AtMost(t.Allocatable)
		for driver, limit := range t.VolumeLimits {
			if have, limited := volumes[driver]; !limited || limit < have {
				volumes[driver] = limit
			}
		}
	}
	if out == nil {
		return c.Requests.Clone(), nil
	}
	return out, volumes
}
