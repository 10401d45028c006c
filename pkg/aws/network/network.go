package network

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/lookup"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// Subnet is a subnet and its zone, by name and by id.
type Subnet struct{ ID, Zone, ZoneID string }

// Addresses counts the free addresses of subnets: EC2's last answer, less those of the instances launched since.
type Addresses struct {
	mu   sync.Mutex
	free map[string]int64
}

// NewAddresses returns counts that are empty until subnets are found.
func NewAddresses() *Addresses { return &Addresses{free: map[string]int64{}} }

func (a *Addresses) set(subnet string, free int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free[subnet] = free
}

// Take subtracts the addresses of launched instances.
func (a *Addresses) Take(subnet string, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free[subnet] = max(0, a.free[subnet]-n)
}

// Most returns, for each zone, the subnet with the most free addresses, among those not known to be full.
func (a *Addresses) Most(subnets []Subnet, full func(id string) bool) map[string]Subnet {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]Subnet{}
	for _, s := range subnets {
		if full(s.ID) {
			continue
		}
		if have, ok := out[s.Zone]; !ok || a.free[s.ID] > a.free[have.ID] {
			out[s.Zone] = s
		}
	}
	return out
}

// Finder looks up the subnets and security groups of classes.
type Finder struct {
	ec2       sdk.NetworkAPI
	addresses *Addresses
}

// NewFinder returns a finder that keeps the addresses up to date with what it finds.
func NewFinder(api sdk.NetworkAPI, a *Addresses) *Finder { return &Finder{ec2: api, addresses: a} }

// TagFilters returns filters that require all of the tags; "*" is any value.
func TagFilters(tags map[string]string) []ec2types.Filter {
	var out []ec2types.Filter
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		if v := tags[k]; v == "*" {
			out = append(out, sdk.Filter("tag-key", k))
		} else {
			out = append(out, sdk.Filter("tag:"+k, v))
		}
	}
	return out
}

// SayTags formats a tag selector for messages: {a: b, c: *}.
func SayTags(tags map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		parts = append(parts, k+": "+tags[k])
	}
	return "tags {" + strings.Join(parts, ", ") + "}"
}

// Subnets returns the subnets that any term selects, sorted by id.
func (n *Finder) Subnets(ctx context.Context, spec *ec2nc.EC2NodeClassSpec) ([]Subnet, error) {
	found := map[string]Subnet{}
	var ids, said []string
	ask := func(filters ...ec2types.Filter) error {
		pages := ec2.NewDescribeSubnetsPaginator(n.ec2, &ec2.DescribeSubnetsInput{Filters: filters, MaxResults: awssdk.Int32(1000)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return fmt.Errorf("describing subnets: %w", err)
			}
			for _, s := range page.Subnets {
				id := awssdk.ToString(s.SubnetId)
				found[id] = Subnet{ID: id, Zone: awssdk.ToString(s.AvailabilityZone), ZoneID: awssdk.ToString(s.AvailabilityZoneId)}
				n.addresses.set(id, int64(awssdk.ToInt32(s.AvailableIpAddressCount)))
			}
		}
		return nil
	}
	for _, t := range spec.SubnetSelectorTerms {
		if t.ID != "" {
			ids, said = append(ids, t.ID), append(said, "id "+t.ID)
			continue
		}
		said = append(said, SayTags(t.Tags))
		if err := ask(TagFilters(t.Tags)...); err != nil {
			return nil, err
		}
	}
	if len(ids) > 0 {
		if err := ask(sdk.Filter("subnet-id", ids...)); err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, lookup.Unusable("spec.subnetSelectorTerms: no subnet matches " + strings.Join(said, " or "))
	}
	out := slices.Collect(maps.Values(found))
	slices.SortFunc(out, func(a, b Subnet) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// Groups returns the security groups that any term selects, sorted by id.
func (n *Finder) Groups(ctx context.Context, spec *ec2nc.EC2NodeClassSpec) ([]ec2nc.SecurityGroup, error) {
	found := map[string]ec2nc.SecurityGroup{}
	var ids, names, said []string
	ask := func(filters ...ec2types.Filter) error {
		pages := ec2.NewDescribeSecurityGroupsPaginator(n.ec2, &ec2.DescribeSecurityGroupsInput{Filters: filters, MaxResults: awssdk.Int32(1000)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return fmt.Errorf("describing security groups: %w", err)
			}
			for _, g := range page.SecurityGroups {
				id := awssdk.ToString(g.GroupId)
				found[id] = ec2nc.SecurityGroup{ID: id, Name: awssdk.ToString(g.GroupName)}
			}
		}
		return nil
	}
	for _, t := range spec.SecurityGroupSelectorTerms {
		switch {
		case t.ID != "":
			ids, said = append(ids, t.ID), append(said, "id "+t.ID)
		case t.Name != "":
			names, said = append(names, t.Name), append(said, "name "+t.Name)
		default:
			said = append(said, SayTags(t.Tags))
			if err := ask(TagFilters(t.Tags)...); err != nil {
				return nil, err
			}
		}
	}
	if len(ids) > 0 {
		if err := ask(sdk.Filter("group-id", ids...)); err != nil {
			return nil, err
		}
	}
	if len(names) > 0 {
		if err := ask(sdk.Filter("group-name", names...)); err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, lookup.Unusable("spec.securityGroupSelectorTerms: no security group matches " + strings.Join(said, " or "))
	}
	out := slices.Collect(maps.Values(found))
	slices.SortFunc(out, func(a, b ec2nc.SecurityGroup) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}
