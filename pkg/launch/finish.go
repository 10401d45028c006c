package launch

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// finisher turns instances into nodes, each in a goroutine of its own.
type finisher struct {
	claims       *claimCache
	cloud        Cloud
	cluster      Cluster
	nodes        NodeBuilder
	snapshot     *snapshot
	pending      *pending.Pods
	reservations *reservations.Ledger
	spending     *spending.Guard
	tracker      *NodeTracker
	events       *ClaimEvents
	cleanup      *cleanup
	calls        *calls
}

// reasonInstanceLost is the reason when an instance ended, or never became visible, before it was a node.
const reasonInstanceLost = "InstanceLost"

// finish turns an instance into a node.
//
//  1. Record the instance on the claim at once, as the launch call returned it: from here on it has an owner.
//  2. Wait until the cloud shows the instance with its name and address: a cloud-controller-manager deletes a Node whose
//     instance it can't see.
//  3. Tell the ledger which name the Node will have. Where that name is not known yet, the kubelet creates its own Node, and the ledger
//     learns the name when it has registered (ClaimNamed).
//  4. Type and zone are known now: ask the real filters once more, and plan pods anew that don't pass.
//  5. Create the Node, and record its name on the claim.
//
// After a panic the claim and its instance are left to the kubelet, which creates its own Node, and to the lifecycle controller.
func (f *finisher) finish(ctx context.Context, by provisioning.Requester, c *capacity.Claim, inst capacity.Instance, labels map[string]string) {
	_ = panics.Catch(ctx, "launch", func() error { // logged by Catch
		f.finishNode(ctx, by, c, inst, labels)
		return nil
	})
}

func (f *finisher) finishNode(ctx context.Context, by provisioning.Requester, c *capacity.Claim, inst capacity.Instance, labels map[string]string) {
	logger := klog.FromContext(ctx)
	own := *c // the copy changes as it is recorded; others read the original
	c = &own
	recorded := false
	if inst.ProviderID != "" {
		err := f.recordLaunched(ctx, c, inst, labels)
		if recorded = err == nil; !recorded {
			logger.V(3).Info("Could not record the instance yet", "nodeClaim", c.Name, "instance", inst.ID, "err", err)
		}
	}
	known, err := f.awaitName(ctx, inst)
	if err != nil {
		if ctx.Err() == nil {
			// The claim stays: garbage collection and liveness end it and the instance together.
			f.lost(ctx, by, c, known, err)
		}
		return
	}
	recorded = recorded && inst.SameMachine(known) && len(c.Allocatable) > 0 && !known.NameUnsure
	if inst = known; c.ImageID == "" {
		c.ImageID = inst.ImageID // the answer to a launch doesn't name it; RecordNode records it
	}
	if !f.awaitType(ctx, c, inst) {
		return
	}
	for wait := firstRetry; !recorded; wait = min(2*wait, maxRetry) {
		err := f.recordLaunched(ctx, c, inst, labels)
		if err == nil {
			break
		}
		if apierrors.IsNotFound(err) {
			f.ownerless(ctx, c, inst)
			return
		}
		logger.V(2).Info("Recording the instance failed; trying again", "nodeClaim", c.Name, "err", err)
		if !f.calls.sleep(ctx, wait) {
			return
		}
	}
	if now := f.claims.Current(c.Name); now == nil || now.UID != c.UID {
		f.ownerless(ctx, c, inst)
		return
	} else if now.Deleting {
		return // the lifecycle controller ends the recorded instance with the claim
	}
	node := f.nodes.NodeFor(c, inst, nil)
	if !inst.NameUnsure {
		// Before the filters run, which may have to look at many nodes: the kubelet may register before they have answered.
		f.tracker.named(c.Name, node.Name, node.Spec.ProviderID)
	}
	f.refilter(ctx, c, node)
	if inst.NameUnsure {
		logger.V(2).Info("The node's name is not known before its kubelet registers; no Node is created ahead", "nodeClaim", c.Name, "instance", inst.ID)
		return
	}
	if !f.createNode(ctx, by, c, node) {
		return
	}
	// The recorded name is that under which the Node is created again if it is deleted before its kubelet has registered (pkg/lifecycle).
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		err := f.claims.RecordNode(ctx, c.Name, inst)
		if err == nil || apierrors.IsNotFound(err) {
			break
		}
		logger.V(2).Info("Recording the node's name on its claim failed; trying again", "nodeClaim", c.Name, "node", node.Name, "err", err)
		if !f.calls.sleep(ctx, wait) || !f.claims.lives(c) {
			return
		}
	}
	logger.V(2).Info("Node created ahead of its kubelet", "node", node.Name, "nodeClaim", c.Name, "instance", inst.ID,
		"instanceType", inst.InstanceType, "zone", inst.Zone, "capacityType", inst.CapacityType)
	name := node.Name
	if inst.Tags["Name"] != "" {
		name = "" // the class gives its instances another Name
	}
	if err := f.cloud.TagClaim(ctx, inst.ID, c.Name, name); err != nil && ctx.Err() == nil {
		logger.V(3).Info("Could not tag the instance with its claim; it is found by its launch batch", "instance", inst.ID, "err", err)
	}
}

