package store

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter/guardmap"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// newNamed returns the store of a Dovetail with that name, which selects the pools with the label team of that value.
func newNamed(t *testing.T, api *fakeAPI, name string) *world {
	t.Helper()
	kind := nodeclass.Kind
	kind.ManagedBy = name
	w := newWorldOf(t, api, kind)
	if err := w.Derived().SetProfiles([]karpenter.Profile{{Scheduler: name, Selects: func(of map[string]string) bool { return of["team"] == name }}}); err != nil {
		t.Fatal(err)
	}
	return w
}

func team(name string) func(*karpv1.NodePool) {
	return func(np *karpv1.NodePool) { np.Labels = map[string]string{"team": name} }
}

// by is a claim of a pool that the Dovetail of that name manages; without a name it has no label.
func by(name, claim, pool string) *karpv1.NodeClaim {
	return karpenters(claim, func(nc *karpv1.NodeClaim) {
		nc.Labels[karpv1.NodePoolLabelKey] = pool
		nc.OwnerReferences = nil
		if name != "" {
			nc.Labels[objects.LabelManagedBy] = name
		}
	})
}

func (w *world) names() (pools, claims []string) {
	for _, p := range w.Pools(noTypes) {
		pools = append(pools, p.Name)
	}
	for _, c := range w.Claims() {
		claims = append(claims, c.Name)
	}
	slices.Sort(pools)
	return pools, claims
}

// Of several Dovetails each knows its own claims and pools, and writes to no others. What it creates is its own, whatever the pool's template says.
func TestSeveralStores(t *testing.T) {
	for _, tc := range []struct {
		name          string
		pools, claims []string
	}{
		{"", []string{"apples", "bananas", "cherries"}, []string{"unnamed-1"}},
		{"red", []string{"apples"}, []string{"red-1"}},
		{"blue", []string{"bananas"}, []string{"blue-1", "blue-2"}},
	} {
		t.Run("named "+tc.name, func(t *testing.T) {
			api := newFakeAPI(readyClass("default"), testPool("apples", plain, team("red"), func(np *karpv1.NodePool) {
				np.Spec.Template.Labels = map[string]string{objects.LabelManagedBy: "blue"}
			}), testPool("bananas", plain, team("blue")), testPool("cherries", plain),
				by("red", "red-1", "apples"), by("blue", "blue-1", "bananas"), by("blue", "blue-2", "apples"), by("", "unnamed-1", "apples"))
			w := newWorld(t, api)
			if tc.name != "" {
				w = newNamed(t, api, tc.name)
			}
			w.leading()
			pools, claims := w.names()
			if diff := cmp.Diff(tc.pools, pools); diff != "" {
				t.Errorf("pools (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.claims, claims); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
			w.eventually("its own pool has a status", func() bool {
				return w.getPool(tc.pools[0]).StatusConditions().Get(karpv1.ConditionTypeValidationSucceeded).IsTrue()
			})
			if _, err := w.Create(w.ctx, testClaim("new", func(c *capacity.Claim) { c.Pool = tc.pools[0] })); err != nil {
				t.Fatal(err)
			}
			nc := &karpv1.NodeClaim{}
			if err := api.Get(w.ctx, client.ObjectKey{Name: "new"}, nc); err != nil {
				t.Fatal(err)
			}
			if got, there := nc.Labels[objects.LabelManagedBy]; got != tc.name || there != (tc.name != "") {
				t.Errorf("a claim that it creates is managed by %q, has the label %v", got, there)
			}
			api.mu.Lock()
			defer api.mu.Unlock()
			own := append(slices.Clone(tc.pools), append(tc.claims, "default", "new")...)
			if i := slices.IndexFunc(api.patches, func(p string) bool {
				return !slices.ContainsFunc(own, func(name string) bool { return strings.HasPrefix(p, name) })
			}); i >= 0 {
				t.Errorf("it writes to what isn't its own: %s", api.patches[i])
			}
		})
	}
}

// A pool that is labelled otherwise leaves one Dovetail and is the other's from then on. Its claims stay whose they are.
func TestAPoolChangesHands(t *testing.T) {
	api := newFakeAPI(readyClass("default"), testPool("apples", plain, team("red")), by("red", "red-1", "apples"))
	red, blue := newNamed(t, api, "red").ready(), newNamed(t, api, "blue").ready()
	np := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "apples"}}
	red.edit(np, func() { np.Labels["team"] = "blue" })
	has := func(w *world, pools, claims int) func() bool {
		return func() bool {
			p, c := w.names()
			return len(p) == pools && len(c) == claims
		}
	}
	red.eventually("red has the claim, and no pool", has(red, 0, 1))
	blue.eventually("blue has the pool, and no claim", has(blue, 1, 0))
}

