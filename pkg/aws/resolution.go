package aws

import (
	"context"
	"slices"
	"sync"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/capacityreservation"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/instanceprofile"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/lookup"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/network"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodesize"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/ownership"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/permission"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/placementgroup"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/validation"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/zonalshift"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// account is where references of classes are looked up.
type account struct {
	placements   sdk.NetworkAPI
	network      *network.Finder
	images       images
	profiles     *instanceprofile.Profiles
	reservations *capacityreservation.Finder
	cluster      *bootstrap.ClusterReader
	owner        ownership.Owner
	sizes        nodesize.Config
	every        periods
	// shifts are the zones that nothing is launched in; nil: none.
	shifts *zonalshift.Watcher
}

// periods are the times between two look-ups of the same reference.
type periods struct{ subnets, groups, images, profiles, reserved, placements time.Duration }

// resolution is the state of resolving one generation of a class.
type resolution struct {
	class    *ec2nc.EC2NodeClass
	family   *bootstrap.Family
	settings *nodesize.Settings
	invalid  error

	subnets  lookup.Part[[]network.Subnet]
	groups   lookup.Part[[]ec2nc.SecurityGroup]
	images   lookup.Part[[]image]
	profile  lookup.Part[string]
	reserved lookup.Part[[]capacityreservation.Reservation]
	placed   lookup.Part[placementgroup.Group]
	version  string             // the Kubernetes version that the images were last looked up for
	join     error              // why user data can't be created yet
	denied   *permission.Denial // why EC2 would refuse launches
	away     *zonalshift.State
	reported *ec2nc.EC2NodeClassStatus // the status that was last given to the OnNodeClass function, to be written
}

// again has every part that has no answer yet looked up again at once: what it refers to may exist now.
func (r *resolution) again() {
	for _, p := range []interface{ Again() }{&r.subnets, &r.groups, &r.images, &r.profile, &r.reserved, &r.placed} {
		p.Again()
	}
}

// begin reads the class's own fields; it makes no request.
func (a *account) begin(nc *ec2nc.EC2NodeClass) *resolution {
	r := &resolution{class: nc}
	if ownTemplate(nc) != "" {
		r.family, r.settings, r.invalid = settingsOfOwn(nc, a.sizes, a.owner)
		r.groups.Known, r.profile.Known = true, true // they are in the template
		return r
	}
	r.family, r.settings, r.invalid = settingsOfClass(nc, a.sizes, a.owner)
	return r
}

// settingsOfClass returns the image family of a class and the settings for computing the size of its nodes; the error is why the class is
// invalid.
func settingsOfClass(nc *ec2nc.EC2NodeClass, sizes nodesize.Config, owner ownership.Owner) (*bootstrap.Family, *nodesize.Settings, error) {
	f, err := bootstrap.FamilyOf(&nc.Spec)
	if err == nil {
		err = validation.Class(nc, f, owner)
	}
	if err != nil {
		return f, nil, err
	}
	s, err := nodesize.SettingsOf(&nc.Spec, f, sizes)
	return f, s, err
}

// resolve looks up what is due and returns the time until something is due again.
func (a *account) resolve(ctx context.Context, r *resolution, now time.Time) time.Duration {
	if r.invalid != nil {
		return time.Hour // only a change of the class helps
	}
	spec, own := &r.class.Spec, ownTemplate(r.class)
	if v, err := a.cluster.KubernetesVersion(); err == nil && v != r.version {
		r.version, r.images.Due = v, time.Time{}
	}
	var wg sync.WaitGroup
	var waits [6]time.Duration
	var errs [len(waits)]error
	for i, f := range []func() time.Duration{
		func() time.Duration {
			return r.subnets.Ask(now, a.every.subnets, func() ([]network.Subnet, error) { return a.network.Subnets(ctx, spec) })
		},
		func() time.Duration {
			if own != "" {
				return time.Hour
			}
			return r.groups.Ask(now, a.every.groups, func() ([]ec2nc.SecurityGroup, error) { return a.network.Groups(ctx, spec) })
		},
		func() time.Duration {
			if own != "" {
				return r.images.Ask(now, a.every.images, func() ([]image, error) { return a.images.ofTemplate(ctx, own, now) })
			}
			return r.images.Ask(now, a.every.images, func() ([]image, error) { return a.images.find(ctx, spec, now) })
		},
		func() time.Duration {
			if own != "" {
				return time.Hour
			}
			return r.profile.Ask(now, a.every.profiles, func() (string, error) { return a.profiles.Find(ctx, r.class) })
		},
		func() time.Duration {
			if len(spec.CapacityReservationSelectorTerms) == 0 {
				return time.Hour
			}
			return r.reserved.Ask(now, a.every.reserved, func() ([]capacityreservation.Reservation, error) { return a.reservations.Find(ctx, spec) })
		},
		func() time.Duration {
			if spec.PlacementGroupSelector == nil {
				return time.Hour
			}
			return r.placed.Ask(now, a.every.placements, func() (placementgroup.Group, error) { return placementgroup.Find(ctx, a.placements, spec) })
		},
	} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = panics.Catch(ctx, "node class", func() error {
				waits[i] = f()
				return nil
			})
		}()
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			panic(err) // panics.Again in classes.run catches it, and runs classes.keep again
		}
	}
	wait := slices.Min(waits[:])
	if own != "" {
		r.sizedByOwn()
	}
	r.join = nil
	if r.family.NeedsCluster {
		r.join = a.cluster.Ready() // when the reader has the data, it wakes the classes
	}
	return max(wait, time.Millisecond)
}
