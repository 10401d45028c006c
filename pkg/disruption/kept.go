package disruption

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/disruptionmetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/kept"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
)

// keptAtOnce is how many claims are annotated per pass at most.
const keptAtOnce = 20

// keptNodes says why nodes are kept: by an annotation and events on their claims, and a metric. Only the goroutine that makes the passes
// uses it.
type keptNodes struct {
	claims   client.Client
	recorder events.EventRecorder
	clock    clock.PassiveClock
	nodes    map[string]*keptNode // by the UID of the claim
	series   map[[2]string]bool   // pool and kind of the metric's series
}

// keptNode is why a node is kept, and what was last written about it.
type keptNode struct {
	kept.Note
	silent bool // the node is starting, or being disrupted: other events tell that
}

// record takes over why nodes are kept.
func (k *keptNodes) record(s *cluster, result *consolidation.Result, moves *moves) {
	next := make(map[string]*keptNode, len(result.Kept))
	numbers := map[[2]string]int{}
	for i := range result.Kept {
		m := s.byNode[result.Kept[i].Node]
		if m == nil || m.pool == nil {
			continue
		}
		n := k.nodes[m.uid()]
		if n == nil {
			n = &keptNode{}
		}
		n.Now = result.Kept[i]
		n.silent = !m.initialized() || m.claim.DeletionTimestamp != nil || moves.has(m.uid()) || moves.replacements.begun[m.uid()] != nil
		next[m.uid()] = n
		numbers[[2]string{m.pool.Name, string(n.Now.Kind)}]++
	}
	k.nodes = next
	for series := range k.series {
		if numbers[series] == 0 {
			disruptionmetrics.Kept.Delete(map[string]string{poolmetrics.Label: series[0], "kind": series[1]})
			delete(k.series, series)
		}
	}
	for series, n := range numbers {
		disruptionmetrics.Kept.WithLabelValues(series[0], series[1]).Set(float64(n))
		k.series[series] = true
	}
}

// write annotates claims whose annotation is out of date, some of them in each pass. A failed write is repeated in a later pass.
func (k *keptNodes) write(ctx context.Context, s *cluster) {
	now := k.clock.Now()
	left := keptAtOnce
	for _, m := range s.candidates {
		n := k.nodes[m.uid()]
		if n == nil || n.silent || m.claim.DeletionTimestamp != nil || left == 0 {
			continue
		}
		old := m.claim.Annotations[objects.AnnotationKept]
		text := kept.Text(&n.Now)
		if !n.Due(old, text, now) {
			continue
		}
		left--
		if err := k.patch(ctx, m.claim, &text); err != nil {
			klog.FromContext(ctx).Error(err, "Could not write why a node is kept, will retry", "nodeClaim", m.claim.Name)
			continue
		}
		n.Wrote(now)
		if kept.KindOf(old) != string(n.Now.Kind) {
			k.recorder.Eventf(m.claim, nil, corev1.EventTypeNormal, reasonUnconsolidatable, "Disrupt", "The node is kept: %s", n.Now.Text())
		}
	}
}

// remove removes the annotation from a claim whose node is drained.
func (k *keptNodes) remove(ctx context.Context, claim *karpv1.NodeClaim) {
	delete(k.nodes, string(claim.UID))
	if _, ok := claim.Annotations[objects.AnnotationKept]; !ok {
		return
	}
	if err := k.patch(ctx, claim, nil); err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "Could not remove why a node is kept", "nodeClaim", claim.Name)
	}
}

// patch sets the annotation, and the one that says when it was set, on this claim but on no later one of the same name; nil removes both.
func (k *keptNodes) patch(ctx context.Context, claim *karpv1.NodeClaim, value *string) error {
	annotations := map[string]*string{objects.AnnotationKept: value, objects.AnnotationKeptSince: nil}
	if value != nil {
		now := k.clock.Now().UTC().Format(time.RFC3339)
		annotations[objects.AnnotationKeptSince] = &now
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": claim.UID, "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("writing an annotation: %w", err)
	}
	obj := &karpv1.NodeClaim{}
	obj.Name = claim.Name
	if err := k.claims.Patch(ctx, obj, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("annotating NodeClaim %s: %w", claim.Name, err)
	}
	return nil
}
