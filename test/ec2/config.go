package ec2

import (
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// Config configures a simulator. The zero value is a simulator on a free port with the built-in catalogue.
type Config struct {
	// Listen is the address to listen on; empty: a free port of 127.0.0.1.
	Listen string
	// Region is us-west-2 by default; Zones are the region's a, b and c by default.
	Region string
	Zones  []string
	// Cluster is the EKS cluster's name and the value of discovery tags; default "dovetail".
	Cluster string
	// ClusterEndpoint and ClusterCA (PEM) are returned by DescribeCluster.
	ClusterEndpoint string
	ClusterCA       []byte
	// KubernetesVersion is the version of the cluster and its images, default 1.36.
	KubernetesVersion string
	// Account is the account ID, default 123456789012. Queue is the interruption queue's name, default the cluster's name.
	Account string
	Queue   string
	// InstanceProfile and Role exist from the start; default "DovetailNode".
	InstanceProfile string
	Role            string
	// Catalog is catalog.Builtin() in the region by default.
	Catalog *catalog.Catalog
	// Seed makes IDs, delays and pool depths the same in every run with the same order of calls.
	Seed uint64
	// Speed divides every delay of the simulated world (not of the request buckets and tokens); default 1.
	Speed float64
	// Clock is the real clock by default.
	Clock clock.Clock
	// Throttle turns on the request token buckets that EC2 documents.
	Throttle bool
	// DescribeLag is for how long DescribeInstances and TerminateInstances may not know a new instance; each instance draws a time
	// between half of it and all of it. Zero: instances are visible at once.
	DescribeLag time.Duration
	// HideNetworkWhilePending leaves private address and DNS name out until the instance is running.
	HideNetworkWhilePending bool
	// FleetLatency is the mean time CreateFleet takes to answer; each call draws between half and one and a half times that.
	FleetLatency time.Duration
	// ProfileLag is for how long EC2 does not know a newly created instance profile, or its new role.
	ProfileLag time.Duration
	// NoSpotRole: the account lacks AWSServiceRoleForEC2Spot. SetSpotRole creates it.
	NoSpotRole bool
	// ResourceNames gives instances host names based on their ID instead of their address.
	ResourceNames bool
	// IPv6 makes the cluster and its subnets IPv6.
	IPv6 bool
	// SpotNotice is the time between the interruption warning and the termination of a spot instance, default 2 min.
	SpotNotice time.Duration
	// ReuseAddresses gives the address released last to the next instance. Otherwise addresses are reused as late as possible.
	ReuseAddresses bool
	// StateEvents also sends instance state-change notifications to the queue.
	StateEvents bool
	// IgnorePathPrefix makes ListInstanceProfiles return all profiles, as moto does. IgnoreTagFilters makes EC2's Describe calls
	// ignore filters by tag. What the product deletes must not depend on these filters working.
	IgnorePathPrefix, IgnoreTagFilters bool
	// Policy is the IAM policy (JSON) of the program whose requests are signed as Env says; nil: it may do everything. Placeholders
	// ${Partition}, ${Region}, ${Account}, ${Cluster}, ${NodeRole} and ${Queue} are filled in.
	Policy []byte
	// Machines boots software on instances; nil: nothing boots.
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
