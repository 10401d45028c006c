package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// fakeAPI is controller-runtime's fake client, which behaves like an API server except that a watch doesn't start with the existing
// objects (and it says so). It can also lack definitions.
type fakeAPI struct {
	client.WithWatch
	mu      sync.Mutex
	missing map[string]bool // by list kind
	watches map[string]int  // by list kind
	// malformed objects, which the fake client can't store, are added to lists; patches of them are stored in answers.
	malformed map[string][]*unstructured.Unstructured
	answers   map[string][]byte

	refused      []error             // by the definitions
	patches      []string            // object and subresource of each patch
	afterCreate  func(client.Object) // called before the answer is given
	beforeStatus func(client.Object)
	hang         bool // status requests wait until their context ends
}

func (*fakeAPI) IsWatchListSemanticsUnSupported() bool { return true }

func newFakeAPI(objects ...client.Object) *fakeAPI {
	api := &fakeAPI{
		missing: map[string]bool{}, watches: map[string]int{},
		malformed: map[string][]*unstructured.Unstructured{}, answers: map[string][]byte{},
	}
	check := func(list client.ObjectList) error {
		api.mu.Lock()
		defer api.mu.Unlock()
		kind := list.GetObjectKind().GroupVersionKind().Kind
		if api.missing[kind] {
			return apierrors.NewNotFound(schema.GroupResource{}, kind)
		}
		return nil
	}
	// The fake client would add a kind that has no type at the first request for it, while others read the scheme.
	scheme := karpenter.Scheme(nodeclass.Kind)
	scheme.AddKnownTypeWithName(capacityBuffers.GroupVersionKind, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(bufferVersion.WithKind("CapacityBufferList"), &unstructured.UnstructuredList{})
	api.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&karpv1.NodePool{}, &karpv1.NodeClaim{}, &karpv1alpha1.NodeOverlay{}, &ec2nc.EC2NodeClass{},
			&legacy.Provisioner{}, &legacy.AWSNodeTemplate{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				api.mu.Lock()
				missing := api.missing[o.GetObjectKind().GroupVersionKind().Kind+"List"]
				api.mu.Unlock()
				if missing { // the answer for a path that isn't served
					return apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", schema.GroupResource{}, key.Name, "404 page not found", 0, true)
				}
				return c.Get(ctx, key, o, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if err := check(list); err != nil {
					return err
				}
				if err := c.List(ctx, list, opts...); err != nil {
					return err
				}
				if l, ok := list.(*unstructured.UnstructuredList); ok {
					for _, u := range api.malformed[l.GetKind()] {
						l.Items = append(l.Items, *u.DeepCopy())
					}
				}
				return nil
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				if len(api.malformed[o.GetObjectKind().GroupVersionKind().Kind+"List"]) > 0 && o.GetName() == "bad" {
					data, err := patch.Data(o)
					api.mu.Lock()
					defer api.mu.Unlock()
					api.answers[o.GetObjectKind().GroupVersionKind().Kind+" bad"] = data
					return err
				}
				if api.beforeStatus != nil {
					api.beforeStatus(o)
				}
				if api.hang {
					<-ctx.Done()
					return ctx.Err()
				}
				api.patched(o, sub)
				return api.accept(c.SubResource(sub).Patch(ctx, o, patch, opts...), o, sub)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
				api.patched(o, "")
				return api.accept(c.Patch(ctx, o, patch, opts...), o, "")
			},
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				o.SetCreationTimestamp(metav1.Time{Time: start}) // the fake client sets none
				err := api.accept(c.Create(ctx, o, opts...), o, "")
				if err == nil && api.afterCreate != nil {
					api.afterCreate(o)
				}
				return err
			},
			Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
				if err := check(list); err != nil {
					return nil, err
				}
				w, err := c.Watch(ctx, list, opts...)
				api.mu.Lock()
				defer api.mu.Unlock()
				api.watches[list.GetObjectKind().GroupVersionKind().Kind]++
				return w, err
			},
		}).Build()
	return api
}

