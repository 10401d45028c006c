package aws

import (
	"fmt"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/unavailable"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// noSpotRole tells the user what to do about the missing role.
const noSpotRole = "spot instances can't be launched before the account has the service-linked role AWSServiceRoleForEC2Spot" +
	" (aws iam create-service-linked-role --aws-service-name spot.amazonaws.com)"

// fleetErrors is the meaning of the Errors in a fleet's answer.
type fleetErrors struct {
	scopes []unavailable.Scope
	// reservations are the ids of those that are full; incompatible are instance types that EC2 can't launch with the volumes of the class.
	reservations, incompatible []string
	// said has an entry for each distinct error code: the code, its first message, and how often it occurred.
	said []fleetError
	// stale: EC2 doesn't know a launch template or an image of the request. image: it doesn't know an image.
	stale, image bool
	// profile: EC2 does not know the instance profile; subnet: a subnet in the request has no free addresses.
	profile, subnet bool
	// insufficient: there is no capacity or a quota is used up; throttled: too many requests; refused: EC2 will never make such a launch.
	insufficient, throttled, refused bool
}

type fleetError struct {
	code, message string
	times         int
}

// readFleet sorts the errors in a fleet's answer by their cause. group is the id of the placement group of the launch; empty: none.
func readFleet(errs []ec2types.CreateFleetError, w *capacity.LaunchBatch, group string) fleetErrors {
	var f fleetErrors
	for _, e := range errs {
		c, message := awssdk.ToString(e.ErrorCode), awssdk.ToString(e.ErrorMessage)
		err := sdk.NewError(c, message)
		f.say(c, message)
		fleetErrorsTotal.WithLabelValues(w.CapacityType, c).Inc()
		pool := unavailable.Scope{CapacityType: w.CapacityType, Group: group}
		subnet := ""
		if lt := e.LaunchTemplateAndOverrides; lt != nil && lt.Overrides != nil {
			pool.InstanceType, pool.Zone = string(lt.Overrides.InstanceType), awssdk.ToString(lt.Overrides.AvailabilityZone)
			subnet = awssdk.ToString(lt.Overrides.SubnetId)
		}
		switch {
		case c == sdk.CodeNoSpotRole:
			// Spot can't be used at all until the role exists.
			f.insufficient = true
			f.scopes = append(f.scopes, unavailable.Scope{CapacityType: karpv1.CapacityTypeSpot})
		case groupsZone(c, message):
			f.insufficient = true
			if pool.Zone != "" && group != "" {
				f.scopes = append(f.scopes, unavailable.Scope{Zone: pool.Zone, Group: group})
			}
		case c == sdk.CodeNoAddresses:
			f.insufficient = true
			if subnet != "" {
				f.subnet = true
				f.scopes = append(f.scopes, unavailable.Scope{Subnet: subnet})
			}
		case c == sdk.CodeSpotQuota, c == sdk.CodeVCPUQuota, c == sdk.CodeInstanceQuota:
			// A quota applies to the region: another zone of the same type won't help.
			f.insufficient = true
			pool.Group = ""
			if pool.Zone = ""; pool.InstanceType != "" {
				f.scopes = append(f.scopes, pool)
			}
		case c == sdk.CodeReservationExceeded:
			f.insufficient = true
			for _, o := range w.Offers {
				if o.ReservationID != "" && o.InstanceType == pool.InstanceType && o.Zone == pool.Zone {
					f.reservations = append(f.reservations, o.ReservationID)
				}
			}
		case c == sdk.CodeNoEncryption:
			f.insufficient = true
			if pool.InstanceType != "" {
				f.incompatible = append(f.incompatible, pool.InstanceType)
			}
		case sdk.IsInsufficientCapacity(err), c == "InvalidFleetConfiguration":
			// InvalidFleetConfiguration is the fleet's code for a type that is not offered in a zone.
			f.insufficient = true
			if pool.InstanceType != "" && pool.Zone != "" {
				f.scopes = append(f.scopes, pool)
			}
		case sdk.IsProfileUnknown(err):
			f.profile = true
		case sdk.IsThrottled(err):
			f.throttled = true
		case sdk.IsStale(err):
			f.stale, f.image = true, f.image || sdk.IsImageUnknown(err)
		default:
			f.refused = true
		}
	}
	return f
}

func (f *fleetErrors) say(c, message string) {
	for i := range f.said {
		if f.said[i].code == c {
			f.said[i].times++
			return
		}
	}
	f.said = append(f.said, fleetError{c, message, 1})
}

// message returns the text for events, each code once.
func (f *fleetErrors) message() string {
	var parts []string
	for _, s := range f.said {
		part := s.code + ": " + sdk.Plain(s.message)
		if s.code == sdk.CodeNoSpotRole {
			part = noSpotRole + ": " + part
		}
		if s.times > 1 {
			part += fmt.Sprintf(" (%d times)", s.times)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// sentinel returns the error for an answer without instances. Lack of capacity comes first, because a new attempt can avoid it.
func (f *fleetErrors) sentinel() error {
	switch {
	case f.insufficient:
		return capacity.ErrInsufficientCapacity
	case f.throttled:
		return capacity.ErrThrottled
	case f.stale, f.profile:
		return capacity.ErrRequestStale
	case f.refused:
		return capacity.ErrRefused
	}
	return capacity.ErrInsufficientCapacity // neither instances nor errors: EC2 has no capacity
}

const (
	// codePlacementElsewhere: a cluster group is in one zone, and this is another zone.
	codePlacementElsewhere = "InvalidPlacementGroup.InUse"
	// wordsSpreadFull is in the message for a zone that has as many instances as a spread group may have there. The code of that error
	// is one for lack of capacity.
	wordsSpreadFull = "limit of instances in this spread placement group"
)

// groupsZone reports whether an error of a fleet means that the placement group can't be used in the zone, whatever the type.
func groupsZone(code, message string) bool {
	return code == codePlacementElsewhere || strings.Contains(message, wordsSpreadFull)
}
