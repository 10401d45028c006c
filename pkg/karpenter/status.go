package karpenter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const (
	// countDelay gathers the changes of a burst of claims into one write of a pool's counts.
	countDelay = time.Second
	// statusWorkers write different objects at the same time.
	statusWorkers = 4
)

// Reasons of conditions and events.
const (
	reasonValidationFailed = "NodePoolValidationFailed"
	reasonMalformed        = "Malformed"
	reasonNotHonored       = "FieldsNotHonored"
	reasonUnreadable       = "RecordUnreadable"
	reasonClassUnknown     = "NodeClassReadinessUnknown"
)

// statusKey is an object whose status is to be looked at.
type statusKey struct{ kind, name string }

// poolStatus keeps the status of NodePools, and says on NodeOverlays and on EC2NodeClasses that can't be read what is the
// matter with them. It is level-triggered: a key says what to look at, never what has happened.
type poolStatus struct {
	*Store
	// queue is set while RunStatus runs.
	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[statusKey]]
}

func newPoolStatus(s *Store) *poolStatus { return &poolStatus{Store: s} }

// RunStatus writes conditions and counts of NodePools until ctx ends. It is for the leader: two replicas would only write the
// same, but twice.
func (s *Store) RunStatus(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[statusKey](100*time.Millisecond, time.Minute),
		workqueue.TypedRateLimitingQueueConfig[statusKey]{Name: "nodepool_status", Clock: s.clock},
	)
	p := s.status
	p.queue.Store(&queue)
	defer p.queue.Store(nil)
	if !s.WaitForSync(ctx) {
		queue.ShutDown()
		return nil
	}
	for _, i := range []*informer{s.pools, s.overlays, s.classes} {
		for _, name := range i.GetStore().ListKeys() {
			p.enqueue(statusKey{i.Kind, name}, 0)
		}
	}
	var workers wait.Group
	for range statusWorkers {
		workers.Start(func() {
			for p.next(ctx, queue) {
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	workers.Wait()
	return nil
}

func (p *poolStatus) enqueue(k statusKey, after time.Duration) {
	if q := p.queue.Load(); q != nil {
		(*q).AddAfter(k, after)
	}
}

func (p *poolStatus) changed(k kind, name string) { p.enqueue(statusKey{k.Kind, name}, 0) }

func (p *poolStatus) claimChanged(pool string) {
	if pool != "" {
		p.enqueue(statusKey{nodePools.Kind, pool}, countDelay)
	}
}

// classChanged looks at the class and at every pool that refers to it.
func (p *poolStatus) classChanged(name string) {
	p.changed(nodeClasses, name)
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, one := range p.parsed {
		if one.pool.NodeClass == name {
			p.changed(nodePools, one.object.Name)
		}
	}
}

func (p *poolStatus) next(ctx context.Context, queue workqueue.TypedRateLimitingInterface[statusKey]) bool {
	k, end := queue.Get()
	if end {
		return false
	}
	defer queue.Done(k)
	err := p.reconcile(ctx, k)
	if client.IgnoreNotFound(err) == nil {
		queue.Forget(k)
		return true
	}
	if ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("Could not write a status, trying again", "kind", k.kind, "name", k.name, "err", err)
	}
	queue.AddRateLimited(k)
	return true
}

func (p *poolStatus) reconcile(ctx context.Context, k statusKey) error {
	switch k.kind {
	case nodePools.Kind:
		if np := p.poolObject(k.name); np != nil {
			return p.pool(ctx, np)
		}
	case nodeOverlays.Kind:
		if o, ok, _ := p.overlays.GetStore().GetByKey(k.name); ok {
			return p.overlay(ctx, o.(*karpv1alpha1.NodeOverlay))
		}
	case nodeClasses.Kind:
		if nc := p.class(k.name); nc != nil && malformed(nc) != "" {
			return p.malformedClass(ctx, nc)
		}
	}
	return nil
}

// pool writes what can be said of a NodePool.
func (p *poolStatus) pool(ctx context.Context, base *karpv1.NodePool) error {
	np := base.DeepCopy()
	set := np.StatusConditions(status.WithClock(p.clock))

	if reason := malformed(np); reason != "" {
		set.SetFalse(karpv1.ConditionTypeValidationSucceeded, reasonMalformed, shorten(reason))
		set.SetUnknownWithReason(karpv1.ConditionTypeNodeClassReady, reasonMalformed, "the spec can't be read")
	} else {
		if errs := validatePool(np); len(errs) > 0 {
			set.SetFalse(karpv1.ConditionTypeValidationSucceeded, reasonValidationFailed, shorten(joinErrors(errs)))
		} else {
			set.SetTrue(karpv1.ConditionTypeValidationSucceeded)
		}
		p.classReady(np, set)
		honored(set, unhonoredBy(np))
	}
	p.count(np)

	return save(ctx, p, base, np, func() (any, any) { return base.Status, np.Status })
}

// classReady mirrors the Ready condition of the pool's EC2NodeClass.
func (p *poolStatus) classReady(np *karpv1.NodePool, set status.ConditionSet) {
	ref := np.Spec.Template.Spec.NodeClassRef
	if ref == nil || ref.Group != nodeClassGroup || ref.Kind != nodeClassKind || ref.Name == "" {
		set.SetFalse(karpv1.ConditionTypeNodeClassReady, "NodeClassNotSupported", "spec.template.spec.nodeClassRef names no EC2NodeClass of karpenter.k8s.aws")
		return
	}
	nc := p.class(ref.Name)
	if problem := nodeClassProblem(np.Name, ref.Name, nc); problem != "" {
		reason := "NodeClassNotFound"
		switch {
		case nc != nil && malformed(nc) != "":
			reason = reasonMalformed
		case nc != nil:
			reason = "NodeClassTerminating"
		}
		set.SetFalse(karpv1.ConditionTypeNodeClassReady, reason, shorten(problem))
		return
	}
	ready := nc.StatusConditions(status.WithObservedOnly()).Get(status.ConditionReady)
	switch {
	case ready.IsTrue():
		set.SetTrue(karpv1.ConditionTypeNodeClassReady)
	case ready.IsFalse():
		set.SetFalse(karpv1.ConditionTypeNodeClassReady, conditionReason(ready.Reason, "NodeClassNotReady"), shorten(fmt.Sprintf("EC2NodeClass %s: %s", ref.Name, whatFailed(nc, ready))))
	default:
		set.SetFalse(karpv1.ConditionTypeNodeClassReady, reasonClassUnknown, fmt.Sprintf("EC2NodeClass %s has not been resolved yet", ref.Name))
	}
}

// whatFailed is what the class's own conditions say is wrong, which tells more than that Ready is False.
func whatFailed(nc *ec2nc.EC2NodeClass, ready *status.Condition) string {
	var out []string
	for _, c := range nc.Status.Conditions {
		if c.IsFalse() && c.Type != status.ConditionReady {
			out = append(out, fmt.Sprintf("%s is False (%s): %s", c.Type, c.Reason, c.Message))
		}
	}
	if len(out) == 0 {
		return ready.Message
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// count sums up what the pool's launched claims have. A claim that is not launched has nothing yet, and a failed launch would
// only make the numbers jump.
func (p *poolStatus) count(np *karpv1.NodePool) {
	total := capacity.Resources{corev1.ResourceCPU: 0, corev1.ResourceMemory: 0, corev1.ResourcePods: 0, corev1.ResourceEphemeralStorage: 0, capacity.ResourceNodes: 0}
	p.mu.RLock()
	for _, k := range p.known {
		if k.claim.Pool == np.Name && k.claim.Launched {
			total.Add(k.claim.Capacity, 1)
			total[capacity.ResourceNodes]++
		}
	}
	p.mu.RUnlock()
	nodes := total[capacity.ResourceNodes]
	np.Status.Resources, np.Status.Nodes = total.List(), &nodes
}

func (p *poolStatus) overlay(ctx context.Context, base *karpv1alpha1.NodeOverlay) error {
	o := base.DeepCopy()
	honored(o.StatusConditions(status.WithClock(p.clock)), overlayUnhonored)
	return save(ctx, p, base, o, func() (any, any) { return base.Status, o.Status })
}

func (p *poolStatus) malformedClass(ctx context.Context, base *ec2nc.EC2NodeClass) error {
	nc := base.DeepCopy()
	nc.StatusConditions(status.WithClock(p.clock)).SetFalse(ec2nc.ConditionTypeValidationSucceeded, reasonMalformed, shorten(malformed(base)))
	return save(ctx, p, base, nc, func() (any, any) { return base.Status, nc.Status })
}

// honored says in a condition whether everything the object asks for has an effect.
func honored(set status.ConditionSet, not string) {
	if not == "" {
		set.SetTrueWithReason(FieldsHonored, "FieldsHonored", "") // the type itself is no reason: it has a domain
	} else {
		set.SetFalse(FieldsHonored, reasonNotHonored, shorten(not))
	}
}

// save writes the status if it differs, against the version it was made from, and then tells in events what is newly wrong. A
// conflict is an error like others: the watch brings the newer version.
func save(ctx context.Context, p *poolStatus, base, changed status.Object, statuses func() (before, after any)) error {
	before, after := statuses()
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	told := map[string]status.Condition{}
	for _, c := range base.GetConditions() {
		told[c.Type] = c
	}
	wrong := []status.Condition{}
	for _, c := range changed.GetConditions() {
		had := told[c.Type]
		// Ready only sums up, and a class that is being resolved is no news.
		silent := c.Type == status.ConditionReady || c.Reason == reasonClassUnknown
		if c.IsFalse() && !silent && (!had.IsFalse() || had.Message != c.Message) {
			wrong = append(wrong, c)
		}
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	data, err := patch.Data(changed)
	gvk, unknown := p.live.GroupVersionKindFor(base)
	if err = errors.Join(err, unknown); err != nil {
		return fmt.Errorf("writing the status of %s: %w", base.GetName(), err)
	}
	// The answer is read without a type: that of a malformed object has none.
	answer := &unstructured.Unstructured{}
	answer.SetGroupVersionKind(gvk)
	answer.SetName(base.GetName())
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := p.live.Status().Patch(ctx, answer, client.RawPatch(patch.Type(), data)); err != nil {
		return fmt.Errorf("writing the status of %s: %w", base.GetName(), err)
	}
	for _, c := range wrong {
		p.recorder.Eventf(base, nil, corev1.EventTypeWarning, c.Reason, "Validate", "%s", c.Message)
	}
	return nil
}

func (s *Store) overlayChanged(_, after *karpv1alpha1.NodeOverlay) {
	if after != nil {
		s.status.changed(nodeOverlays, after.Name)
	}
}
