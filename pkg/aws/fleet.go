package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/karpenter-provider-aws/pkg/apis"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/capacityreservation"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/launchtemplate"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/network"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/ownership"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/unavailable"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/zonalshift"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// launcher prepares and sends the fleet requests of launch batches.
type launcher struct {
	ec2       sdk.InstanceAPI
	clock     clock.WithTicker
	classes   *classes
	catalogue *catalog.Cache
	exhausted *unavailable.Memory
	addresses *network.Addresses
	counts    *capacityreservation.Counts
	templates *launchtemplate.Templates
	cluster   *bootstrap.ClusterReader
	owner     ownership.Owner
	shifts    *zonalshift.Watcher
}

// maxConfigs is EC2's limit of launch template configurations in a fleet.
const maxConfigs = 50

// Prepare makes sure that everything the launch of a launch batch needs exists (launch templates) and returns the exact request, to be
// recorded before it is sent: JSON of the CreateFleet input without empty fields, compressed, because every claim of the launch batch
// carries it. Launch adds what depends on the attempt (token, number of instances).
func (l *launcher) Prepare(ctx context.Context, w capacity.LaunchBatch) ([]byte, error) {
	r, err := l.classes.ready(w.NodeClass)
	if err != nil {
		return nil, err
	}
	in, err := l.request(ctx, r, &w)
	if err != nil {
		return nil, err
	}
	return pack(in)
}

// request returns the request of a launch batch.
func (l *launcher) request(ctx context.Context, r *resolved, w *capacity.LaunchBatch) (*ec2.CreateFleetInput, error) {
	configs, market, err := l.configs(ctx, r, w)
	if err != nil {
		return nil, err
	}
	tags := l.owner.BatchTags(r.class, w.Pool, w.Token)
	in := &ec2.CreateFleetInput{
		Type: ec2types.FleetTypeInstant, Context: r.class.Spec.Context, LaunchTemplateConfigs: configs,
		TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{},
	}
	for _, kind := range []ec2types.ResourceType{ec2types.ResourceTypeInstance, ec2types.ResourceTypeVolume, ec2types.ResourceTypeFleet} {
		in.TagSpecifications = append(in.TagSpecifications, ec2types.TagSpecification{ResourceType: kind, Tags: sdk.SortedTags(tags)})
	}
	target(in, w.CapacityType, market, len(w.Prices) > 0)
	return in, nil
}

// templateKey holds the properties in which the launch templates of one fleet request may differ. Offerings with equal keys share a template.
type templateKey struct {
	image    string
	maxPods  int64
	reserved string
	efas     int64
	tenancy  string
	from     *capacityreservation.Reservation
	own      templateVersion
}