// ownerless ends an instance whose claim was deleted while it was launching. The claim's finalizer normally keeps the claim until its
// instance has ended; if the claim is already gone, ending the instance is up to us.
func (f *finisher) ownerless(ctx context.Context, c *capacity.Claim, inst capacity.Instance) {
	if now := f.claims.Current(c.Name); now == nil || now.UID == c.UID {
		f.events.ClaimGone(c.Name, "its NodeClaim was deleted while it was launching")
	}
	f.end(ctx, inst)
}

// awaitName describes the instance until its name and address are visible.
func (f *finisher) awaitName(ctx context.Context, inst capacity.Instance) (capacity.Instance, error) {
	start := f.calls.clock.Now()
	for wait := firstRetry; ; wait = min(wait*3/2, 2*time.Second) {
		got, err := f.cloud.Describe(ctx, inst.ID)
		switch {
		case err == nil && got.Ended():
			return got, fmt.Errorf("instance %s is %s", inst.ID, got.Fate())
		case err == nil && got.NodeName != "":
			return got, nil
		case f.calls.clock.Since(start) > launchTimeout:
			late := fmt.Errorf("instance %s has not shown its name within %s", inst.ID, launchTimeout)
			if err != nil {
				late = fmt.Errorf("%w: %w", late, err)
			}
			return got, late
		}
		if !f.calls.sleep(ctx, wait) {
			return got, ctx.Err()
		}
	}
}

// awaitType waits until the catalog knows the instance's type. Soon after a restart it may not know the type yet, and a Node without capacity
// would be worse than a late one. It returns false if the claim ends first.
func (f *finisher) awaitType(ctx context.Context, c *capacity.Claim, inst capacity.Instance) bool {
	for len(c.Allocatable) == 0 {
		if t, _ := f.typeOf(c, inst); t != nil {
			return true
		}
		if !f.calls.sleep(ctx, firstRetry) {
			return false
		}
		if !f.claims.lives(c) {
			return false
		}
	}
	return true
}

// lost ends a claim whose instance died or never became visible before it was a node.
func (f *finisher) lost(ctx context.Context, by provisioning.Requester, c *capacity.Claim, inst capacity.Instance, why error) {
	klog.FromContext(ctx).V(2).Info("Instance was lost before it was a node", "nodeClaim", c.Name, "instance", inst.ID, "err", why)
	if !inst.Taken {
		f.spending.Fail(c.Name, guard.Fault{Machine: true, Cause: "instance lost", Message: objects.OneLine(why.Error())})
	}
	f.cleanup.fail(ctx, by, []*capacity.Claim{c}, reasonInstanceLost, why.Error(), false)
}

// recordLaunched writes the instance, its labels and its capacity on the claim.
func (f *finisher) recordLaunched(ctx context.Context, c *capacity.Claim, inst capacity.Instance, labels map[string]string) error {
	total, alloc := c.Capacity, c.Allocatable
	all := maps.Clone(c.Labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, labels)
	if t, o := f.typeOf(c, inst); t != nil {
		maps.Copy(all, t.Labels)
		if o != nil {
			maps.Copy(all, o.Labels)
		}
		total, alloc = t.Capacity, t.Allocatable
	}
	maps.Copy(all, inst.Labels)
	all[corev1.LabelInstanceTypeStable] = inst.InstanceType
	all[corev1.LabelTopologyZone] = inst.Zone
	all["karpenter.sh/capacity-type"] = inst.CapacityType
	if err := f.claims.RecordLaunched(ctx, c, inst, all, total, alloc); err != nil {
		return err
	}
	c.ProviderID, c.InstanceType, c.Zone, c.CapacityType, c.ImageID = inst.ProviderID, inst.InstanceType, inst.Zone, inst.CapacityType, inst.ImageID
	c.Labels, c.Capacity, c.Allocatable, c.Launched = all, total, alloc, true
	cp := *c
	f.claims.keep(&cp)
	return nil
}

