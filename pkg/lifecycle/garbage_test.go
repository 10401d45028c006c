package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// batchAnnotation returns a launch batch as it is recorded on its claims: a real one has so many offerings that it is compressed.
func batchAnnotation(token string, claims ...string) string {
	batch := &capacity.LaunchBatch{Token: token, Claims: claims, CapacityType: "on-demand"}
	for i := range 200 {
		batch.Offers = append(batch.Offers, capacity.OfferKey{InstanceType: fmt.Sprintf("m5.%dxlarge", i), Zone: "us-west-2a", CapacityType: "on-demand"})
	}
	value, err := karpenter.EncodeBatch(batch)
	if err != nil {
		panic(err)
	}
	return value
}

// intent creates a claim of a launch batch that has no recorded instance.
func (w *world) intent(name, batch string, change ...func(*karpv1.NodeClaim)) {
	w.t.Helper()
	w.launched(name, append([]func(*karpv1.NodeClaim){func(c *karpv1.NodeClaim) {
		c.Status = karpv1.NodeClaimStatus{}
		if batch != "" {
			c.Annotations = map[string]string{objects.AnnotationLaunchBatch: batchAnnotation(batch, name)}
		}
	}}, change...)...)
	delete(w.cloud.instances, "i-"+name)
}

func (w *world) failLaunch(c *karpv1.NodeClaim) {
	c.StatusConditions(status.WithClock(w.clock)).SetFalse(karpv1.ConditionTypeLaunched, "InsufficientCapacity", "none to be had")
}

// running returns the IDs of the instances that were not terminated.
func (w *world) running() string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(w.cloud.instances)) {
		if i := w.cloud.instances[id]; i.State == capacity.InstanceRunning {
			out = append(out, id)
		}
	}
	return strings.Join(out, " ")
}

func TestUnlaunchedClaimDeleted(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(w *world)
		// how long the claim may stay, at least and at most
		after, by time.Duration
		running   string // instances left in the end
		batch     bool   // launch batch "w" has been recorded on claim a
	}{
		{name: "without a launch batch nothing was ever sent", by: 2 * time.Second},
		{name: "with a launch batch it is waited whether an instance shows", batch: true, after: batchQuiet, by: batchQuiet + 10*time.Second},
		{name: "not if the launch is known to have failed", batch: true, by: 2 * time.Second, setup: func(w *world) {
			c := w.claim("a")
			w.failLaunch(c)
			if err := w.claims.Status().Update(w.ctx, c); err != nil {
				w.t.Fatal(err)
			}
		}},
		{name: "the spending guard has held it, and may have let it go", batch: true, after: batchQuiet, by: batchQuiet + 10*time.Second, setup: func(w *world) {
			c := w.claim("a")
			c.StatusConditions(status.WithClock(w.clock)).SetFalse(karpv1.ConditionTypeLaunched, reasonPaused, "machines fail")
			if err := w.claims.Status().Update(w.ctx, c); err != nil {
				w.t.Fatal(err)
			}
		}},
		{name: "an instance of the launch batch that nobody has is this claim's, and ends", batch: true, by: 30 * time.Second,
			setup: func(w *world) { w.cloud.launch("i-1", "w") }},
		{name: "so does one that shows late", batch: true, by: 90 * time.Second, setup: func(w *world) {
			w.pass(20*time.Second, 5*time.Second)
			w.cloud.launch("i-1", "w")
		}},
		{name: "an instance that is tagged with its name is its own, whatever else waits", batch: true, by: 30 * time.Second, running: "i-2",
			setup: func(w *world) {
				w.intent("b", "w")
				w.cloud.launch("i-1", "w").Claim = "a"
				w.cloud.launch("i-2", "w")
			}},
		{name: "while another claim of the launch batch waits nothing is taken", batch: true, after: 2 * time.Minute, by: 4 * time.Minute, running: "i-2",
			setup: func(w *world) {
				w.intent("b", "w")
				w.cloud.launch("i-1", "w")
				w.cloud.launch("i-2", "w")
				w.pass(2*time.Minute, 5*time.Second)
				if w.running() != "i-1 i-2" {
					w.t.Fatalf("running: %s", w.running())
				}
				b := w.claim("b")
				b.Status.ProviderID = w.cloud.instances["i-2"].ProviderID
				b.StatusConditions(status.WithClock(w.clock)).SetTrue(karpv1.ConditionTypeLaunched)
				if err := w.claims.Status().Update(w.ctx, b); err != nil {
					w.t.Fatal(err)
				}
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			batch := ""
			if tc.batch {
				batch = "w"
			}
			w.intent("a", batch)
			start := w.clock.Now()
			w.deleteByName("a")
			if tc.setup != nil {
				tc.setup(w)
			}
			for w.claim("a") != nil && w.clock.Since(start) < 10*time.Minute {
				w.pass(2*time.Second, 2*time.Second)
				w.cloud.ends()
			}
			if took := w.clock.Since(start); took < tc.after || took > tc.by {
				t.Errorf("took %s, want %s to %s", took, tc.after, tc.by)
			}
			if diff := cmp.Diff(tc.running, w.running()); diff != "" {
				t.Errorf("running (-want +got):\n%s", diff)
			}
		})
	}
}

