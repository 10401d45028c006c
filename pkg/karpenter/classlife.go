package karpenter

import (
	"context"
	"fmt"
	"slices"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// nodeClass maintains the finalizer, the hash and the store's conditions of an EC2NodeClass. The cloud adapter sets the resolved
// status (SetNodeClassStatus).
//
//	created -> finalizer -> hash written -> deleted -> no claim refers to it -> its cloud resources are removed -> finalizer removed
func (p *poolStatus) nodeClass(ctx context.Context, base *ec2nc.EC2NodeClass) error {
	if !base.DeletionTimestamp.IsZero() {
		return p.endClass(ctx, base)
	}
	if malformed(base) != "" {
		nc := base.DeepCopy()
		nc.StatusConditions(status.WithClock(p.clock)).SetFalse(ec2nc.ConditionTypeValidationSucceeded, reasonMalformed, shorten(malformed(base)))
		return save(ctx, p, base, nc, func() (any, any) { return base.Status, nc.Status })
	}
	if !derived(base.Name) && !slices.Contains(base.Finalizers, ec2nc.TerminationFinalizer) {
		nc := base.DeepCopy()
		nc.Finalizers = append(nc.Finalizers, ec2nc.TerminationFinalizer)
		if err := p.write(ctx, base, nc, false); err != nil {
			return fmt.Errorf("adding the finalizer to EC2NodeClass %s: %w", base.Name, err)
		}
		return nil // the watch event of this write brings us back
	}
	nc := base.DeepCopy()
	paused(nc.StatusConditions(status.WithClock(p.clock)), nc.Annotations[objects.AnnotationGuard])
	if err := save(ctx, p, base, nc, func() (any, any) { return base.Status, nc.Status }); err != nil {
		return err
	}
	return p.stampClass(ctx, base)
}

// stampClass is stampPool for a class. It waits until the cluster CA is known, with which nodes verify the API server.
func (p *poolStatus) stampClass(ctx context.Context, nc *ec2nc.EC2NodeClass) error {
	ca, known := p.clusterCA()
	if !known {
		return nil
	}
	st := classStamp(nc, ca)
	if st.on(nc.Annotations) {
		return nil
	}
	if !st.current(nc.Annotations) {
		if err := p.restamp(ctx, st, func(claim *karpv1.NodeClaim) bool { return refersTo(claim, nc.Name) }); err != nil {
			return err
		}
	}
	return p.annotate(ctx, nc, st)
}

func refersTo(claim *karpv1.NodeClaim, class string) bool {
	ref := claim.Spec.NodeClassRef
	return ref != nil && ref.Group == nodeClassGroup && ref.Kind == nodeClassKind && ref.Name == class
}

// endClass removes the finalizer once no claim refers to the class: until then its nodes are still managed, and what they were
// launched with must not disappear. When the last claim is removed, endClass is called again.
func (p *poolStatus) endClass(ctx context.Context, base *ec2nc.EC2NodeClass) error {
	if !slices.Contains(base.Finalizers, ec2nc.TerminationFinalizer) {
		return nil
	}
	var users []string
	p.mu.RLock()
	for name, k := range p.known {
		if refersTo(k.object, base.Name) {
			users = append(users, name)
		}
	}
	p.mu.RUnlock()
	if len(users) > 0 {
		slices.Sort(users)
		p.recorder.Eventf(base, nil, corev1.EventTypeNormal, "WaitingOnNodeClaimTermination", "Delete", "%s",
			shorten(fmt.Sprintf("%d NodeClaims still use it: %s", len(users), strings.Join(users, ", "))))
		return nil
	}
	for _, f := range p.onClassEnd {
		if err := f(ctx, base.DeepCopy()); err != nil {
			return fmt.Errorf("removing what was made for EC2NodeClass %s: %w", base.Name, err)
		}
	}
	nc := base.DeepCopy()
	nc.Finalizers = slices.DeleteFunc(nc.Finalizers, func(f string) bool { return f == ec2nc.TerminationFinalizer })
	if err := p.write(ctx, base, nc, false); err != nil {
		return fmt.Errorf("removing the finalizer from EC2NodeClass %s: %w", base.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("EC2NodeClass is no longer used; removed its finalizer", "ec2NodeClass", base.Name)
	return nil
}