// accept returns the error of an API server with the shipped definitions for an object that was written. An invalid spec that existed
// before does not prevent a write of the status.
func (api *fakeAPI) accept(err error, o client.Object, part string) error {
	if err != nil {
		return err
	}
	gvk, err := api.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	o = o.DeepCopyObject().(client.Object)
	o.GetObjectKind().SetGroupVersionKind(gvk)
	err = acceptable(o, part)
	if err != nil {
		api.mu.Lock()
		defer api.mu.Unlock()
		api.refused = append(api.refused, err)
	}
	return err
}

func (api *fakeAPI) patched(o client.Object, sub string) {
	api.mu.Lock()
	defer api.mu.Unlock()
	api.patches = append(api.patches, strings.TrimSuffix(o.GetName()+"/"+sub, "/"))
}

func (api *fakeAPI) broken(k karpenter.CustomKind, u *unstructured.Unstructured) {
	api.malformed[k.Kind+"List"] = append(api.malformed[k.Kind+"List"], u)
}

func (api *fakeAPI) install(kinds ...karpenter.CustomKind) {
	api.mu.Lock()
	defer api.mu.Unlock()
	for _, k := range kinds {
		delete(api.missing, k.Kind+"List")
	}
}

// body returns what was written to the status of a malformed object.
func (api *fakeAPI) body(object string) []byte {
	api.mu.Lock()
	defer api.mu.Unlock()
	return api.answers[object]
}

func (api *fakeAPI) watched(kinds ...karpenter.CustomKind) bool {
	api.mu.Lock()
	defer api.mu.Unlock()
	for _, k := range kinds {
		if api.watches[k.Kind+"List"] == 0 {
			return false
		}
	}
	return true
}

// world is a running store on a fake API server.
type world struct {
	*Store
	t      *testing.T
	ctx    context.Context
	api    *fakeAPI
	clock  *testingclock.FakeClock
	events *events.FakeRecorder
}

