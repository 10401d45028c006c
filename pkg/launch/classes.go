package launch

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	listersv1 "k8s.io/client-go/listers/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Classes tells the class of a pod and remembers it. Classes of pods without volumes are remembered until the pod is
// bound or gone; what a pod with volumes needs may change under it, so its class is worked out each time.
type Classes struct {
	volumes volumeFacts
	ns      listersv1.NamespaceLister
	others  map[string]bool // schedulers that bind their pods themselves
	// earliest is the earliest moment to bind pods of a scheduler, where its profile says so. Set before anything runs.
	earliest map[string]capacity.BindTime
	// spread is what a scheduler's profile asks of pods without spread constraints of their own. Set before anything runs.
	spread map[string]func(*corev1.Pod) []corev1.TopologySpreadConstraint

	mu    sync.Mutex
	byPod map[types.UID]classified
}

type classified struct {
	ref     capacity.PodRef
	version string // the pod's resourceVersion: gates, resizes and labels may change
	class   *capacity.Class
	err     error
}

// NewClasses returns a classifier on the scheduler's informers. To be called before they start.
func NewClasses(f informers.SharedInformerFactory) *Classes {
	return &Classes{
		volumes:  newVolumeFacts(f),
		ns:       f.Core().V1().Namespaces().Lister(),
		byPod:    map[types.UID]classified{},
		earliest: map[string]capacity.BindTime{},
		spread:   map[string]func(*corev1.Pod) []corev1.TopologySpreadConstraint{},
	}
}

// SetEarliest says that pods of the scheduler are bound at that moment of their node's life or later, whatever they are. To be called
// before anything runs.
func (c *Classes) SetEarliest(scheduler string, at capacity.BindTime) { c.earliest[scheduler] = at }

// SetDefaultSpread says which constraints the scheduler gives pods that have none of their own; nil: none. To be called before anything runs.
func (c *Classes) SetDefaultSpread(scheduler string, of func(*corev1.Pod) []corev1.TopologySpreadConstraint) {
	if of != nil {
		c.spread[scheduler] = of
	}
}

// spreadOut is the pod with the constraints that its scheduler gives it.
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

// notBefore is the class with its pods bound no sooner than their scheduler's profile allows. The class's key tells schedulers apart.
func (c *Classes) notBefore(class *capacity.Class, scheduler string) *capacity.Class {
	at := c.earliest[scheduler]
	if class == nil || class.Bind >= at {
		return class
	}
	later := *class
	later.Bind, later.BindReason = at, "belongs to a profile that binds no sooner (earliestBinding)"
	return &later
}

// Class of the pod. An error says why it can't be planned for.
func (c *Classes) Class(pod *corev1.Pod) (*capacity.Class, error) {
	volumes := hasClaims(pod)
	if !volumes {
		c.mu.Lock()
		got, ok := c.byPod[pod.UID]
		c.mu.Unlock()
		if ok && got.version == pod.ResourceVersion {
			return got.class, got.err
		}
	}
	var facts capacity.VolumeFacts
	if volumes {
		facts = c.volumes.of(pod)
	}
	class, err := c.of(pod, facts)
	if !volumes && pod.Spec.NodeName == "" {
		c.mu.Lock()
		c.byPod[pod.UID] = classified{ref: refOf(pod), version: pod.ResourceVersion, class: class, err: err}
		c.mu.Unlock()
	}
	return class, err
}

// of is the pod's class as its scheduler makes it.
func (c *Classes) of(pod *corev1.Pod, facts capacity.VolumeFacts) (*capacity.Class, error) {
	class, err := capacity.ClassOf(c.spreadOut(pod), facts)
	if err == nil && c.others[pod.Spec.SchedulerName] {
		class = byOthers(class)
	}
	return c.notBefore(class, pod.Spec.SchedulerName), err
}

// byOthers is the class of pods that another scheduler binds: it sees a node when that has registered.
func byOthers(c *capacity.Class) *capacity.Class {
	out := *c
	out.ByOthers, out.Key = true, c.Key+"~"
	if out.Bind < capacity.BindRegistered {
		out.Bind, out.BindReason = capacity.BindRegistered, "its own scheduler doesn't see the node before"
	}
	return &out
}

// successor is a bound pod as the one that will come instead of it, and its class.
func (c *Classes) successor(pod *corev1.Pod) (*corev1.Pod, *capacity.Class, error) {
	next := *pod
	next.Spec.NodeName, next.DeletionTimestamp, next.Status = "", nil, corev1.PodStatus{}
	// The API server gives pods these labels of their nodes when they are bound.
	next.Labels = maps.Clone(pod.Labels)
	delete(next.Labels, corev1.LabelTopologyZone)
	delete(next.Labels, corev1.LabelTopologyRegion)
	var facts capacity.VolumeFacts
	if hasClaims(pod) {
		facts = c.volumes.of(&next)
	}
	class, err := c.of(&next, facts)
	return &next, class, err
}

func (c *Classes) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byPod, uid)
}

// some are up to n of the pods whose classes are remembered, others each time.
func (c *Classes) some(n int) []capacity.PodRef {
	c.mu.Lock()
	defer c.mu.Unlock()
	return some(c.byPod, n, func(one classified) capacity.PodRef { return one.ref })
}

// some are up to n of a map's pods.
func some[V any](pods map[types.UID]V, n int, ref func(V) capacity.PodRef) []capacity.PodRef {
	out := make([]capacity.PodRef, 0, min(n, len(pods)))
	for _, one := range pods { // Go begins anywhere
		if len(out) == n {
			break
		}
		out = append(out, ref(one))
	}
	return out
}

// namespaces gives namespace labels for namespace selectors.
func (c *Classes) namespaces(name string) labels.Set {
	ns, err := c.ns.Get(name)
	if err != nil {
		return nil
	}
	return ns.Labels
}
