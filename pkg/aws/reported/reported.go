package reported

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// lastNodes is how many nodes of one type, image and class version are remembered. A node that reported too little is forgotten when so many other
// nodes have followed.
const lastNodes = 8

const mi = int64(1) << 20

// Key identifies nodes that have the same memory: it depends on the instance type and the image.
type Key struct{ InstanceType, Image string }

// Class is a version of a node class: its hash changes with everything that new nodes would be different in.
type Class struct{ Name, Hash string }

// ClassKey identifies nodes whose kubelets keep the same resources from pods (kube-reserved, system-reserved, eviction thresholds).
type ClassKey struct {
	Class
	Key
}

// Node is what the kubelet of a node reports.
type Node struct {
	ClassKey
	Capacity, Allocatable capacity.Resources
}

// Kept holds the resources that a kubelet keeps from pods, and how many pods it runs at most. The zero value: not known.
type Kept struct {
	CPU     int64 `json:"cpu"`               // milli-CPU
	Memory  int64 `json:"memory"`            // bytes, with huge pages
	Storage int64 `json:"ephemeral-storage"` // bytes
	Pods    int64 `json:"pods"`              // the number of pods that the node runs at most; unlike the others, not an amount kept from pods
	// HugePages2Mi and HugePages1Gi are the bytes of Memory that pods get as huge pages.
	HugePages2Mi int64 `json:"hugepages-2Mi,omitempty"`
	HugePages1Gi int64 `json:"hugepages-1Gi,omitempty"`
}

// Names of the huge pages that EC2's instance types have.
const (
	HugePages2Mi corev1.ResourceName = corev1.ResourceHugePagesPrefix + "2Mi"
	HugePages1Gi corev1.ResourceName = corev1.ResourceHugePagesPrefix + "1Gi"
)

// Most returns the worse of two values for pods: the larger amounts that are kept, and the smaller numbers of pods and of huge pages.
func (k Kept) Most(o Kept) Kept {
	return Kept{CPU: max(k.CPU, o.CPU), Memory: max(k.Memory, o.Memory), Storage: max(k.Storage, o.Storage), Pods: min(k.Pods, o.Pods),
		HugePages2Mi: min(k.HugePages2Mi, o.HugePages2Mi), HugePages1Gi: min(k.HugePages1Gi, o.HugePages1Gi)}
}

// Snapshot is what is known at one time. It is never changed.
type Snapshot struct {
	memory map[Key]int64
	kept   map[ClassKey]Kept
}

// Memory returns the memory in bytes that a node's kubelet will see, in whole MiB; 0: not known.
func (s *Snapshot) Memory(k Key) int64 { return s.memory[k] }

// Kept returns what a kubelet of the class keeps from pods.
func (s *Snapshot) Kept(k ClassKey) Kept { return s.kept[k] }

// Images calls f with the memory that is known of the nodes of an image, by instance type.
func (s *Snapshot) Images(image string, f func(instanceType string, memory int64)) {
	for k, bytes := range s.memory {
		if k.Image == image {
			f(k.InstanceType, bytes)
		}
	}
}

// OfClass calls f with what is known of the kubelets of a version of a class.
func (s *Snapshot) OfClass(c Class, f func(Key, Kept)) {
	for k, kept := range s.kept {
		if k.Class == c {
			f(k.Key, kept)
		}
	}
}

// Nodes remembers what nodes have reported.
type Nodes struct {
	now atomic.Pointer[Snapshot]

	mu     sync.Mutex // guards memory and kept, and serializes writers of now
	memory map[Key][]int64
	kept   map[ClassKey][]Kept
}

// NewNodes returns an empty memory.
func NewNodes() *Nodes {
	n := &Nodes{memory: map[Key][]int64{}, kept: map[ClassKey][]Kept{}}
	n.now.Store(&Snapshot{})
	return n
}

