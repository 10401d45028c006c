package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
)

// world is a running store on a fake API server.
type world struct {
	*Store
	t      *testing.T
	ctx    context.Context
	api    *fakeAPI
	clock  *testingclock.FakeClock
	events *events.FakeRecorder
}

// noSources are those of a program in which nothing is held, shared or known.
func noSources() Sources {
	return Sources{
		Hold: func() error { return nil }, Shared: func(map[string]string) string { return "" }, ClusterCA: func() (string, bool) { return "", false },
		InstanceTypes: func(string) ([]*capacity.InstanceType, error) { return nil, nil }, Kube: fake.NewClientset(), GuardNamespace: "kube-system",
	}
}

func newWorld(t *testing.T, api *fakeAPI) *world { return newWorldOf(t, api, nodeclass.Kind) }

func newWorldOf(t *testing.T, api *fakeAPI, kind cloudprovider.NodeClassKind) *world {
	w := &world{t: t, api: api, clock: testingclock.NewFakeClock(start), events: events.NewFakeRecorder(100)}
	s, err := newStore(api, kind, noSources(), w.events, w.clock)
	if err != nil {
		t.Fatal(err)
	}
	s.Derived().SetLegacy(nodeclass.Legacy{})
	w.Store = s
	t.Cleanup(func() {
		api.mu.Lock()
		defer api.mu.Unlock()
		for _, err := range api.refused {
			t.Error(err)
		}
	})
	return w
}

// run starts the store; it ends with the test.
func (w *world) run() *world {
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Run(ctx)
	}()
	w.t.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *world) ready() *world {
	w.run()
	w.eventually("synced and watching", func() bool { return w.Synced() && w.api.watched(kinds...) })
	return w
}

func (w *world) eventually(what string, f func() bool) {
	w.t.Helper()
	if err := wait.PollUntilContextTimeout(w.ctx, time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) { return f(), nil }); err != nil {
		w.t.Fatalf("never: %s", what)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMissingDefinitions(t *testing.T) {
	api := newFakeAPI(testPool("default"), testClass("default"))
	for _, k := range kinds {
		api.missing[k.Kind+"List"] = true
	}
	w := newWorld(t, api)
	if w.Problem() == nil {
		t.Error("no problem although nothing has been read")
	}
	w.run()
	w.eventually("it is said what is missing", func() bool {
		p := w.Problem()
		return p != nil && p.Error() == "CustomResourceDefinition nodeclaims.karpenter.sh is not installed: nothing can be launched"
	})
	if w.Synced() {
		t.Error("synced although it is not known which claims there are")
	}
	if err := w.Client().Get(w.ctx, client.ObjectKey{Name: "default"}, &karpv1.NodePool{}); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("reading from a cache that was never filled: %v, want an error that is not about the object", err)
	}

	api.install(karpenter.NodeClaims)
	w.eventually("claims are enough: pools may come from elsewhere", w.Synced)
	if p := w.Problem(); p != nil {
		t.Errorf("problem %q", p)
	}
	if n := len(w.Pools(nil)); n != 0 {
		t.Errorf("%d pools without a definition", n)
	}

	api.install(karpenter.NodePools, karpenter.NodeClasses(nodeclass.Kind))
	w.eventually("pools are there soon after their definition is", func() bool {
		w.clock.Step(absentRetry)
		pools := w.Pools(func(string) ([]*capacity.InstanceType, error) { return nil, nil })
		return len(pools) == 1 && pools[0].Unready == ""
	})
}

// After an interrupted watch, an object that was deleted and created again under its name is delivered as one update.
func TestReplacedObjectsGoAndCome(t *testing.T) {
	w := newWorld(t, newFakeAPI())
	var told []string
	w.OnClaim(func(c *capacity.Claim, gone bool) { told = append(told, fmt.Sprint(c.UID, " gone=", gone)) })
	claim := func(uid types.UID) *karpv1.NodeClaim {
		return &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: uid, ResourceVersion: string(uid)}}
	}
	h := observe.Changes(w.claimChanged)
	h.OnAdd(claim("1"), true)
	h.OnUpdate(claim("1"), claim("1"))
	h.OnUpdate(claim("1"), claim("2"))
	if diff := cmp.Diff([]string{"1 gone=false", "1 gone=false", "1 gone=true", "2 gone=false"}, told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := w.Claim("c"); got == nil || got.UID != "2" {
		t.Errorf("known is %+v", got)
	}
}

func TestCallbacks(t *testing.T) {
	w := newWorld(t, newFakeAPI(testClass("default")))
	var mu sync.Mutex
	var log []string
	note := func(s string) { mu.Lock(); defer mu.Unlock(); log = append(log, s) }
	w.OnPool(func() { note("pool") })
	w.OnNodeClass(func(nc status.Object, gone bool) {
		note(fmt.Sprintf("class %s %d %v", nc.GetName(), nc.GetGeneration(), gone))
	})
	w.ready()
	expect := func(step string, want ...string) {
		t.Helper()
		w.eventually(step, func() bool { mu.Lock(); defer mu.Unlock(); return len(log) >= len(want) })
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step, diff)
		}
		log = nil
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	expect("start", "pool", "class default 1 false")

	np := testPool("default")
	must(w.api.Create(w.ctx, np))
	expect("a pool came", "pool")
	np.Status.Nodes = ptr.To[int64](3)
	must(w.api.Status().Update(w.ctx, np))
	np.Generation++
	must(w.api.Update(w.ctx, np))
	expect("its status is no news, its spec is", "pool")

	nc := w.getClass("default")
	resolvedInto(nc)
	must(w.api.Status().Update(w.ctx, nc))
	nc.Generation++
	must(w.api.Update(w.ctx, nc))
	expect("the same goes for a class", "pool", "class default 2 false")
	must(w.Note(w.ctx, "default", "dovetail.sh/learned", "{}"))
	expect("a note of ours is for who reads classes", "class default 2 false")
	must(w.Note(w.ctx, "nobody", "dovetail.sh/learned", "{}"))
	nc = w.getClass("default")
	nc.Annotations["example.com/x"] = "y"
	must(w.api.Update(w.ctx, nc))
	must(w.api.Delete(w.ctx, nc))
	expect("a class went", "pool", "class default 2 true")
	must(w.api.Delete(w.ctx, np))
	expect("a pool went", "pool")
}

