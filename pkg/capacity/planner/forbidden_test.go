package planner

import (
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A refusal by a filter may be outdated in a moment, for instance once a volume is bound, and no event reports that: such pods are
// planned for again after a while. Pods that no offering has capacity for are not.
func TestRefusalsByFiltersAreTriedAgain(t *testing.T) {
	for _, tc := range []struct {
		pods string
		want bool
	}{{"cpu=1", true}, {"cpu=64", false}} {
		v := viewOf(t, 1, asking("web", tc.pods))
		var opts capacity.Options
		if tc.want {
			opts.Forbidden = []capacity.Forbidden{{Class: v.Demand[0].Class.Key, Pool: "default", Reason: "VolumeBinding: the claim is not bound"}}
		}
		p := Decide(v, opts)
		if len(p.Refused) != 1 || p.Refused[0].Retryable != tc.want {
			t.Errorf("%s: refused %+v, want one that is retryable: %v", tc.pods, p.Refused, tc.want)
		}
	}
}
