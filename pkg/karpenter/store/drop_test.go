package store

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

// A claim is dropped only if no launch is recorded on it: not in the cache, and not with the API server.
func TestDrop(t *testing.T) {
	type change func(*world, *karpv1.NodeClaim) error
	record := func(batch *capacity.LaunchBatch) change {
		return func(w *world, nc *karpv1.NodeClaim) error {
			c := testClaim(nc.Name)
			c.LaunchBatch = batch
			with, err := karpenter.NodeClaimOf(c, testPool("default"), &karpenter.Batches{})
			if err != nil {
				return err
			}
			nc.Annotations = with.Annotations
			return w.api.Update(w.ctx, nc)
		}
	}
	token := record(&capacity.LaunchBatch{Token: "token", Claims: []string{"c"}})
	instance := func(w *world, nc *karpv1.NodeClaim) error {
		nc.Status.ProviderID = "aws:///us-west-2a/i-0123456789abcdef0"
		return w.api.Status().Update(w.ctx, nc)
	}
	label := func(w *world, nc *karpv1.NodeClaim) error {
		nc.Labels["changed"] = "yes"
		return w.api.Update(w.ctx, nc)
	}
	remove := func(w *world, nc *karpv1.NodeClaim) error {
		nc.Finalizers = nil
		return errors.Join(w.api.Update(w.ctx, nc), w.api.WithWatch.Delete(w.ctx, nc))
	}
	recorded := func(c *capacity.Claim) bool {
		return c != nil && (c.ProviderID != "" || c.LaunchBatch != nil && c.LaunchBatch.Token == "token")
	}
	for _, tt := range []struct {
		name           string
		unseen, during change // what another process writes before, and between our read and our deletion
		kept           bool
	}{
		{name: "never launched"},
		{name: "a record without token", unseen: record(&capacity.LaunchBatch{})},
		{name: "a token", unseen: token, kept: true},
		{name: "an instance", unseen: instance, kept: true},
		{name: "gone", unseen: remove},
		{name: "a token while it is being dropped", during: token, kept: true},
		{name: "an instance while it is being dropped", during: instance, kept: true},
		{name: "another change while it is being dropped", during: label},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"))).ready()
			c := testClaim("c")
			c.LaunchBatch = nil
			if _, err := w.Create(w.ctx, c); err != nil {
				t.Fatal(err)
			}
			key, nc := client.ObjectKey{Name: "c"}, &karpv1.NodeClaim{}
			write := func(how change) {
				if err := w.api.Get(w.ctx, key, nc); err != nil {
					t.Fatal(err)
				}
				if err := how(w, nc); err != nil {
					t.Fatal(err)
				}
			}
			w.mu.Lock()
			before := w.known["c"]
			w.mu.Unlock()
			if tt.unseen != nil {
				write(tt.unseen)
				w.eventually("the event of the write", func() bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					seen := w.known["c"] != before
					w.known["c"] = before // the cache is as it was
					return seen
				})
			}
			w.api.beforeDelete = func() {
				if w.api.beforeDelete = nil; tt.during != nil {
					write(tt.during)
				}
			}
			launched, err := w.Drop(w.ctx, "c")
			if err != nil {
				t.Fatal(err)
			}
			if err := w.api.Get(w.ctx, key, nc); client.IgnoreNotFound(err) != nil || (err == nil && nc.DeletionTimestamp.IsZero()) != tt.kept {
				t.Errorf("afterwards: %v, deleted at %v", err, nc.DeletionTimestamp)
			}
			if (launched != nil) != tt.kept || tt.kept && !(recorded(launched) && recorded(w.Claim("c"))) {
				t.Errorf("%+v is returned, %+v known", launched, w.Claim("c"))
			}
		})
	}
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"))).ready()
	if launched, err := w.Drop(w.ctx, "never there"); launched != nil || err != nil {
		t.Errorf("%v, %v", launched, err)
	}
}

// A launch of the last leader is recorded on a claim unless the API server has a later one there, whatever the cache shows.
func TestRecordBatchUnlessLater(t *testing.T) {
	attempt := func(n int) *capacity.LaunchBatch {
		return &capacity.LaunchBatch{Token: fmt.Sprint("t", n), Attempt: n, Claims: []string{"c"}}
	}
	for _, tt := range []struct {
		name     string
		unseen   *capacity.LaunchBatch // what the API server has, and the cache doesn't show
		launched bool                  // so is the instance
		uid      string                // of the claim to be recorded on
		want     string                // the token on record
		later    bool
		gone     bool
	}{
		{name: "nothing is recorded", want: "t2"},
		{name: "an earlier attempt", unseen: attempt(1), want: "t2"},
		{name: "this one", unseen: attempt(2), want: "t2"},
		{name: "a later attempt", unseen: attempt(3), want: "t3", later: true},
		{name: "an instance", unseen: attempt(1), launched: true, want: "t1", later: true},
		{name: "another claim of that name", uid: "another", gone: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"))).ready()
			c := testClaim("c")
			c.LaunchBatch = nil
			made, err := w.Create(w.ctx, c)
			if err != nil {
				t.Fatal(err)
			}
			w.mu.Lock()
			before := w.known["c"]
			w.mu.Unlock()
			if tt.unseen != nil {
				if err := w.RecordBatch(w.ctx, made, *tt.unseen); err != nil {
					t.Fatal(err)
				}
			}
			nc := &karpv1.NodeClaim{}
			if err := w.api.Get(w.ctx, client.ObjectKey{Name: "c"}, nc); err != nil {
				t.Fatal(err)
			}
			if tt.launched {
				nc.Status.ProviderID = "aws:///us-west-2a/i-0123456789abcdef0"
				if err := w.api.Status().Update(w.ctx, nc); err != nil {
					t.Fatal(err)
				}
			}
			w.mu.Lock()
			w.known["c"] = before // the cache is as it was
			w.mu.Unlock()
			of := *made
			if tt.uid != "" {
				of.UID = tt.uid
			}
			later, err := w.RecordBatchUnlessLater(w.ctx, &of, *attempt(2))
			if apierrors.IsNotFound(err) != tt.gone || err != nil && !tt.gone {
				t.Fatal(err)
			}
			if err := w.api.Get(w.ctx, client.ObjectKey{Name: "c"}, nc); err != nil {
				t.Fatal(err)
			}
			token := ""
			if batch, err := karpenter.BatchOf(nc); err != nil {
				t.Fatal(err)
			} else if batch != nil {
				token = batch.Token
			}
			if token != tt.want || (later != nil) != tt.later {
				t.Errorf("token %q on record, %+v returned", token, later)
			}
		})
	}
}

// A claim is deleted by its UID: another one of its name stays.
func TestDeleteThisClaim(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"))).ready()
	made, err := w.Create(w.ctx, testClaim("c"))
	if err != nil {
		t.Fatal(err)
	}
	there := func() bool {
		nc := &karpv1.NodeClaim{}
		err := w.api.Get(w.ctx, client.ObjectKey{Name: "c"}, nc)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		return err == nil && nc.DeletionTimestamp.IsZero()
	}
	if err := w.Delete(w.ctx, "c", "another"); err != nil || !there() {
		t.Errorf("%v, the claim is there: %v", err, there())
	}
	if err := w.Delete(w.ctx, "c", made.UID); err != nil || there() {
		t.Errorf("%v, the claim is there: %v", err, there())
	}
}
