package aws

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/network"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// available returns, for each key, whether InstanceTypes returns the offering as available.
func (w *world) available(keys ...capacity.OfferKey) []bool {
	w.t.Helper()
	types, err := w.InstanceTypes("default")
	if err != nil {
		w.t.Fatal(err)
	}
	out := make([]bool, len(keys))
	for i, k := range keys {
		t := typeOf(types, k.InstanceType)
		for _, o := range t.Offers {
			if (capacity.NodeOffer{Type: t, Offer: o}).Key() == k {
				out[i] = o.Available
			}
		}
	}
	return out
}

func TestEmptyPools(t *testing.T) {
	const od, spot = karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot
	a, b := offer("m5.large", "a", od), offer("m5.large", "b", od)
	for _, tt := range []struct {
		name string
		// code is EC2's answer for the pool m5.large in zone a; the launch batch asks for zone a, in capacityType.
		code, capacityType string
		// gone are offerings that are not available afterwards, there those that are.
		gone, there []capacity.OfferKey
		want        error
		message     string
	}{
		{
			name: "no capacity is the pool's", code: "InsufficientInstanceCapacity", capacityType: od, want: capacity.ErrInsufficientCapacity,
			gone: []capacity.OfferKey{a}, there: []capacity.OfferKey{b, offer("m5.large", "a", spot), offer("c5.large", "a", od)},
		},
		{
			name: "a type that a zone does not have is the pool's, too", code: "Unsupported", capacityType: od, want: capacity.ErrInsufficientCapacity,
			gone: []capacity.OfferKey{a}, there: []capacity.OfferKey{b},
		},
		{
			name: "a quota is the type's in every zone", code: "VcpuLimitExceeded", capacityType: od, want: capacity.ErrInsufficientCapacity,
			gone: []capacity.OfferKey{a, b}, there: []capacity.OfferKey{offer("m5.large", "a", spot), offer("c5.large", "a", od)},
		},
		{
			name: "the spot quota is spot's", code: "MaxSpotInstanceCountExceeded", capacityType: spot, want: capacity.ErrInsufficientCapacity,
			gone: []capacity.OfferKey{offer("m5.large", "a", spot), offer("m5.large", "c", spot)}, there: []capacity.OfferKey{a},
		},
		{
			name: "without the service-linked role there is no spot at all", code: "AuthFailure.ServiceLinkedRoleCreationNotPermitted", capacityType: spot,
			want: capacity.ErrInsufficientCapacity, message: "AWSServiceRoleForEC2Spot",
			gone: []capacity.OfferKey{offer("m5.large", "a", spot), offer("c5.large", "b", spot)}, there: []capacity.OfferKey{a, b},
		},
		{
			name: "no addresses are the subnet's, and so the zone's", code: "InsufficientFreeAddressesInSubnet", capacityType: od, want: capacity.ErrInsufficientCapacity,
			gone: []capacity.OfferKey{a, offer("c5.large", "a", od), offer("c5.large", "a", spot)}, there: []capacity.OfferKey{b},
		},
		{
			name: "a type that takes no encrypted volumes is out in every zone and capacity type", code: "EncryptedVolumesNotSupported", capacityType: od,
			want: capacity.ErrInsufficientCapacity,
			gone: []capacity.OfferKey{a, b, offer("m5.large", "c", spot)}, there: []capacity.OfferKey{offer("c5.large", "a", od), offer("c5.large", "a", spot)},
		},
		{
			name: "throttled inside the answer", code: "RequestLimitExceeded", capacityType: od, want: capacity.ErrThrottled, there: []capacity.OfferKey{a},
		},
		{
			name: "too many fleets say nothing about a pool", code: "MaxFleetCountExceeded", capacityType: od, want: capacity.ErrThrottled, there: []capacity.OfferKey{a},
		},
		{
			name: "a refusal is no lack of capacity", code: "UnauthorizedOperation", capacityType: od, want: capacity.ErrRefused, there: []capacity.OfferKey{a},
		},
		{
			name: "a template that is gone inside the answer", code: "InvalidLaunchTemplateName.NotFoundException", capacityType: od, want: capacity.ErrRequestStale,
			there: []capacity.OfferKey{a},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.SetNodeClass(nodeClass())
			w.types("default")
			w.status("default", isReady(metav1.ConditionTrue)) // nothing else is about to change the version
			wanted := offer("m5.large", "a", tt.capacityType)
			w.sim.SetCapacity("m5.large", "us-west-2a", tt.capacityType, 0)
			w.sim.SetCapacityError("m5.large", "us-west-2a", tt.capacityType, tt.code)
			version := w.Version()
			res, err := w.Launch(w.ctx, w.prepared(newBatch("t", tt.capacityType, 2, wanted)))
			if !errors.Is(err, tt.want) {
				t.Fatalf("Launch gives %v, want %v", err, tt.want)
			}
			if !strings.Contains(res.Message, tt.code) || !strings.Contains(res.Message, tt.message) {
				t.Errorf("the message %q does not say %s, %s", res.Message, tt.code, tt.message)
			}
			if res.Again {
				t.Error("the same offers are to be asked for again at once")
			}
			if got := slices.Contains(res.Exhausted, wanted); got != (len(tt.gone) > 0) {
				t.Errorf("exhausted %v", res.Exhausted)
			}
			if (w.Version() > version) != (len(tt.gone) > 0) {
				t.Errorf("version %d after %d", w.Version(), version)
			}
			for i, yes := range w.available(tt.gone...) {
				if yes {
					t.Errorf("%v is still available", tt.gone[i])
				}
			}
			for i, yes := range w.available(tt.there...) {
				if !yes {
					t.Errorf("%v is not available", tt.there[i])
				}
			}
		})
	}
}

