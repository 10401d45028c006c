package annotations

import "testing"

func FuzzAnnotations(f *testing.F) {
	for _, text := range []string{"", "0", "0s", "10m", "-1m", "1d", "15", "-3", "99999999999", "1e3", "∞"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := parseRestartCost(text); err != nil && d != 0 || d < 0 {
			t.Errorf("%q: %s, %v", text, d, err)
		}
		if n, err := parseSpotFlexibility(text); (err == nil) != (n >= 1) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	})
}
