package pending

import (
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/devices"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/storage"
)

// Classes computes the equivalence class of a pod and caches it. The class of a pod without volumes is cached until the pod is bound or
// deleted; what a pod with volumes needs may change without the pod, so its class is computed each time.
type Classes struct {
	volumes volumeInfo
	ns      listersv1.NamespaceLister
	others  map[string]bool // schedulers that bind their pods themselves
	// earliest is, by scheduler, the earliest moment to bind its pods, where the profile sets one. Set before anything runs.
	earliest map[string]capacity.BindTime
	// spread returns, by scheduler, the default spread constraints of its profile for pods without constraints of their own. Set before
	// anything runs.
	spread map[string]func(*corev1.Pod) []corev1.TopologySpreadConstraint

	// devices knows what ResourceClaims ask for; nil: the setting is off, and nothing is known. Set before anything runs.
	devices *devices.Source

	mu    sync.Mutex
	byPod map[types.UID]classified
	// named are the labels that selectors of any pod seen so far have named. None is ever taken out: that would change classes once more.
	named capacity.LabelsNamed
}

type classified struct {
	ref     capacity.PodRef
	version string               // the pod's resourceVersion: its gates, requests and labels may change
	named   capacity.LabelsNamed // Classes.named when the class was computed
	class   *capacity.Class
	err     error
}

// NewClasses returns Classes that read from the scheduler's informers. Call it before they start.
func NewClasses(f informers.SharedInformerFactory) *Classes {
	return &Classes{
		volumes:  newVolumeInfo(f),
		ns:       f.Core().V1().Namespaces().Lister(),
		byPod:    map[types.UID]classified{},
		earliest: map[string]capacity.BindTime{},
		spread:   map[string]func(*corev1.Pod) []corev1.TopologySpreadConstraint{},
	}
}

// SetEarliest says that no pod of the scheduler is bound before its node has reached at. Call it before anything runs.
func (c *Classes) SetEarliest(scheduler string, at capacity.BindTime) { c.earliest[scheduler] = at }

// SetDefaultSpread sets the func that returns the constraints which the scheduler gives pods without their own; nil: none. Call it before
// anything runs.
func (c *Classes) SetDefaultSpread(scheduler string, of func(*corev1.Pod) []corev1.TopologySpreadConstraint) {
	if of != nil {
		c.spread[scheduler] = of
	}
}

// SetDevices sets what knows the devices that ResourceClaims ask for. Call it before anything runs.
func (c *Classes) SetDevices(of *devices.Source) { c.devices = of }

// Devices returns what knows devices; nil: the setting is off.
func (c *Classes) Devices() *devices.Source { return c.devices }

// changes reports whether what the pod needs may change without the pod.
func (c *Classes) changes(pod *corev1.Pod) bool {
	return hasClaims(pod) || c.devices != nil && len(pod.Spec.ResourceClaims) > 0
}

// needs returns what the pod's volumes and devices need. of is the pod whose claims are read: the same pod, or the one that will be replaced by it
// if it doesn't exist yet.
func (c *Classes) needs(pod, of *corev1.Pod) capacity.VolumeInfo {
	var out capacity.VolumeInfo
	if hasClaims(pod) {
		out = c.volumes.of(pod, pod != of)
	}
	key, err := c.devices.Of(of, pod != of)
	switch {
	case out.Problem != "":
	case err != nil:
		out.Problem = err.Error()
	case key != "":
		out.Devices = key
	}
	return out
}

// spreadOut returns the pod with the default constraints of its scheduler.
func (c *Classes) spreadOut(pod *corev1.Pod) *corev1.Pod {
	of := c.spread[pod.Spec.SchedulerName]
	if of == nil || len(pod.Spec.TopologySpreadConstraints) > 0 {
		return pod
	}
	constraints := of(pod)
	if len(constraints) == 0 {
		return pod
	}
	out := *pod
	out.Spec.TopologySpreadConstraints = constraints
	return &out
}

// notBefore returns the class, bound no sooner than its scheduler's profile allows. The class's key names the scheduler, so it needn't change.
func (c *Classes) notBefore(class *capacity.Class, scheduler string) *capacity.Class {
	at := c.earliest[scheduler]
	if class == nil || class.Bind >= at {
		return class
	}
	later := *class
	later.Bind, later.BindReason = at, "belongs to a profile that binds no sooner (earliestBinding)"
	return &later
}

// Class returns the equivalence class of the pod. An error says why the pod can't be planned for.
func (c *Classes) Class(pod *corev1.Pod) (*capacity.Class, error) {
	changes := c.changes(pod)
	if !changes {
		c.mu.Lock()
		got, ok := c.byPod[pod.UID]
		ok = ok && got.named == c.named
		c.mu.Unlock()
		if ok && got.version == pod.ResourceVersion {
			return got.class, got.err
		}
	}
	var facts capacity.VolumeInfo
	if changes {
		facts = c.needs(pod, pod)
	}
	class, named, err := c.of(pod, facts)
	if !changes && pod.Spec.NodeName == "" {
		c.mu.Lock()
		c.byPod[pod.UID] = classified{ref: capacity.RefOf(pod), version: pod.ResourceVersion, named: named, class: class, err: err}
		c.mu.Unlock()
	}
	return class, err
}

