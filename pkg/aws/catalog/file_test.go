package catalog

import (
	"strings"
	"testing"
)

func TestCatalogFileThatCannotBe(t *testing.T) {
	head := `{"meta":{"region":"eu-west-1"},"instanceTypes":[{"name":"m1.tiny","arch":["x86_64"],"vcpus":2,"memoryMiB":4096,"maxENIs":3,"ipv4PerENI":10`
	for _, tc := range []struct{ name, file, want string }{
		{"not JSON", `instanceTypes:`, "doesn't have the format that docs/catalog.md describes"},
		{"no region", `{"instanceTypes":[]}`, "meta.region is required"},
		{"no types", `{"meta":{"region":"x"}}`, "instanceTypes is required"},
		{"no name", `{"meta":{"region":"x"},"instanceTypes":[{"name":"tiny"}]}`, `instance type "tiny": name is not family.size`},
		{"no size", `{"meta":{"region":"x"},"instanceTypes":[{"name":"m1.tiny","arch":["x86_64"],"vcpus":2}]}`, `instance type "m1.tiny": memoryMiB is required`},
		{"a member of another kind", head + `,"zones":"a"}]}`, "instanceTypes.zones"},
		{"negative", head + `,"maxEFA":-1}]}`, `instance type "m1.tiny": maxEFA is out of range`},
		{"too much memory", strings.Replace(head, "4096", "9223372036854775807", 1) + `}]}`, `instance type "m1.tiny": memoryMiB is more than can be counted`},
		{"a price that is none", head + `,"onDemandUSDPerHour":-0.1}]}`, `instance type "m1.tiny": onDemandUSDPerHour is not a price`},
		{"a zone's price that is none", head + `,"spotUSDPerHourByZone":{"a":0}}]}`, `spotUSDPerHourByZone[a] is not a price`},
		{"twice", head + `},` + head[strings.Index(head, `{"name"`):] + `}]}`, `instance type "m1.tiny" is listed twice`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Read(strings.NewReader(tc.file)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}
