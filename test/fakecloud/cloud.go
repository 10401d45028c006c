package fakecloud

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

const (
	zone  = "zone-a"
	image = "image-1"
)

// machine is the only type of instance.
var machine = &capacity.InstanceType{
	Name:     "machine",
	Labels:   map[string]string{corev1.LabelInstanceTypeStable: "machine", corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"},
	Capacity: capacity.Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 16 << 30, corev1.ResourcePods: 110},
	Allocatable: capacity.Resources{
		corev1.ResourceCPU: 3900, corev1.ResourceMemory: 15 << 30, corev1.ResourcePods: 110,
	},
	Image:  image,
	Offers: []capacity.Offer{{Zone: zone, CapacityType: capacity.CapacityTypeOnDemand, Price: 1, Available: true}},
}

// Cloud implements cloudprovider.Provider.
type Cloud struct {
	kube kubernetes.Interface

	mu        sync.Mutex
	classes   map[string]bool
	drifted   map[string]cloudprovider.DriftReason // by class
	instances map[string]*capacity.Instance        // by id
	onChange  []func()
	onClass   []func(resolved status.Object)
	set       chan status.Object // classes to be resolved
}

var _ cloudprovider.Provider = (*Cloud)(nil)

// New returns a cloud without instances. kube is what its kubelets write with.
func New(kube kubernetes.Interface) *Cloud {
	return &Cloud{kube: kube, classes: map[string]bool{}, drifted: map[string]cloudprovider.DriftReason{}, instances: map[string]*capacity.Instance{}, set: make(chan status.Object, 100)}
}

// Value returns the cloud as the program starts with it. All its providers are c.
func (c *Cloud) Value() cloudprovider.Cloud {
	return cloudprovider.Cloud{Name: "fake", NodeClass: Kind, New: func(context.Context, cloudprovider.Settings) (cloudprovider.Provider, error) { return c, nil }}
}

// Run resolves node classes and boots instances until ctx ends.
func (c *Cloud) Run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case nc := <-c.set:
			c.resolve(nc)
		case <-tick.C:
			c.boot(ctx)
		}
	}
}

// Status returns nil: everything is known.
func (c *Cloud) Status() error { return nil }

// SetNodeClass makes the class usable.
func (c *Cloud) SetNodeClass(nc status.Object) {
	c.mu.Lock()
	c.classes[nc.GetName()] = true
	changed := c.onChange
	c.mu.Unlock()
	for _, f := range changed {
		f()
	}
	c.set <- nc
}

func (c *Cloud) resolve(nc status.Object) {
	resolved := nc.DeepCopyObject().(status.Object)
	resolved.StatusConditions().SetTrue("Resolved")
	for _, f := range c.onClass {
		f(resolved)
	}
}

// DeleteNodeClass forgets the class.
func (c *Cloud) DeleteNodeClass(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.classes, name)
}

// ReleaseClass returns nil: nothing was made for the class.
func (c *Cloud) ReleaseClass(context.Context, status.Object) error { return nil }

// OnNodeClass registers f.
func (c *Cloud) OnNodeClass(f func(resolved status.Object)) { c.onClass = append(c.onClass, f) }

// ClusterCA returns some certificates.
func (c *Cloud) ClusterCA() (string, bool) { return "Q0E=", true }

// InstanceTypes returns the only type.
func (c *Cloud) InstanceTypes(nodeClass string) ([]*capacity.InstanceType, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.classes[nodeClass] {
		return nil, fmt.Errorf("%s %s does not exist", Kind.Kind, nodeClass)
	}
	return []*capacity.InstanceType{machine}, nil
}

// OnChange registers f.
func (c *Cloud) OnChange(f func()) { c.onChange = append(c.onChange, f) }

// OfferDedicated does nothing: there is no such hardware.
func (c *Cloud) OfferDedicated(map[string]bool) {}

// UsedBy does nothing: the cloud launches whatever is asked for.
func (c *Cloud) UsedBy(func(string) []*capacity.Pool) {}

// ReservationOver knows of no reservation.
func (c *Cloud) ReservationOver(string) (time.Time, bool) { return time.Time{}, false }

// Prepare returns the token as the request.
func (c *Cloud) Prepare(_ context.Context, w capacity.LaunchBatch) ([]byte, error) {
	return []byte(w.Token), nil
}

