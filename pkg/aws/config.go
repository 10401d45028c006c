package aws

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodesize"
)

// Config configures the provider. Only Region and ClusterName are required; missing cluster data is read from EKS.
type Config struct {
	Region      string
	ClusterName string
	// ManagedBy is the name of this Dovetail, if there are several in the cluster. It is a tag of everything that is launched. Resources without
	// the tag, or with another name, belong to another Dovetail.
	ManagedBy string

	// These settings tell nodes how to join. ClusterCABundle is base64 as in a kubeconfig, ClusterCIDR the service range.
	ClusterEndpoint string
	ClusterCABundle string
	ClusterCIDR     string
	// ClusterDNS is the DNS service's address; empty: the tenth of ClusterCIDR.
	ClusterDNS string
	// KubernetesVersion is the API server's version, major.minor ("1.36"); image aliases depend on it. ServerVersion asks the API server again;
	// nil: it isn't asked again. A version that EKS reports takes precedence.
	KubernetesVersion string
	ServerVersion     func(ctx context.Context) (string, error)

	// VMMemoryOverheadPercent is the share of a type's memory that the hypervisor and the kernel take before the kubelet sees it, as a
	// fraction: 0.075 for 7.5 %. 0: 0.075; negative: none.
	VMMemoryOverheadPercent float64
	// InterruptionQueue is the name of the SQS queue with the events about interrupted instances; empty: there is none.
	InterruptionQueue string
	// PrefixDelegation: the CNI gives interfaces prefixes of 16 addresses, so that nodes run as many pods as AWS recommends instead of
	// as many as there are addresses.
	PrefixDelegation bool
	// ReservedENIs is how many network interfaces pods don't use (CNI custom networking).
	ReservedENIs int

	// DisableDryRun: EC2 isn't asked with dry runs whether the role may launch from a class.
	DisableDryRun bool
	// ZonalShift: nothing is launched in zones that the cluster's traffic is shifted away from.
	ZonalShift bool

	// Hold, if set, returns why at the moment no resources that were created for launches may be removed and no message taken from the
	// queue (because another controller uses them, too); nil if they may.
	Hold func() error
	// Synced, if set, reports whether all node classes have been given to SetNodeClass. No instance profile is removed before.
	Synced func() bool
	Clock  clock.WithTicker

	// Prices are the settings of the price sources. Of the times between two reads, 0 means 12 h for on-demand prices, and 1 h for spot prices,
	// which move several times a day.
	Prices catalog.PriceSettings

	// The times between two reads of each other part; 0 means the default, which the comment on the field gives.
	TypesEvery     time.Duration // 12 h
	OfferingsEvery time.Duration // 5 min
	SubnetsEvery   time.Duration // 1 min
	GroupsEvery    time.Duration // 5 min
	ImagesEvery    time.Duration // 5 min
	ProfilesEvery  time.Duration // 15 min
	ReservedEvery  time.Duration // 1 min
	// PlacementsEvery is for placement groups; 0: 1 min.
	PlacementsEvery time.Duration
	JoinEvery       time.Duration // 5 min
	// TidyEvery is how often unused resources are removed, and how long they must have been unused; 0: 1 h.
	TidyEvery time.Duration
	// ExhaustedFor is how long an offering without capacity is not offered again; 0: 3 min.
	ExhaustedFor time.Duration
}

func (c Config) complete() (Config, error) {
	if c.Region == "" {
		return c, fmt.Errorf("region is required")
	}
	if c.ClusterName == "" {
		return c, fmt.Errorf("clusterName is required: it identifies the cluster's instances")
	}
	if c.ClusterCIDR != "" {
		if _, err := netip.ParsePrefix(c.ClusterCIDR); err != nil {
			return c, fmt.Errorf("clusterCIDR: %w", err)
		}
	}
	if c.ClusterDNS != "" {
		if _, err := netip.ParseAddr(c.ClusterDNS); err != nil {
			return c, fmt.Errorf("clusterDNS: %w", err)
		}
	}
	if c.ReservedENIs < 0 {
		return c, fmt.Errorf("reservedENIs must be 0 or more, not %d", c.ReservedENIs)
	}
	if c.VMMemoryOverheadPercent >= 1 {
		return c, fmt.Errorf("vmMemoryOverheadPercent is a share below 1, not %v", c.VMMemoryOverheadPercent)
	}
	switch {
	case c.VMMemoryOverheadPercent == 0:
		c.VMMemoryOverheadPercent = 0.075
	case c.VMMemoryOverheadPercent < 0:
		c.VMMemoryOverheadPercent = 0
	}
	if c.Hold == nil {
		c.Hold = func() error { return nil }
	}
	if c.Synced == nil {
		c.Synced = func() bool { return false }
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&c.TypesEvery, 12 * time.Hour}, {&c.OfferingsEvery, 5 * time.Minute}, {&c.Prices.OnDemandEvery, 12 * time.Hour},
		{&c.Prices.SpotEvery, time.Hour}, {&c.SubnetsEvery, time.Minute}, {&c.GroupsEvery, 5 * time.Minute},
		{&c.ImagesEvery, 5 * time.Minute}, {&c.ProfilesEvery, 15 * time.Minute}, {&c.ReservedEvery, time.Minute},
		{&c.PlacementsEvery, time.Minute}, {&c.JoinEvery, 5 * time.Minute},
		{&c.TidyEvery, time.Hour}, {&c.ExhaustedFor, 3 * time.Minute},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	return c, nil
}

func (c *Config) sizes() nodesize.Config {
	return nodesize.Config{Overhead: c.VMMemoryOverheadPercent, ReservedENIs: int64(c.ReservedENIs), Prefixes: c.PrefixDelegation}
}

func (c *Config) cluster() bootstrap.ClusterConfig {
	return bootstrap.ClusterConfig{
		Name: c.ClusterName, Endpoint: c.ClusterEndpoint, CABundle: c.ClusterCABundle, CIDR: c.ClusterCIDR, DNS: c.ClusterDNS,
		KubernetesVersion: c.KubernetesVersion, ServerVersion: c.ServerVersion, Every: c.JoinEvery,
	}
}

func (c *Config) catalogue() catalog.Config {
	return catalog.Config{Region: c.Region, TypesEvery: c.TypesEvery, ZonesEvery: c.OfferingsEvery, PriceSettings: c.Prices}
}

func (c *Config) lookUps() periods {
	return periods{
		subnets: c.SubnetsEvery, groups: c.GroupsEvery, images: c.ImagesEvery, profiles: c.ProfilesEvery, reserved: c.ReservedEvery,
		placements: c.PlacementsEvery,
	}
}
