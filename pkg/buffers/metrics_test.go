package buffers

import (
	"strings"
	"testing"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// Chunks are counted once they have been looked at, and no longer than their buffer exists.
func TestChunksAreCounted(t *testing.T) {
	const head = "# HELP dovetail_buffer_chunks [ALPHA] " +
		"Chunks of CapacityBuffers, by state: ready (they have capacity on initialized nodes), launching (on nodes that are not initialized yet), missing.\n" +
		"# TYPE dovetail_buffer_chunks gauge\n"
	chunkGauge.Reset() // other tests have counted, too
	w := newWorld()
	w.all = []*autoscalingv1beta1.CapacityBuffer{buffer(func(*autoscalingv1beta1.CapacityBufferSpec) {})}
	want := func(text string) {
		t.Helper()
		w.tell(t.Context())
		if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(text), "dovetail_buffer_chunks"); err != nil {
			t.Error(err)
		}
	}
	want("")
	w.states = []ledger.BufferState{{Buffer: ledger.Buffer{UID: "uid", Chunks: 6}, Ready: 2, Launching: 3}}
	want(head + `dovetail_buffer_chunks{buffer="spare",namespace="shop",state="launching"} 3
dovetail_buffer_chunks{buffer="spare",namespace="shop",state="missing"} 1
dovetail_buffer_chunks{buffer="spare",namespace="shop",state="ready"} 2
`)
	w.all, w.states = nil, nil
	want("")
}
