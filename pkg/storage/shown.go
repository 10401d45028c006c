package storage

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

var endless = *resource.NewQuantity(math.MaxInt64, resource.BinarySI)

// Labels of nodes of pools.
const (
	labelPool        = "karpenter.sh/nodepool"
	labelInitialized = "karpenter.sh/initialized"
)

// Shown is the largest capacity that nodes have without any volumes: what is published as free, plus the driver's volumes. By
// capacity.StorageOf, in bytes; an initialized node that has published nothing counts as 0.
type Shown struct {
	byType map[poolType]map[string]int64
	byPool map[string]map[string]int64
}

type poolType struct{ pool, instanceType string }

// Shown returns the capacity of the existing nodes.
func (c *Capacities) Shown() Shown {
	s := Shown{map[poolType]map[string]int64{}, map[string]map[string]int64{}}
	classes := c.Following()
	if len(classes) == 0 {
		return s
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return s
	}
	taken := c.taken(classes)
	for _, n := range nodes {
		pool := n.Labels[labelPool]
		if pool == "" {
			continue
		}
		on := c.On(n.Labels)
		for _, class := range classes {
			key := capacity.StorageOf(class.Name)
			bytes, published := on[key]
			if published {
				bytes += taken[taker{class.Provisioner, n.Name}]
			} else if n.Labels[labelInitialized] != "true" {
				continue
			}
			s.add(poolType{pool, n.Labels[corev1.LabelInstanceTypeStable]}, key, bytes)
		}
	}
	return s
}

func (s Shown) add(at poolType, key string, bytes int64) {
	if s.byType[at] == nil {
		s.byType[at] = map[string]int64{}
	}
	if s.byPool[at.pool] == nil {
		s.byPool[at.pool] = map[string]int64{}
	}
	s.byType[at][key] = max(s.byType[at][key], bytes)
	s.byPool[at.pool][key] = max(s.byPool[at.pool][key], bytes)
}

// Of returns the assumed capacity of a new node of the pool and instance type. The capacity of a class that isn't listed is unknown. A
// type that no node has counts as unknown, so that it is tried, unless no node of the pool has any capacity.
func (s Shown) Of(pool, instanceType string) map[string]int64 {
	var out map[string]int64
	for key, most := range s.byPool[pool] {
		bytes, known := s.byType[poolType{pool, instanceType}][key]
		if !known && most > 0 {
			continue
		}
		if out == nil {
			out = map[string]int64{}
		}
		out[key] = bytes
	}
	return out
}

// taker is a driver on a node.
type taker struct{ driver, node string }

// taken returns the total size of the volumes of the classes' drivers on each node.
func (c *Capacities) taken(classes []*storagev1.StorageClass) map[taker]int64 {
	own := map[string]map[string]string{} // by driver: node name by the label that distinguishes the node
	for _, class := range classes {
		if own[class.Provisioner] != nil {
			continue
		}
		own[class.Provisioner] = map[string]string{}
		there, err := c.csiNodes.ByIndex(objects.IndexCSINodesByDriver, class.Provisioner)
		if err != nil {
			continue
		}
		for _, o := range there {
			n := o.(*storagev1.CSINode)
			if label, _ := c.ownLabel(n, class.Provisioner); label != "" {
				own[class.Provisioner][label] = n.Name
			}
		}
	}
	out := map[taker]int64{}
	volumes, err := c.volumes.List(labels.Everything())
	if err != nil {
		return out
	}
	for _, pv := range volumes {
		if pv.Spec.CSI == nil || own[pv.Spec.CSI.Driver] == nil {
			continue
		}
		if node := nodeOf(pv, own[pv.Spec.CSI.Driver]); node != "" {
			size := pv.Spec.Capacity[corev1.ResourceStorage]
			out[taker{pv.Spec.CSI.Driver, node}] += size.Value()
		}
	}
	return out
}

// nodeOf returns the node that the volume is on; own holds the nodes by the label that distinguishes them.
func nodeOf(pv *corev1.PersistentVolume, own map[string]string) string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return ""
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			for _, value := range e.Values {
				if node := own[e.Key+"="+value]; node != "" && e.Operator == corev1.NodeSelectorOpIn {
					return node
				}
			}
		}
	}
	return ""
}
