package storage

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Capacities reads the scheduler's informers. The zero value, like nil, knows no driver.
type Capacities struct {
	drivers  storagelisters.CSIDriverLister
	classes  storagelisters.StorageClassLister
	nodes    corelisters.NodeLister
	volumes  corelisters.PersistentVolumeLister
	csiNodes cache.Indexer // by driver
	objects  cache.Indexer // CSIStorageCapacity; by StorageClass, by node label
}

// New adds its indexes to the informers. To be called before they start.
func New(f informers.SharedInformerFactory) *Capacities {
	v1 := f.Storage().V1()
	return &Capacities{drivers: v1.CSIDrivers().Lister(), classes: v1.StorageClasses().Lister(), nodes: f.Core().V1().Nodes().Lister(),
		volumes:  f.Core().V1().PersistentVolumes().Lister(),
		csiNodes: indexed(v1.CSINodes().Informer(), cache.Indexers{objects.IndexCSINodesByDriver: driversOf}),
		objects:  indexed(v1.CSIStorageCapacities().Informer(), cache.Indexers{objects.IndexCapacitiesByStorageClass: classOf, objects.IndexCapacitiesByNodeLabel: labelsOf})}
}

// indexed adds the indexes that the informer doesn't have yet: several readers share it.
func indexed(i cache.SharedIndexInformer, want cache.Indexers) cache.Indexer {
	for name := range i.GetIndexer().GetIndexers() {
		delete(want, name)
	}
	if err := i.AddIndexers(want); err != nil { // the informer has stopped, and its readers will stop; without the index no class counts as node-local
		utilruntime.HandleError(fmt.Errorf("indexing what CSI drivers publish: %w", err))
	}
	return i.GetIndexer()
}

func driversOf(o any) ([]string, error) {
	var out []string
	for _, d := range o.(*storagev1.CSINode).Spec.Drivers {
		out = append(out, d.Name)
	}
	return out, nil
}

func classOf(o any) ([]string, error) {
	return []string{o.(*storagev1.CSIStorageCapacity).StorageClassName}, nil
}

// labelsOf returns labels (key=value) such that every node that the capacity is for has at least one of them; "" stands for any node.
func labelsOf(o any) ([]string, error) {
	topology := o.(*storagev1.CSIStorageCapacity).NodeTopology
	if topology == nil {
		return nil, nil // by the API's definition it is for no node
	}
	if len(topology.MatchLabels) > 0 {
		key := slices.Min(keys(topology.MatchLabels))
		return []string{key + "=" + topology.MatchLabels[key]}, nil
	}
	for _, e := range topology.MatchExpressions {
		if e.Operator != metav1.LabelSelectorOpIn {
			continue
		}
		var out []string
		for _, value := range e.Values {
			out = append(out, e.Key+"="+value)
		}
		return out, nil
	}
	return []string{""}, nil
}

func keys(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}

// Selector returns a function that reports whether the capacity is for the node with these labels.
func Selector(o *storagev1.CSIStorageCapacity) func(node map[string]string) bool {
	if o.NodeTopology == nil {
		return func(map[string]string) bool { return false }
	}
	selector, err := metav1.LabelSelectorAsSelector(o.NodeTopology)
	return func(node map[string]string) bool { return err == nil && selector.Matches(labels.Set(node)) }
}

// On returns what drivers have published for a node with the labels, in bytes, by capacity.StorageOf: all the capacity, or the largest
// volume size if a driver publishes only that. VolumeBinding compares each volume with the latter.
func (c *Capacities) On(node map[string]string) map[string]int64 {
	if c == nil || c.objects == nil {
		return nil
	}
	var out map[string]int64
	read := func(label string) {
		found, err := c.objects.ByIndex(objects.IndexCapacitiesByNodeLabel, label)
		if err != nil {
			return
		}
		for _, o := range found {
			o := o.(*storagev1.CSIStorageCapacity)
			limit := o.Capacity
			if limit == nil {
				limit = o.MaximumVolumeSize
			}
			if limit == nil || !Selector(o)(node) {
				continue
			}
			if out == nil {
				out = map[string]int64{}
			}
			key := capacity.StorageOf(o.StorageClassName)
			if have, ok := out[key]; !ok || have < limit.Value() {
				out[key] = limit.Value()
			}
		}
	}
	read("")
	for key, value := range node {
		read(key + "=" + value)
	}
	return out
}

