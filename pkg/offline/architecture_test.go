package offline

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/aws"
	awscatalog "github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
)

// There is a warning about pods that name no architecture on a pool that leaves it open and may become arm64, and about no others.
func TestOpenArchitectures(t *testing.T) {
	f, err := awscatalog.Read(strings.NewReader(`{"meta":{"region":"eu-test-1"},"instanceTypes":[
		{"name":"m1.large","arch":["x86_64"],"vcpus":4,"memoryMiB":16384,"maxENIs":4,"ipv4PerENI":15,"usageClasses":["on-demand"],"zones":["eu-test-1a"],"onDemandUSDPerHour":0.2},
		{"name":"g1.large","arch":["arm64"],"vcpus":4,"memoryMiB":16384,"maxENIs":4,"ipv4PerENI":15,"usageClasses":["on-demand"],"zones":["eu-test-1a"],"onDemandUSDPerHour":0.25}]}`))
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := aws.NewOffline(f, aws.OfflineConfig{})
	if err != nil {
		t.Fatal(err)
	}
	const arch = "{key: kubernetes.io/arch, operator: In, values: [%]}"
	of := func(values string) string { return strings.Replace(arch, "%", values, 1) }
	const amd64 = "      nodeSelector: {kubernetes.io/arch: amd64}"
	const warning = "pool general does not fix kubernetes.io/arch, and neither do pods of shop/web: they may run on arm64. Unless their images are built for it, " +
		"require amd64 in the pool or in the pods"
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"a pool that says nothing", pool("general", "") + deployment("web", 2, "cpu: 3", "") + deployment("api", 1, "cpu: 3", amd64), []string{warning}},
		{"a pool that names both", pool("general", "", of("amd64, arm64")) + deployment("web", 1, "cpu: 3", ""), nil},
		{"a pool of amd64", pool("general", "", of("amd64")) + deployment("web", 1, "cpu: 3", ""), nil},
		{"a pool of arm64", pool("general", "", of("arm64")) + deployment("web", 1, "cpu: 3", ""), nil},
		{"pods that say which", pool("general", "") + deployment("web", 1, "cpu: 3", amd64), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := settings(t)
			s.Catalog = catalog
			r, err := Plan(t.Context(), set(t, class+tc.text), s)
			if err != nil || len(r.Refused) > 0 {
				t.Fatal(err, r)
			}
			if diff := cmp.Diff(tc.want, r.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}
