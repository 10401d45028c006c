package main

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter/store"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
)

// cloud is how this program connects to a cloud, and how it reads the arguments that only this cloud has.
type cloud struct {
	name      string // as metrics name it
	nodeClass cloudprovider.NodeClassKind
	// legacy converts the cloud's settings of Provisioners; nil: its clusters have none.
	legacy func(args *provision.Args) karpenter.LegacyCloud
	// provider returns the provider. It makes no request.
	provider func(ctx context.Context, args *provision.Args, s cloudprovider.Settings) (cloudprovider.Provider, error)
}

// onCloud returns a cloud that needs no arguments beyond cloudprovider.Settings. To start with another cloud, replace onAWS() in newDovetail with, say,
// onCloud(nimbus.Cloud).
func onCloud(c cloudprovider.Cloud) cloud {
	return cloud{name: c.Name, nodeClass: c.NodeClass, provider: func(ctx context.Context, _ *provision.Args, s cloudprovider.Settings) (cloudprovider.Provider, error) {
		return c.New(ctx, s)
	}}
}

// nodeSeen returns what the provider can learn from a registered node.
func nodeSeen(nc *karpv1.NodeClaim, node *corev1.Node, kind *cloudprovider.NodeClassKind) cloudprovider.RegisteredNode {
	s := cloudprovider.RegisteredNode{
		Name: node.Name, InternalIP: objects.InternalIP(node), ImageID: nc.Status.ImageID, InstanceType: nc.Labels[corev1.LabelInstanceTypeStable],
		InstanceID: capacity.InstanceID(nc.Status.ProviderID), NodeClassHash: nc.Annotations[kind.HashKey],
		Capacity: capacity.ResourcesOf(node.Status.Capacity), Allocatable: capacity.ResourcesOf(node.Status.Allocatable),
	}
	if nc.Spec.NodeClassRef != nil {
		s.NodeClass = nc.Spec.NodeClassRef.Name
	}
	return s
}

// registered returns a func that reports registered nodes to the provider.
func registered(p cloudprovider.Provider, kind *cloudprovider.NodeClassKind) func(*karpv1.NodeClaim, *corev1.Node) {
	return func(nc *karpv1.NodeClaim, node *corev1.Node) { p.ObserveNode(nodeSeen(nc, node, kind)) }
}

// notJoined returns a func that reports claims that did not become nodes in time: to their pool, and to the provider if there was an
// instance.
func notJoined(p cloudprovider.Provider, store *store.Store) func(*karpv1.NodeClaim, string) {
	return func(nc *karpv1.NodeClaim, message string) {
		store.NotRegistered(nc, message)
		if nc.Status.ProviderID != "" && nc.Spec.NodeClassRef != nil {
			p.NotJoined(nc.Spec.NodeClassRef.Name, boughtAs(nc))
		}
	}
}

// blockOver returns a func that tells when claims in capacity blocks have to end.
func blockOver(p cloudprovider.Provider) func(*karpv1.NodeClaim) (time.Time, string, bool) {
	return func(nc *karpv1.NodeClaim) (time.Time, string, bool) {
		id := nc.Labels[capacity.LabelReservationID]
		if id == "" {
			return time.Time{}, "", false
		}
		at, ok := p.ReservationOver(id)
		return at, "its capacity block ends", ok
	}
}

// takenBack returns a func that reports claims whose capacity is taken back to the provider.
func takenBack(p cloudprovider.Provider) func(*karpv1.NodeClaim) {
	return func(nc *karpv1.NodeClaim) { p.Interrupted(boughtAs(nc)) }
}

// rebalanceRecommended returns a func that tells the provider that EC2 has recommended to give up the capacity of a claim's instance.
func rebalanceRecommended(p cloudprovider.Provider) func(*karpv1.NodeClaim) {
	return func(nc *karpv1.NodeClaim) { p.RebalanceRecommended(boughtAs(nc)) }
}

// boughtAs returns the key of the offering (instance type, zone, capacity type) that a claim's instance was launched with.
func boughtAs(nc *karpv1.NodeClaim) capacity.OfferKey {
	return capacity.OfferKey{
		InstanceType: nc.Labels[corev1.LabelInstanceTypeStable], Zone: nc.Labels[corev1.LabelTopologyZone], CapacityType: nc.Labels[karpv1.CapacityTypeLabelKey],
	}
}

// dedicatedClasses returns the node classes of pools and standalone NodeClaims that ask for dedicated tenancy.
func dedicatedClasses(store *store.Store) map[string]bool {
	out := map[string]bool{}
	for _, p := range store.Pools(func(string) ([]*capacity.InstanceType, error) { return nil, nil }) {
		if asksDedicated(p.Requirements) {
			out[p.NodeClass] = true
		}
	}
	for _, c := range store.Claims() {
		if ordersDedicated(c) {
			out[c.NodeClass] = true
		}
	}
	return out
}

// poolsOf returns the pools that use a node class, in the order in which they are tried, without instance types.
func poolsOf(store *store.Store, class string) []*capacity.Pool {
	pools := store.Pools(func(string) ([]*capacity.InstanceType, error) { return nil, nil })
	return slices.DeleteFunc(pools, func(p *capacity.Pool) bool { return p.NodeClass != class })
}

func asksDedicated(r capacity.Requirements) bool {
	tenancy, said := r[capacity.LabelTenancy]
	return said && tenancy.Has("dedicated")
}

func ordersDedicated(c *capacity.Claim) bool {
	return c.Order != nil && asksDedicated(c.Order.Requirements)
}
