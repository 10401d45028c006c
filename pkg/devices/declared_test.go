package devices

import (
	"strings"
	"testing"
)

const twoKinds = `
- instanceTypes: [g5.xlarge, "g6.*"]
  driver: gpu.example.com
  count: 2
  attributes: {model: {string: A10G}, gpu.example.com/cores: {int: 80}}
  capacity: {memory: 24Gi}
- {instanceTypes: ["g6.*"], driver: gpu.example.com, count: 1}
- {instanceTypes: [g5.xlarge], driver: nic.example.com, count: 1}
`

func TestParse(t *testing.T) {
	all, err := Parse(twoKinds)
	if err != nil {
		t.Fatal(err)
	}
	for instanceType, want := range map[string]string{"g5.xlarge": "gpu.example.com 2, nic.example.com 1", "g6.large": "gpu.example.com 3", "g5.2xlarge": "", "m5.large": ""} {
		var got []string
		for _, s := range declaredOn(all, instanceType) {
			got = append(got, s.Driver+" "+string(rune('0'+len(s.Devices))))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s has %v, want %s", instanceType, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:  "is no list of devices",
		`- {`: "is no list of devices",
		`- {instanceTypes: [a.b], driver: d, count: 1, model: x}`:                                         `unknown field "model"`,
		`- {driver: d, count: 1}`:                                                                         "entry 0: instanceTypes: must name",
		`- {instanceTypes: ["*"], driver: d, count: 1}`:                                                   "neither an instance type",
		`- {instanceTypes: [g5], driver: d, count: 1}`:                                                    `"g5" is neither an instance type`,
		`- {instanceTypes: ["g5."], driver: d, count: 1}`:                                                 `"g5." is neither an instance type`,
		`- {instanceTypes: ["g5.*.*"], driver: d, count: 1}`:                                              `"g5.*.*" is neither an instance type`,
		`- {instanceTypes: [a.b], driver: d, count: 1, attributes: {x: {version: abc}}}`:                  `attributes[x]: version: "abc" is not a semantic version`,
		`- {instanceTypes: [a.b], driver: D_, count: 1}`:                                                  "is not the name of a driver",
		`- {instanceTypes: [a.b], driver: d, count: 0}`:                                                   "count: must be between 1 and 128",
		`- {instanceTypes: [a.b], driver: d, count: 1000000000}`:                                          "count: must be between 1 and 128",
		`- {instanceTypes: [a.b], driver: d, count: 1, attributes: {x: {}}}`:                              "exactly one of int, bool, string and version",
		`- {instanceTypes: [a.b], driver: d, count: 1, attributes: {x: {int: 1, bool: true}}}`:            "exactly one of",
		`- {instanceTypes: [a.b], driver: d, count: 1, attributes: {"x y": {int: 1}}}`:                    "is not an identifier",
		`- {instanceTypes: [a.b], driver: d, count: 1, attributes: {"-/y": {int: 1}}}`:                    "is not a domain",
		`- {instanceTypes: [a.b], driver: d, count: 1, capacity: {memory: -1Gi}}`:                         "must not be negative",
		`- {instanceTypes: [a.b], driver: d, count: 1, capacity: {memory: much}}`:                         "is no list of devices",
		"- {instanceTypes: [a.b], driver: d, count: 100}\n- {instanceTypes: [a.*], driver: d, count: 29}": "129 devices on a.b",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Whatever an annotation says: it is refused, or every instance type gets devices as a ResourceSlice may have them.
func FuzzParse(f *testing.F) {
	f.Add(twoKinds, "g5.xlarge")
	f.Add(`- {instanceTypes: [a.b], driver: d, count: 128}`, "a.b")
	f.Add("- {instanceTypes: [a.*, a.b], driver: d, count: 128}\n- {instanceTypes: [a.c], driver: e, count: 1}", "a.c")
	f.Fuzz(func(t *testing.T, annotation, instanceType string) {
		all, err := Parse(annotation)
		if err != nil {
			return
		}
		for _, s := range declaredOn(all, instanceType) {
			names := map[string]bool{}
			for _, d := range s.Devices {
				names[d.Name] = true
			}
			if len(names) != len(s.Devices) || len(names) == 0 || len(names) > maxDevices || s.Driver == "" {
				t.Errorf("%q gives %s %d devices with %d names of driver %q", annotation, instanceType, len(s.Devices), len(names), s.Driver)
			}
		}
	})
}
