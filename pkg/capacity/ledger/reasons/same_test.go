package reasons

import "testing"

func TestSame(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"limit of cpu 100 reached: 2 left", "limit of cpu 100 reached: 2 left", true},
		{"limit of cpu 100 reached: 2 left", "limit of cpu 100 reached: 500m left", true},
		{"limit of cpu 100 reached: 12 left", "limit of cpu 100 reached: 13 left", true},
		{"limit of memory 8Gi reached: 0 left, up to 16Gi needed", "limit of memory 8Gi reached: 1536Mi left, up to 4Gi needed", true},
		{"998 nodes are being launched already, the limit is 1000", "1000 nodes are being launched already, the limit is 1000", true},
		{"nodes cost up to $4.00 an hour already", "nodes cost up to $13.50 an hour already", true},
		{"paused until 12:30:05", "paused until 13:02:00", true},
		{"limit of cpu 100 reached: 2 left", "limit of memory 100Gi reached: 2 left", false},
		{"limit of cpu 100 reached: 2 left", "taint a:NoSchedule is not tolerated", false},
		{"pool-1: no offer", "pool-2: no offer", false},
		{"pool-1: no offer", "pool-12: no offer", false},
		{"none has node.kubernetes.io/instance-type in c5.large", "none has node.kubernetes.io/instance-type in c6.large", false},
		{"no offer", "no offer 3", false},
		{"3 types", "3 types in zone a", false},
		{"", "no offer", false},
	} {
		if got := Same(tc.a, tc.b); got != tc.want {
			t.Errorf("%q and %q: %t, want %t", tc.a, tc.b, got, tc.want)
		}
		if got := Same(tc.b, tc.a); got != tc.want {
			t.Errorf("%q and %q: %t, want %t", tc.b, tc.a, got, tc.want)
		}
	}
}
