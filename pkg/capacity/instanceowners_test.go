package capacity

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInstancesAreAssigned(t *testing.T) {
	w := &LaunchBatch{Token: "t", Claims: []string{"c", "a", "b"}}
	claim := func(name string, change ...func(*Claim)) *Claim {
		c := &Claim{Name: name, LaunchBatch: w}
		for _, f := range change {
			f(c)
		}
		return c
	}
	has := func(id string) func(*Claim) { return func(c *Claim) { c.ProviderID = "aws:///z/" + id } }
	deleting := func(c *Claim) { c.Deleting = true }
	elsewhere := func(c *Claim) { c.LaunchBatch = &LaunchBatch{Token: "later", Claims: []string{c.Name}} }
	unrecorded := func(c *Claim) { c.LaunchBatch = nil }
	for name, tc := range map[string]struct {
		claims    []*Claim
		instances []string // id, or id=claim for a tagged one
		of        map[string]string
		over      []string
	}{
		"place by place, however they come": {claims: []*Claim{claim("b"), claim("c"), claim("a")}, instances: []string{"i3", "i1", "i2"},
			of: map[string]string{"a": "i1", "b": "i2", "c": "i3"}},
		"fewer instances than claims": {claims: []*Claim{claim("a"), claim("b"), claim("c")}, instances: []string{"i1", "i2"},
			of: map[string]string{"a": "i1", "b": "i2"}},
		"more instances than claims": {claims: []*Claim{claim("a"), claim("b"), claim("c")}, instances: []string{"i1", "i2", "i3", "i4"},
			of: map[string]string{"a": "i1", "b": "i2", "c": "i3"}, over: []string{"i4"}},
		"what is recorded stays": {claims: []*Claim{claim("a"), claim("b", has("i1")), claim("c")}, instances: []string{"i1", "i2", "i3"},
			of: map[string]string{"a": "i2", "c": "i3"}},
		"recorded on a claim of another launch batch": {claims: []*Claim{claim("a"), claim("x", has("i1"), unrecorded)}, instances: []string{"i1", "i2"},
			of: map[string]string{"a": "i2"}},
		"a tag goes before a place": {claims: []*Claim{claim("a"), claim("b"), claim("c")}, instances: []string{"i1", "i2=a", "i3"},
			of: map[string]string{"a": "i2", "b": "i1", "c": "i3"}},
		"what bears another's name is that one's, though both are being deleted": {claims: []*Claim{claim("a", deleting), claim("b", deleting)},
			instances: []string{"i1=b", "i2"}, of: map[string]string{"a": "i2", "b": "i1"}},
		"a claim that is being deleted keeps its place": {claims: []*Claim{claim("a", deleting), claim("b")}, instances: []string{"i1"},
			of: map[string]string{"a": "i1"}},
		"live claims go before deleted ones in what is left": {claims: []*Claim{claim("a", has("i9")), claim("b", deleting), claim("c")},
			instances: []string{"i1"}, of: map[string]string{"c": "i1"}},
		"the place of a claim that has gone is free": {claims: []*Claim{claim("c")}, instances: []string{"i1"}, of: map[string]string{"c": "i1"}},
		"claims that were asked for anew get nothing of the attempt before": {claims: []*Claim{claim("a"), claim("b", elsewhere)}, instances: []string{"i1", "i2"},
			of: map[string]string{"a": "i1"}, over: []string{"i2"}},
		"claims without a launch batch get what bears their names": {claims: []*Claim{claim("x", unrecorded), claim("y", unrecorded)}, instances: []string{"i1=y", "i2"},
			of: map[string]string{"y": "i1"}, over: []string{"i2"}},
		"a name that has gone, or has another instance, is nobody's": {claims: []*Claim{claim("a", has("i9"))}, instances: []string{"i1=a", "i2=gone"},
			of: map[string]string{}, over: []string{"i1", "i2"}},
	} {
		t.Run(name, func(t *testing.T) {
			var instances []Instance
			for _, s := range tc.instances {
				instances = append(instances, instanceNamed(s))
			}
			of, over := InstanceOwnersOf(tc.claims).Assign(w, instances)
			if diff := cmp.Diff(tc.of, idsOf(of)); diff != "" {
				t.Errorf("handed out (-want +got):\n%s", diff)
			}
			var ids []string
			for _, i := range over {
				ids = append(ids, i.ID)
			}
			if diff := cmp.Diff(tc.over, ids); diff != "" {
				t.Errorf("over (-want +got):\n%s", diff)
			}
		})
	}
}

