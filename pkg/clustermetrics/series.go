package clustermetrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// gauge is a gauge's description.
type gauge struct {
	fullName string
	desc     *prometheus.Desc
}

// newGauge describes a gauge. Its series may leave out labels: for Prometheus that is the same as an empty value, and takes less space.
func newGauge(o prometheus.Opts, labels ...string) *gauge {
	name := prometheus.BuildFQName(o.Namespace, o.Subsystem, o.Name)
	return &gauge{name, prometheus.NewDesc(name, o.Help, labels, nil)}
}

func (g *gauge) name() string { return g.fullName }

// series is one series of a gauge. Series of one object share the label pairs: a constant metric of the client library would sort and copy
// them for each, which takes most of the time where there are tens of thousands.
type series struct {
	of     *gauge
	labels []*dto.LabelPair
	value  float64
}

// Desc implements prometheus.Metric.
func (s *series) Desc() *prometheus.Desc { return s.of.desc }

// Write implements prometheus.Metric.
func (s *series) Write(out *dto.Metric) error {
	out.Label, out.Gauge = s.labels, &dto.Gauge{Value: &s.value}
	return nil
}

// pairs returns label pairs sorted by name, without those that are empty. It takes names and values in turn.
func pairs(nameValues ...string) []*dto.LabelPair {
	out := make([]*dto.LabelPair, 0, len(nameValues)/2)
	for i := 0; i+1 < len(nameValues); i += 2 {
		if nameValues[i+1] != "" {
			out = append(out, &dto.LabelPair{Name: &nameValues[i], Value: &nameValues[i+1]})
		}
	}
	slices.SortFunc(out, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

// with returns sorted label pairs with one more. It doesn't change the given ones.
func with(labels []*dto.LabelPair, pair *dto.LabelPair) []*dto.LabelPair {
	at, _ := slices.BinarySearchFunc(labels, pair.GetName(), func(p *dto.LabelPair, name string) int { return strings.Compare(p.GetName(), name) })
	out := make([]*dto.LabelPair, 0, len(labels)+1)
	out = append(append(append(out, labels[:at]...), pair), labels[at:]...)
	return out
}

// list collects series.
type list struct{ all []prometheus.Metric }

func (l *list) add(of *gauge, labels []*dto.LabelPair, value float64) {
	l.all = append(l.all, &series{of, labels, value})
}