// A type that takes no encrypted volumes is out for the class that has them, at once and longer than capacity that has run out, and for no other class.
func TestTypeWithoutEncryptedVolumes(t *testing.T) {
	w := newWorld(t, func(c *Config, _ *sim.Config) { c.ExhaustedFor = time.Nanosecond })
	for _, name := range []string{"default", "plain"} {
		w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Name, nc.UID = name, types.UID("uid-"+name) }))
		w.types(name)
	}
	w.sim.SetCapacity("m5.large", sim.Any, sim.Any, 0)
	for _, zone := range []string{"a", "b", "c"} {
		w.sim.SetCapacityError("m5.large", "us-west-2"+zone, "on-demand", "EncryptedVolumesNotSupported")
	}
	wanted, other := offer("m5.large", "a", "on-demand"), offer("c5.large", "a", "on-demand")
	w.sim.SetCapacity("c5.large", "us-west-2a", "on-demand", 1)
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 2, wanted, other)))
	if err != nil || len(res.Instances) != 1 || !slices.Contains(res.Exhausted, wanted) {
		t.Fatalf("Launch gives %+v, %v; want one instance of the other type, and this type exhausted", res, err)
	}
	for _, name := range []string{"default", "plain"} {
		for _, o := range typeOf(w.types(name), "m5.large").Offers {
			if o.Available != (name == "plain") {
				t.Errorf("class %s: %+v", name, o)
			}
		}
	}
}

// One of two subnets in the zone, the one that was requested, is full: no offering is exhausted, and the next request names the other
// subnet.
func TestFullSubnetBesideOneWithRoom(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	wanted := offer("m5.large", "a", "on-demand")
	c := w.classes.get("default")
	r := *c.resolved.Load()
	r.subnets = append(slices.Clone(r.subnets), network.Subnet{ID: "subnet-second", Zone: "us-west-2a"})
	c.resolved.Store(&r)
	first := w.prepared(newBatch("t", "on-demand", 1, wanted))
	w.sim.SetCapacity("m5.large", "us-west-2a", "on-demand", 0)
	w.sim.SetCapacityError("m5.large", "us-west-2a", "on-demand", "InsufficientFreeAddressesInSubnet")
	res, err := w.Launch(w.ctx, first)
	if !errors.Is(err, capacity.ErrInsufficientCapacity) || !res.Again || len(res.Exhausted) > 0 {
		t.Fatalf("Launch gives %+v, %v; want to be asked again for the same offers", res, err)
	}
	next, err := unpack(w.prepared(newBatch("t2", "on-demand", 1, wanted)).Request)
	if err != nil {
		t.Fatal(err)
	}
	if got := *next.LaunchTemplateConfigs[0].Overrides[0].SubnetId; got != "subnet-second" {
		t.Errorf("the next request names %s", got)
	}
}

