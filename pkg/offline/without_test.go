package offline

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// summary returns what is printed of a report with this Without, without the time that the plan took.
func summary(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	p := &printer{w: &b}
	p.without(r)
	if p.err != nil {
		t.Fatal(p.err)
	}
	return b.String()
}

// Where a pod fits nowhere because nodes are gone, nothing is said to be saved. Pods that had no place before don't count.
func TestWithoutNamesWhatFitsNowhere(t *testing.T) {
	name := func(n string) PodName { return PodName{"shop", n} }
	refused := func(names ...string) (out []Refused) {
		for _, n := range names {
			out = append(out, Refused{Namespace: "shop", Name: n, Reason: "r"})
		}
		return out
	}
	for _, tc := range []struct {
		name         string
		then, before []Refused
		total, now   float64
		unpriced     int
		want         string
	}{
		{name: "all fit", total: 0.2, want: "Without a, at $0.1260/h: 2 pods would have to run elsewhere, nodes for $0.2000/h are bought instead, and the cluster costs $0.0740/h more\n"},
		{name: "nothing is bought", want: "Without a, at $0.1260/h: 2 pods would have to run elsewhere, no node has to be bought, and the cluster costs $0.1260/h less\n"},
		{name: "nothing is bought, and the price isn't known", unpriced: 1, want: "Without a, whose price isn't known: 2 pods would have to run elsewhere, and no node has to be bought\n"},
		{name: "less is bought", now: 0.1, want: "Without a, at $0.1260/h: 2 pods would have to run elsewhere, nodes for $0.1000/h less are bought, and the cluster costs $0.2260/h less\n"},
		{name: "one fits nowhere", then: refused("one", "old"), before: refused("old"), want: "Without a, at $0.1260/h: 2 pods would have to run elsewhere; 1 of them fits nowhere: shop/one\n"},
		{name: "another fits nowhere", then: refused("one", "two", "third"), unpriced: 1,
			want: "Without a, whose price isn't known: 2 pods would have to run elsewhere; 2 of them fit nowhere: shop/one, shop/two; 1 pod that would have a node now fits nowhere then: shop/third\n"},
		{name: "refused before", then: refused("old"), before: refused("old"), want: "Without a, at $0.1260/h: 2 pods would have to run elsewhere, no node has to be bought, and the cluster costs $0.1260/h less\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &Report{Refused: tc.then, TotalPerHour: tc.total, Without: &Without{Nodes: []string{"a"}, PerHour: 0.126, Unpriced: tc.unpriced, Moved: 2}}
			r.Without.Compare(r, &Report{Refused: tc.before, TotalPerHour: tc.now}, []PodName{name("one"), name("two")})
			if diff := cmp.Diff(tc.want, summary(t, r)); diff != "" {
				t.Errorf("it says (-want +got):\n%s", diff)
			}
		})
	}
}

// A volume that may not be listed isn't said to be gone.
func TestVolumesThatMayNotBeRead(t *testing.T) {
	reasons := func() *Report {
		return &Report{Refused: []Refused{{Reason: `persistentvolume "pvc-0" of claim "d-pg-0" not found`}, {Reason: `persistentvolumeclaim "d" not found`}}}
	}
	for _, tc := range []struct {
		unread []string
		want   [2]string
	}{
		{nil, [2]string{`persistentvolume "pvc-0" of claim "d-pg-0" not found`, `persistentvolumeclaim "d" not found`}},
		{[]string{"persistentvolumes"}, [2]string{`persistentvolume "pvc-0" of claim "d-pg-0" may not be read: you may not list persistentvolumes`, `persistentvolumeclaim "d" not found`}},
		{[]string{"persistentvolumeclaims"}, [2]string{`persistentvolume "pvc-0" of claim "d-pg-0" not found`, `persistentvolumeclaim "d" may not be read: you may not list persistentvolumeclaims`}},
	} {
		r := reasons()
		mayBeThere(r, tc.unread)
		if got := [2]string{r.Refused[0].Reason, r.Refused[1].Reason}; got != tc.want {
			t.Errorf("without %v: %q", tc.unread, got)
		}
	}
}
