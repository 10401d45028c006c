package launch

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// After a restart a launch batch's instances are assigned as before: an instance of a claim that is being deleted is neither given to
// another claim nor ended here.
func TestInstancesOfALaunchBatchAreDealtAsBefore(t *testing.T) {
	inst := func(id, claim string) capacity.Instance { return capacity.Instance{ID: id, Claim: claim} }
	for name, tc := range map[string]struct {
		dying, missing []string
		insts          []capacity.Instance
		taken          string
		want           map[string]string
		ended          []string
	}{
		"in order":                    {missing: []string{"a", "b"}, insts: []capacity.Instance{inst("2", ""), inst("1", "")}, want: map[string]string{"a": "1", "b": "2"}},
		"one is being deleted":        {dying: []string{"a"}, missing: []string{"b"}, insts: []capacity.Instance{inst("1", ""), inst("2", "")}, want: map[string]string{"b": "2"}},
		"one has gone":                {missing: []string{"b"}, insts: []capacity.Instance{inst("1", ""), inst("2", "")}, want: map[string]string{"b": "2"}, ended: []string{"1"}},
		"they bear names":             {missing: []string{"a", "b"}, insts: []capacity.Instance{inst("1", "b"), inst("2", "a")}, want: map[string]string{"a": "2", "b": "1"}},
		"one is taken":                {missing: []string{"b"}, insts: []capacity.Instance{inst("1", ""), inst("2", "")}, taken: "1", want: map[string]string{"b": "2"}},
		"its own is taken":            {missing: []string{"a"}, insts: []capacity.Instance{inst("1", ""), inst("2", "")}, taken: "1", want: map[string]string{"a": "2"}},
		"one came, its own or not":    {missing: []string{"b"}, insts: []capacity.Instance{inst("1", "")}, want: map[string]string{"b": "1"}},
		"one came, for another's end": {dying: []string{"a"}, missing: []string{"b"}, insts: []capacity.Instance{inst("1", "")}, want: map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.build()
			for _, n := range tc.dying {
				w.claims[n] = &capacity.Claim{Name: n, UID: n, Deleting: true}
			}
			var missing []*capacity.Claim
			for _, n := range tc.missing {
				missing = append(missing, &capacity.Claim{Name: n, UID: n})
			}
			rec := &capacity.LaunchBatch{Token: "t", Claims: []string{"b", "a"}}
			due, left := w.parts.batches.batchOwners(rec, missing, []*capacity.Claim{{Name: "gone", ProviderID: tc.taken}}).Assign(rec, tc.insts)
			got := map[string]string{}
			for claim, i := range due {
				if slices.Contains(tc.missing, claim) {
					got[claim] = i.ID
				}
			}
			var ended []string
			for _, i := range left {
				ended = append(ended, i.ID)
			}
			if !maps.Equal(got, tc.want) || !slices.Equal(ended, tc.ended) {
				t.Errorf("given out %v, want %v; ended %v, want %v", got, tc.want, ended, tc.ended)
			}
		})
	}
}

// An instance too many is ended at once, unless its kubelet has registered: then it is left to termination, which drains it first.
func TestAnInstanceTooManyThatHasANode(t *testing.T) {
	w := newWorld(t)
	w.build()
	for _, id := range []string{"bare", "up"} {
		w.instances[id] = capacity.Instance{ID: id, ProviderID: "aws:///z/" + id}
	}
	for _, name := range []string{"n", "expected"} {
		w.parts.Nodes.NodeCached(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labelPool: "pool"}}, Spec: corev1.NodeSpec{ProviderID: "aws:///z/up"}})
	}
	for _, inst := range slices.Collect(maps.Values(w.instances)) {
		w.parts.finisher.end(t.Context(), inst)
	}
	if _, up := w.instances["up"]; len(w.instances) != 1 || !up {
		t.Errorf("left: %v", w.instances)
	}
	for _, name := range []string{"n", "expected"} {
		if why := w.reservations.Assume("u", name, false); why == nil {
			t.Errorf("a pod may go to %s, which is about to be drained", name)
		}
	}
}