func TestPartOfALaunchBatch(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	before := w.types("default")
	w.sim.SetCapacity("m5.large", "us-west-2a", "on-demand", 3)
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 5, offer("m5.large", "a", "on-demand"))))
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Instances) != 3 || len(res.Exhausted) != 1 || res.Message == "" {
		t.Errorf("%d instances, exhausted %v, message %q; want 3, the pool, a reason", len(res.Instances), res.Exhausted, res.Message)
	}
	after := w.types("default")
	for i := range before {
		if same := before[i] == after[i]; same != (before[i].Name != "m5.large") {
			t.Errorf("%s: same type as before is %v", before[i].Name, same)
		}
		if before[i].Name == "m5.large" && !before[i].Offers[0].Available {
			t.Error("a type that was handed out was changed")
		}
	}
}

func TestPoolsRecover(t *testing.T) {
	w := newWorld(t, func(c *Config, _ *sim.Config) { c.ExhaustedFor = 50 * time.Millisecond })
	w.SetNodeClass(nodeClass())
	w.types("default")
	w.sim.SetCapacity("m5.large", "us-west-2a", "on-demand", 0)
	if _, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand")))); err == nil {
		t.Fatal("launched from an empty pool")
	}
	for deadline := time.After(10 * time.Second); !w.available(offer("m5.large", "a", "on-demand"))[0]; {
		select {
		case <-w.changed:
		case <-deadline:
			t.Fatal("the offer never came back")
		}
	}
}

func TestTokenOfAnotherRequest(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	if _, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand")))); err != nil {
		t.Fatal(err)
	}
	_, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 1, offer("c5.large", "a", "on-demand"))))
	if !errors.Is(err, capacity.ErrTokenMismatch) {
		t.Errorf("another request under the same token: %v, want ErrTokenMismatch", err)
	}
	if n := len(w.sim.Live()); n != 1 {
		t.Errorf("%d instances, want 1", n)
	}
}

func TestTemplatesAreMadeOnceAndAgain(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	v := newBatch("t1", "on-demand", 1, offer("m5.large", "a", "on-demand"), offer("m5.xlarge", "a", "on-demand"), offer("m6g.large", "b", "on-demand"))
	first := w.prepared(v)
	w.prepared(v)
	// Two sizes of pods, two architectures; the second time nothing is created.
	if n := len(w.sim.Calls("CreateLaunchTemplate")); n != 3 {
		t.Errorf("%d templates were made, want 3", n)
	}
	// Another process finds them by name.
	w.templates.Forget(w.names(first)...)
	second := w.prepared(v)
	if !slices.Equal(first.Request, second.Request) {
		t.Error("the same launch batch has another request")
	}
	// The templates are deleted: the recorded request is stale, the next one works.
	w.sim.Before("CreateFleet", sim.Times(1, sim.Fault{Code: "InvalidLaunchTemplateName.NotFoundException"}))
	if _, err := w.Launch(w.ctx, second); !errors.Is(err, capacity.ErrRequestStale) {
		t.Errorf("launching with a template that is gone: %v, want ErrRequestStale", err)
	}
	before := len(w.sim.Calls("CreateLaunchTemplate"))
	v.Token = "t2"
	if _, err := w.Launch(w.ctx, w.prepared(v)); err != nil {
		t.Error(err)
	}
	if made := len(w.sim.Calls("CreateLaunchTemplate")) - before; made != 3 {
		t.Errorf("%d templates were made again, want 3", made)
	}
}

