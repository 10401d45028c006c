package aws

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

// blockClosing is how long before its end a block gets no more instances. This is earlier than the replacement of its nodes
// begins, because otherwise they would be replaced by nodes of the same block.
const blockClosing = time.Hour

// reservation is an EC2 capacity reservation.
type reservation struct {
	id, instanceType, zone string
	match, owner           string
	kind                   ec2nc.CapacityReservationType
	interruptible          bool
	end                    time.Time // zero: none
	expiring               bool
	// labels of offerings from the reservation.
	labels map[string]string
}

// counts holds how many instances reservations can still take: EC2's last answer, less what was launched since.
type counts struct {
	changed func()
	mu      sync.Mutex // serializes writers of now
	now     atomic.Pointer[map[string]int]
}

func newCounts(changed func()) *counts {
	c := &counts{changed: changed}
	c.now.Store(&map[string]int{})
	return c
}

// left returns the numbers by reservation id.
func (c *counts) left() *map[string]int { return c.now.Load() }

// set changes the numbers.
func (c *counts) set(update func(map[string]int)) {
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

// reservations looks up the capacity reservations of classes.
type reservations struct {
	ec2    sdk.NetworkAPI
	clock  clock.PassiveClock
	counts *counts
}

func newReservations(api sdk.NetworkAPI, c clock.PassiveClock, n *counts) *reservations {
	return &reservations{ec2: api, clock: c, counts: n}
}

// find returns the active reservations that any term selects, sorted by id.
func (l *reservations) find(ctx context.Context, spec *ec2nc.EC2NodeClassSpec) ([]reservation, error) {
	found := map[string]reservation{}
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
					found[r.id], left[r.id] = r, n
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
	l.counts.set(func(now map[string]int) { maps.Copy(now, left) })
	out := slices.Collect(maps.Values(found))
	slices.SortFunc(out, func(a, b reservation) int { return strings.Compare(a.id, b.id) })
	return out, nil
}

func reservationOf(c *ec2types.CapacityReservation, now time.Time) (r reservation, left int, ok bool) {
	r = reservation{
		id: awssdk.ToString(c.CapacityReservationId), instanceType: awssdk.ToString(c.InstanceType), zone: awssdk.ToString(c.AvailabilityZone),
		match: string(c.InstanceMatchCriteria), owner: awssdk.ToString(c.OwnerId), interruptible: awssdk.ToBool(c.Interruptible), end: awssdk.ToTime(c.EndDate),
	}
	switch c.ReservationType {
	case "", ec2types.CapacityReservationTypeDefault:
		r.kind = ec2nc.CapacityReservationTypeDefault
	case ec2types.CapacityReservationTypeCapacityBlock:
		r.kind = ec2nc.CapacityReservationTypeCapacityBlock
		r.expiring = !r.end.IsZero() && now.Add(blockClosing).After(r.end)
	default:
		return r, 0, false // an unknown type, into which we can't launch
	}
	r.labels = map[string]string{
		ec2nc.LabelCapacityReservationID: r.id, ec2nc.LabelCapacityReservationType: string(r.kind),
		ec2nc.LabelCapacityReservationInterruptible: strconv.FormatBool(r.interruptible),
	}
	return r, int(awssdk.ToInt32(c.AvailableInstanceCount)), true
}

// status returns the reservation as the status of a class shows it.
func (r *reservation) status() ec2nc.CapacityReservation {
	st := ec2nc.CapacityReservation{
		AvailabilityZone: r.zone, ID: r.id, InstanceMatchCriteria: r.match, InstanceType: r.instanceType, OwnerID: r.owner, ReservationType: r.kind,
		Interruptible: r.interruptible, State: ec2nc.CapacityReservationStateActive,
	}
	if !r.end.IsZero() {
		end := metav1.NewTime(r.end)
		st.EndTime = &end
	}
	if r.expiring {
		st.State = ec2nc.CapacityReservationStateExpiring
	}
	return st
}

// market returns the market type with which instances of the reservation are requested; empty: as on-demand instances.
func (r *reservation) market() ec2types.MarketType {
	switch {
	case r.kind == ec2nc.CapacityReservationTypeCapacityBlock:
		return ec2types.MarketTypeCapacityBlock
	case r.interruptible:
		return ec2types.MarketTypeInterruptibleCapacityReservation
	}
	return ""
}