// counted counts the lists of claims that are read past the cache.
type counted struct {
	client.Reader
	lists int
}

func (c *counted) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	c.lists++
	return c.Reader.List(ctx, list, opts...)
}

// Many claims are deleted before their instances are known, a whole pool's, say. All share what is read for them, ever more rarely.
func TestUnlaunchedClaimsShareWhatIsRead(t *testing.T) {
	for _, tt := range []struct {
		name   string
		failed bool
		within time.Duration // all are gone
		reads  int           // at most
	}{
		{"none is launched", false, batchQuiet + 10*time.Second, 45},
		{"the launch has failed", true, 5 * time.Second, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const many, each = 10, 100 * time.Millisecond
			w := newWorld(t)
			live := &counted{Reader: w.claims}
			w.c.deleted[0].(*finalization).unlaunched.live = live
			for i := range many {
				name := fmt.Sprint("a", i)
				w.intent(name, "w", func(c *karpv1.NodeClaim) {
					if tt.failed {
						w.failLaunch(c)
					}
				})
				w.deleteByName(name)
			}
			for range int(tt.within / (many * each)) {
				for i := range many { // one after the other, as workers handle them
					w.clock.Step(each)
					w.sync()
					if _, err := w.c.reconcile(w.ctx, key{claim: fmt.Sprint("a", i)}); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i := range many {
				if name := fmt.Sprint("a", i); w.claim(name) != nil {
					t.Fatalf("claim %s is there after %s", name, tt.within)
				}
			}
			if found := w.cloud.calls["FindWave"]; live.lists > tt.reads || found > tt.reads {
				t.Errorf("the claims were listed %d times, the instances %d times, want %d at most", live.lists, found, tt.reads)
			}
		})
	}
}

// The launch would have assigned the instances by their tags, and so does the termination of both claims: Nodes and pods of an instance
// belong to the claim whose name it is tagged with.
func TestUnlaunchedClaimLeavesAnInstanceToTheClaimItIsTaggedWith(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b"} {
		w.intent(name, "w")
		w.deleteByName(name)
	}
	w.cloud.launch("i-1", "w").Claim = "b"
	w.cloud.launch("i-2", "w")
	took := map[string]string{}
	for range 20 {
		w.pass(time.Second, time.Second)
		for _, name := range []string{"a", "b"} {
			if c := w.claim(name); c != nil && c.Status.ProviderID != "" {
				took[name] = capacity.InstanceID(c.Status.ProviderID)
			}
		}
	}
	if diff := cmp.Diff(map[string]string{"a": "i-2", "b": "i-1"}, took); diff != "" {
		t.Errorf("instances of the claims (-want +got):\n%s", diff)
	}
}

// A launch batch is recorded between the read and the removal of the finalizer: the claim must not go, or its instance would have no owner.
func TestUnlaunchedClaimIsNotLetGoUnderARecord(t *testing.T) {
	w := newWorld(t)
	w.intent("a", "")
	w.deleteByName("a")
	stale := w.claim("a")
	c := w.claim("a")
	c.Annotations = map[string]string{objects.AnnotationLaunchBatch: batchAnnotation("w", "a")}
	if err := w.claims.Patch(w.ctx, c, client.MergeFrom(stale)); err != nil {
		t.Fatal(err)
	}
	released := stale.DeepCopy()
	dropFinalizer(released)
	if err := w.c.claims.save(w.ctx, stale, released); err == nil {
		t.Error("a stale claim was let go")
	}
	if w.claim("a") == nil {
		t.Error("the claim is gone")
	}
}

