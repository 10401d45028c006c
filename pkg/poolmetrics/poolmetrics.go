// Package poolmetrics keeps a list of the metrics that have a series for each node pool, and deletes the series of removed pools.
// Otherwise, in a cluster whose pools change, they would be reported for ever, and a gauge about a removed pool would be wrong.
//
// It knows neither what the metrics mean nor which pools exist.
package poolmetrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Label names the pool of a series. It is empty in series that belong to no pool.
const Label = "nodepool"

// Vec is a metric with the label.
type Vec interface {
	metrics.Registerable
	DeletePartialMatch(labels prometheus.Labels) int
}

var (
	mu sync.Mutex
	// all are the metrics by the label that names the pool.
	all = map[string][]Vec{}
)

// MustRegister registers metrics where the scheduler's own are registered, and adds them to those that Keep cleans up.
func MustRegister(vecs ...Vec) { MustRegisterAs(Label, vecs...) }

// MustRegisterAs is MustRegister for metrics of which another label names the pool.
func MustRegisterAs(label string, vecs ...Vec) {
	mu.Lock()
	defer mu.Unlock()
	for _, v := range vecs {
		legacyregistry.MustRegister(v)
		all[label] = append(all[label], v)
	}
}

// Keep deletes the series of all pools but these. It looks at the existing series and not at those it has seen before: if a slow goroutine
// creates a series after its pool was removed, the next call deletes it.
func Keep(pools map[string]bool) {
	mu.Lock()
	defer mu.Unlock()
	for label, vecs := range all {
		for _, v := range vecs {
			for pool := range poolsOf(v, label) {
				if pool != "" && !pools[pool] {
					v.DeletePartialMatch(prometheus.Labels{label: pool})
				}
			}
		}
	}
}

// poolsOf returns the pools that a metric has series of, which the label names.
func poolsOf(v Vec, label string) map[string]bool {
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
			if l.GetName() == label {
				out[l.GetValue()] = true
			}
		}
	}
	return out
}
