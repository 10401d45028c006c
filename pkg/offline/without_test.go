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
		nodes        []string // a
		then, before []Refused
		total, now   float64
		unpriced     int
		want         string
	}{
		{name: "all fit", total: 0.2, want: "Without a, at $0.1260/h: 2 pods would have to run elsewhere, nodes for $0.2000/h are bought instead, and the cluster costs $0.0740/h more\n"},
		{name: "as much", total: 0.126_000_01, want: "Without a, at $0.1260/h: 2 pods would have to run elsewhere, nodes for $0.1260/h are bought instead, and the cluster costs as much as now\n"},
		{name: "nothing is bought", want: "Without a, at $0.1260/h: 2 pods would have to run elsewhere, no node has to be bought, and the cluster costs $0.1260/h less\n"},
		{name: "nothing is bought, and the price isn't known", unpriced: 1, want: "Without a, whose price isn't known: 2 pods would have to run elsewhere, and no node has to be bought\n"},
		{name: "less is bought", now: 0.1, want: "Without a, at $0.1260/h: 2 pods would have to run elsewhere, nodes for $0.1000/h less are bought, and the cluster costs $0.2260/h less\n"},
		{name: "one fits nowhere", then: refused("one", "old"), before: refused("old"), want: "Without a, at $0.1260/h: 2 pods would have to run elsewhere; 1 of them fits nowhere: shop/one\n"},
		{name: "another node has no known price", nodes: []string{"a", "b", "c"}, unpriced: 1,
			want: "Without a, b, c, at $0.1260/h and 1 whose price isn't known: 2 pods would have to run elsewhere, and no node has to be bought\n"},
		{name: "no price is known", nodes: []string{"a", "b"}, unpriced: 2, want: "Without a, b, whose prices aren't known: 2 pods would have to run elsewhere, and no node has to be bought\n"},
		{name: "another fits nowhere", then: refused("one", "two", "third"), unpriced: 1,
			want: "Without a, whose price isn't known: 2 pods would have to run elsewhere; 2 of them fit nowhere: shop/one, shop/two; 1 pod that would have a node now fits nowhere then: shop/third\n"},
		{name: "refused before", then: refused("old"), before: refused("old"), want: "Without a, at $0.1260/h: 2 pods would have to run elsewhere, no node has to be bought, and the cluster costs $0.1260/h less\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.nodes == nil {
				tc.nodes = []string{"a"}
			}
			r := &Report{Refused: tc.then, TotalPerHour: tc.total, Without: &Without{Nodes: tc.nodes, PerHour: 0.126, Unpriced: tc.unpriced, Moved: 2}}
			r.Without.Compare(r, &Report{Refused: tc.before, TotalPerHour: tc.now}, []PodName{name("one"), name("two")})
			if diff := cmp.Diff(tc.want, summary(t, r)); diff != "" {
				t.Errorf("it says (-want +got):\n%s", diff)
			}
		})
	}
}

// A volume that may not be listed isn't said to be gone.
func TestVolumesThatMayNotBeRead(t *testing.T) {
	const pods = `
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: d-pg-0, namespace: data}, spec: {volumeName: pvc-0, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: pg-0, namespace: data}, spec: {containers: [{name: c, image: i}], volumes: [{name: d, persistentVolumeClaim: {claimName: d-pg-0}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: pg-1, namespace: data}, spec: {containers: [{name: c, image: i}], volumes: [{name: d, persistentVolumeClaim: {claimName: d-pg-1}}]}}
`
	const volume, claim = `refused pg-0: pod can't be planned for: persistentvolume "pvc-0" of claim "d-pg-0" `, `refused pg-1: pod can't be planned for: persistentvolumeclaim "d-pg-1" `
	for _, tc := range []struct {
		unread []string
		want   []string
	}{
		{nil, []string{volume + "not found", claim + "not found"}},
		{[]string{"persistentvolumes"}, []string{volume + "may not be read: you may not list persistentvolumes", claim + "not found"}},
		{[]string{"persistentvolumeclaims"}, []string{volume + "not found", claim + "may not be read: you may not list persistentvolumeclaims"}},
	} {
		s := settings(t)
		s.Unread = tc.unread
		r, err := Plan(t.Context(), set(t, class+pool("general", "")+pods), s)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, linesOf(r)); diff != "" {
			t.Errorf("where %v may not be read (-want +got):\n%s", tc.unread, diff)
		}
	}
}
