package simulate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/devices"
)

// allocating is the part of the DynamicResources plugin that a trial calls.
type allocating interface {
	fwk.PreFilterPlugin
	fwk.FilterPlugin
	fwk.ReservePlugin
}

// supposedDevices is the scheduler's DRA manager with, during a trial, the ResourceSlices of hypothetical nodes, the allocations of placed pods, and
// claims for pods whose own claims don't exist. It changes nothing in the real manager: the plugin's Reserve allocates here only.
type supposedDevices struct {
	fwk.SharedDRAManager
	source *devices.Source
	slices []*resourcev1.ResourceSlice
	// supposed has the drivers and nodes for which the trial's slices replace the real ones, since the driver may have published only some so far.
	supposed map[driverOn]bool
	// claims are those that the trial has allocated or made, by namespace and name; allocated are those it has allocated, in order.
	claims    map[string]*resourcev1.ResourceClaim
	allocated []*resourcev1.ResourceClaim
	// placed are the pods whose own claims have been used.
	placed map[types.UID]bool
	made   int // pods for which claims were made
}

var (
	_ fwk.SharedDRAManager     = &supposedDevices{}
	_ fwk.ResourceClaimTracker = supposedClaims{}
	_ fwk.ResourceSliceLister  = &supposedDevices{}
)

// driverOn is a driver on a node.
type driverOn struct{ driver, node string }

// begin starts a trial with hypothetical nodes, and end forgets it.
func (d *supposedDevices) begin(nodes []capacity.TrialNode) {
	if d == nil {
		return
	}
	d.end()
	d.claims, d.placed, d.supposed = map[string]*resourcev1.ResourceClaim{}, map[types.UID]bool{}, map[driverOn]bool{}
	for _, n := range nodes {
		if n.Devices != "" {
			d.slices = append(d.slices, d.source.Supposed(n.Devices, n.Node.Name)...)
		}
	}
	for _, s := range d.slices {
		d.supposed[driverOn{s.Spec.Driver, *s.Spec.NodeName}] = true
	}
}

func (d *supposedDevices) end() {
	if d != nil {
		d.slices, d.supposed, d.claims, d.allocated, d.placed, d.made = nil, nil, nil, nil, nil, 0
	}
}

// uses reports whether the pod's claims are to be allocated in trials.
func (d *supposedDevices) uses(pod *corev1.Pod) bool {
	return d != nil && len(pod.Spec.ResourceClaims) > 0
}

// standIn returns the step with a pod whose claims exist. This is the step's own pod if its claims exist and no earlier step of the trial used them.
// Otherwise the pod stands for others of its class, and standIn makes claims for it. ours is false for a reservation whose own pod isn't known: the
// claims of that pod may have other names than those of step.Pod. known is false if it isn't known what the pod's claims ask for.
func (d *supposedDevices) standIn(step capacity.Step, ours bool) (out capacity.Step, known bool) {
	pod := step.Pod
	if ours && !d.placed[pod.UID] && complete(pod) {
		return step, true
	}
	specs := d.source.Claims(pod.UID)
	if specs == nil {
		return step, false
	}
	d.made++
	made := *pod
	made.UID = types.UID(fmt.Sprintf("%s-trial-%d", pod.UID, d.made))
	made.Status.ResourceClaimStatuses = nil
	made.Spec.ResourceClaims = slices.Clone(pod.Spec.ResourceClaims)
	for i := range made.Spec.ResourceClaims {
		ref := &made.Spec.ResourceClaims[i]
		spec, known := specs[ref.Name]
		if ref.ResourceClaimName != nil && (!known || ours && d.claims[pod.Namespace+"/"+*ref.ResourceClaimName] == nil) {
			continue // a claim that the pod names itself, without a template; other pods may use it, too
		}
		if !known {
			made.Status.ResourceClaimStatuses = append(made.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: ref.Name})
			continue
		}
		ref.ResourceClaimName, ref.ResourceClaimTemplateName = nil, &ref.Name
		name := fmt.Sprintf("%s-trial-%d-%s", pod.Name, d.made, ref.Name)
		d.claims[pod.Namespace+"/"+name] = &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: pod.Namespace, Name: name, UID: types.UID(name),
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: made.Name, UID: made.UID, Controller: ptr.To(true)}},
			},
			Spec: spec,
		}
		made.Status.ResourceClaimStatuses = append(made.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: ref.Name, ResourceClaimName: &name})
	}
	step.Pod = &made
	return step, true
}

// complete reports whether all claims of the pod that come from templates have been created.
func complete(pod *corev1.Pod) bool {
	for i := range pod.Spec.ResourceClaims {
		ref := &pod.Spec.ResourceClaims[i]
		if ref.ResourceClaimName == nil && !slices.ContainsFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == ref.Name }) {
			return false
		}
	}
	return true
}

// allocate allocates the devices of a pod that is placed. The plugin has found them in Filter.
func (t *trial) allocate(ctx context.Context, by *filters, state fwk.CycleState, step capacity.Step) *verdict {
	d := t.world.devices
	if !d.uses(step.Pod) || by.devices == nil {
		return nil
	}
	if s := by.devices.Reserve(ctx, state, step.Pod, step.Node); !s.IsSuccess() {
		refused := verdictOf(s)
		refused.plugin = by.devices.Name()
		return refused
	}
	d.placed[step.Pod.UID] = true
	return nil
}