func newWorld(t *testing.T, api *fakeAPI) *world {
	w := &world{t: t, api: api, clock: testingclock.NewFakeClock(start), events: events.NewFakeRecorder(100)}
	s, err := newStore(api, nodeclass.Kind, w.events, w.clock)
	if err != nil {
		t.Fatal(err)
	}
	s.SetLegacy(nodeclass.Legacy{})
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
		pools := w.Pools(func(string) ([]*capacity.InstanceType, string) { return nil, "" })
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
	h := handlerOf(w.claimChanged)
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
	s, err := New(&rest.Config{Host: "https://127.0.0.1:1"}, nodeclass.Kind, events.NewFakeRecorder(1), testingclock.NewFakeClock(start))
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

// TestClaimLife writes a claim's states in the order in which the launcher does, and reads them back at each step, both from our own
// writes and from the watch.
func TestClaimLife(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default")))
	seen := map[string]*capacity.Claim{}
	var mu sync.Mutex
	w.OnClaim(func(c *capacity.Claim, gone bool) {
		mu.Lock()
		defer mu.Unlock()
		seen[c.Name] = c
		if gone {
			delete(seen, c.Name)
		}
	})
	w.ready()
	want := testClaim("default-abc")
	check := func(step string) {
		t.Helper()
		now := w.Claims()
		if len(now) != 1 {
			t.Fatalf("%s: %d claims, want 1", step, len(now))
		}
		ignore := cmpopts.IgnoreFields(capacity.Claim{}, "UID", "CreatedAt")
		if diff := cmp.Diff(want, now[0], ignore, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: claim (-want +got):\n%s", step, diff)
		}
		w.eventually(step+" is seen by the watch", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return seen["default-abc"] != nil && cmp.Equal(want, seen["default-abc"], ignore, cmpopts.EquateEmpty())
		})
	}

	created, err := w.Create(w.ctx, testClaim("default-abc"))
	if err != nil {
		t.Fatal(err)
	}
	want.Labels = map[string]string{
		corev1.LabelArchStable: "amd64", "example.com/tier": "silver", "team": "a",
		"karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default",
	}
	want.Annotations = map[string]string{
		"example.com/plan": "7", "example.com/note": "kept", "karpenter.sh/nodepool-hash": karpenter.PoolHash(testPool("default")), "karpenter.sh/nodepool-hash-version": cloudprovider.HashVersion,
	}
	if diff := cmp.Diff(want, created, cmpopts.IgnoreFields(capacity.Claim{}, "UID", "CreatedAt"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("created claim (-want +got):\n%s", diff)
	}
	check("create")

	again := *want.LaunchBatch
	again.Token, again.Attempt = "token-2", 2
	want.LaunchBatch = &again
	if err := w.RecordBatch(w.ctx, &capacity.Claim{Name: "default-abc"}, again); err != nil {
		t.Fatal(err)
	}
	check("record launch batch")

	want.Slots = want.Slots[:1]
	if err := w.RecordSlots(w.ctx, "default-abc", want.Slots); err != nil {
		t.Fatal(err)
	}
	check("record slots")

	if err := w.RecordLaunchFailed(w.ctx, "default-abc", "not a reason", "no capacity"); err != nil {
		t.Fatal(err)
	}
	check("record failure")

	want.Capacity = capacity.Resources{corev1.ResourceCPU: 2000, corev1.ResourceMemory: 8 << 30}
	want.Allocatable = capacity.Resources{corev1.ResourceCPU: 1930, corev1.ResourceMemory: 7 << 30}
	if err := w.RecordLaunched(w.ctx, &capacity.Claim{Name: "default-abc"}, testInstance, map[string]string{"example.com/tier": "loses", "karpenter.k8s.aws/instance-family": "m5"}, want.Capacity, want.Allocatable); err != nil {
		t.Fatal(err)
	}
	want.Labels["karpenter.k8s.aws/instance-family"] = "m5"
	want.Labels[corev1.LabelInstanceTypeStable], want.InstanceType = "m5.large", "m5.large"
	want.Labels[corev1.LabelTopologyZone], want.Zone = "us-west-2a", "us-west-2a"
	want.Labels["karpenter.sh/capacity-type"], want.CapacityType = "spot", "spot"
	want.ProviderID, want.ImageID, want.Launched = testInstance.ProviderID, "ami-1", true
	check("record launched")

	want.NodeName = testInstance.NodeName
	if err := w.RecordNode(w.ctx, "default-abc", testInstance); err != nil {
		t.Fatal(err)
	}
	check("record node")

	if err := w.Delete(w.ctx, "default-abc"); err != nil {
		t.Fatal(err)
	}
	want.Deleting = true
	w.eventually("deletion is seen", func() bool { return w.Claims()[0].Deleting })
	check("delete")

	// The end: when the finalizer is removed, the claim is deleted.
	nc := &karpv1.NodeClaim{}
	if err := w.Client().Get(w.ctx, client.ObjectKey{Name: "default-abc"}, nc); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"karpenter.sh/termination"}, nc.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	nc.Finalizers = nil
	if err := w.api.Update(w.ctx, nc); err != nil {
		t.Fatal(err)
	}
	w.eventually("the claim is gone", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(w.Claims()) == 0 && len(seen) == 0
	})
	if err := w.Delete(w.ctx, "default-abc"); err != nil {
		t.Errorf("deleting what is gone: %v", err)
	}
	if err := w.RecordNode(w.ctx, "default-abc", testInstance); !apierrors.IsNotFound(errors.Unwrap(err)) {
		t.Errorf("recording on a claim that is gone: %v, want not found", err)
	}
	if len(w.Claims()) != 0 {
		t.Error("a failed write brought the claim back")
	}
}