func TestOrphans(t *testing.T) {
	old := epoch.Add(-time.Minute)
	inst := func(id string, change ...func(*capacity.Instance)) capacity.Instance {
		i := capacity.Instance{ID: id, ProviderID: "aws:///z/" + id, State: capacity.InstanceRunning, LaunchedAt: old}
		for _, f := range change {
			f(&i)
		}
		return i
	}
	batch := func(token string) func(*capacity.Instance) {
		return func(i *capacity.Instance) { i.LaunchBatch = token }
	}
	tagged := func(claim string) func(*capacity.Instance) { return func(i *capacity.Instance) { i.Claim = claim } }
	claim := func(name, id, token string) karpv1.NodeClaim {
		c := karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if id != "" {
			c.Status.ProviderID = "aws:///z/" + id
		}
		if token != "" {
			c.Annotations = map[string]string{objects.AnnotationLaunchBatch: batchAnnotation(token)}
		}
		return c
	}
	for _, tc := range []struct {
		name      string
		instances []capacity.Instance
		claims    []karpv1.NodeClaim
		want      []string
	}{
		{name: "an instance without any claim", instances: []capacity.Instance{inst("i-1")}, want: []string{"i-1"}},
		{name: "not one that a claim owns", instances: []capacity.Instance{inst("i-1")}, claims: []karpv1.NodeClaim{claim("a", "i-1", "")}},
		{name: "not a young one: its launch may be about to be recorded", instances: []capacity.Instance{
			inst("i-1", func(i *capacity.Instance) { i.LaunchedAt = epoch.Add(-20 * time.Second) })}},
		{name: "not one on its way out", instances: []capacity.Instance{
			inst("i-1", func(i *capacity.Instance) { i.State = capacity.InstanceShuttingDown })}},
		{name: "a stopped one, which costs too", want: []string{"i-1"}, instances: []capacity.Instance{
			inst("i-1", func(i *capacity.Instance) { i.State = capacity.InstanceStopped })}},
		{name: "not one of a launch batch whose claim waits for it", instances: []capacity.Instance{inst("i-1", batch("w"))}, claims: []karpv1.NodeClaim{claim("a", "", "w")}},
		{name: "the one too many of a launch batch that has been handed out", want: []string{"i-3"},
			instances: []capacity.Instance{inst("i-1", batch("w")), inst("i-2", batch("w")), inst("i-3", batch("w"))},
			claims:    []karpv1.NodeClaim{claim("a", "i-1", "w"), claim("b", "i-2", "w")}},
		{name: "one of an attempt that was given up", want: []string{"i-1"},
			instances: []capacity.Instance{inst("i-1", batch("w1")), inst("i-2", batch("w2"))},
			claims:    []karpv1.NodeClaim{claim("a", "i-2", "w2")}},
		{name: "one whose claim has another instance", want: []string{"i-1"},
			instances: []capacity.Instance{inst("i-1", tagged("a")), inst("i-2", tagged("a"))},
			claims:    []karpv1.NodeClaim{claim("a", "i-2", "")}},
		{name: "not one tagged with a claim that has none on record yet",
			instances: []capacity.Instance{inst("i-1", tagged("a"))}, claims: []karpv1.NodeClaim{claim("a", "", "")}},
		{name: "one tagged with a claim that is gone", want: []string{"i-1"}, instances: []capacity.Instance{inst("i-1", tagged("gone"))}},
		{name: "instances without a launch batch don't wait for claims without one", want: []string{"i-1"},
			instances: []capacity.Instance{inst("i-1")}, claims: []karpv1.NodeClaim{claim("a", "", "")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, i := range orphans(tc.instances, newClaimSet(tc.claims), epoch) {
				got = append(got, i.ID)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("orphans (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCollection(t *testing.T) {
	collect := func(w *world) {
		w.sync()
		if _, err := w.c.reconcile(w.ctx, key{}); err != nil {
			w.t.Fatal(err)
		}
	}
	t.Run("an instance nobody owns ends", func(t *testing.T) {
		w := newWorld(t)
		w.cloud.launch("i-1", "lost")
		collect(w)
		if w.running() != "i-1" {
			t.Fatal("ended before its launch could be recorded")
		}
		w.clock.Step(time.Minute)
		collect(w)
		if w.running() != "" {
			t.Error("left running")
		}
	})
	t.Run("one that the cloud lists and doesn't know yet is tried again, and keeps its Node until then", func(t *testing.T) {
		w := newWorld(t)
		inst := w.cloud.launch("i-1", "lost")
		w.createNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{karpv1.NodePoolLabelKey: "default"}},
			Spec: corev1.NodeSpec{ProviderID: inst.ProviderID}})
		w.clock.Step(time.Minute)
		w.cloud.fail["Terminate"] = fmt.Errorf("terminating: %w", capacity.ErrInstanceNotFound)
		collect(w)
		if w.running() != "i-1" || w.node("n") == nil {
			t.Error("its Node was deleted, and its kubelet will create another")
		}
		delete(w.cloud.fail, "Terminate")
		collect(w)
		if w.running() != "" || w.node("n") != nil {
			t.Error("left")
		}
	})
	t.Run("with the Node it has", func(t *testing.T) {
		w := newWorld(t)
		inst := w.cloud.launch("i-1", "lost")
		w.createNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{karpv1.NodePoolLabelKey: "default"}},
			Spec: corev1.NodeSpec{ProviderID: inst.ProviderID}})
		w.clock.Step(time.Minute)
		collect(w)
		if w.running() != "" || w.node("n") != nil {
			t.Error("left")
		}
	})
	t.Run("a claim that only the API knows saves its instance", func(t *testing.T) {
		w := newWorld(t)
		claim, _ := w.launched("a")
		w.clock.Step(time.Minute)
		w.c.garbage.claims = blind{w.claims} // a cache that has seen nothing yet
		collect(w)
		if w.running() != "i-a" {
			t.Errorf("the instance of %s was ended", claim.Name)
		}
	})
	t.Run("a node whose claim was removed by force is drained, not shot", func(t *testing.T) {
		w := newWorld(t)
		w.up("a")
		w.pod("web", "ip-10-0-0-1")
		w.removeClaimByForce("a")
		w.clock.Step(time.Minute)
		collect(w)
		if n := w.node("ip-10-0-0-1"); n.DeletionTimestamp == nil || w.running() != "i-a" {
			t.Fatalf("deleted %v, running %q", n.DeletionTimestamp, w.running())
		}
		w.pass(2*time.Second, time.Second)
		collect(w)
		if w.running() != "i-a" {
			t.Fatal("ended under its pods")
		}
		w.endPods()
		w.pass(10*time.Second, time.Second)
		w.cloud.ends()
		w.pass(5*time.Second, time.Second)
		if w.left() != "" {
			t.Errorf("left: %s", w.left())
		}
	})
	t.Run("nor is one whose kubelet came before anybody knew its instance", func(t *testing.T) {
		w := newWorld(t)
		inst := w.cloud.launch("i-a", "lost")
		w.createNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: inst.NodeName, Labels: map[string]string{karpv1.NodePoolLabelKey: "default"}},
			Spec: corev1.NodeSpec{ProviderID: inst.ProviderID}})
		w.kubelet(inst.NodeName)
		w.pod("web", inst.NodeName)
		w.intent("next", batchAnnotation("other", "next"), func(c *karpv1.NodeClaim) { c.Status.NodeName = inst.NodeName }) // waits for the name
		w.clock.Step(time.Minute)
		collect(w)
		w.pass(10*time.Second, time.Second)
		if diff := cmp.Diff([]string{"web"}, w.evicted); diff != "" || w.running() != "i-a" {
			t.Fatalf("running %q, evicted (-want +got):\n%s", w.running(), diff)
		}
		w.endPods()
		w.pass(10*time.Second, time.Second)
		w.cloud.ends()
		w.pass(5*time.Second, time.Second)
		if w.left() != "" {
			t.Errorf("left: %s", w.left())
		}
	})
	t.Run("a Node of ours with neither claim nor instance", func(t *testing.T) {
		w := newWorld(t)
		w.up("a")
		w.removeClaimByForce("a")
		w.cloud.instances["i-a"].State = capacity.InstanceTerminated
		collect(w)
		if w.node("ip-10-0-0-1").DeletionTimestamp != nil {
			t.Fatal("ended while its kubelet says Ready")
		}
		w.changeNode("ip-10-0-0-1", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
		collect(w)
		w.pass(5*time.Second, time.Second)
		if w.left() != "" {
			t.Errorf("left: %s", w.left())
		}
	})
	t.Run("not all at once", func(t *testing.T) {
		w := newWorld(t)
		w.c.garbage.brake = brake.New(2)
		for i := range 5 {
			w.cloud.launch(fmt.Sprintf("i-%d", i), "lost")
		}
		w.clock.Step(time.Minute)
		for minute, want := range []string{"i-2 i-3 i-4", "i-4", ""} {
			collect(w)
			collect(w)
			if diff := cmp.Diff(want, w.running()); diff != "" {
				t.Errorf("running after minute %d (-want +got):\n%s", minute, diff)
			}
			w.clock.Step(time.Minute)
		}
	})
	t.Run("often at first, seldom later, whatever fails", func(t *testing.T) {
		w := newWorld(t)
		w.cloud.fail["List"] = fmt.Errorf("listing: %w", capacity.ErrThrottled)
		for run := 1; run <= 25; run++ {
			want := garbageFirst
			if run > garbageRuns {
				want = garbageEvery
			}
			if got, err := w.c.reconcile(w.ctx, key{}); err != nil || got != want {
				t.Errorf("run %d: next after %s (%v), want %s", run, got, err, want)
			}
		}
	})
	t.Run("seldom where there are thousands of instances", func(t *testing.T) {
		w := newWorld(t)
		for i := range 6000 {
			w.cloud.launch(fmt.Sprintf("i-%d", i), "booting")
		}
		if got, err := w.c.reconcile(w.ctx, key{}); err != nil || got != 12*time.Second {
			t.Errorf("next after %s (%v), want 12s", got, err)
		}
	})
}

// blind is a cache that has seen no claim.
type blind struct{ client.Client }

func (b blind) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*karpv1.NodeClaimList).Items = nil
	return nil
}
