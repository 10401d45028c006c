package lifecycle

import (
	"testing"

	"k8s.io/component-base/metrics/legacyregistry"
)

// Evictions that are accepted count under the code that dashboards for Karpenter ask for, which exists from the start.
func TestEvictionsCountUnderKarpentersCode(t *testing.T) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	for _, f := range families {
		if f.GetName() == "karpenter_pods_eviction_requests_total" {
			for _, m := range f.Metric {
				codes[m.Label[0].GetValue()] = true
			}
		}
	}
	if code := statusCode(nil); !codes[code] || code != "200" {
		t.Errorf("accepted evictions count under %q; %v exist", code, codes)
	}
}
