package aws

import (
	"fmt"
	"net/netip"
	"time"

	"k8s.io/utils/clock"
)

// Config is what the provider has to be told. Only Region and ClusterName are required; what is missing of the cluster
// is asked of EKS.
type Config struct {
	Region      string
	ClusterName string

	// How a node joins. ClusterCABundle is base64 as in a kubeconfig, ClusterCIDR the service range.
	ClusterEndpoint string
	ClusterCABundle string
	ClusterCIDR     string
	// ClusterDNS is the DNS service's address; empty: the tenth of ClusterCIDR.
	ClusterDNS string
	// KubernetesVersion is major.minor ("1.36"): image aliases depend on it.
	KubernetesVersion string

	// VMMemoryOverheadPercent is the share of a type's memory that the hypervisor and the kernel take before the kubelet
	// sees it, 0.075 for 7.5 %. 0: 0.075; negative: none.
	VMMemoryOverheadPercent float64
	// InterruptionQueue is the name of the SQS queue that tells about instances that will end; empty: there is none.
	InterruptionQueue string
	// PrefixDelegation: the CNI gives interfaces prefixes of 16 addresses, so that nodes take as many pods as AWS recommends
	// instead of as many as there are addresses.
	PrefixDelegation bool
	// ReservedENIs are network interfaces that pods don't use (CNI custom networking).
	ReservedENIs int

	// Hold, when set, says why nothing that was made for launches may be removed, and no message taken off the queue, at the
	// moment (another controller uses them, too); empty: go on.
	Hold  func() string
	Clock clock.WithTicker

	// Refresh periods; 0: the default.
	TypesEvery     time.Duration // 12 h
	OfferingsEvery time.Duration // 5 min
	PricesEvery    time.Duration // 12 h
	SpotEvery      time.Duration // 1 h: spot prices move several times a day
	SubnetsEvery   time.Duration // 1 min
	GroupsEvery    time.Duration // 5 min
	ImagesEvery    time.Duration // 5 min
	ProfilesEvery  time.Duration // 15 min
	ReservedEvery  time.Duration // 1 min
	// PlacementsEvery is for placement groups; 0: 1 min.
	PlacementsEvery time.Duration
	JoinEvery       time.Duration // 5 min
	// TidyEvery is how often what is not in use is removed, and how long it must not have been used; 0: 1 h.
	TidyEvery time.Duration
	// ExhaustedFor is how long an offer without capacity is not offered again; 0: 3 min.
	ExhaustedFor time.Duration
}

func (c Config) complete() (Config, error) {
	if c.Region == "" {
		return c, fmt.Errorf("region is required")
	}
	if c.ClusterName == "" {
		return c, fmt.Errorf("clusterName is required: instances are found by it")
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
		return c, fmt.Errorf("reservedENIs is a number of network interfaces, not %d", c.ReservedENIs)
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
		c.Hold = func() string { return "" }
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&c.TypesEvery, 12 * time.Hour}, {&c.OfferingsEvery, 5 * time.Minute}, {&c.PricesEvery, 12 * time.Hour},
		{&c.SpotEvery, time.Hour}, {&c.SubnetsEvery, time.Minute}, {&c.GroupsEvery, 5 * time.Minute},
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
