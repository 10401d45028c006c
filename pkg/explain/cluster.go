package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
	"github.com/dovetail-scheduler/dovetail/pkg/whatif"
)

// Prices returns what an instance costs, in $/h; false if that isn't known.
type Prices interface {
	Price(instanceType, zone, capacityType string) (float64, bool)
}

// Cluster is a cluster as it was at one moment.
type Cluster struct {
	Set      *manifest.Set
	Settings offline.Settings
	Prices   Prices
	Now      time.Time
	// Evictions is asked about PodDisruptionBudgets; nil: they aren't known.
	Evictions Evictions
	// Lease is the scheduler's; nil: not known.
	Lease *Lease
	// Patience is how long to look for what alone would help a pod.
	Patience time.Duration
	// Source are the flags with which 'dovetail plan' reads the same files; empty: it is a live cluster.
	Source string

	after    *manifest.Set // once what is being launched is up
	bookings map[types.UID]whatif.Booking
	coverage func() *capacity.Coverage // by commitments; nil: there are none
	promised map[string][]promise      // by NodeClaim
}

// New completes a cluster. settings.Clock must be set: it measures how long something takes, while now is when the cluster was looked at.
func New(set *manifest.Set, settings offline.Settings, prices Prices, now time.Time, patience time.Duration) *Cluster {
	c := &Cluster{Set: set, Settings: settings, Prices: prices, Now: now, Patience: patience}
	c.coverage = sync.OnceValue(func() *capacity.Coverage { return offline.Coverage(set, settings) })
	c.after, c.bookings = whatif.Booked(set, &settings.NodeClass)
	c.promised = promisesOf(c)
	return c
}

// After returns the cluster once what is being launched is up: pods that have a reservation are on their nodes.
func (c *Cluster) After() *manifest.Set { return c.after }

// Plannable is After without the pods that have no node and whose scheduler Dovetail launches nothing for: where these will run isn't known.
func (c *Cluster) Plannable() *manifest.Set {
	return c.after.Edit(func(o client.Object) client.Object {
		if pod, ok := o.(*corev1.Pod); ok && pod.UID != "" && pod.Spec.NodeName == "" && c.foreign(pod) {
			return nil
		}
		return o
	})
}

// Elsewhere returns how many pods Plannable leaves out for each scheduler, by its name.
func (c *Cluster) Elsewhere() (out []offline.Elsewhere) {
	pods := map[string]int{}
	for _, pod := range manifest.All[*corev1.Pod](c.after) {
		if pod.Spec.NodeName == "" && c.foreign(pod) && !objects.Ended(pod) && !objects.OfDaemonSet(pod) && pod.DeletionTimestamp == nil {
			pods[pod.Spec.SchedulerName]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		out = append(out, offline.Elsewhere{Scheduler: name, Pods: pods[name]})
	}
	return out
}

// Reserved returns how many pods without a node have a reservation.
func (c *Cluster) Reserved() int { return len(c.bookings) }

// find returns the object of that name; nil: there is none.
func find[T client.Object](set *manifest.Set, namespace, name string) (none T, ok bool) {
	for _, o := range manifest.All[T](set) {
		if o.GetNamespace() == namespace && o.GetName() == name {
			return o, true
		}
	}
	return none, false
}

// missing is the error for an object that isn't there. It suggests one whose name begins alike.
func missing[T client.Object](set *manifest.Set, kind, namespace, name string) error {
	full := name
	if namespace != "" {
		full = namespace + "/" + name
	}
	for _, o := range manifest.All[T](set) {
		switch {
		case o.GetName() == name:
			return fmt.Errorf("there is no %s %s; there is one in namespace %s (-n)", kind, full, o.GetNamespace())
		case o.GetNamespace() == namespace && strings.HasPrefix(o.GetName(), name):
			return fmt.Errorf("there is no %s %s; there is %s", kind, full, o.GetName())
		}
	}
	return fmt.Errorf("there is no %s %s", kind, full)
}

// claimOf returns the NodeClaim of a node; nil: none.
func (c *Cluster) claimOf(node string) *karpv1.NodeClaim {
	for _, nc := range manifest.All[*karpv1.NodeClaim](c.Set) {
		if nc.Status.NodeName == node && node != "" {
			return nc
		}
	}
	return nil
}

// podsOn returns the pods on a node that haven't ended.
func (c *Cluster) podsOn(node string) (out []*corev1.Pod) {
	for _, pod := range manifest.All[*corev1.Pod](c.Set) {
		if pod.Spec.NodeName == node && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			out = append(out, pod)
		}
	}
	return out
}