// typeOf returns the type of a claim's instance, with the overlays of its pool, and the offering it was launched with.
func (f *finisher) typeOf(c *capacity.Claim, inst capacity.Instance) (*capacity.InstanceType, *capacity.Offer) {
	types, _ := f.cloud.InstanceTypes(c.NodeClass)
	for _, t := range types {
		if t.Name != inst.InstanceType {
			continue
		}
		t = f.claims.Overlaid(c.Pool, t)
		for i := range t.Offers {
			if o := &t.Offers[i]; o.Zone == inst.Zone && o.CapacityType == inst.CapacityType && o.ReservationID == inst.ReservationID && o.Tenancy == inst.Tenancy {
				return t, o
			}
		}
		return t, nil
	}
	return nil, nil
}

// refilter verifies the planned placements once more, on the node with its actual type and zone.
//
// The kubelet may be faster: then the Node exists, and pods are being placed on it. If the snapshot has that Node already, nothing is verified: the
// filters would also count pods that have used reservations, and others whose priority lets them take reserved capacity. They run again anyway, in
// each pod's own scheduling cycle. If pods use reservations before the filters have answered, the answer is dropped: it is about an earlier state.
func (f *finisher) refilter(ctx context.Context, c *capacity.Claim, node *corev1.Node) {
	f.snapshot.mu.Lock()
	defer f.snapshot.mu.Unlock()
	if err := f.snapshot.world.Refresh(ctx); err != nil || f.snapshot.world.Has(node.Name) {
		return // the filters run again in each pod's own scheduling cycle
	}
	ready := node.DeepCopy()
	ready.Spec.Taints = c.Taints
	ready.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	t := capacity.Trial{Nodes: []capacity.TrialNode{{Node: ready, Devices: f.pending.Classes.Devices().OfClaim(c)}}}
	var refs []capacity.PodRef
	slots, reserved := f.reserved(c.Name)
	for _, s := range slots {
		pod := f.pending.Get(s.Pod.UID)
		if pod == nil || s.Group != "" {
			continue // groups were verified with their zones fixed; one node alone proves nothing
		}
		refs = append(refs, s.Pod)
		t.Steps = append(t.Steps, capacity.Step{Pod: pod, Class: s.Class, Node: ready.Name})
	}
	if len(t.Steps) == 0 {
		return
	}
	rejected, err := f.snapshot.world.Verify(ctx, t)
	if err != nil {
		return
	}
	if _, now := f.reserved(c.Name); len(rejected) > 0 && !maps.Equal(now, reserved) {
		return
	}
	for _, r := range rejected {
		if f.spending.RejectedByFilters(c.Name, f.pending.Get(refs[r.Step].UID), r.Plugin, r.Reason, false) {
			continue // the filters run again in the pod's own scheduling cycle
		}
		klog.FromContext(ctx).V(2).Info("The filters refuse a planned pod on the node as launched; it is planned anew", "nodeClaim", c.Name,
			"pod", refs[r.Step].Name, "plugin", r.Plugin, "reason", r.Reason)
		f.reservations.Step(func(l *ledger.Ledger, now time.Time) {
			l.Replan(refs[r.Step].UID, c.Name, r.Plugin+": "+r.Reason, now)
		})
	}
}

// reserved returns the reservations on a claim's node that no pod has used yet, and their number by class.
func (f *finisher) reserved(claim string) (slots []capacity.Slot, number map[capacity.ClassKey]int) {
	f.reservations.Read(func(l ledger.Reader) { slots = l.Slots(claim) })
	number = map[capacity.ClassKey]int{}
	for _, s := range slots {
		number[s.Class]++
	}
	return slots, number
}