// choices returns what a fleet may choose from: each offering of the launch batch, in its zone's subnet with the most free addresses, grouped by the
// launch template that it needs. The templates are not filled in yet; the i-th key says what the template of the i-th group is to have. The
// order is the launch batch's, cheapest first. A fleet buys on one market (on-demand, spot, capacity block): that of the first offering.
func (l *launcher) choices(r *resolved, w *capacity.LaunchBatch) ([]templateKey, []ec2types.FleetLaunchTemplateConfigRequest, ec2types.MarketType) {
	gone, f := l.exhausted.State(), l.catalogue.Region()
	away := l.shifts.State()
	subnets := l.addresses.Most(slices.DeleteFunc(slices.Clone(r.subnets), func(s network.Subnet) bool { return away.Away(s.ZoneID) }), gone.Full)
	// Of two offerings of the same type and zone (reservations, tenancies) a fleet accepts only one.
	type pool struct{ instanceType, zone string }
	taken := map[pool]bool{}
	var market ec2types.MarketType
	order := map[templateKey]int{}
	var groups []templateKey
	var out []ec2types.FleetLaunchTemplateConfigRequest
	ranks := ranksOf(w)
	for n, o := range w.Offers {
		h, s := f.Find(o.InstanceType), subnets[o.Zone]
		if h == nil || s.ID == "" || o.CapacityType != w.CapacityType || gone.Has(o.CapacityType, o.InstanceType, o.Zone, r.placement.ID) {
			continue
		}
		img, in := r.imageFor(h), pool{o.InstanceType, o.Zone}
		if img == nil || taken[in] {
			continue
		}
		g := templateKey{image: img.id, maxPods: r.settings.Pods(h), tenancy: o.Tenancy, own: img.own}
		if g.own.name != "" {
			g.maxPods = 0 // Dovetail creates no launch template here, so its properties make no difference
		}
		if r.family.TellsReserved {
			g.reserved = bootstrap.KubeletFlag(amountsText(r.settings.KubeReserved(h, g.maxPods)), "=")
		}
		if w.Requests[ec2nc.ResourceEFA] > 0 && !r.settings.Interfaces {
			g.efas = h.EFAs
		}
		if o.CapacityType == karpv1.CapacityTypeReserved {
			if g.from = r.reservation(o.ReservationID); g.from == nil || len(out) > 0 && g.from.Market() != market {
				continue
			}
			market = g.from.Market()
		}
		i, ok := order[g]
		if !ok {
			if len(out) == maxConfigs {
				continue // only more expensive offerings are lost
			}
			i = len(out)
			order[g], groups, out = i, append(groups, g), append(out, ec2types.FleetLaunchTemplateConfigRequest{})
		}
		taken[in] = true
		out[i].Overrides = append(out[i].Overrides, ec2types.FleetLaunchTemplateOverridesRequest{
			InstanceType: ec2types.InstanceType(o.InstanceType), SubnetId: awssdk.String(s.ID), AvailabilityZone: awssdk.String(o.Zone),
			Priority: ranks[n],
		})
	}
	return groups, out, market
}

