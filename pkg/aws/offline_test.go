package aws

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	simcatalog "github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// offline reads a file as the program would and returns the class's types.
func offline(t *testing.T, file []byte, cfg OfflineConfig, nc *ec2nc.EC2NodeClass) (types []*capacity.InstanceType, assumed []string) {
	t.Helper()
	f, err := catalog.Read(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	o, err := NewOffline(f, cfg)
	if err != nil {
		t.Fatal(err)
	}
	types, assumed, err = o.InstanceTypes(nc)
	if err != nil {
		t.Fatal(err)
	}
	return types, assumed
}

// Types that are read from a file equal those that the provider computes from the region, including all labels.
func TestOfflineIsWhatTheProviderSays(t *testing.T) {
	w := newWorld(t, allTypes)
	w.SetNodeClass(nodeClass())
	want := w.types("default")
	client := &http1{}
	defer client.close()
	cfg := w.sim.AWSConfig()
	cfg.HTTPClient = client.make()
	f, err := catalog.Fetch(w.ctx, sdk.NewClients(cfg, clock.RealClock{}), "us-west-2", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var fetched, builtin bytes.Buffer
	if err := f.Write(&fetched); err != nil {
		t.Fatal(err)
	}
	if err := simcatalog.Builtin().Write(&builtin); err != nil {
		t.Fatal(err)
	}
	resolved := nodeClass()
	resolved.Status = w.status("default", func(st ec2nc.EC2NodeClassStatus) bool { return len(st.AMIs) > 0 && len(st.Subnets) > 0 })
	for name, file := range map[string][]byte{"as fetched": fetched.Bytes(), "as the simulator writes its own table": builtin.Bytes()} {
		t.Run(name, func(t *testing.T) {
			got, assumed := offline(t, file, OfflineConfig{VMMemoryOverheadPercent: 0.075}, resolved)
			if !reflect.DeepEqual(want, got) { // cmp.Diff takes seconds to find no difference
				t.Errorf("types (-provider +file):\n%s", cmp.Diff(want, got))
			}
			if len(assumed) > 0 {
				t.Errorf("assumed %q of a class that has a status", assumed)
			}
			// Without a status the result is the same, except for what only the account knows: the ids of zones and images.
			got, assumed = offline(t, file, OfflineConfig{Zones: w.sim.Zones(), VMMemoryOverheadPercent: 0.075}, nodeClass())
			if want, got := unlabelled(want), unlabelled(got); !reflect.DeepEqual(want, got) {
				t.Errorf("types of a class without status (-provider +file):\n%s", cmp.Diff(want, got))
			}
			if diff := cmp.Diff([]string{"subnets in us-west-2a, us-west-2b, us-west-2c", "images of all kinds of al2023@latest"}, assumed); diff != "" {
				t.Errorf("assumed (-want +got):\n%s", diff)
			}
		})
	}
}

// unlabelled returns the types without the labels of their offerings.
func unlabelled(types []*capacity.InstanceType) []capacity.InstanceType {
	var out []capacity.InstanceType
	for _, t := range types {
		one := *t
		one.Image = ""
		one.Offers = slices.Clone(t.Offers)
		for i := range one.Offers {
			one.Offers[i].Labels = nil
		}
		out = append(out, one)
	}
	return out
}

const small = `{"meta":{"region":"eu-west-1"},"instanceTypes":[
	{"name":"m1.tiny","arch":["x86_64"],"vcpus":2,"memoryMiB":4096,"maxENIs":3,"ipv4PerENI":10,"usageClasses":["on-demand","spot"],
	 "zones":["eu-west-1a","eu-west-1b"],"onDemandUSDPerHour":0.1,"spotUSDPerHourByZone":{"eu-west-1b":0.03},"spotUSDPerHourPools":[0.02,0.03]},
	{"name":"m1.arm","arch":["arm64"],"vcpus":2,"memoryMiB":4096,"maxENIs":3,"ipv4PerENI":10,"usageClasses":["on-demand"],"zones":["eu-west-1a"],"onDemandUSDPerHour":0.08},
	{"name":"m1.priceless","arch":["x86_64"],"vcpus":2,"memoryMiB":4096,"maxENIs":3,"ipv4PerENI":10,"usageClasses":["on-demand"],"zones":["eu-west-1a"],"onDemandUSDPerHour":null},
	{"name":"m1.nowhere","arch":["x86_64"],"vcpus":2,"memoryMiB":4096,"maxENIs":3,"ipv4PerENI":10,"usageClasses":["on-demand"],"zones":[],"onDemandUSDPerHour":1},
	{"name":"m1.old","arch":["x86_64"],"virtualizationTypes":["paravirtual"],"vcpus":2,"memoryMiB":4096,"maxENIs":3,"ipv4PerENI":10,"usageClasses":["on-demand"],"zones":["eu-west-1a"],"onDemandUSDPerHour":1}
]}`

func TestOfflineOffers(t *testing.T) {
	custom := nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Spec.AMISelectorTerms = []ec2nc.AMISelectorTerm{{ID: "ami-0123456789abcdef0"}}
		family := ec2nc.AMIFamilyAL2023
		nc.Spec.AMIFamily = &family
	})
	for _, tc := range []struct {
		name  string
		cfg   OfflineConfig
		class *ec2nc.EC2NodeClass
		want  []string
	}{
		{"every zone and way it is sold", OfflineConfig{}, nodeClass(),
			[]string{"m1.arm eu-west-1a on-demand 0.08", "m1.priceless eu-west-1a on-demand +Inf", "m1.tiny eu-west-1a on-demand 0.1", "m1.tiny eu-west-1b on-demand 0.1", "m1.tiny eu-west-1b spot 0.03"}},
		{"only zones with subnets", OfflineConfig{Zones: []string{"eu-west-1b"}}, nodeClass(), []string{"m1.tiny eu-west-1b on-demand 0.1", "m1.tiny eu-west-1b spot 0.03"}},
		{"an image of unknown architecture may be of any", OfflineConfig{Zones: []string{"eu-west-1a"}}, custom,
			[]string{"m1.arm eu-west-1a on-demand 0.08", "m1.priceless eu-west-1a on-demand +Inf", "m1.tiny eu-west-1a on-demand 0.1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			types, _ := offline(t, []byte(small), tc.cfg, tc.class)
			var got []string
			for _, one := range types {
				for _, o := range one.Offers {
					got = append(got, strings.Join([]string{one.Name, o.Zone, o.CapacityType, strconv.FormatFloat(o.Price, 'g', -1, 64)}, " "))
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("offers (-want +got):\n%s", diff)
			}
		})
	}
}

// Bare metal, GPUs and accelerators make a type special, and nothing else does.
func TestSpecialTypes(t *testing.T) {
	one := func(name, more string) string {
		return `{"name":"` + name + `","arch":["x86_64"],"vcpus":8,"memoryMiB":32768,"maxENIs":3,"ipv4PerENI":10,"usageClasses":["on-demand"],"zones":["eu-west-1a"],"onDemandUSDPerHour":1` + more + `}`
	}
	types, _ := offline(t, []byte(`{"meta":{"region":"eu-west-1"},"instanceTypes":[`+strings.Join([]string{
		one("g1.gpu", `,"gpus":[{"count":1,"manufacturer":"NVIDIA","name":"T4","memMiB":16384}]`),
		one("m1.metal", `,"bareMetal":true`),
		one("n1.neuron", `,"accelerators":[{"kind":"neuron","name":"Inferentia2","count":1,"memMiB":32768,"coresPerDevice":2}]`),
		one("m1.disks", `,"localStoreGB":900,"localNvmeGB":900,"localDisks":1`),
		one("m1.plain", ``),
	}, ",")+`]}`), OfflineConfig{}, nodeClass())
	got := map[string]bool{}
	for _, one := range types {
		got[one.Name] = one.Special
	}
	if diff := cmp.Diff(map[string]bool{"g1.gpu": true, "m1.metal": true, "n1.neuron": true, "m1.disks": false, "m1.plain": false}, got); diff != "" {
		t.Errorf("special (-want +got):\n%s", diff)
	}
}

func TestOfflineClassThatCannotBe(t *testing.T) {
	f, err := catalog.Read(strings.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	o, err := NewOffline(f, OfflineConfig{})
	if err != nil {
		t.Fatal(err)
	}
	nc := nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Spec.AMISelectorTerms[0].Alias = "al2@latest" })
	types, _, err := o.InstanceTypes(nc)
	if want := "EC2NodeClass default: spec.amiSelectorTerms[0].alias: AL2 has no images for Kubernetes 1.33 and newer; use AL2023 or Bottlerocket"; err == nil || err.Error() != want || types != nil {
		t.Errorf("%d types, unready because %v, want %q", len(types), err, want)
	}
	tagged := nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Spec.Tags = manyTags(43) })
	for name, fits := range map[string]bool{"": true, "red": false} { // a Dovetail with a name adds a tag
		o, err := NewOffline(f, OfflineConfig{ManagedBy: name})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := o.InstanceTypes(tagged); (err == nil) != fits {
			t.Errorf("43 tags and a Dovetail called %q: %v", name, err)
		}
	}
	if _, err := NewOffline(f, OfflineConfig{Zones: []string{"eu-west-1z"}}); err == nil || !strings.Contains(err.Error(), `zone "eu-west-1z" is not in the catalogue of eu-west-1`) {
		t.Errorf("a zone that isn't there: %v", err)
	}
}
