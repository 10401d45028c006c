package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// nodeClassStatus maintains the finalizer, the hash and the store's conditions of a node class. The cloud adapter sets the resolved
// status (SetNodeClassStatus).
//
//	created -> finalizer -> hash written -> deleted -> no claim refers to it -> its cloud resources are removed -> finalizer removed
func (p *poolStatus) nodeClassStatus(ctx context.Context, base status.Object) error {
	if !base.GetDeletionTimestamp().IsZero() {
		return p.endClass(ctx, base)
	}
	if karpenter.Malformed(base) != "" {
		nc := copyOf(base)
		nc.StatusConditions(status.WithClock(p.clock)).SetFalse(karpv1.ConditionTypeValidationSucceeded, karpenter.ReasonMalformed, shorten(karpenter.Malformed(base)))
		return save(ctx, p, base, nc, func() (any, any) { return base, nc })
	}
	if !karpenter.Derived(base.GetName()) && !slices.Contains(base.GetFinalizers(), p.nodeClass.Finalizer) {
		nc := copyOf(base)
		nc.SetFinalizers(append(nc.GetFinalizers(), p.nodeClass.Finalizer))
		if err := p.write(ctx, base, nc, false); err != nil {
			return fmt.Errorf("adding the finalizer to %s %s: %w", p.nodeClass.Kind, base.GetName(), err)
		}
		return nil // the watch event of this write brings us back
	}
	nc := copyOf(base)
	paused(nc.StatusConditions(status.WithClock(p.clock)), nc.GetAnnotations()[objects.AnnotationGuard])
	if err := save(ctx, p, base, nc, func() (any, any) { return base, nc }); err != nil {
		return err
	}
	return p.stampClass(ctx, base)
}

// copyOf returns a copy of a node class that may be changed.
func copyOf(nc status.Object) status.Object { return nc.DeepCopyObject().(status.Object) }

// stampClass writes the hash of a class's spec on the class, and before that on claims with a hash of another version, as stampPool does for a
// pool. It writes nothing until the certificate is known with which nodes verify the API server, because the hash includes it.
func (p *poolStatus) stampClass(ctx context.Context, nc status.Object) error {
	ca, known := p.sources.ClusterCA()
	if !known {
		return nil
	}
	return p.stamp(ctx, p.nodeClass.Kind, nc, karpenter.ClassStamp(&p.nodeClass, nc, ca), func(claim *karpv1.NodeClaim) bool { return p.refersTo(claim, nc.GetName()) })
}

func (p *poolStatus) refersTo(claim *karpv1.NodeClaim, class string) bool {
	ref := claim.Spec.NodeClassRef
	return ref != nil && ref.GroupKind() == p.nodeClass.GroupKind() && ref.Name == class
}

// endClass removes the finalizer once no claim refers to the class: until then its nodes are still managed, and what they were launched
// with must not disappear. The removal of a claim calls endClass again, in the process of the Dovetail that manages the claim.
func (p *poolStatus) endClass(ctx context.Context, base status.Object) error {
	if !slices.Contains(base.GetFinalizers(), p.nodeClass.Finalizer) {
		return nil
	}
	var users []string
	p.mu.RLock()
	for name, k := range p.known {
		if p.refersTo(k.object, base.GetName()) {
			users = append(users, name)
		}
	}
	p.mu.RUnlock()
	if len(users) == 0 {
		var err error
		if users, err = otherUsers(ctx, p, base.GetName()); err != nil {
			return fmt.Errorf("reading whether NodeClaims still use %s %s: %w", p.nodeClass.Kind, base.GetName(), err)
		}
	}
	if len(users) > 0 {
		slices.Sort(users)
		p.recorder.Eventf(base, nil, corev1.EventTypeNormal, "WaitingOnNodeClaimTermination", "Delete", "%s",
			shorten(fmt.Sprintf("%d NodeClaims still use it: %s", len(users), strings.Join(users, ", "))))
		return nil
	}
	for _, f := range p.onClassEnd {
		if err := f(ctx, copyOf(base)); err != nil {
			return fmt.Errorf("removing what was made for %s %s: %w", p.nodeClass.Kind, base.GetName(), err)
		}
	}
	nc := copyOf(base)
	nc.SetFinalizers(slices.DeleteFunc(nc.GetFinalizers(), func(f string) bool { return f == p.nodeClass.Finalizer }))
	if err := p.write(ctx, base, nc, false); err != nil {
		return fmt.Errorf("removing the finalizer from %s %s: %w", p.nodeClass.Kind, base.GetName(), err)
	}
	klog.FromContext(ctx).V(2).Info("Node class is no longer used; removed its finalizer", "kind", p.nodeClass.Kind, "name", base.GetName())
	return nil
}