// Launch launches an instance for each claim, once for each token.
func (c *Cloud) Launch(ctx context.Context, w capacity.LaunchBatch) (capacity.LaunchResult, error) {
	c.mu.Lock()
	if !slices.ContainsFunc(c.all(), func(i capacity.Instance) bool { return i.LaunchBatch == w.Token }) {
		for range w.Claims {
			n := len(c.instances) + 1
			id := fmt.Sprintf("machine-%d", n)
			c.instances[id] = &capacity.Instance{
				ID: id, ProviderID: "fake:///" + zone + "/" + id, InstanceType: machine.Name, Zone: zone, CapacityType: capacity.CapacityTypeOnDemand,
				ImageID: image, State: capacity.InstanceRunning, NodeName: id, Hostname: id, InternalIP: fmt.Sprintf("10.0.0.%d", n),
				LaunchedAt: time.Now(), LaunchBatch: w.Token,
			}
		}
	}
	c.mu.Unlock()
	launched, err := c.FindBatch(ctx, w.Token)
	return capacity.LaunchResult{Instances: launched}, err
}

// all returns all instances, sorted by id. The caller holds mu.
func (c *Cloud) all() []capacity.Instance {
	var out []capacity.Instance
	for _, i := range c.instances {
		out = append(out, *i)
	}
	slices.SortFunc(out, func(a, b capacity.Instance) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// live returns the instances that have not ended and for which is returns true.
func (c *Cloud) live(is func(*capacity.Instance) bool) ([]capacity.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(c.all(), func(i capacity.Instance) bool { return i.Ended() || !is(&i) }), nil
}

// List returns the instances that have not ended.
func (c *Cloud) List(context.Context) ([]capacity.Instance, error) {
	return c.live(func(*capacity.Instance) bool { return true })
}

// FindBatch returns those of a launch batch.
func (c *Cloud) FindBatch(_ context.Context, token string) ([]capacity.Instance, error) {
	return c.live(func(i *capacity.Instance) bool { return i.LaunchBatch == token })
}

// FindClaim returns those of a claim.
func (c *Cloud) FindClaim(_ context.Context, name string) ([]capacity.Instance, error) {
	return c.live(func(i *capacity.Instance) bool { return i.Claim == name })
}

// change calls f with an instance.
func (c *Cloud) change(id string, f func(*capacity.Instance)) (capacity.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.instances[id]
	if i == nil {
		return capacity.Instance{}, fmt.Errorf("instance %s: %w", id, capacity.ErrInstanceNotFound)
	}
	f(i)
	return *i, nil
}

// Describe returns an instance.
func (c *Cloud) Describe(_ context.Context, id string) (capacity.Instance, error) {
	return c.change(id, func(*capacity.Instance) {})
}

// TagClaim tags an instance.
func (c *Cloud) TagClaim(_ context.Context, id, claim, _ string) error {
	_, err := c.change(id, func(i *capacity.Instance) { i.Claim = claim })
	return err
}

// Terminate ends an instance at once.
func (c *Cloud) Terminate(_ context.Context, id string) error {
	_, err := c.change(id, func(i *capacity.Instance) { i.State = capacity.InstanceTerminated })
	return err
}

// OnInterruption does nothing: no instance is interrupted.
func (c *Cloud) OnInterruption(func(context.Context, []capacity.Interruption) []error) {}

// Impaired returns nothing: all instances are well.
func (c *Cloud) Impaired() map[string]cloudprovider.Impairment { return nil }

// ObserveNode does nothing: all is known of the nodes.
func (c *Cloud) ObserveNode(cloudprovider.RegisteredNode) {}

// OnLearned does nothing: there is nothing to learn.
func (c *Cloud) OnLearned(func(nodeClass, value string) error) {}

// HoldChanged does nothing: nothing is made for a class.
func (c *Cloud) HoldChanged() {}

// NotJoined does nothing: the next instance is of the same offering.
func (c *Cloud) NotJoined(string, capacity.OfferKey) {}

// Interrupted does nothing, likewise.
func (c *Cloud) Interrupted(capacity.OfferKey) {}

// RebalanceRecommended does nothing, likewise.
func (c *Cloud) RebalanceRecommended(capacity.OfferKey) {}

// Drift makes all instances of a class count as drifted for a reason; "": none has drifted.
func (c *Cloud) Drift(nodeClass string, reason cloudprovider.DriftReason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drifted[nodeClass] = reason
}

// Drifted returns the reason that Drift was told.
func (c *Cloud) Drifted(_ context.Context, n cloudprovider.LaunchedNode) (cloudprovider.DriftReason, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.Labels[corev1.LabelInstanceTypeStable] != machine.Name && n.TypeCounts {
		return cloudprovider.InstanceTypeNotFound, nil
	}
	return c.drifted[n.NodeClass], nil
}