// Now returns what is known now.
func (n *Nodes) Now() *Snapshot { return n.now.Load() }

// See takes in what a node reports, once per node, and tells whether Now has changed.
func (n *Nodes) See(node Node) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if node.InstanceType == "" || node.Image == "" {
		return false
	}
	bytes := node.Capacity[corev1.ResourceMemory]
	if bytes -= bytes % mi; bytes > 0 { // in whole MiB, because nodes of a type differ by a few pages
		n.memory[node.Key] = last(n.memory[node.Key], bytes)
	}
	if node.Class.Name != "" && node.Allocatable[corev1.ResourceMemory] > 0 {
		n.kept[node.ClassKey] = last(n.kept[node.ClassKey], keptBy(node))
	}
	return n.refresh(node.ClassKey)
}

// Recall takes in what an earlier process has recorded, unless nodes have reported it to this process. It tells whether Now has changed.
func (n *Nodes) Recall(k ClassKey, memory int64, kept Kept) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if k.InstanceType == "" || k.Image == "" {
		return false
	}
	if memory > 0 && len(n.memory[k.Key]) == 0 {
		n.memory[k.Key] = []int64{memory - memory%mi}
	}
	if kept != (Kept{}) && len(n.kept[k]) == 0 {
		n.kept[k] = []Kept{kept}
	}
	return n.refresh(k)
}

// refresh makes a new snapshot if something about k has changed. Called under mu.
func (n *Nodes) refresh(k ClassKey) bool {
	old := n.now.Load()
	next := Snapshot{memory: old.memory, kept: old.kept}
	changed := false
	if seen := n.memory[k.Key]; len(seen) > 0 && old.memory[k.Key] != slices.Min(seen) {
		next.memory, changed = with(old.memory, k.Key, slices.Min(seen)), true
	}
	if seen := n.kept[k]; len(seen) > 0 {
		all := seen[0]
		for _, one := range seen[1:] {
			all = all.Most(one)
		}
		if old.kept[k] != all {
			next.kept, changed = with(old.kept, k, all), true
		}
	}
	if changed {
		n.now.Store(&next)
	}
	return changed
}

// ForgetOthers forgets what other versions of a class kept.
func (n *Nodes) ForgetOthers(c Class) {
	n.mu.Lock()
	defer n.mu.Unlock()
	other := func(k ClassKey) bool { return k.Name == c.Name && k.Hash != c.Hash }
	found := false
	for k := range n.kept {
		if other(k) {
			delete(n.kept, k)
			found = true
		}
	}
	if !found {
		return
	}
	old := n.now.Load()
	next := Snapshot{memory: old.memory, kept: maps.Clone(old.kept)}
	maps.DeleteFunc(next.kept, func(k ClassKey, _ Kept) bool { return other(k) })
	n.now.Store(&next)
}

// keptBy returns what a node's kubelet keeps from pods, in steps of a MiB.
func keptBy(n Node) Kept {
	up := func(bytes int64) int64 { return max(0, bytes+mi-1) / mi * mi }
	less := func(name corev1.ResourceName) int64 { return n.Capacity[name] - n.Allocatable[name] }
	return Kept{CPU: max(0, less(corev1.ResourceCPU)), Memory: up(less(corev1.ResourceMemory)), Storage: up(less(corev1.ResourceEphemeralStorage)),
		Pods: n.Allocatable[corev1.ResourcePods], HugePages2Mi: n.Allocatable[HugePages2Mi], HugePages1Gi: n.Allocatable[HugePages1Gi]}
}

// last returns the last lastNodes elements of all with one appended.
func last[T any](all []T, one T) []T {
	return append(slices.Clone(all[max(0, len(all)+1-lastNodes):]), one)
}

func with[K comparable, V any](m map[K]V, k K, v V) map[K]V {
	out := maps.Clone(m)
	if out == nil {
		out = map[K]V{}
	}
	out[k] = v
	return out
}
