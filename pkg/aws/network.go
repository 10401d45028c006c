package aws

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

type subnet struct{ id, zone, zoneID string }

// addresses counts the free addresses of subnets: EC2's last answer, less those of the instances launched since.
type addresses struct {
	mu   sync.Mutex
	free map[string]int64
}

func newAddresses() *addresses { return &addresses{free: map[string]int64{}} }

func (a *addresses) set(subnet string, free int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free[subnet] = free
}

func (a *addresses) take(subnet string, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free[subnet] = max(0, a.free[subnet]-n)
}

// most returns, for each zone, the subnet with the most free addresses, among those not known to be full.
func (a *addresses) most(subnets []subnet, full func(id string) bool) map[string]subnet {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]subnet{}
	for _, s := range subnets {
		if full(s.id) {
			continue
		}
		if have, ok := out[s.zone]; !ok || a.free[s.id] > a.free[have.id] {
			out[s.zone] = s
		}
	}
	return out
}

// network looks up the subnets and security groups of classes.
type network struct {
	ec2       sdk.NetworkAPI
	addresses *addresses
}

func newNetwork(api sdk.NetworkAPI, a *addresses) *network { return &network{ec2: api, addresses: a} }

// tagFilters returns filters that require all of the tags; "*" is any value.
func tagFilters(tags map[string]string) []ec2types.Filter {
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

// sayTags formats a tag selector for messages: {a: b, c: *}.
func sayTags(tags map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		parts = append(parts, k+": "+tags[k])
	}
	return "tags {" + strings.Join(parts, ", ") + "}"
}

// subnets returns the subnets that any term selects, sorted by id.
func (n *network) subnets(ctx context.Context, spec *ec2nc.EC2NodeClassSpec) ([]subnet, error) {
	found := map[string]subnet{}
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
				found[id] = subnet{id: id, zone: awssdk.ToString(s.AvailabilityZone), zoneID: awssdk.ToString(s.AvailabilityZoneId)}
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
		said = append(said, sayTags(t.Tags))
		if err := ask(tagFilters(t.Tags)...); err != nil {
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
	slices.SortFunc(out, func(a, b subnet) int { return strings.Compare(a.id, b.id) })
	return out, nil
}

// groups returns the security groups that any term selects, sorted by id.
func (n *network) groups(ctx context.Context, spec *ec2nc.EC2NodeClassSpec) ([]ec2nc.SecurityGroup, error) {
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
			said = append(said, sayTags(t.Tags))
			if err := ask(tagFilters(t.Tags)...); err != nil {
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
