package store

import (
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

// ownedBy sets other owners on a claim than karpenters does.
func ownedBy(pool string, owners ...metav1.OwnerReference) func(*karpv1.NodeClaim) {
	return func(nc *karpv1.NodeClaim) {
		nc.UID = types.UID("uid-of-" + nc.Name)
		nc.Labels[karpv1.NodePoolLabelKey], nc.OwnerReferences = pool, owners
	}
}

func owner(kind, name, uid string) metav1.OwnerReference {
	version := "karpenter.sh/v1"
	if kind == "Provisioner" {
		version = "karpenter.sh/v1alpha5"
	}
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID(uid)}
}

// ending returns the claims that are being deleted.
func (w *world) ending() []string {
	var list karpv1.NodeClaimList
	if err := w.api.List(context.Background(), &list); err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp != nil {
			out = append(out, list.Items[i].Name)
		}
	}
	slices.Sort(out)
	return out
}

// endingAre waits until these claims are being deleted, calls endOwned for every pool once more, and fails if others are deleted.
func (w *world) endingAre(want ...string) {
	w.t.Helper()
	w.eventually("these are ending", func() bool {
		w.clock.Step(time.Second)
		return slices.Equal(w.ending(), want)
	})
	for _, c := range w.Claims() {
		if err := w.status.endOwned(w.ctx, c.Pool); err != nil && !apierrors.IsConflict(err) { // conflict: the claim is being deleted already, and the cache doesn't know yet
			w.t.Errorf("looking after the claims of %s: %v", c.Pool, err)
		}
	}
	if got := w.ending(); !slices.Equal(got, want) {
		w.t.Errorf("ending: %v, want %v", got, want)
	}
}

// Pools were deleted while there was no leader: at the start the claims' owner references decide, not a pool that is missing in a
// list.
func TestClaimsOfPoolsThatWentMeanwhile(t *testing.T) {
	old := provisioner(t, inline+`}`)
	old.UID = "old"
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"), old,
		karpenters("stays", ownedBy("default", owner("NodePool", "default", "uid-of-pool-default"))),
		karpenters("of-a-provisioner", ownedBy("provisioner_"+old.Name, owner("Provisioner", old.Name, "old"))),
		karpenters("pool-gone", ownedBy("gone", owner("NodePool", "gone", "uid"))),
		karpenters("pool-made-anew", ownedBy("default", owner("NodePool", "default", "uid-of-the-one-before"))),
		karpenters("provisioner-gone", ownedBy("provisioner_gone", owner("Provisioner", "gone", "uid"))),
		karpenters("by-hand", ownedBy("gone")),
		karpenters("of-others", ownedBy("gone", metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Fleet", Name: "gone", UID: "uid"})),
		karpenters("of-two", ownedBy("gone", owner("NodePool", "gone", "uid"), metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Fleet", Name: "gone", UID: "uid"})),
		karpenters("of-args", ownedBy("args_gone")),
	)).leading()
	w.endingAre("pool-gone", "pool-made-anew", "provisioner-gone")
	w.hears("Normal NodePoolDeleted NodePool gone was deleted, so its nodes are terminated")
}

func TestClaimsGoWithTheirPool(t *testing.T) {
	claim := func(name, pool string) *karpv1.NodeClaim {
		return karpenters(name, ownedBy(pool, owner("NodePool", pool, "uid-of-pool-"+pool)))
	}
	foreground := testPool("foreground", func(np *karpv1.NodePool) { np.Finalizers = []string{metav1.FinalizerDeleteDependents} })
	orphan := testPool("orphan", func(np *karpv1.NodePool) { np.Finalizers = []string{metav1.FinalizerOrphanDependents} })
	old := provisioner(t, inline+`}`)
	old.UID = "old"
	w := newWorld(t, newFakeAPI(testPool("plain"), testPool("other"), foreground, orphan, old, testClass("default"),
		claim("of-plain", "plain"), claim("of-other", "other"), claim("of-foreground", "foreground"), claim("of-orphan", "orphan"),
		karpenters("of-old", ownedBy("provisioner_"+old.Name, owner("Provisioner", old.Name, "old"))),
	)).leading()
	w.endingAre()
	for _, o := range []client.Object{testPool("plain"), foreground, orphan, old} {
		if err := w.api.Delete(w.ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("none of them is used", func() bool {
		for _, name := range []string{"plain", "foreground", "orphan", "provisioner_" + old.Name} {
			if p := w.pool(name); p != nil && p.Unready == "" {
				return false
			}
		}
		return true
	})
	w.endingAre("of-foreground", "of-old", "of-plain")
}

// A claim whose owner reference was removed a moment ago is another version than the cached one.
func TestClaimThatWasReleasedRemains(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"), karpenters("one", ownedBy("default", owner("NodePool", "default", "uid-of-the-one-before"))))).ready()
	seen := w.knownClaim("one")
	fresh := seen.DeepCopy()
	fresh.OwnerReferences = nil
	if err := w.api.Update(w.ctx, fresh); err != nil {
		t.Fatal(err)
	}
	if err := w.status.endWithPool(w.ctx, seen); !apierrors.IsConflict(err) {
		t.Errorf("deleting a claim that has changed: %v, want a conflict", err)
	}
	if got := w.ending(); len(got) > 0 {
		t.Errorf("ending: %v", got)
	}
}

// If their definition isn't installed, it is not known whether pools exist.
func TestNothingEndsWhilePoolsCannotBeRead(t *testing.T) {
	api := newFakeAPI(karpenters("one"), karpenters("two", ownedBy("provisioner_old", owner("Provisioner", "old", "old"))))
	api.missing["NodePoolList"], api.missing["ProvisionerList"] = true, true
	w := newWorld(t, api)
	w.run()
	w.eventually("synced", w.Synced)
	for _, pool := range []string{"default", "provisioner_old"} {
		err := w.status.endOwned(w.ctx, pool)
		if err == nil || apierrors.IsNotFound(err) {
			t.Errorf("%s: error %v, want one that is tried again", pool, err)
		}
	}
	if got := w.ending(); len(got) > 0 {
		t.Errorf("ending: %v", got)
	}
	api.install(karpenter.NodePools, karpenter.Provisioners)
	for _, pool := range []string{"default", "provisioner_old"} {
		if err := w.status.endOwned(w.ctx, pool); err != nil {
			t.Errorf("%s: %v", pool, err)
		}
	}
	w.eventually("both end, as their pools are known not to be there", func() bool { return slices.Equal(w.ending(), []string{"one", "two"}) })
}
