package aws

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodesize"
)

func TestSizesAsConfigured(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
		want nodesize.Config
	}{
		{"the default", Config{}, nodesize.Config{Overhead: 0.075}},
		{"no overhead", Config{VMMemoryOverheadPercent: -1}, nodesize.Config{}},
		{"everything", Config{VMMemoryOverheadPercent: 0.1, ReservedENIs: 1, PrefixDelegation: true}, nodesize.Config{Overhead: 0.1, ReservedENIs: 1, Prefixes: true}},
	} {
		tt.cfg.Region, tt.cfg.ClusterName = "r", "c"
		cfg, err := tt.cfg.complete()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, cfg.sizes()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