// An image that was deregistered is looked up again at once, and the next attempt waits for the answer. The other attempts would fail, for up to five
// minutes.
func TestImageThatIsGone(t *testing.T) {
	w := newWorld(t)
	golden := func(name string, month time.Month) string {
		return w.sim.AddImage(sim.Image{Name: name, Arch: "x86_64", Created: time.Date(2026, month, 1, 0, 0, 0, 0, time.UTC), Tags: map[string]string{"team": "web"}})
	}
	older, newest := golden("golden-09", time.September), golden("golden-10", time.October)
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Spec.AMIFamily, nc.Spec.AMISelectorTerms = awssdk.String("AL2023"), []ec2nc.AMISelectorTerm{{Tags: map[string]string{"team": "web"}}}
	}))
	if image := typeOf(w.types("default"), "m5.large").Image; image != newest {
		t.Fatalf("image %s, want the newest, %s", image, newest)
	}
	w.sim.RemoveImage(newest)
	v := newBatch("t1", "on-demand", 1, offer("m5.large", "a", "on-demand"))
	if _, err := w.Launch(w.ctx, w.prepared(v)); !errors.Is(err, capacity.ErrRequestStale) {
		t.Errorf("launching from an image that is gone: %v, want ErrRequestStale", err)
	}
	v.Token = "t2"
	res, err := w.Launch(w.ctx, w.prepared(v))
	if err != nil {
		t.Fatal(err)
	}
	if i := w.instance(res.Instances[0].ID); i.ImageID != older {
		t.Errorf("launched from %s, want %s", i.ImageID, older)
	}
	// Without any image the class isn't ready, so nothing is launched in vain.
	w.sim.RemoveImage(older)
	v.Token = "t3"
	if _, err := w.Launch(w.ctx, w.prepared(v)); !errors.Is(err, capacity.ErrRequestStale) {
		t.Errorf("launching from the last image, which is gone: %v, want ErrRequestStale", err)
	}
	if _, err := w.Prepare(w.ctx, v); !errors.Is(err, capacity.ErrNodeClassNotReady) {
		t.Errorf("preparing a launch without an image: %v, want ErrNodeClassNotReady", err)
	}
}

func (w *world) names(v capacity.LaunchBatch) []string {
	w.t.Helper()
	in, err := unpack(v.Request)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, c := range in.LaunchTemplateConfigs {
		out = append(out, *c.LaunchTemplateSpecification.LaunchTemplateName)
	}
	return out
}

// A launch batch's request is recorded on each of its claims: it must stay small.
func TestRequestIsSmall(t *testing.T) {
	w := newWorld(t, allTypes)
	w.SetNodeClass(nodeClass())
	types := w.types("default")
	v := newBatch("t", "on-demand", 100)
	for _, typ := range types[:min(60, len(types))] {
		for _, o := range typ.Offers {
			if o.CapacityType == "on-demand" {
				v.Offers = append(v.Offers, capacity.NodeOffer{Type: typ, Offer: o}.Key())
			}
		}
	}
	if n := len(w.prepared(v).Request); n > 4096 {
		t.Errorf("the request for %d offers has %d bytes", len(v.Offers), n)
	}
}

func TestAnswerLost(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	v := w.prepared(newBatch("t", "on-demand", 4, offer("m5.large", "a", "on-demand")))
	// EC2 launches, but the answer is lost: the SDK sends the request again with the same token.
	lost := false
	w.sim.After("CreateFleet", func(*sim.Request, *sim.Answer) *sim.Fault {
		if lost {
			return nil
		}
		lost = true
		return &sim.Fault{Drop: true}
	})
	res, err := w.Launch(w.ctx, v)
	if err != nil || len(res.Instances) != 4 {
		t.Errorf("%d instances and %v, want 4", len(res.Instances), err)
	}
	if n := len(w.sim.Live()); n != 4 {
		t.Errorf("%d instances live, want 4", n)
	}
}
