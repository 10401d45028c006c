// Package poolmetrics keeps the list of the metrics that have a series for each node pool, so that the series of a pool end with it: in a
// cluster whose pools come and go they would be reported for ever, and a gauge of what is not there any more is wrong.
//
// It knows neither what the metrics mean nor which pools there are.
package poolmetrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Label names the pool of a series. What belongs to no pool has it empty.
const Label = "nodepool"

// Vec is a metric with the label.
type Vec interface {
	metrics.Registerable
	DeletePartialMatch(labels prometheus.Labels) int
}

var (
	mu  sync.Mutex
	all []Vec
)

// MustRegister registers metrics where the scheduler's own are, and has Keep look after them.
func MustRegister(vecs ...Vec) {
	mu.Lock()
	defer mu.Unlock()
	for _, v := range vecs {
		legacyregistry.MustRegister(v)
		all = append(all, v)
	}
}

// Keep deletes the series of all other pools. It looks at the series that there are and not at those that it has seen before: one that a
// slow goroutine makes after its pool has gone ends with the next call.
func Keep(pools map[string]bool) {
	mu.Lock()
	defer mu.Unlock()
	for _, v := range all {
		for pool := range poolsOf(v) {
			if pool != "" && !pools[pool] {
				v.DeletePartialMatch(prometheus.Labels{Label: pool})
			}
		}
	}
}

// poolsOf are the pools that a metric has series of.
func poolsOf(v Vec) map[string]bool {
	series := make(chan prometheus.Metric)
	go func() {
		defer close(series)
		v.Collect(series)
	}()
	out := map[string]bool{}
	for one := range series {
		var read dto.Metric
		if one.Write(&read) != nil {
			continue // it can't be reported either
		}
		for _, l := range read.Label {
			if l.GetName() == Label {
				out[l.GetValue()] = true
			}
		}
	}
	return out
}