// A pool that two select is used by neither: no status, no claims, and an event that says so. That ends when the other doesn't select it any more.
func TestAPoolThatTwoSelect(t *testing.T) {
	api := newFakeAPI(readyClass("default"), testPool("apples", plain, team("red")), testPool("apricots", plain, team("red")))
	w := newNamed(t, api, "red")
	var both atomic.Bool
	both.Store(true)
	w.sources.Shared = func(of map[string]string) string {
		if both.Load() {
			return `Dovetail "blue" selects it, too`
		}
		return ""
	}
	w.leading()
	w.hears(`Warning SelectedTwice Dovetail "blue" selects it, too`)
	if _, err := w.Create(w.ctx, testClaim("new", func(c *capacity.Claim) { c.Pool = "apples" })); !errors.Is(err, ErrPoolUnusable) {
		t.Errorf("creating a claim: %v", err)
	}
	for _, p := range w.Pools(noTypes) {
		if p.Unready != `Dovetail "blue" selects it, too` {
			t.Errorf("pool %s is used: %q", p.Name, p.Unready)
		}
	}
	if c := w.getPool("apples").StatusConditions().Get(karpv1.ConditionTypeValidationSucceeded); c.IsTrue() {
		t.Errorf("its status is written: %v", c)
	}
	both.Store(false)
	w.SharedChanged()
	w.eventually("its status is written", func() bool {
		return w.getPool("apples").StatusConditions().Get(karpv1.ConditionTypeValidationSucceeded).IsTrue()
	})
}

// A class that another Dovetail's claims use keeps its finalizer, and what was made for it.
func TestAClassThatAnotherDovetailUses(t *testing.T) {
	api := newFakeAPI(readyClass("default"), by("blue", "blue-1", "bananas"))
	w := newNamed(t, api, "red")
	var ended atomic.Int32
	w.OnClassEnd(func(context.Context, status.Object) error { ended.Add(1); return nil })
	w.leading()
	w.eventually("the finalizer is on it", func() bool { return len(w.getClass("default").Finalizers) == 1 })
	if err := api.Delete(w.ctx, w.getClass("default")); err != nil {
		t.Fatal(err)
	}
	w.hears("Normal WaitingOnNodeClaimTermination 1 NodeClaims still use it: blue-1")
	if ended.Load() != 0 || len(w.getClass("default").Finalizers) != 1 {
		t.Error("a class in use was let go")
	}
	other := newNamed(t, api, "blue").leading()
	nc := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "blue-1"}}
	other.edit(nc, func() { nc.Finalizers = nil })
	if err := api.Delete(w.ctx, nc); err != nil {
		t.Fatal(err)
	}
	other.eventually("the class is gone with the other's last claim", func() bool {
		other.clock.Step(time.Minute)
		return apierrors.IsNotFound(api.Get(w.ctx, client.ObjectKey{Name: "default"}, &ec2nc.EC2NodeClass{}))
	})
}

