package worlds

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/record"
	"github.com/dovetail-scheduler/dovetail/test/worlds/check"
)

const (
	// still is for how long no node may be launched or ended before a consolidation counts as over: the scheduler looks at the cluster every ten
	// seconds.
	still = 25 * time.Second
	// consolidationPatience bounds the wait for that.
	consolidationPatience = 90 * time.Second
)

// consolidate makes the world smaller, lets the scheduler empty used nodes, and returns what happened.
func (r *run) consolidate(ctx context.Context, sim *ec2.Sim, seen *record.Recorder, before []record.Event) (*check.Consolidation, error) {
	out := &check.Consolidation{Budget: r.w.Cut.Budget, Before: sim.Bill().PerHour}
	for _, e := range before {
		out.Since = max(out.Since, e.Revision)
	}
	for name, n := range r.w.Cut.Scale {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: r.w.Namespace, Name: name}}
		if err := r.api.Patch(ctx, d, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))); err != nil {
			return nil, fmt.Errorf("scaling %s: %w", name, err)
		}
	}
	var pools karpv1.NodePoolList
	if err := r.api.List(ctx, &pools); err != nil {
		return nil, err
	}
	for i := range pools.Items {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"dovetail.sh/restart-cost":"0s"}},
			"spec":{"disruption":{"consolidationPolicy":"WhenEmptyOrUnderutilized","consolidateAfter":"0s","budgets":[{"nodes":%q}]}}}`, r.w.Cut.Budget)
		if err := r.api.Patch(ctx, &pools.Items[i], client.RawPatch(types.MergePatchType, patch)); err != nil {
			return nil, fmt.Errorf("changing pool %s: %w", pools.Items[i].Name, err)
		}
	}
	if err := r.untilStill(ctx); err != nil {
		return nil, err
	}
	want := r.w.AfterCut()
	running, cancel := context.WithTimeout(ctx, r.options.Patience)
	defer cancel()
	if _, err := cluster.Until(running, r.api, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string, error) { return r.sized(pods, want) }, client.InNamespace(r.w.Namespace)); err != nil {
		out.Unsettled = err.Error()
	}
	out.After = sim.Bill().PerHour
	var err error
	out.Events, err = seen.Events(ctx)
	return out, err
}

// untilStill waits until no claim has come, changed its node or gone for a while.
func (r *run) untilStill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, consolidationPatience)
	defer cancel()
	for {
		var claims karpv1.NodeClaimList
		if err := r.api.List(ctx, &claims); err != nil {
			if ctx.Err() != nil {
				return nil // it is judged as far as it went
			}
			return err
		}
		now, ending := names(claims.Items)
		more, cancel := context.WithTimeout(ctx, still)
		_, err := cluster.Until(more, r.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
			var items []karpv1.NodeClaim
			for _, c := range claims {
				items = append(items, *c)
			}
			then, _ := names(items)
			return then != now, "a change", nil
		})
		cancel()
		if err != nil && (!ending || ctx.Err() != nil) {
			return nil
		}
	}
}

// names says which claims there are, and which of them are being deleted; ending: some are.
func names(claims []karpv1.NodeClaim) (all string, ending bool) {
	in := map[string]bool{}
	for i := range claims {
		in[claims[i].Name] = claims[i].DeletionTimestamp != nil
		ending = ending || in[claims[i].Name]
	}
	return fmt.Sprint(in), ending // sorted by name
}