// Following returns the StorageClasses whose volumes use node-local capacity (Follows).
func (c *Capacities) Following() []*storagev1.StorageClass {
	if c == nil || c.classes == nil {
		return nil
	}
	all, err := c.classes.List(labels.Everything())
	if err != nil {
		return nil
	}
	var out []*storagev1.StorageClass
	for _, class := range all {
		if c.Follows(class) {
			out = append(out, class)
		}
	}
	return out
}

// Follows reports whether the class's volumes use capacity that is created with the node. If nothing is known of the driver's
// topology, because no node has the driver yet, it assumes so: otherwise no node would ever be launched for its pods.
func (c *Capacities) Follows(class *storagev1.StorageClass) bool {
	if c == nil || c.drivers == nil {
		return false
	}
	driver, err := c.drivers.Get(class.Provisioner)
	if err != nil || !ptr.Deref(driver.Spec.StorageCapacity, false) {
		return false
	}
	there, err := c.csiNodes.ByIndex(objects.IndexCSINodesByDriver, driver.Name)
	if err != nil {
		return false
	}
	for _, o := range there {
		if own, known := c.ownLabel(o.(*storagev1.CSINode), driver.Name); known {
			return own != ""
		}
	}
	found, err := c.objects.ByIndex(objects.IndexCapacitiesByStorageClass, class.Name)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(found, func(o any) bool { return shared(o.(*storagev1.CSIStorageCapacity).NodeTopology) })
}

// ownLabel returns the label, as key=value, that distinguishes the node from all others in the driver's topology: its value is the
// name of the node in the cluster or in the driver. Empty: a topology segment is larger than the node. The label is not known before
// the kubelet has labeled the node for the driver.
func (c *Capacities) ownLabel(n *storagev1.CSINode, driver string) (label string, known bool) {
	node, err := c.nodes.Get(n.Name)
	if err != nil {
		return "", false
	}
	at := slices.IndexFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
	if at < 0 {
		return "", false
	}
	d := &n.Spec.Drivers[at]
	for _, key := range d.TopologyKeys {
		value, ok := node.Labels[key]
		if !ok {
			return "", false
		}
		if key == corev1.LabelHostname || value == node.Name || value == node.Labels[corev1.LabelHostname] || value == d.NodeID {
			label = key + "=" + value
		}
	}
	return label, true
}

// shared reports whether a topology consists of zones or regions, or of all nodes.
func shared(topology *metav1.LabelSelector) bool {
	if topology == nil {
		return false
	}
	wide := func(key string) bool { return key == corev1.LabelTopologyZone || key == corev1.LabelTopologyRegion }
	for key := range topology.MatchLabels {
		if !wide(key) {
			return false
		}
	}
	return !slices.ContainsFunc(topology.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool { return !wide(e.Key) })
}

// Supposed returns what will be published for a node with the labels, as far as filters need it: that there is enough capacity. How
// much there will be is the planner's concern, which knows what other nodes have published.
func (c *Capacities) Supposed(node map[string]string) []*storagev1.CSIStorageCapacity {
	var out []*storagev1.CSIStorageCapacity
	on := c.On(node)
	for _, class := range c.Following() {
		if _, published := on[capacity.StorageOf(class.Name)]; !published {
			out = append(out, &storagev1.CSIStorageCapacity{StorageClassName: class.Name, NodeTopology: &metav1.LabelSelector{}, Capacity: &endless})
		}
	}
	return out
}