// configs returns the fleet's choices with their launch templates, which are created where they don't exist, and the market.
func (l *launcher) configs(ctx context.Context, r *resolved, w *capacity.LaunchBatch) ([]ec2types.FleetLaunchTemplateConfigRequest, ec2types.MarketType, error) {
	tags := l.owner.LaunchTags(r.class, w.Pool)
	partition, err := r.placement.Partition(w.Labels)
	if err != nil {
		return nil, "", fmt.Errorf("EC2NodeClass %s: %w: %w", w.NodeClass, err, capacity.ErrRefused)
	}
	groups, out, market := l.choices(r, w)
	if len(out) == 0 {
		return nil, "", fmt.Errorf("none of the %d offerings is available: out of capacity, or without image or subnet: %w", len(w.Offers), capacity.ErrInsufficientCapacity)
	}
	j := l.cluster.Known()
	// A launch batch of many types needs several templates the first time; they are created in parallel.
	all, gctx := errgroup.WithContext(ctx)
	for i, g := range groups {
		if g.own.name != "" {
			out[i].LaunchTemplateSpecification = g.own.specification()
			continue
		}
		all.Go(func() error {
			data, err := r.family.UserData(&r.class.Spec, j, bootstrap.Node{
				Cluster: l.owner.Cluster, MaxPods: g.maxPods, Labels: batchLabels(w, l.owner.ManagedBy), Taints: bootTaints(w),
				KubeReserved: g.reserved,
			})
			if err != nil {
				return fmt.Errorf("EC2NodeClass %s: spec.userData: %w: %w", w.NodeClass, err, capacity.ErrNodeClassNotReady)
			}
			name, err := l.templates.Ensure(gctx, launchTemplate(r, options{
				image: g.image, userData: data, capacityType: w.CapacityType, efas: g.efas, ipv6: j.IPv6(), tags: tags, reservation: g.from,
				tenancy: g.tenancy, partition: partition, enclave: w.Requests[ec2nc.ResourceNIPSlots] > 0,
			}), tags)
			out[i].LaunchTemplateSpecification = &ec2types.FleetLaunchTemplateSpecificationRequest{
				LaunchTemplateName: awssdk.String(name), Version: awssdk.String("$Latest"),
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, "", err
	}
	return out, market, nil
}

// ranksOf returns the priorities of a launch batch's offerings, by price, if overlays have set prices, which EC2 doesn't know. EC2
// takes whole numbers, the lowest first.
func ranksOf(w *capacity.LaunchBatch) []*float64 {
	out := make([]*float64, len(w.Offers))
	rank := 0.0
	for i := range w.Prices {
		if i > 0 && w.Prices[i] != w.Prices[i-1] {
			rank++
		}
		out[i] = awssdk.Float64(rank)
	}
	return out
}

// batchLabels returns the labels that a kubelet of the launch batch registers with if its Node object is missing.
func batchLabels(w *capacity.LaunchBatch, managedBy string) map[string]string {
	labels := bootLabels(w.Labels)
	labels[karpv1.CapacityTypeLabelKey] = w.CapacityType
	if w.Pool != "" {
		labels[karpv1.NodePoolLabelKey] = w.Pool
	}
	labels[ec2nc.LabelNodeClass] = w.NodeClass
	if delete(labels, objects.LabelManagedBy); managedBy != "" {
		labels[objects.LabelManagedBy] = managedBy
	}
	return labels
}

// bootTaints returns all of a node's taints and the unregistered taint, with which the kubelet registers.
func bootTaints(w *capacity.LaunchBatch) []corev1.Taint {
	taints := slices.Concat(w.Taints, w.StartupTaints)
	if !slices.ContainsFunc(taints, func(t corev1.Taint) bool {
		return t.Key == bootstrap.Unregistered.Key && t.Effect == bootstrap.Unregistered.Effect
	}) {
		taints = append(taints, bootstrap.Unregistered)
	}
	return taints
}

// amountsText returns resources in the kubelet's notation.
func amountsText(r capacity.Resources) map[string]string {
	out := map[string]string{}
	for name, q := range r.List() {
		out[string(name)] = q.String()
	}
	return out
}

// target sets the fleet's options for the kind of capacity it requests.
func target(in *ec2.CreateFleetInput, capacityType string, market ec2types.MarketType, priced bool) {
	t := in.TargetCapacitySpecification
	switch {
	case capacityType == karpv1.CapacityTypeSpot:
		t.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeSpot
		in.SpotOptions = &ec2types.SpotOptionsRequest{AllocationStrategy: ec2types.SpotAllocationStrategyPriceCapacityOptimized}
		if priced {
			in.SpotOptions.AllocationStrategy = ec2types.SpotAllocationStrategyCapacityOptimizedPrioritized
		}
	case market == ec2types.MarketTypeCapacityBlock:
		t.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeCapacityBlock
	case market == ec2types.MarketTypeInterruptibleCapacityReservation:
		t.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeReservedCapacity
		in.ReservedCapacityOptions = &ec2types.ReservedCapacityOptionsRequest{
			ReservationTypes: []ec2types.FleetReservationType{ec2types.FleetReservationTypeInterruptibleCapacityReservation}}
	default:
		t.DefaultTargetCapacityType = ec2types.DefaultTargetCapacityTypeOnDemand
		in.OnDemandOptions = &ec2types.OnDemandOptionsRequest{AllocationStrategy: ec2types.FleetOnDemandAllocationStrategyLowestPrice}
		if priced {
			in.OnDemandOptions.AllocationStrategy = ec2types.FleetOnDemandAllocationStrategyPrioritized
		}
	}
}

// bootLabels returns the labels that the kubelet is given. The Node object carries all labels from the start; these are for a kubelet
// that finds no Node object. Labels that follow from the instance type are left out, because otherwise each choice of types would need
// its own launch template, and so are the domains that a kubelet may not set.
func bootLabels(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	for k, v := range labels {
		if domain, _, ok := strings.Cut(k, "/"); ok {
			if domain == "kubernetes.io" || domain == "k8s.io" || strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io") {
				continue
			}
		}
		if strings.HasPrefix(k, apis.Group+"/instance-") || k == bootstrap.LabelNVIDIA || slices.Contains(offerLabels, k) {
			continue
		}
		out[k] = v
	}
	return out
}

var offerLabels = []string{
	ec2nc.LabelTopologyZoneID, ec2nc.LabelCapacityReservationID, ec2nc.LabelCapacityReservationType,
	ec2nc.LabelCapacityReservationInterruptible, ec2nc.LabelPlacementGroupPartition, ec2nc.LabelInstanceTenancy,
}
