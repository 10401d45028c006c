package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/configz"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/plugins/binder"
	"github.com/dovetail-scheduler/dovetail/plugins/pluginargs"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
)

// effectiveKey is the key of the state in /configz. Upstream's chain of handlers can't be extended from outside, but /configz serves
// whatever is registered, behind the same authorization.
const effectiveKey = "dovetail"

// effective is Dovetail's current configuration and state.
type effective struct {
	metav1.TypeMeta `json:",inline"`

	Profiles []effectiveProfile `json:"profiles"`
	// Problem is why nothing can be launched. Cloud names the data of the cloud (types, zones, prices) that is missing or out of date.
	Problem string `json:"problem,omitempty"`
	Cloud   string `json:"cloud,omitempty"`
	// Pools are in the order in which they are tried.
	Pools  []effectivePool `json:"pools"`
	Claims claimCount      `json:"claims"`
	Ledger ledger.Summary  `json:"ledger"`
}

type effectiveProfile struct {
	SchedulerName string          `json:"schedulerName"`
	Provision     *provision.Args `json:"provision"`
	Binder        *binder.Args    `json:"binder"`
}

type effectivePool struct {
	Name      string `json:"name"`
	NodeClass string `json:"nodeClass,omitempty"`
	Weight    int32  `json:"weight,omitempty"`
	// Schedulers are the names of the schedulers whose pods may use the pool's nodes; absent: all.
	Schedulers []string `json:"schedulers,omitempty"`
	Unready    string   `json:"unready,omitempty"`
	// InstanceTypes is the number of types that its node class can run, before the pool's requirements.
	InstanceTypes int `json:"instanceTypes"`
}

type claimCount struct {
	All         int `json:"all"`
	Launched    int `json:"launched"`
	Registered  int `json:"registered"`
	Initialized int `json:"initialized"`
}

// liveState has the funcs that effective is built from; all answer from memory.
type liveState struct {
	problem func() error
	cloud   func() error
	pools   func() []*capacity.Pool
	claims  func() []*capacity.Claim
	ledger  func() ledger.Summary
}

// live is what configz serves: it builds effective anew whenever it is encoded.
type live struct {
	metav1.TypeMeta
	profiles  []effectiveProfile
	liveState liveState
}

// DeepCopyObject implements runtime.Object. It returns l itself, which is never changed.
func (l *live) DeepCopyObject() runtime.Object { return l }

// MarshalJSON implements json.Marshaler.
func (l *live) MarshalJSON() ([]byte, error) { return json.Marshal(l.now()) }

func (l *live) now() *effective {
	e := &effective{TypeMeta: l.TypeMeta, Profiles: l.profiles, Pools: []effectivePool{}, Ledger: l.liveState.ledger()}
	if err := l.liveState.problem(); err != nil {
		e.Problem = err.Error()
	}
	if err := l.liveState.cloud(); err != nil {
		e.Cloud = err.Error()
	}
	for _, p := range l.liveState.pools() {
		e.Pools = append(e.Pools, effectivePool{Name: p.Name, NodeClass: p.NodeClass, Weight: p.Weight, Schedulers: p.Schedulers, Unready: p.Unready,
			InstanceTypes: len(p.Types)})
	}
	for _, c := range l.liveState.claims() {
		e.Claims.All++
		for _, one := range []struct {
			yes bool
			n   *int
		}{{c.Launched, &e.Claims.Launched}, {c.Registered, &e.Claims.Registered}, {c.Initialized, &e.Claims.Initialized}} {
			if one.yes {
				*one.n++
			}
		}
	}
	return e
}

// publish serves the current configuration and state in /configz from now on, and logs the arguments once.
func publish(ctx context.Context, profiles []profile, f liveState) error {
	l := &live{TypeMeta: metav1.TypeMeta{APIVersion: pluginargs.GroupVersion, Kind: "Effective"}, liveState: f}
	for _, p := range profiles {
		l.profiles = append(l.profiles, effectiveProfile{SchedulerName: p.config.SchedulerName, Provision: p.args, Binder: p.binder})
	}
	brief, err := json.Marshal(withoutSpecs(l.profiles))
	if err != nil {
		return fmt.Errorf("showing the arguments: %w", err)
	}
	klog.FromContext(ctx).Info("Dovetail's arguments, with defaults", "profiles", string(brief))
	z, err := configz.New(effectiveKey)
	if err == nil {
		err = z.Set(l)
	}
	if err != nil {
		return fmt.Errorf("showing the arguments: %w", err)
	}
	return nil
}

// withoutSpecs removes the specs of pools and node classes for the log: they are long, and user data may hold secrets.
func withoutSpecs(profiles []effectiveProfile) []effectiveProfile {
	names := func(of []provision.Inline) []provision.Inline {
		out := make([]provision.Inline, len(of))
		for i := range of {
			out[i].Name = of[i].Name
		}
		return out
	}
	out := slices.Clone(profiles)
	for i := range out {
		args := *out[i].Provision
		args.NodePools, args.EC2NodeClasses = names(args.NodePools), names(args.EC2NodeClasses)
		out[i].Provision = &args
	}
	return out
}
