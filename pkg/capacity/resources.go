package capacity

import (
	"maps"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ResourceNodes is the pseudo resource that counts nodes in pool limits (Karpenter's `limits.nodes`).
const ResourceNodes corev1.ResourceName = "nodes"

// Resources is an amount per resource: milli-CPU for cpu, the plain value (bytes, pieces) for everything else.
// Values saturate at the ends of int64 instead of overflowing.
type Resources map[corev1.ResourceName]int64

// ResourcesOf converts a ResourceList. Fractions of non-cpu resources are rounded up, as kube-scheduler does.
func ResourcesOf(list corev1.ResourceList) Resources {
	out := make(Resources, len(list))
	for name, q := range list {
		if name == corev1.ResourceCPU {
			out[name] = milli(q)
		} else {
			out[name] = whole(q)
		}
	}
	return out
}

// whole is Quantity.Value without its silent wrap-around for quantities outside int64.
func whole(q resource.Quantity) int64 {
	if v, ok := q.AsInt64(); ok {
		return v
	}
	switch {
	case q.CmpInt64(math.MaxInt64) >= 0:
		return math.MaxInt64
	case q.CmpInt64(math.MinInt64) <= 0:
		return math.MinInt64
	}
	return q.Value()
}

// milli is Quantity.MilliValue without its silent wrap-around for quantities above MaxInt64/1000.
func milli(q resource.Quantity) int64 {
	if v := whole(q); v > math.MaxInt64/1000 {
		return math.MaxInt64
	} else if v < math.MinInt64/1000 {
		return math.MinInt64
	}
	return q.MilliValue()
}

// List converts r to the API's form.
func (r Resources) List() corev1.ResourceList {
	out := make(corev1.ResourceList, len(r))
	for name, v := range r {
		switch name {
		case corev1.ResourceCPU:
			out[name] = *resource.NewMilliQuantity(v, resource.DecimalSI)
		case corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceStorage:
			out[name] = *resource.NewQuantity(v, resource.BinarySI)
		default:
			out[name] = *resource.NewQuantity(v, resource.DecimalSI)
		}
	}
	return out
}

// Clone returns a copy that shares no memory with r.
func (r Resources) Clone() Resources {
	if r == nil {
		return Resources{}
	}
	return maps.Clone(r)
}

// Add adds o to r in place, n times.
func (r Resources) Add(o Resources, n int64) {
	for name, v := range o {
		r[name] = SatAdd(r[name], SatMul(v, n))
	}
}

// Sub subtracts o from r in place. A resource that r does not have becomes negative.
func (r Resources) Sub(o Resources) {
	for name, v := range o {
		r[name] = SatAdd(r[name], SatMul(v, -1))
	}
}

// Fits reports whether every positive amount of r is available. A resource missing from available is zero there.
func (r Resources) Fits(available Resources) bool {
	for name, v := range r {
		if v > 0 && v > available[name] {
			return false
		}
	}
	return true
}

// AtLeast raises r in place to the component-wise maximum of r and o.
func (r Resources) AtLeast(o Resources) {
	for name, v := range o {
		if cur, ok := r[name]; !ok || v > cur {
			r[name] = v
		}
	}
}

// AtMost lowers r in place to the component-wise minimum of r and o; a resource that one of them lacks is zero.
func (r Resources) AtMost(o Resources) {
	for name, v := range r {
		if ov := o[name]; ov < v {
			r[name] = ov
		}
	}
}

// SatAdd returns a plus b, or the end of int64 that the sum is beyond.
func SatAdd(a, b int64) int64 {
	c := a + b
	if a > 0 && b > 0 && c < 0 {
		return math.MaxInt64
	}
	if a < 0 && b < 0 && c >= 0 {
		return math.MinInt64
	}
	return c
}

// SatMul returns a times b, or the end of int64 that the product is beyond.
func SatMul(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	c := a * b
	if c/b != a || (a == math.MinInt64 && b == -1) {
		if (a > 0) == (b > 0) {
			return math.MaxInt64
		}
		return math.MinInt64
	}
	return c
}
