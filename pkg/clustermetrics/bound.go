package clustermetrics

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	facts "github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// boundEvery is how old the lower bound may be: it looks at every offering of every pool.
const boundEvery = 5 * time.Minute

var lowerBound = newGauge(prometheus.Opts{Namespace: "dovetail", Name: "cost_lower_bound_dollars_per_hour",
	Help: "What the pods on a pool's nodes would cost at least on whichever nodes of the pool, at list price. It is computed every five minutes."}, "nodepool")

// demand is what the pods of a pool request: CPUs in thousandths and memory in bytes.
type demand struct{ cpu, memory float64 }

// demands returns what the pods on the nodes of each pool request, without those of DaemonSets, which come with every node, and without nodes
// in reserved capacity, which is paid for anyway.
func demands(src *Source) (map[string]demand, error) {
	all, err := src.Pods.List(everything)
	if err != nil {
		return nil, err
	}
	out := map[string]demand{}
	for _, p := range all {
		if p.Spec.NodeName == "" || facts.Ended(p) || pods.Daemon(p) {
			continue
		}
		n, err := src.Nodes.Get(p.Spec.NodeName)
		if err != nil || !src.NodeClass.Managed(n) || n.Labels[karpv1.CapacityTypeLabelKey] == karpv1.CapacityTypeReserved {
			continue
		}
		requests, pool := podRequestsOf(p), n.Labels[karpv1.NodePoolLabelKey]
		d := out[pool]
		d.cpu += float64(requests.Cpu().MilliValue())
		d.memory += float64(requests.Memory().Value())
		out[pool] = d
	}
	return out, nil
}

// bounds adds the lower bounds, which are worked out anew after boundEvery.
func (s *state) bounds(l *list, pools []*capacity.Pool, now time.Time) error {
	if s.bound == nil || now.Sub(s.boundAt) >= boundEvery {
		of, err := demands(s.source)
		if err != nil {
			return err
		}
		s.bound, s.boundAt = map[string]float64{}, now
		for _, p := range pools {
			s.bound[p.Name] = leastCost(p, of[p.Name])
		}
	}
	for _, p := range pools {
		if dollars, known := s.bound[p.Name]; known {
			l.add(lowerBound, pairs("nodepool", p.Name), dollars)
		}
	}
	return nil
}

// leastCost returns a value below which no nodes of the pool cost that have what is requested, in dollars per hour.
//
// It gives a CPU the price u and a byte of memory the price v, such that no offering is cheaper than what it has is worth at these prices. Then
// whatever nodes have the requested amounts cost at least what these are worth. For a given u the best v is the least of linear functions of u,
// so the worth is concave in u, and a ternary search finds the best u. A u that isn't quite the best gives a bound, too.
func leastCost(p *capacity.Pool, of demand) float64 {
	type offering struct{ price, cpu, memory float64 }
	var offerings []offering
	most := math.Inf(1) // of u
	for _, t := range p.Types {
		cpu, memory := float64(t.Allocatable[corev1.ResourceCPU]), float64(t.Allocatable[corev1.ResourceMemory])
		if cpu <= 0 || memory <= 0 {
			continue
		}
		for i := range t.Offers {
			o := &t.Offers[i]
			if math.IsInf(o.Price, 0) || o.CapacityType == karpv1.CapacityTypeReserved || contradicts(p.Requirements, t, o) {
				continue
			}
			offerings = append(offerings, offering{o.Price, cpu, memory})
			most = min(most, o.Price/cpu)
		}
	}
	if len(offerings) == 0 {
		return 0
	}
	worth := func(u float64) float64 {
		v := math.Inf(1)
		for _, o := range offerings {
			v = min(v, (o.price-u*o.cpu)/o.memory)
		}
		return u*of.cpu + max(v, 0)*of.memory
	}
	low, high := 0.0, most
	for range 60 {
		a, b := low+(high-low)/3, high-(high-low)/3
		if worth(a) < worth(b) {
			low = a
		} else {
			high = b
		}
	}
	return math.Round(worth((low+high)/2)*1e9) / 1e9 // the search leaves an error of about 1e-12
}

// contradicts reports whether an offering has a label that the pool's requirements exclude.
func contradicts(rs capacity.Requirements, t *capacity.InstanceType, o *capacity.Offer) bool {
	for key, r := range rs {
		v, ok := t.Labels[key]
		if !ok {
			v, ok = o.Label(key)
		}
		if ok && !r.Has(v) {
			return true
		}
	}
	return false
}