// Nodes that another Dovetail has launched for a static pool count as there, and are none that may be ended.
func TestStaticPoolThatHasChangedHands(t *testing.T) {
	leaving := by("red", "red-2", "static")
	leaving.DeletionTimestamp = &metav1.Time{Time: start}
	w := newNamed(t, newFakeAPI(testPool("static", staticPool(3), team("blue")), by("red", "red-1", "static"), leaving, by("blue", "blue-1", "static")), "blue")
	replicas, there, claims, err := w.StaticClaims(t.Context(), "static")
	if err != nil || replicas != 2 || !there {
		t.Errorf("%d more than those of the other are wanted, there %v, %v; want 2", replicas, there, err)
	}
	if diff := cmp.Diff(map[string]bool{"blue-1": false}, claims); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

// Each keeps the spending guard's record of a class that several use for itself.
func TestGuardRecordsOfSeveral(t *testing.T) {
	kube := fake.NewClientset()
	record := map[string]string{"": keptOf(t, guard.MachineKey("default", "ami-0", "")), "red": keptOf(t, guard.MachineKey("default", "ami-1", "")), "blue": keptOf(t, guard.MachineKey("default", "ami-2", ""))}
	api := newFakeAPI(readyClass("default"))
	worlds := map[string]*world{"": newWorld(t, api), "red": newNamed(t, api, "red"), "blue": newNamed(t, api, "blue")}
	owner := guard.Owner{Class: "default"}
	for name, w := range worlds {
		w.guardMap = guardmap.New(kube, "kube-system", w.nodeClass.ManagedBy)
		w.ready()
		if err := w.RecordGuard(w.ctx, owner, record[name]); err != nil {
			t.Fatal(err)
		}
	}
	for name, w := range worlds {
		w.eventually("its own record is read back", func() bool {
			got, err := w.GuardRecords(w.ctx)
			return err == nil && len(got) == 1 && got[owner] == record[name]
		})
	}
}

// A condition that another process has left, one without a name or before a restart, goes when it is known that there is no record for it.
func TestConditionWithoutARecord(t *testing.T) {
	paused := func(np *karpv1.NodePool) {
		np.Status.Conditions = append(np.Status.Conditions, status.Condition{Type: objects.ConditionLaunchesPaused, Status: metav1.ConditionTrue, Reason: "Paused", LastTransitionTime: metav1.Now()})
	}
	w := newNamed(t, newFakeAPI(readyClass("default"), testPool("apples", plain, team("red"), paused)), "red")
	w.guardMap = guardmap.New(fake.NewClientset(), "kube-system", w.nodeClass.ManagedBy)
	w.leading()
	w.eventually("the pool's status was looked at", func() bool {
		return conditions(w.getPool("apples"))[karpv1.ConditionTypeValidationSucceeded] != ""
	})
	if conditions(w.getPool("apples"))[objects.ConditionLaunchesPaused] == "" {
		t.Fatal("the condition went although the records aren't known")
	}
	if _, err := w.GuardRecords(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.eventually("the condition goes", func() bool {
		return conditions(w.getPool("apples"))[objects.ConditionLaunchesPaused] == ""
	})
}

// Each keeps the spending guard's record of a pool for itself, too: one to which the pool doesn't belong any more writes nothing on it, and has its own
// record when the pool comes back, also after a restart.
func TestGuardRecordOfAPoolThatChangesHands(t *testing.T) {
	kube := fake.NewClientset()
	api := newFakeAPI(readyClass("default"), testPool("apples", plain, team("red")))
	owner := guard.Owner{Pool: "apples"}
	of := func(name string) string {
		return keptOf(t, guard.PodKey("apples", guard.Workload{Namespace: "d", Owner: "Deployment/" + name}))
	}
	record := func(w *world, text string) {
		w.t.Helper()
		if err := w.RecordGuard(w.ctx, owner, text); err != nil {
			w.t.Fatal(err)
		}
	}
	kept := func(w *world, want string) {
		w.t.Helper()
		if got, err := w.GuardRecords(w.ctx); err != nil || got[owner] != want {
			w.t.Errorf("%s has the record %q, %v; want %q", w.nodeClass.ManagedBy, got[owner], err, want)
		}
	}
	// says waits until the pool's condition names a workload; "" until it has no condition.
	says := func(w *world, workload string) {
		w.t.Helper()
		w.eventually("the pool's condition names "+workload, func() bool {
			message := messageOf(w.getPool("apples"), objects.ConditionLaunchesPaused)
			return (message == "") == (workload == "") && strings.Contains(message, workload)
		})
	}
	np := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "apples"}}
	moves := func(from, to *world) {
		w := from
		w.edit(np, func() { np.Labels["team"] = to.nodeClass.ManagedBy })
		w.eventually("the pool has changed hands", func() bool { return from.poolObject("apples") == nil && to.poolObject("apples") != nil })
	}
	both := func(f func(red, blue *world)) func(t *testing.T) {
		return func(t *testing.T) {
			red, blue := newNamed(t, api, "red"), newNamed(t, api, "blue")
			for _, w := range []*world{red, blue} {
				w.guardMap = guardmap.New(kube, "kube-system", w.nodeClass.ManagedBy)
				w.leading()
				if _, err := w.GuardRecords(w.ctx); err != nil {
					t.Fatal(err)
				}
			}
			f(red, blue)
		}
	}
	t.Run("it goes from red to blue", both(func(red, blue *world) {
		record(red, of("reds"))
		says(red, "reds")
		moves(red, blue)
		says(blue, "")
		record(blue, of("blues"))
		says(blue, "blues")
		before := red.getPool("apples")
		record(red, of("others"))
		kept(red, of("others"))
		kept(blue, of("blues"))
		if diff := cmp.Diff(before, red.getPool("apples")); diff != "" {
			t.Errorf("the pool was written to by one that doesn't select it (-before +now):\n%s", diff)
		}
	}))
	t.Run("after a restart it comes back", both(func(red, blue *world) {
		kept(red, of("others"))
		kept(blue, of("blues"))
		says(blue, "blues")
		moves(blue, red)
		says(red, "others")
	}))
	t.Run("it is gone", both(func(red, _ *world) {
		if err := api.Delete(red.ctx, red.getPool("apples")); err != nil {
			t.Fatal(err)
		}
		red.eventually("the pool is gone", func() bool { return red.poolObject("apples") == nil })
		kept(red, "") // a pool of the same name begins anew
		if cm, err := kube.CoreV1().ConfigMaps("kube-system").Get(red.ctx, guardmap.Name, metav1.GetOptions{}); err != nil || len(cm.Data) != 1 {
			t.Errorf("the ConfigMap has %v, %v; want blue's record only", cm.Data, err)
		}
	}))
}

