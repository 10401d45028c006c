package scrape

import (
	"maps"
	"math"
	"slices"
)

// Histogram is a Prometheus histogram.
type Histogram struct {
	Sum, Count float64
	// buckets are how many values were at most so large, by their upper bound.
	buckets map[float64]float64
}

// Quantile estimates a quantile as Prometheus does: the values of a bucket are taken to lie evenly between its bounds. Above the highest
// finite bound it returns that bound; of nothing, NaN.
func (h *Histogram) Quantile(q float64) float64 {
	rank, low, below := q*h.Count, 0.0, 0.0
	for _, bound := range slices.Sorted(maps.Keys(h.buckets)) {
		up := h.buckets[bound]
		switch {
		case up < rank:
		case math.IsInf(bound, 1):
			return low
		case up > below:
			return low + (bound-low)*(rank-below)/(up-below)
		}
		low, below = bound, up
	}
	return math.NaN()
}

// Mean returns the mean of the values; of nothing, NaN.
func (h *Histogram) Mean() float64 { return h.Sum / h.Count }

func (h *Histogram) add(other *Histogram, sign float64) {
	if other == nil {
		return
	}
	h.Sum += sign * other.Sum
	h.Count += sign * other.Count
	for bound, n := range other.buckets {
		h.buckets[bound] += sign * n
	}
}