// promiseDevices allocates the devices of a pod that has its place already. If its node has too few devices, that is only logged.
func (t *trial) promiseDevices(ctx context.Context, p capacity.Step, node *framework.NodeInfo) {
	d, by := t.world.devices, t.world.of(p.Pod)
	if !d.uses(p.Pod) || by.devices == nil {
		return
	}
	p, known := d.standIn(p, p.Own)
	if !known {
		klog.FromContext(ctx).V(3).Info("What a pod that has its place already needs of devices is not known", "pod", klog.KObj(p.Pod), "node", p.Node)
		return
	}
	state := framework.NewCycleState()
	_, s := by.devices.PreFilter(ctx, state, p.Pod, t.overlay.list)
	if s.IsSuccess() {
		s = by.devices.Filter(ctx, state, p.Pod, node)
	}
	if s.IsSuccess() {
		s = by.devices.Reserve(ctx, state, p.Pod, p.Node)
	}
	if !s.IsSuccess() && !s.IsSkip() {
		klog.FromContext(ctx).V(3).Info("There are no devices for a pod that has its place already", "pod", klog.KObj(p.Pod), "node", p.Node, "reason", s.Message())
		return
	}
	d.placed[p.Pod.UID] = true
}

// ResourceSlices implements fwk.SharedDRAManager.
func (d *supposedDevices) ResourceSlices() fwk.ResourceSliceLister { return d }

// ListWithDeviceTaintRules implements fwk.ResourceSliceLister.
func (d *supposedDevices) ListWithDeviceTaintRules() ([]*resourcev1.ResourceSlice, error) {
	out, err := d.SharedDRAManager.ResourceSlices().ListWithDeviceTaintRules()
	if err != nil || len(d.slices) == 0 {
		return out, err
	}
	begun := func(s *resourcev1.ResourceSlice) bool {
		return s.Spec.NodeName != nil && d.supposed[driverOn{s.Spec.Driver, *s.Spec.NodeName}]
	}
	if slices.ContainsFunc(out, begun) {
		out = slices.DeleteFunc(slices.Clone(out), begun)
	}
	return slices.Concat(out, d.slices), nil
}

// ResourceClaims implements fwk.SharedDRAManager.
func (d *supposedDevices) ResourceClaims() fwk.ResourceClaimTracker {
	return supposedClaims{d.SharedDRAManager.ResourceClaims(), d}
}

// supposedClaims are the real claims with those of the trial.
type supposedClaims struct {
	fwk.ResourceClaimTracker
	in *supposedDevices
}

func (c supposedClaims) List() ([]*resourcev1.ResourceClaim, error) {
	out, err := c.ResourceClaimTracker.List()
	if err != nil || len(c.in.claims) == 0 {
		return out, err
	}
	out = slices.DeleteFunc(slices.Clone(out), func(rc *resourcev1.ResourceClaim) bool { return c.in.claims[rc.Namespace+"/"+rc.Name] != nil })
	for _, name := range slices.Sorted(maps.Keys(c.in.claims)) {
		out = append(out, c.in.claims[name])
	}
	return out, nil
}

func (c supposedClaims) Get(namespace, name string) (*resourcev1.ResourceClaim, error) {
	if rc := c.in.claims[namespace+"/"+name]; rc != nil {
		return rc, nil
	}
	rc, err := c.ResourceClaimTracker.Get(namespace, name)
	if err != nil {
		return nil, fmt.Errorf("reading a claim: %w", err)
	}
	if rc == nil {
		return nil, apierrors.NewNotFound(resourcev1.Resource("resourceclaims"), name)
	}
	return rc, nil
}

func (c supposedClaims) ListAllAllocatedDevices() (sets.Set[structured.DeviceID], error) {
	out, err := c.ResourceClaimTracker.ListAllAllocatedDevices()
	if err != nil || len(c.in.allocated) == 0 {
		return out, err //nolint:wrapcheck // the plugin compares it
	}
	state := devices.Nothing()
	state.AllocatedDevices = out // a clone
	for _, rc := range c.in.allocated {
		devices.Take(state, rc.Status.Allocation)
	}
	return state.AllocatedDevices, nil
}

func (c supposedClaims) GatherAllocatedState() (*structured.AllocatedState, error) {
	state, err := c.ResourceClaimTracker.GatherAllocatedState()
	if err != nil || state == nil {
		return state, err //nolint:wrapcheck // the plugin compares it
	}
	for _, rc := range c.in.allocated {
		devices.Take(state, rc.Status.Allocation)
	}
	return state, nil
}

// SignalClaimPendingAllocation makes the claim look allocated to the pods that are placed later.
func (c supposedClaims) SignalClaimPendingAllocation(_ types.UID, allocated *resourcev1.ResourceClaim) error {
	c.in.claims[allocated.Namespace+"/"+allocated.Name] = allocated
	c.in.allocated = append(c.in.allocated, allocated)
	return nil
}

func (c supposedClaims) MaybeRemoveClaimPendingAllocation(types.UID, bool) bool { return false }

func (c supposedClaims) AssumeClaimAfterAPICall(*resourcev1.ResourceClaim) error { return nil }

func (c supposedClaims) AssumedClaimRestore(string, string) {}