// Two Dovetails don't write the condition of an overlay in turns if it goes together with the pools of one only.
func TestOverlayOfSeveral(t *testing.T) {
	api := newFakeAPI(testPool("apples", plain, team("red")), readyClass("default"), testOverlay("a", nil, price("1")), testOverlay("b", nil, price("2")))
	red, blue := newNamed(t, api, "red"), newNamed(t, api, "blue")
	all := twoTypes()
	red.sources.InstanceTypes = func(string) ([]*capacity.InstanceType, error) { return all, nil }
	blue.sources.InstanceTypes = func(string) ([]*capacity.InstanceType, error) { return all, nil }
	red.leading()
	message := func() string {
		o := &karpv1alpha1.NodeOverlay{}
		if err := api.Get(red.ctx, client.ObjectKey{Name: "a"}, o); err != nil {
			t.Fatal(err)
		}
		return messageOf(o, "ValidationSucceeded")
	}
	red.eventually("red has found the conflict", func() bool {
		red.clock.Step(countDelay)
		return strings.HasPrefix(message(), "False conflicts with") && strings.HasSuffix(message(), ` (found by Dovetail "red")`)
	})
	blue.leading()
	o := &karpv1alpha1.NodeOverlay{}
	if err := api.Get(blue.ctx, client.ObjectKey{Name: "a"}, o); err != nil {
		t.Fatal(err)
	}
	if err := blue.status.overlay(blue.ctx, o); err != nil || !strings.HasPrefix(message(), "False") {
		t.Errorf("blue, which has no pool, says %s, %v", message(), err)
	}
	if err := api.Delete(red.ctx, &karpv1alpha1.NodeOverlay{ObjectMeta: metav1.ObjectMeta{Name: "b"}}); err != nil {
		t.Fatal(err)
	}
	red.eventually("red takes it back", func() bool {
		red.clock.Step(countDelay)
		return strings.HasPrefix(message(), "True")
	})
}

func TestPoolLabels(t *testing.T) {
	api := newFakeAPI(testPool("apples", team("red")), testPool("plain"), autoModePool("general-purpose"))
	api.missing[karpenter.Provisioners.Kind+"List"] = true
	w := newNamed(t, api, "blue")
	got, err := w.PoolLabels(t.Context())
	if diff := cmp.Diff(map[string]labels.Set{"NodePool apples": {"team": "red"}, "NodePool plain": nil}, got); diff != "" || err != nil {
		t.Errorf("labels (-want +got):\n%s%v", diff, err)
	}
}