func TestCachedClient(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("a"), testPool("b", func(np *karpv1.NodePool) { np.Labels = map[string]string{"x": "y"} }),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})).ready()
	c := w.Client()
	np := &karpv1.NodePool{}
	if err := c.Get(w.ctx, client.ObjectKey{Name: "a"}, np); err != nil || np.Name != "a" {
		t.Errorf("pool %q, %v", np.Name, err)
	}
	np.Labels = map[string]string{"changed": "here"}
	if err := c.Get(w.ctx, client.ObjectKey{Name: "a"}, np); err != nil || len(np.Labels) != 0 {
		t.Errorf("labels %v, %v: a reader changed the cache", np.Labels, err)
	}
	if err := c.Get(w.ctx, client.ObjectKey{Name: "z"}, np); !apierrors.IsNotFound(err) {
		t.Errorf("a pool that isn't there: %v", err)
	}
	list := &karpv1.NodePoolList{}
	if err := c.List(w.ctx, list, client.MatchingLabels{"x": "y"}); err != nil || len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("list %v, %v", list.Items, err)
	}
	if err := c.List(w.ctx, list, client.MatchingFields{"spec.weight": "7"}); err == nil {
		t.Error("a field selector was ignored")
	}
	if err := c.Get(w.ctx, client.ObjectKey{Name: "n"}, &corev1.Node{}); err != nil {
		t.Errorf("a kind that isn't cached: %v", err)
	}
}

func TestUnreadableRecordIsReportedOnce(t *testing.T) {
	nc := testNodeClaim(t)
	nc.Annotations[objects.AnnotationLaunchBatch] = "{"
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"), nc)).ready()
	if c := w.Claims(); len(c) != 1 || c[0].Unreadable == "" {
		t.Fatalf("claims %+v", c)
	}
	if err := w.RecordNode(w.ctx, nc.Name, testInstance); err != nil {
		t.Fatal(err)
	}
	w.eventually("the change is seen", func() bool { return w.Claims()[0].NodeName == testInstance.NodeName })
	w.reportedAll(map[string]string{"x": "False RecordUnreadable: It will not be launched: annotation dovetail.sh/launch-batch: unexpected EOF"})
	select {
	case e := <-w.events.Events:
		t.Errorf("one more event: %s", e)
	default:
	}
}

func TestSchemeAndDefinitions(t *testing.T) {
	s := karpenter.Scheme(nodeclass.Kind)
	for _, o := range []client.Object{&karpv1.NodePool{}, &karpv1.NodeClaim{}, &karpv1alpha1.NodeOverlay{}, &ec2nc.EC2NodeClass{}, &legacy.Provisioner{},
		&legacy.AWSNodeTemplate{}, &corev1.Node{}} {
		if _, _, err := s.ObjectKinds(o); err != nil {
			t.Error(err)
		}
	}
	got := map[string]string{}
	for _, crd := range nodeclass.CRDs() {
		got[crd.Name] = crd.Kind + " " + crd.APIVersion
		if len(crd.Spec.Versions) == 0 || crd.Spec.Versions[0].Schema == nil || crd.Spec.Versions[0].Subresources.Status == nil {
			t.Errorf("%s has no schema or no status", crd.Name)
		}
		crd.Name = "changed"
	}
	want := map[string]string{}
	for _, k := range []karpenter.CustomKind{karpenter.NodePools, karpenter.NodeClaims, karpenter.NodeOverlays, karpenter.NodeClasses(nodeclass.Kind)} {
		want[k.Resource+"."+k.Group] = "CustomResourceDefinition apiextensions.k8s.io/v1"
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
	for _, crd := range nodeclass.CRDs() {
		if crd.Name == "changed" {
			t.Error("two callers share a definition")
		}
	}
}

func TestNewStoreMakesNoCall(t *testing.T) {
	s, err := New(&rest.Config{Host: "https://127.0.0.1:1"}, nodeclass.Kind, noSources(), events.NewFakeRecorder(1), testingclock.NewFakeClock(start))
	if err != nil {
		t.Fatal(err)
	}
	if s.Problem() == nil || s.Synced() {
		t.Error("a store that never ran knows all")
	}
	for _, k := range kinds {
		mapping, err := s.Client().RESTMapper().RESTMapping(k.GroupKind(), k.Version)
		if err != nil || mapping.Resource.Resource != k.Resource {
			t.Errorf("%s: %v, %v", k.Kind, mapping, err)
		}
	}
}
