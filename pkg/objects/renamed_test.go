package objects

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A row leads from one old name to one name of today, and never in two steps: what was read once needs no second look.
func TestRenamedTable(t *testing.T) {
	for old, now := range renamed {
		if !strings.HasPrefix(old, Prefix) || !strings.HasPrefix(now, Prefix) || renamed[now] != "" {
			t.Errorf("%s: %s", old, now)
		}
		if got := FormerNames(now); !slices.Contains(got, old) {
			t.Errorf("%s was called %v before, want %s among them", now, got, old)
		}
	}
	if got := FormerNames(AnnotationBind); got != nil {
		t.Errorf("%s was called %v before", AnnotationBind, got)
	}
}

func TestUseNewNames(t *testing.T) {
	for name, tc := range map[string]struct {
		have, want map[string]string
	}{
		"nothing":               {nil, nil},
		"others' names":         {map[string]string{"example.com/wave": "1"}, map[string]string{"example.com/wave": "1"}},
		"names of today":        {map[string]string{AnnotationLaunchBatch: "{}"}, map[string]string{AnnotationLaunchBatch: "{}"}},
		"an old name":           {map[string]string{"dovetail.sh/wave": "{}", "a": "b"}, map[string]string{AnnotationLaunchBatch: "{}", "a": "b"}},
		"an old name, empty":    {map[string]string{"dovetail.sh/planned": ""}, map[string]string{AnnotationPlannedPods: ""}},
		"both: the old is last": {map[string]string{"dovetail.sh/largest": "2", AnnotationLargestCapacity: "1"}, map[string]string{AnnotationLargestCapacity: "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := maps.Clone(tc.have)
			changed := UseNewNames(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if changed != !maps.Equal(tc.have, tc.want) {
				t.Errorf("changed: %v", changed)
			}
			if UseNewNames(got) {
				t.Error("the second look found something")
			}
		})
	}
}