// machine describes what the labels of a Node or a NodeClaim say about its instance, with its price.
func (c *Cluster) machine(labels map[string]string) string {
	instanceType, zone, capacityType := labels[corev1.LabelInstanceTypeStable], labels[corev1.LabelTopologyZone], capacityTypeOf(labels)
	if instanceType == "" {
		return "an instance that isn't known yet"
	}
	parts := []string{instanceType}
	for _, part := range []string{capacityType, zone} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if price, ok := c.Price(labels); ok {
		parts = append(parts, dollars(price)+"/h")
	}
	return strings.Join(parts, ", ")
}

// capacityTypeOf returns the capacity type of a node; empty: not known. Nodes of EKS's managed node groups have a label of their own for it.
func capacityTypeOf(labels map[string]string) string {
	return cmp.Or(labels[karpv1.CapacityTypeLabelKey], map[string]string{"SPOT": karpv1.CapacityTypeSpot, "ON_DEMAND": karpv1.CapacityTypeOnDemand}[labels["eks.amazonaws.com/capacityType"]])
}

// Price returns what an instance costs, in $/h, as the labels of its Node or NodeClaim describe it; false if that isn't known.
func (c *Cluster) Price(labels map[string]string) (float64, bool) {
	instanceType, zone, capacityType := labels[corev1.LabelInstanceTypeStable], labels[corev1.LabelTopologyZone], capacityTypeOf(labels)
	if instanceType == "" {
		return 0, false
	}
	return c.Prices.Price(instanceType, zone, capacityType)
}

// event is an event with the time at which it was last seen.
type event struct {
	*corev1.Event
	at time.Time
}

// events returns the last event of each reason about an object, the newest first.
func (c *Cluster) events(kind string, o client.Object) (out []event) {
	last := map[string]event{}
	for _, e := range manifest.All[*corev1.Event](c.Set) {
		of := &e.InvolvedObject
		if of.Kind != kind || of.Name != o.GetName() || of.Namespace != o.GetNamespace() && kind == "Pod" || of.UID != "" && of.UID != o.GetUID() && kind != "Node" { // kubelets give Nodes' names as UIDs
			continue
		}
		at := e.LastTimestamp.Time
		if e.Series != nil {
			at = e.Series.LastObservedTime.Time
		}
		for _, t := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time} {
			if at.IsZero() {
				at = t
			}
		}
		if have, ok := last[e.Reason]; !ok || have.at.Before(at) {
			last[e.Reason] = event{e, at}
		}
	}
	for _, e := range last {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b event) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.Reason, b.Reason)) })
	return out
}

// ago says how long ago something was.
func (c *Cluster) ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return Age(c.Now.Sub(t))
}

// Age writes a duration as kubectl does, with one unit.
func Age(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d/day))
}

func dollars(v float64) string { return fmt.Sprintf("$%.4f", v) }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Newest returns the latest time that the objects of a set name: about when they were read.
func Newest(set *manifest.Set) (newest time.Time) {
	see := func(t time.Time) {
		if t.After(newest) {
			newest = t
		}
	}
	for _, o := range manifest.All[client.Object](set) {
		see(o.GetCreationTimestamp().Time)
		switch o := o.(type) {
		case *corev1.Event:
			see(o.LastTimestamp.Time)
			see(o.EventTime.Time)
		case *corev1.Pod:
			for i := range o.Status.Conditions {
				see(o.Status.Conditions[i].LastTransitionTime.Time)
			}
		case *corev1.Node:
			for i := range o.Status.Conditions {
				see(o.Status.Conditions[i].LastHeartbeatTime.Time)
			}
		}
	}
	return newest
}
