package buffers

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

var chunkGauge = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace: "dovetail", Name: "buffer_chunks",
	Help: "Chunks of CapacityBuffers, by state: ready (they have capacity on initialized nodes), launching (on nodes that are not initialized yet), missing.", StabilityLevel: metrics.ALPHA,
}, []string{"namespace", "buffer", "state"})

func init() { legacyregistry.MustRegister(chunkGauge) }

// counted are the buffers that have series.
type counted map[types.NamespacedName]bool

// count sets the series of all buffers whose chunks have been looked at, and deletes those of others.
func (c counted) count(all []*autoscalingv1beta1.CapacityBuffer, states map[types.UID]*ledger.BufferState) {
	now := map[types.NamespacedName]bool{}
	for _, b := range all {
		s := states[b.UID]
		if s == nil || b.DeletionTimestamp != nil {
			continue
		}
		now[types.NamespacedName{Namespace: b.Namespace, Name: b.Name}] = true
		for state, n := range map[string]int{"ready": s.Ready, "launching": s.Launching, "missing": s.Missing()} {
			chunkGauge.WithLabelValues(b.Namespace, b.Name, state).Set(float64(n))
		}
	}
	for name := range c {
		if !now[name] {
			for _, state := range []string{"ready", "launching", "missing"} {
				chunkGauge.DeleteLabelValues(name.Namespace, name.Name, state)
			}
			delete(c, name)
		}
	}
	for name := range now {
		c[name] = true
	}
}
