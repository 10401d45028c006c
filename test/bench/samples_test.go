package bench

import (
	"math"
	"slices"
	"testing"
	"time"
)

// samples are measured times of one thing.
type samples []time.Duration

// quantile returns the time that a share q of the samples doesn't exceed.
func (s samples) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// to returns the ratio to samples that were taken in turns with these: the median of the pairs' ratios, so that what slows the machine
// down for a while affects both sides of a pair.
func (s samples) to(o samples) float64 { return median(s.ratios(o)) }

func (s samples) ratios(o samples) []float64 {
	ratios := make([]float64, len(s))
	for i := range s {
		ratios[i] = float64(s[i]) / float64(o[i])
	}
	return ratios
}

// interval returns two of the values, between which the true median is with a probability of 95 % (the binomial
// distribution by its normal approximation).
func interval(values []float64) (low, high float64) {
	sorted, n := slices.Sorted(slices.Values(values)), float64(len(values))
	half := 1.96 * math.Sqrt(n) / 2
	return sorted[max(0, int(math.Floor(n/2-half))-1)], sorted[min(len(sorted)-1, int(math.Ceil(n/2+half)))]
}

func (s samples) mean() time.Duration {
	var sum time.Duration
	for _, d := range s {
		sum += d
	}
	return sum / time.Duration(max(1, len(s)))
}

// undisturbed returns the time of samples that nothing else on the machine has disturbed: the fastest tenth.
func (s samples) undisturbed() float64 { return float64(s.quantile(0.1)) }

// seconds returns the median.
func (s samples) seconds() float64 {
	values := make([]float64, len(s))
	for i, d := range s {
		values[i] = d.Seconds()
	}
	return median(values)
}

// median returns the median of ratios or rates.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// report replaces the time per iteration, which includes the set-up between measurements, by the given metrics.
func report(b *testing.B, metrics map[string]float64) {
	b.Helper()
	b.ReportMetric(0, "ns/op")
	for unit, v := range metrics {
		b.ReportMetric(v, unit)
	}
}

func TestInterval(t *testing.T) {
	var values []float64
	for i := range 50 {
		values = append(values, float64(50-i))
	}
	if low, high := interval(values); low != 18 || high != 33 { // the ranks in tables of the binomial distribution
		t.Errorf("the interval is %v to %v, want 18 to 33", low, high)
	}
	if low, high := interval([]float64{2, 1}); low != 1 || high != 2 {
		t.Errorf("the interval is %v to %v, want both values", low, high)
	}
}

func TestQuantile(t *testing.T) {
	var s samples
	for i := range 100 {
		s = append(s, time.Duration(100-i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 51, 0.99: 100, 1: 100} {
		if got := s.quantile(q); got != want {
			t.Errorf("quantile %v of 1 to 100 is %d, want %d", q, got, want)
		}
	}
	if got := (samples{1, 4, 9}).to(samples{1, 2, 3}); got != 2 {
		t.Errorf("ratio of the pairs 1:1, 4:2, 9:3 is %v, want 2", got)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median of 1 to 4 is %v, want 2.5", got)
	}
}
