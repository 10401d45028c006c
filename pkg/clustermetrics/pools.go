package clustermetrics

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

var (
	poolUsage = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "nodepools", Name: "usage",
		Help: "What the nodes of a pool have, as the pool's status says, by resource."}, "nodepool", "resource_type")
	poolLimit = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "nodepools", Name: "limit",
		Help: "What the nodes of a pool may have at most, by resource."}, "nodepool", "resource_type")
	poolCost = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "nodepools", Name: "cost_total",
		Help: "What the running nodes of a pool cost at list price, in dollars per hour."}, "nodepool")

	offerPrice = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "cloudprovider", Name: "instance_type_offering_price_estimate",
		Help: "Price of an offering as it counts in plans, in dollars per hour."}, "instance_type", "capacity_type", "zone")
	offerAvailable = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "cloudprovider", Name: "instance_type_offering_available",
		Help: "1 if an offering counts as available, 0 while it is remembered as unavailable."}, "instance_type", "capacity_type", "zone")
	typeCores = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "cloudprovider", Name: "instance_type_cpu_cores",
		Help: "CPUs of an instance type."}, "instance_type")
	typeMemory = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "cloudprovider", Name: "instance_type_memory_bytes",
		Help: "Memory of an instance type, as a node has it."}, "instance_type")
)

// resourceType returns a resource as Karpenter's labels name it: ephemeral-storage is ephemeral_storage.
func resourceType(name corev1.ResourceName) string {
	return strings.ReplaceAll(strings.ToLower(string(name)), "-", "_")
}

// amount returns a quantity in the resource's unit: CPUs, bytes, pieces.
func amount(name corev1.ResourceName, q resource.Quantity) float64 {
	if name == corev1.ResourceCPU {
		return float64(q.MilliValue()) / 1000
	}
	return float64(q.Value())
}

// resourcePairs makes the label pairs of resources, one for each.
type resourcePairs map[corev1.ResourceName]*dto.LabelPair

func (r resourcePairs) of(name corev1.ResourceName) *dto.LabelPair {
	if r[name] == nil {
		label, value := "resource_type", resourceType(name)
		r[name] = &dto.LabelPair{Name: &label, Value: &value}
	}
	return r[name]
}

// nodePools adds what pools use, may use and cost.
func nodePools(ctx context.Context, l *list, objects client.Reader, cost map[string]float64) error {
	var pools karpv1.NodePoolList
	if err := objects.List(ctx, &pools); err != nil {
		return fmt.Errorf("listing NodePools: %w", err)
	}
	resources := resourcePairs{}
	for i := range pools.Items {
		p := &pools.Items[i]
		of := pairs("nodepool", p.Name)
		for name, q := range p.Status.Resources {
			l.add(poolUsage, with(of, resources.of(name)), amount(name, q))
		}
		for name, q := range p.Spec.Limits {
			l.add(poolLimit, with(of, resources.of(name)), amount(name, q))
		}
		l.add(poolCost, of, cost[p.Name])
	}
	return nil
}

// offerings adds what can be bought. If pools see an offering differently, because of overlays, the pool that is tried first counts.
func offerings(l *list, pools []*capacity.Pool) {
	types := map[string]bool{}
	seen := map[capacity.OfferKey]bool{}
	for _, p := range pools {
		for _, t := range p.Types {
			if !types[t.Name] {
				types[t.Name] = true
				of := pairs("instance_type", t.Name)
				l.add(typeCores, of, float64(t.Capacity[corev1.ResourceCPU])/1000)
				l.add(typeMemory, of, float64(t.Capacity[corev1.ResourceMemory]))
			}
			for i := range t.Offers {
				o := &t.Offers[i]
				key := capacity.OfferKey{InstanceType: t.Name, Zone: o.Zone, CapacityType: o.CapacityType}
				// The labels don't tell dedicated hardware from shared, nor one reservation from another.
				if o.Tenancy != "" || seen[key] {
					continue
				}
				seen[key] = true
				of := pairs("instance_type", t.Name, "capacity_type", o.CapacityType, "zone", o.Zone)
				if !math.IsInf(o.Price, 0) {
					l.add(offerPrice, of, o.Price)
				}
				available := 0.0
				if o.Available {
					available = 1
				}
				l.add(offerAvailable, of, available)
			}
		}
	}
}