// of computes the pod's class with its scheduler's defaults and rules, and returns the named labels that it depends on.
func (c *Classes) of(pod *corev1.Pod, facts capacity.VolumeInfo) (*capacity.Class, capacity.LabelsNamed, error) {
	spread := c.spreadOut(pod)
	named := c.name(spread)
	class, err := capacity.ClassAmong(spread, facts, named)
	if err == nil && c.others[pod.Spec.SchedulerName] {
		class = byOthers(class)
	}
	return c.notBefore(class, pod.Spec.SchedulerName), named, err
}

// name adds the labels that the pod's selectors name, and returns all that are named.
func (c *Classes) name(pod *corev1.Pod) capacity.LabelsNamed {
	by := capacity.NamedBy(pod)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.named = c.named.Or(by)
	return c.named
}

// Named returns the labels that count for classes because selectors of pods name them; classes leave out other labels. When it grows,
// classes change: many pods are of another class than before.
func (c *Classes) Named() capacity.LabelsNamed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.named
}

// byOthers returns the class for pods that another scheduler binds: that scheduler sees a node only once it has registered.
func byOthers(c *capacity.Class) *capacity.Class {
	out := *c
	out.ByOthers, out.Key = true, c.Key+"~"
	if out.Bind < capacity.BindRegistered {
		out.Bind, out.BindReason = capacity.BindRegistered, "its own scheduler doesn't see the node before it has registered"
	}
	return &out
}

// Successor returns the pending pod that a bound pod's controller will create in its place, and its class.
func (c *Classes) Successor(pod *corev1.Pod) (*corev1.Pod, *capacity.Class, error) {
	next := *pod
	next.Spec.NodeName, next.DeletionTimestamp, next.Status = "", nil, corev1.PodStatus{}
	// The API server copies these labels of the node to a pod when it is bound.
	next.Labels = maps.Clone(pod.Labels)
	delete(next.Labels, corev1.LabelTopologyZone)
	delete(next.Labels, corev1.LabelTopologyRegion)
	var facts capacity.VolumeInfo
	if c.changes(pod) {
		facts = c.needs(&next, pod)
	}
	class, _, err := c.of(&next, facts)
	return &next, class, err
}

// alike reports whether the pods that the pod's controller is about to create are certain to be of the pod's class. They aren't where a selector
// tells them apart, nor where the class follows from a volume or a device that is the pod's alone.
func (c *Classes) alike(pod *corev1.Pod, class *capacity.Class) bool {
	if class.OfOnePod() {
		return false
	}
	if !c.changes(pod) {
		return true
	}
	sibling := *pod
	sibling.UID = "" // what the pod's own claims need is remembered by its UID
	_, next, err := c.Successor(&sibling)
	return err == nil && next.Key == class.Key
}

// Successors returns the pods that will replace these, by owner and class. The error says why one of them, which isn't returned, has no class.
func (c *Classes) Successors(pods []*corev1.Pod) (map[ledger.Successor][]*corev1.Pod, error) {
	var without error
	out := map[ledger.Successor][]*corev1.Pod{}
	for _, pod := range pods {
		next, class, err := c.Successor(pod)
		if err != nil {
			without = fmt.Errorf("pod %s: %w", klog.KObj(pod), err)
			continue
		}
		key := ledger.Successor{Owner: objects.Controller(pod), Class: class.Key}
		out[key] = append(out[key], next)
	}
	return out, without
}

// some returns up to n of the pods whose classes are cached, different ones on each call.
func (c *Classes) some(n int) []capacity.PodRef {
	c.mu.Lock()
	defer c.mu.Unlock()
	return some(c.byPod, n, func(one classified) capacity.PodRef { return one.ref })
}

// some returns up to n of a map's pods.
func some[V any](pods map[types.UID]V, n int, ref func(V) capacity.PodRef) []capacity.PodRef {
	out := make([]capacity.PodRef, 0, min(n, len(pods)))
	for _, one := range pods { // in random order
		if len(out) == n {
			break
		}
		out = append(out, ref(one))
	}
	return out
}

// Storage returns what CSI drivers have published of their capacity.
func (c *Classes) Storage() *storage.Capacities { return c.volumes.storage }

// Namespace returns a namespace's labels; false: it is not known.
func (c *Classes) Namespace(name string) (labels.Set, bool) {
	ns, err := c.ns.Get(name)
	if err != nil {
		return nil, false
	}
	return ns.Labels, true
}

// Namespaces is Namespace for namespace selectors: it returns nil for a namespace that is not known.
func (c *Classes) Namespaces(name string) labels.Set {
	of, _ := c.Namespace(name)
	return of
}

func (c *Classes) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byPod, uid)
}