func instanceNamed(s string) Instance {
	i := Instance{ID: s[:2], ProviderID: "aws:///z/" + s[:2], LaunchBatch: "t"}
	if len(s) > 2 {
		i.Claim = s[3:]
	}
	return i
}

func idsOf(of map[string]Instance) map[string]string {
	out := map[string]string{}
	for name, i := range of {
		out[name] = i.ID
	}
	return out
}

// handOut returns a launch batch at a random moment: some claims are gone, are being deleted or have their instance; some instances are
// tagged, owned or not shown yet.
func handOut(d *rand.Rand) (w *LaunchBatch, claims []*Claim, instances []Instance) {
	w = &LaunchBatch{Token: "t"}
	for i := range 1 + d.IntN(6) {
		w.Claims = append(w.Claims, fmt.Sprintf("c%d", i))
	}
	d.Shuffle(len(w.Claims), func(i, j int) { w.Claims[i], w.Claims[j] = w.Claims[j], w.Claims[i] })
	var ids []string
	for i := range d.IntN(8) {
		ids = append(ids, fmt.Sprintf("i%d", i))
	}
	unused := slices.Clone(ids)
	for _, name := range append(slices.Clone(w.Claims), "other") {
		c := &Claim{Name: name, LaunchBatch: w, Deleting: d.IntN(4) == 0}
		switch at := d.IntN(6); {
		case name == "other" || at == 0:
			c.LaunchBatch = &LaunchBatch{Token: "another", Claims: []string{name}}
		case at == 1:
			continue
		case at == 2 && len(unused) > 0:
			c.ProviderID = "aws:///z/" + unused[0]
			unused = unused[1:]
		}
		claims = append(claims, c)
	}
	d.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
	for _, id := range ids {
		i := instanceNamed(id)
		if d.IntN(4) == 0 {
			i.Claim = append(slices.Clone(w.Claims), "gone", "other")[d.IntN(len(w.Claims)+2)]
		}
		if d.IntN(6) > 0 {
			instances = append(instances, i)
		}
	}
	return w, claims, instances
}

// Whichever controller asks, and whenever: no instance is assigned twice, none that a claim waits for is collected, and what some
// controllers have recorded meanwhile changes nothing for the others.
func FuzzInstancesAreAssignedOnce(f *testing.F) {
	for seed := range uint64(500) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		d := rand.New(rand.NewPCG(seed, 7))
		w, claims, instances := handOut(d)
		owners := InstanceOwnersOf(claims)
		of, over := owners.Assign(w, instances)
		times := map[string]int{}
		byName := map[string]*Claim{}
		for _, c := range claims {
			byName[c.Name] = c
		}
		for name, i := range of {
			times[i.ID]++
			switch c := byName[name]; {
			case c == nil || c.ProviderID != "":
				t.Errorf("%s went to %s, which has gone or has another", i.ID, name)
			case i.Claim != name && c.LaunchBatch != w:
				t.Errorf("%s went to %s of another launch batch", i.ID, name)
			case i.Claim != name && owners.Waits(i.Claim) && of[i.Claim].Claim != i.Claim:
				t.Errorf("%s went to %s, though it bears the name of %s", i.ID, name, i.Claim)
			case !owners.Awaited(&i):
				t.Errorf("%s went to %s, but would be collected", i.ID, name)
			}
		}
		for _, i := range over {
			times[i.ID]++
		}
		for _, i := range instances {
			if owned := owners.Owned(&i); owned && times[i.ID] > 0 || !owned && times[i.ID] != 1 {
				t.Errorf("%s, owned %v, was dealt with %d times", i.ID, owned, times[i.ID])
			}
		}
		if len(over) > 0 {
			for _, c := range claims {
				if _, has := of[c.Name]; c.LaunchBatch == w && c.ProviderID == "" && !has {
					t.Errorf("%s got nothing although %v are over", c.Name, over)
				}
			}
		}

		// A crash happens after some of it was recorded.
		var later []*Claim
		want := idsOf(of)
		for _, c := range claims {
			own := *c
			if i, ok := of[c.Name]; ok && d.IntN(2) == 0 {
				own.ProviderID = i.ProviderID
				delete(want, c.Name)
			}
			later = append(later, &own)
		}
		d.Shuffle(len(later), func(i, j int) { later[i], later[j] = later[j], later[i] })
		d.Shuffle(len(instances), func(i, j int) { instances[i], instances[j] = instances[j], instances[i] })
		again, overAgain := InstanceOwnersOf(later).Assign(w, instances)
		if got := idsOf(again); !maps.Equal(got, want) || len(overAgain) != len(over) {
			t.Errorf("before: %v, over %v; after some were recorded: %v, over %v", idsOf(of), over, got, overAgain)
		}
	})
}
