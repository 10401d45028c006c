package launch

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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
		unrecorded     []string // being deleted, and the last leader crashed before it wrote the record on them
		insts          []capacity.Instance
		taken          string
		want           map[string]string
		ended          []string
	}{
		"in order":                 {missing: []string{"a", "b"}, insts: []capacity.Instance{inst("2", ""), inst("1", "")}, want: map[string]string{"a": "1", "b": "2"}},
		"one is being deleted":     {dying: []string{"a"}, missing: []string{"b"}, insts: []capacity.Instance{inst("1", ""), inst("2", "")}, want: map[string]string{"b": "2"}},
		"one has gone":             {missing: []string{"b"}, insts: []capacity.Instance{inst("1", ""), inst("2", "")}, want: map[string]string{"b": "2"}, ended: []string{"1"}},
		"they bear names":          {missing: []string{"a", "b"}, insts: []capacity.Instance{inst("1", "b"), inst("2", "a")}, want: map[string]string{"a": "2", "b": "1"}},
		"one is taken":             {missing: []string{"b"}, insts: []capacity.Instance{inst("1", ""), inst("2", "")}, taken: "1", want: map[string]string{"b": "2"}},
		"its own is taken":         {missing: []string{"a"}, insts: []capacity.Instance{inst("1", ""), inst("2", "")}, taken: "1", want: map[string]string{"a": "2"}},
		"one came, its own or not": {missing: []string{"b"}, insts: []capacity.Instance{inst("1", "")}, want: map[string]string{"b": "1"}},
		"one that is being deleted looks for none": {unrecorded: []string{"a"}, missing: []string{"b"}, insts: []capacity.Instance{inst("1", ""), inst("2", "")},
			want: map[string]string{"b": "2"}, ended: []string{"1"}},
		"one came, for another's end": {dying: []string{"a"}, missing: []string{"b"}, insts: []capacity.Instance{inst("1", "")}, want: map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.build()
			rec := &capacity.LaunchBatch{Token: "t", Claims: []string{"b", "a"}}
			for _, n := range tc.dying {
				w.claims[n] = &capacity.Claim{Name: n, UID: n, Deleting: true, LaunchBatch: rec}
			}
			for _, n := range tc.unrecorded {
				w.claims[n] = &capacity.Claim{Name: n, UID: n, Deleting: true}
			}
			var missing []*capacity.Claim
			for _, n := range tc.missing {
				missing = append(missing, &capacity.Claim{Name: n, UID: n})
			}
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

// A restart repeats a call for two claims, of which a user has deleted one meanwhile: the last leader crashed before it wrote the record on
// that one. EC2 doesn't know the new instances for a while, and says so when the one that no claim owns is to be terminated.
func TestAnInstanceTooManyIsTerminatedOnceTheCloudKnowsIt(t *testing.T) {
	for name, deleted := range map[string]func(w *world, claim string){
		"the claim is gone": func(w *world, claim string) { delete(w.claims, claim) },
		"the claim is being deleted": func(w *world, claim string) {
			w.claims[claim] = &capacity.Claim{Name: claim, UID: claim, Pool: "pool", Deleting: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.lag = 12 * time.Second
				w.lost["Launch"] = 1 << 30
				w.run()
				w.submit(8)
				pass(time.Second)
				w.stop()
				w.mu.Lock()
				names := slices.Sorted(maps.Keys(w.claims))
				deleted(w, names[0])
				clear(w.lost)
				w.mu.Unlock()
				w.run()
				defer w.stop()
				pass(5 * time.Second)
				if _, instances, _ := w.count(); instances != 2 {
					t.Fatalf("%d instances, want both: the cloud doesn't know them yet", instances)
				}
				if n := len(w.parts.calls.chores); n > 0 {
					t.Errorf("%d calls that no launch waits for can't be made meanwhile", n)
				}
				pass(20 * time.Second)
				w.mu.Lock()
				defer w.mu.Unlock()
				if c := w.claims[names[1]]; len(w.instances) != 1 || c == nil || w.instances[capacity.InstanceID(c.ProviderID)].ID == "" {
					t.Errorf("instances %v, claim %+v; want its own", w.instances, c)
				}
			})
		})
	}
}

// An instance that the cloud never shows is not tried for ever, and one whose kubelet registers meanwhile is drained.
func TestTheEndOfAnInstanceTooManyIsNotTriedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.build()
		w.broken["Terminate"] = capacity.ErrInstanceNotFound
		started := time.Now()
		w.parts.finisher.end(t.Context(), capacity.Instance{ID: "i", ProviderID: "aws:///z/i"})
		if took := time.Since(started); took < capacity.LaunchGrace || took > capacity.LaunchGrace+2*maxRetry {
			t.Errorf("given up after %s, want about %s", took, capacity.LaunchGrace)
		}
		go func() {
			<-time.After(20 * time.Second)
			w.parts.Nodes.NodeCached(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{labelPool: "pool"}}, Spec: corev1.NodeSpec{ProviderID: "aws:///z/i"}})
		}()
		started = time.Now()
		w.parts.finisher.end(t.Context(), capacity.Instance{ID: "i", ProviderID: "aws:///z/i"})
		if took := time.Since(started); took > 40*time.Second || w.reservations.Assume("u", "n", false) == nil {
			t.Errorf("after %s a pod may go to a Node that is about to be drained", took)
		}
	})
}
