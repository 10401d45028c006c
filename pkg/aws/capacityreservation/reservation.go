package capacityreservation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/network"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// blockClosing is the time before a capacity block's end from which nothing is launched into the block. It begins before the block's nodes are
// replaced, because otherwise nodes of the same block would replace them.
const blockClosing = time.Hour

// Reservation is an EC2 capacity reservation.
type Reservation struct {
	ID, InstanceType, Zone string
	match, owner           string
	Type                   ec2nc.CapacityReservationType
	interruptible          bool
	End                    time.Time // zero: none
	// Expiring: it ends so soon that nothing is launched into it any more.
	Expiring bool
	// Labels of offerings from the reservation.
	Labels map[string]string
}

// Counts holds how many instances reservations can still take: EC2's last answer, less what was launched since.
type Counts struct {
	changed func()
	mu      sync.Mutex // serializes writers of now
	now     atomic.Pointer[map[string]int]
}

// NewCounts returns counts that call changed whenever a number changes.
func NewCounts(changed func()) *Counts {
	c := &Counts{changed: changed}
	c.now.Store(&map[string]int{})
	return c
}

// Left returns how many instances each reservation can still take, by its id.
func (c *Counts) Left() *map[string]int { return c.now.Load() }

// Update lets update change the numbers of instances that reservations can still take, by reservation id.
func (c *Counts) Update(update func(map[string]int)) {
	c.mu.Lock()
	old := *c.now.Load()
	next := maps.Clone(old)
	update(next)
	change := !maps.Equal(old, next)
	if change {
		c.now.Store(&next)
	}
	c.mu.Unlock()
	if change {
		c.changed()
	}
}

// Finder looks up the capacity reservations of classes.
type Finder struct {
	ec2    sdk.NetworkAPI
	clock  clock.PassiveClock
	counts *Counts
}

// NewFinder returns a finder that keeps n up to date with what it finds.
func NewFinder(api sdk.NetworkAPI, c clock.PassiveClock, n *Counts) *Finder {
	return &Finder{ec2: api, clock: c, counts: n}
}

// Find returns the active reservations that any term selects, sorted by id.
func (l *Finder) Find(ctx context.Context, spec *ec2nc.EC2NodeClassSpec) ([]Reservation, error) {
	found := map[string]Reservation{}
	left := map[string]int{}
	ask := func(ids []string, filters ...ec2types.Filter) error {
		pages := ec2.NewDescribeCapacityReservationsPaginator(l.ec2, &ec2.DescribeCapacityReservationsInput{
			CapacityReservationIds: ids, Filters: append(filters, sdk.Filter("state", "active")),
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return fmt.Errorf("describing capacity reservations: %w", err)
			}
			for i := range page.CapacityReservations {
				if r, n, ok := reservationOf(&page.CapacityReservations[i], l.clock.Now()); ok {
					found[r.ID], left[r.ID] = r, n
				}
			}
		}
		return nil
	}
	for _, t := range spec.CapacityReservationSelectorTerms {
		filters := network.TagFilters(t.Tags)
		if t.OwnerID != "" {
			filters = append(filters, sdk.Filter("owner-id", t.OwnerID))
		}
		if t.InstanceMatchCriteria != "" {
			filters = append(filters, sdk.Filter("instance-match-criteria", t.InstanceMatchCriteria))
		}
		var ids []string
		if t.ID != "" {
			ids = []string{t.ID} // one id per request: an unknown id fails the request
		}
		if err := ask(ids, filters...); err != nil && !sdk.IsNotFound(err) {
			return nil, err
		}
	}
	l.counts.Update(func(now map[string]int) { maps.Copy(now, left) })
	out := slices.Collect(maps.Values(found))
	slices.SortFunc(out, func(a, b Reservation) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

func reservationOf(c *ec2types.CapacityReservation, now time.Time) (r Reservation, left int, ok bool) {
	r = Reservation{
		ID: awssdk.ToString(c.CapacityReservationId), InstanceType: awssdk.ToString(c.InstanceType), Zone: awssdk.ToString(c.AvailabilityZone),
		match: string(c.InstanceMatchCriteria), owner: awssdk.ToString(c.OwnerId), interruptible: awssdk.ToBool(c.Interruptible), End: awssdk.ToTime(c.EndDate),
	}
	switch c.ReservationType {
	case "", ec2types.CapacityReservationTypeDefault:
		r.Type = ec2nc.CapacityReservationTypeDefault
	case ec2types.CapacityReservationTypeCapacityBlock:
		r.Type = ec2nc.CapacityReservationTypeCapacityBlock
		r.Expiring = !r.End.IsZero() && now.Add(blockClosing).After(r.End)
	default:
		return r, 0, false // an unknown type, into which we can't launch
	}
	r.Labels = map[string]string{
		ec2nc.LabelCapacityReservationID: r.ID, ec2nc.LabelCapacityReservationType: string(r.Type),
		ec2nc.LabelCapacityReservationInterruptible: strconv.FormatBool(r.interruptible),
	}
	return r, int(awssdk.ToInt32(c.AvailableInstanceCount)), true
}

// Status returns the reservation as the status of a class shows it.
func (r *Reservation) Status() ec2nc.CapacityReservation {
	st := ec2nc.CapacityReservation{
		AvailabilityZone: r.Zone, ID: r.ID, InstanceMatchCriteria: r.match, InstanceType: r.InstanceType, OwnerID: r.owner, ReservationType: r.Type,
		Interruptible: r.interruptible, State: ec2nc.CapacityReservationStateActive,
	}
	if !r.End.IsZero() {
		end := metav1.NewTime(r.End)
		st.EndTime = &end
	}
	if r.Expiring {
		st.State = ec2nc.CapacityReservationStateExpiring
	}
	return st
}

// Market returns the market type with which instances of the reservation are requested; empty: as on-demand instances.
func (r *Reservation) Market() ec2types.MarketType {
	switch {
	case r.Type == ec2nc.CapacityReservationTypeCapacityBlock:
		return ec2types.MarketTypeCapacityBlock
	case r.interruptible:
		return ec2types.MarketTypeInterruptibleCapacityReservation
	}
	return ""
}
