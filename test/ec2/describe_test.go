package ec2

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

func TestInstanceTypesComeInPages(t *testing.T) {
	a := newAccount(t)
	// With retries, as in production: on a busy host the client may drop a connection in the middle of a large answer.
	pages := awsec2.NewDescribeInstanceTypesPaginator(awsec2.NewFromConfig(a.AWSConfig()), &awsec2.DescribeInstanceTypesInput{
		MaxResults: aws.Int32(50), Filters: filters("supported-virtualization-type", "hvm", "processor-info.supported-architecture", "arm64"),
	})
	seen, calls := map[types.InstanceType]bool{}, 0
	for pages.HasMorePages() {
		out, err := pages.NextPage(a.ctx)
		if err != nil {
			t.Fatal(err)
		}
		calls++
		for _, it := range out.InstanceTypes {
			if seen[it.InstanceType] {
				t.Errorf("%s came twice", it.InstanceType)
			}
			seen[it.InstanceType] = true
		}
	}
	want := 0
	for _, ty := range catalog.Builtin().Types {
		if ty.Arch[0] == "arm64" {
			want++
		}
	}
	if len(seen) != want || calls != (want+49)/50 {
		t.Errorf("%d types in %d calls, want %d in %d", len(seen), calls, want, (want+49)/50)
	}
}

// A dry run of a call that changes nothing says only that the caller may make it. Karpenter begins with one.
func TestDescribeCallsCanBeDryRuns(t *testing.T) {
	a := newAccount(t)
	if _, err := a.ec2.DescribeInstanceTypes(a.ctx, &awsec2.DescribeInstanceTypesInput{DryRun: aws.Bool(true)}); code(err) != "DryRunOperation" {
		t.Errorf("a dry run of DescribeInstanceTypes: %v", err)
	}
	wrong := &awsec2.DescribeInstancesInput{DryRun: aws.Bool(true), InstanceIds: []string{"i-00000000000000000"}}
	if _, err := a.ec2.DescribeInstances(a.ctx, wrong); code(err) != "InvalidInstanceID.NotFound" {
		t.Errorf("a dry run for an unknown instance: %v", err)
	}
}

func TestInstanceStatusIsFiltered(t *testing.T) {
	a := newAccount(t)
	ids := a.launched(a.fleetOf(2, a.template("t"), types.DefaultTargetCapacityTypeOnDemand, []string{"us-west-2a"}, "m5.large"))
	a.step(time.Minute)
	for _, tc := range []struct {
		filter, value string
		want          int
	}{
		{"instance-status.status", "ok", len(ids)}, {"instance-status.status", "impaired", 0}, {"system-status.status", "impaired", 0}, {"event.code", "instance-reboot", 0},
		{"availability-zone", "us-west-2a", len(ids)},
	} {
		out := must(a.ec2.DescribeInstanceStatus(a.ctx, &awsec2.DescribeInstanceStatusInput{Filters: filters(tc.filter, tc.value)}))
		if got := len(out.InstanceStatuses); got != tc.want {
			t.Errorf("%s=%s: %d instances, want %d", tc.filter, tc.value, got, tc.want)
		}
	}
	if _, err := a.ec2.DescribeInstanceStatus(a.ctx, &awsec2.DescribeInstanceStatusInput{Filters: filters("image-id", "ami-1")}); code(err) != "InvalidParameterValue" {
		t.Errorf("a filter of another call: %v", err)
	}
}

