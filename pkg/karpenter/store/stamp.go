package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

// stampPool writes the hash of the template on the pool. If the pool has a hash of another version, from another version of Karpenter or
// of this program, its claims are stamped first. For a derived pool that is checked each time, because such a pool stores no version. A
// pool that can't be used is not stamped yet.
func (p *poolStatus) stampPool(ctx context.Context, np *karpv1.NodePool) error {
	if karpenter.PoolProblem(np, p.nodeClass.GroupKind()) != nil {
		return nil
	}
	return p.stamp(ctx, "NodePool", np, karpenter.PoolStamp(np), func(nc *karpv1.NodeClaim) bool { return nc.Labels[karpv1.NodePoolLabelKey] == np.Name })
}

// stamp writes a stamp (hash and version) on a pool or class, and before that on those of its claims that have a hash of another version. of reports
// whether a claim is one of the object's.
func (p *poolStatus) stamp(ctx context.Context, kind string, o client.Object, st karpenter.Stamp, of func(*karpv1.NodeClaim) bool) error {
	if karpenter.Derived(o.GetName()) || !st.Current(o.GetAnnotations()) {
		if err := p.restamp(ctx, st, of); err != nil {
			return err
		}
	}
	if st.On(o.GetAnnotations()) {
		return nil
	}
	return p.annotate(ctx, kind, o, st)
}

// restamp writes the present hash to claims that have a hash of another version. We can't tell from such a hash which template they were made
// from, so they count as nodes of the present template, as in Karpenter when its own hash version changes. A claim that has drifted
// already stays drifted: it keeps its old hash, which matches no other.
func (p *poolStatus) restamp(ctx context.Context, st karpenter.Stamp, of func(*karpv1.NodeClaim) bool) error {
	p.mu.RLock()
	var claims []*karpv1.NodeClaim
	for _, k := range p.known {
		if nc := k.object; nc.DeletionTimestamp.IsZero() && !st.Current(nc.Annotations) && of(nc) {
			claims = append(claims, nc)
		}
	}
	p.mu.RUnlock()
	slices.SortFunc(claims, func(a, b *karpv1.NodeClaim) int { return strings.Compare(a.Name, b.Name) })
	var errs []error
	for _, nc := range claims {
		annotations := map[string]string{st.VersionKey: st.Version}
		if !karpenter.ConditionTrue(nc, karpv1.ConditionTypeDrifted) {
			st.Put(annotations)
		}
		err := p.mergePatch(ctx, nc.Name, map[string]any{"metadata": map[string]any{"annotations": annotations}}, false)
		if !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// annotate writes a stamp on an object of a kind. No other controller writes these annotations, so there can be no conflict.
func (p *poolStatus) annotate(ctx context.Context, kind string, o client.Object, st karpenter.Stamp) error {
	if karpenter.Derived(o.GetName()) {
		o = o.DeepCopyObject().(client.Object)
		st.Put(o.GetAnnotations())
		p.derived.Stamp(o)
		return nil
	}
	annotations := map[string]string{}
	st.Put(annotations)
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return fmt.Errorf("writing the hash annotation of %s %s: %w", kind, o.GetName(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := p.live.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, raw)); err != nil {
		return fmt.Errorf("writing the hash annotation of %s %s: %w", kind, o.GetName(), err)
	}
	return nil
}
