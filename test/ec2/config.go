package ec2

import (
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// Config of a simulator. The zero value is a simulator on a free port with the built-in catalogue.
type Config struct {
	// Listen is the address to listen on; empty: a free port of 127.0.0.1.
	Listen string
	// Region, default us-west-2; Zones, default the region's a, b and c.
	Region string
	Zones  []string
	// Cluster is the EKS cluster's name and the value of discovery tags; default "dovetail".
	Cluster string
	// ClusterEndpoint and ClusterCA (PEM) are what DescribeCluster tells.
	ClusterEndpoint string
	ClusterCA       []byte
	// KubernetesVersion of the cluster and its images, default 1.36.
	KubernetesVersion string
	// Account id, default 123456789012. Queue is the interruption queue's name, default the cluster's.
	Account string
	Queue   string
	// InstanceProfile and Role exist from the start; default "DovetailNode".
	InstanceProfile string
	Role            string
	// Catalog, default catalog.Builtin() in the region.
	Catalog *catalog.Catalog
	// Seed makes ids, delays and pool depths the same in every run with the same order of calls.
	Seed uint64
	// Speed divides every delay of the simulated world (not of the request buckets and tokens); default 1.
	Speed float64
	// Clock, default the real one.
	Clock clock.Clock
	// Throttle turns the documented request token buckets on.
	Throttle bool
	// DescribeLag is how long a new instance may be unknown to DescribeInstances and TerminateInstances; each instance draws
	// between half of it and all of it. Zero: visible at once.
	DescribeLag time.Duration
	// HideNetworkWhilePending leaves private address and DNS name out until the instance runs.
	HideNetworkWhilePending bool
	// FleetLatency is the middle of CreateFleet's answer time; each call draws between half and one and a half of it.
	FleetLatency time.Duration
	// ProfileLag is how long EC2 does not know an instance profile that was made or got its role just now.
	ProfileLag time.Duration
	// NoSpotRole: the account lacks AWSServiceRoleForEC2Spot. SetSpotRole makes it.
	NoSpotRole bool
	// ResourceNames gives instances host names by their id instead of their address.
	ResourceNames bool
	// IPv6 makes the cluster and its subnets IPv6.
	IPv6 bool
	// SpotNotice is the time between the interruption warning and the end of a spot instance, default 2 min.
	SpotNotice time.Duration
	// ReuseAddresses gives the address freed last to the next instance. Otherwise addresses come round in order.
	ReuseAddresses bool
	// StateEvents puts instance state-change notifications on the queue, too.
	StateEvents bool
	// IgnorePathPrefix makes ListInstanceProfiles answer with all of them, as moto does. IgnoreTagFilters makes the Describe calls of
	// EC2 answer as if no filter were by tag. What is destroyed must not depend on either.
	IgnorePathPrefix, IgnoreTagFilters bool
	// Machines are told what runs; nil: nothing boots.
	Machines Machines
}

func (c Config) withDefaults() (Config, error) {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&c.Listen, "127.0.0.1:0")
	def(&c.Region, "us-west-2")
	def(&c.Cluster, "dovetail")
	def(&c.ClusterEndpoint, "https://cluster.invalid")
	def(&c.KubernetesVersion, "1.36")
	def(&c.Account, "123456789012")
	def(&c.Queue, c.Cluster)
	def(&c.InstanceProfile, "DovetailNode")
	def(&c.Role, "DovetailNode")
	if len(c.Zones) == 0 {
		c.Zones = []string{c.Region + "a", c.Region + "b", c.Region + "c"}
	}
	if len(c.Zones) > 8 {
		return c, fmt.Errorf("%d zones: the simulated VPC has room for 8", len(c.Zones))
	}
	if c.Catalog == nil {
		c.Catalog = catalog.Builtin()
	}
	c.Catalog = c.Catalog.InRegion(c.Region)
	if c.Speed == 0 {
		c.Speed = 1
	}
	if c.Speed < 0 {
		return c, fmt.Errorf("speed %g is negative", c.Speed)
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.SpotNotice == 0 {
		c.SpotNotice = 2 * time.Minute
	}
	return c, nil
}

// scaled divides a delay of the simulated world by the speed.
func (c *Config) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) / c.Speed)
}