func TestAnInstanceTypeTellsItsHardware(t *testing.T) {
	a := newAccount(t)
	out := must(a.ec2.DescribeInstanceTypes(a.ctx, &awsec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"g5.12xlarge", "p4d.24xlarge", "inf2.24xlarge"}}))
	type details struct {
		VCPUs            int32
		MiB              int64
		GPUs, GPUMiB     int32
		Neuron, Cores    int32
		NVMeGB           int64
		Cards, ENIs, IPs int32
		EFA              int32
		EBSMbps          int32
		Spot             bool
		Hypervisor       string
	}
	got := map[string]details{}
	for _, it := range out.InstanceTypes {
		f := details{
			VCPUs: *it.VCpuInfo.DefaultVCpus, MiB: *it.MemoryInfo.SizeInMiB, Cards: *it.NetworkInfo.MaximumNetworkCards,
			ENIs: *it.NetworkInfo.NetworkCards[*it.NetworkInfo.DefaultNetworkCardIndex].MaximumNetworkInterfaces, IPs: *it.NetworkInfo.Ipv4AddressesPerInterface,
			EBSMbps: *it.EbsInfo.EbsOptimizedInfo.BaselineBandwidthInMbps, Spot: len(it.SupportedUsageClasses) == 2, Hypervisor: string(it.Hypervisor),
		}
		if it.GpuInfo != nil {
			f.GPUs, f.GPUMiB = *it.GpuInfo.Gpus[0].Count, *it.GpuInfo.Gpus[0].MemoryInfo.SizeInMiB
		}
		if it.NeuronInfo != nil {
			f.Neuron, f.Cores = *it.NeuronInfo.NeuronDevices[0].Count, *it.NeuronInfo.NeuronDevices[0].CoreInfo.Count
		}
		if it.InstanceStorageInfo != nil {
			f.NVMeGB = *it.InstanceStorageInfo.TotalSizeInGB
		}
		if it.NetworkInfo.EfaInfo != nil {
			f.EFA = *it.NetworkInfo.EfaInfo.MaximumEfaInterfaces
		}
		got[string(it.InstanceType)] = f
	}
	want := map[string]details{
		"g5.12xlarge":   {48, 196608, 4, 22888, 0, 0, 3800, 1, 15, 50, 1, 16000, true, "nitro"},
		"p4d.24xlarge":  {96, 1179648, 8, 40960, 0, 0, 8000, 4, 15, 50, 4, 19000, true, "nitro"},
		"inf2.24xlarge": {96, 393216, 0, 0, 6, 2, 0, 1, 15, 50, 0, 30000, true, "nitro"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	_, err := a.ec2.DescribeInstanceTypes(a.ctx, &awsec2.DescribeInstanceTypesInput{InstanceTypes: []types.InstanceType{"m5.huge"}})
	if got := code(err); got != "InvalidInstanceType" {
		t.Errorf("a type that doesn't exist: %q", got)
	}
	_, err = a.ec2.DescribeInstanceTypes(a.ctx, &awsec2.DescribeInstanceTypesInput{Filters: filters("colour", "red")})
	if got := code(err); got != "InvalidParameterValue" {
		t.Errorf("a filter that doesn't exist: %q", got)
	}
}

func TestOfferingsKnowZones(t *testing.T) {
	a := newAccount(t, func(c *Config) { c.Zones = []string{"us-west-2a", "us-west-2b"} })
	out := must(a.ec2.DescribeInstanceTypeOfferings(a.ctx, &awsec2.DescribeInstanceTypeOfferingsInput{
		LocationType: types.LocationTypeAvailabilityZone, Filters: filters("instance-type", "trn1.*"),
	}))
	var got []string
	for _, o := range out.InstanceTypeOfferings {
		got = append(got, string(o.InstanceType)+" "+*o.Location)
	}
	want := []string{"trn1.2xlarge us-west-2b", "trn1.32xlarge us-west-2b"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestSubnetsAndGroupsAreFoundByDiscoveryTag(t *testing.T) {
	a := newAccount(t)
	subnets := must(a.ec2.DescribeSubnets(a.ctx, &awsec2.DescribeSubnetsInput{Filters: filters("tag:karpenter.sh/discovery", "blue")}))
	zones := map[string]int32{}
	for _, s := range subnets.Subnets {
		zones[*s.AvailabilityZone+" "+*s.AvailabilityZoneId] = *s.AvailableIpAddressCount
	}
	if diff := cmp.Diff(map[string]int32{"us-west-2a usw2-az1": 8187, "us-west-2b usw2-az2": 8187, "us-west-2c usw2-az3": 8187}, zones); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for name, want := range map[string]int{"karpenter.sh/discovery": 1, "no/such": 0} {
		groups := must(a.ec2.DescribeSecurityGroups(a.ctx, &awsec2.DescribeSecurityGroupsInput{Filters: filters("tag:"+name, "*")}))
		if len(groups.SecurityGroups) != want {
			t.Errorf("%d groups tagged %s, want %d", len(groups.SecurityGroups), name, want)
		}
	}
	_, err := a.ec2.DescribeSubnets(a.ctx, &awsec2.DescribeSubnetsInput{SubnetIds: []string{"subnet-0"}})
	if got := code(err); got != "InvalidSubnetID.NotFound" {
		t.Errorf("an unknown subnet: %q", got)
	}
}

func TestZonesAreDescribed(t *testing.T) {
	a := newAccount(t, func(c *Config) { c.Region, c.Zones = "eu-central-1", nil })
	out := must(a.ec2.DescribeAvailabilityZones(a.ctx, &awsec2.DescribeAvailabilityZonesInput{Filters: filters("state", "available")}))
	var got []string
	for _, z := range out.AvailabilityZones {
		got = append(got, *z.ZoneName+" "+*z.ZoneId)
	}
	if diff := cmp.Diff([]string{"eu-central-1a euc1-az1", "eu-central-1b euc1-az2", "eu-central-1c euc1-az3"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestImagesBySelector(t *testing.T) {
	a := newAccount(t)
	deprecated := a.AddImage(Image{Name: "golden-old", Arch: "x86_64", Created: epoch.AddDate(-2, 0, 0), Deprecated: epoch.AddDate(0, -1, 0), Tags: map[string]string{"team": "platform"}})
	for name, tc := range map[string]struct {
		in   awsec2.DescribeImagesInput
		want []string
	}{
		"by tag, and the account's own even when deprecated": {awsec2.DescribeImagesInput{Filters: filters("tag:team", "platform")}, []string{"golden-arm64-2026-09", "golden-old", "golden-x86_64-2026-09"}},
		"by name with a wildcard":                            {awsec2.DescribeImagesInput{Filters: filters("name", "amazon-eks-node-al2023-*-neuron-1.36-v2026????")}, []string{"amazon-eks-node-al2023-x86_64-neuron-1.36-v20260814", "amazon-eks-node-al2023-x86_64-neuron-1.36-v20260915"}},
		"by id":                                              {awsec2.DescribeImagesInput{ImageIds: []string{deprecated}}, []string{"golden-old"}},
		"a deprecated public image is hidden":                {awsec2.DescribeImagesInput{Owners: []string{"amazon"}, Filters: filters("name", "*-v20240601")}, nil},
		"until it is asked for":                              {awsec2.DescribeImagesInput{Owners: []string{"amazon"}, Filters: filters("name", "*-v20240601"), IncludeDeprecated: aws.Bool(true)}, []string{"amazon-eks-node-al2023-x86_64-standard-1.30-v20240601"}},
		"by owner":                                           {awsec2.DescribeImagesInput{Owners: []string{"self"}, Filters: filters("architecture", "arm64")}, []string{"golden-arm64-2026-09"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := a.ec2.DescribeImages(a.ctx, &tc.in)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for _, im := range out.Images {
				got[*im.Name] = true
				if _, err := time.Parse(time.RFC3339, *im.CreationDate); err != nil {
					t.Errorf("%s: creation date: %v", *im.Name, err)
				}
			}
			want := map[string]bool{}
			for _, n := range tc.want {
				want[n] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestSpotPricesPerZone(t *testing.T) {
	a := newAccount(t)
	a.SetPrice("m5.large", "us-west-2b", "spot", 0.0123)
	out := must(a.ec2.DescribeSpotPriceHistory(a.ctx, &awsec2.DescribeSpotPriceHistoryInput{
		InstanceTypes: []types.InstanceType{"m5.large"}, StartTime: aws.Time(epoch), ProductDescriptions: []string{"Linux/UNIX", "Linux/UNIX (Amazon VPC)"},
	}))
	if len(out.SpotPriceHistory) != 3 {
		t.Fatalf("%d prices, want one per zone", len(out.SpotPriceHistory))
	}
	for _, p := range out.SpotPriceHistory {
		price, err := strconv.ParseFloat(*p.SpotPrice, 64)
		if err != nil || price <= 0 || price >= 0.096 || (*p.AvailabilityZone == "us-west-2b") != (price == 0.0123) {
			t.Errorf("%s: price %q (%v)", *p.AvailabilityZone, *p.SpotPrice, err)
		}
	}
	all := awsec2.NewDescribeSpotPriceHistoryPaginator(a.ec2, &awsec2.DescribeSpotPriceHistoryInput{})
	rows := 0
	for all.HasMorePages() {
		p, err := all.NextPage(a.ctx)
		if err != nil {
			t.Fatal(err)
		}
		rows += len(p.SpotPriceHistory)
	}
	if rows < 1200 {
		t.Errorf("%d rows for everything", rows)
	}
	large := must(a.ec2.DescribeSpotPriceHistory(a.ctx, &awsec2.DescribeSpotPriceHistoryInput{MaxResults: aws.Int32(2000)}))
	if got := len(large.SpotPriceHistory); got != min(rows, 2000) {
		t.Errorf("a page of 2,000 has %d of %d rows", got, rows)
	}
}

func TestAPageLeftOffIsWhole(t *testing.T) {
	// The page token is the last ID returned, so that instances launched between two pages don't shift the next page.
	a := newAccount(t)
	lt := a.template("lt")
	first := a.launched(a.fleetOf(7, lt, "on-demand", []string{"us-west-2a"}, "m5.large"))
	p1 := must(a.ec2.DescribeInstances(a.ctx, &awsec2.DescribeInstancesInput{MaxResults: aws.Int32(5)}))
	a.launched(a.fleetOf(2, lt, "on-demand", []string{"us-west-2a"}, "m5.large"))
	p2 := must(a.ec2.DescribeInstances(a.ctx, &awsec2.DescribeInstancesInput{MaxResults: aws.Int32(5), NextToken: p1.NextToken}))
	seen := map[string]int{}
	for _, p := range []*awsec2.DescribeInstancesOutput{p1, p2} {
		for _, r := range p.Reservations {
			for _, i := range r.Instances {
				seen[*i.InstanceId]++
			}
		}
	}
	for _, id := range first {
		if seen[id] != 1 {
			t.Errorf("%s came %d times", id, seen[id])
		}
	}
	_, err := a.ec2.DescribeInstances(a.ctx, &awsec2.DescribeInstancesInput{MaxResults: aws.Int32(5), InstanceIds: first})
	if got := code(err); got != "InvalidParameterCombination" {
		t.Errorf("ids and MaxResults together: %q", got)
	}
}

func TestWildcards(t *testing.T) {
	for _, tc := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"m5.*", "m5.large", true}, {"m5.*", "m5a.large", false}, {"m?.large", "m5.large", true}, {"m?.large", "m55.large", false},
		{"*.metal*", "m7i.metal-24xl", true}, {`a\*c`, "a*c", true}, {`a\*c`, "abc", false}, {"", "", true}, {"", "a", false},
	} {
		if got := wildcard(tc.pattern, tc.s); got != tc.want {
			t.Errorf("%q on %q: %v", tc.pattern, tc.s, got)
		}
	}
}

// EC2 counts the values of all filters of a call together.
func TestFiltersHaveAtMost200Values(t *testing.T) {
	a := newAccount(t)
	for n, want := range map[int]string{199: "", 200: "FilterLimitExceeded"} {
		ids := make([]string, n)
		for i := range ids {
			ids[i] = fmt.Sprintf("ami-%017d", i)
		}
		_, err := a.ec2.DescribeImages(a.ctx, &awsec2.DescribeImagesInput{Filters: append(filters("state", "available"), types.Filter{Name: aws.String("image-id"), Values: ids})})
		if code(err) != want {
			t.Errorf("%d ids and a state: %v, want %q", n, err, want)
		}
	}
}
