package disruption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var errLost = errors.New("the answer was lost")

// world is a cluster with virtual time. It stands for the API server, the ledger's cordons, and the controller that taints.
type world struct {
	t       *testing.T
	clock   *testingclock.FakeClock
	kube    *fake.Clientset
	objects clienttesting.ObjectTracker // behind kube
	factory informers.SharedInformerFactory
	claims  client.WithWatch
	stale   *karpv1.NodeClaimList // what the cache shows; nil: the truth
	cfg     Config
	c       *Controller
	events  []string

	fenced   map[string]bool
	promised map[string]bool      // nodes with reservations in the ledger
	activity map[string]time.Time // last pod events
	deleted  []string             // claims, in order
	// room is what Replace returns, asked the pods it was called for, by node; kept and forgotten are nodes.
	room            string
	asked           map[string][]string
	avoid           map[string][]string // the nodes to avoid, by node
	kept, forgotten []string
	// interrupt is called before each call that the controller makes.
	interrupt func(call string)
	// chunks are the nodes on which capacity for CapacityBuffers is kept.
	chunks map[string]bool
	// taken is when, after epoch, the instances' capacity is taken back; zero: never.
	taken time.Duration
	// lost holds claims whose capacity was taken back, leaving those whose capacity is to be left; failPatch makes writes fail.
	lost, leaving []string
	failPatch     bool
	// loseDelete makes deletions fail after they have worked, failDelete before.
	loseDelete, failDelete bool
}

func newWorld(t *testing.T, objs ...client.Object) *world {
	t.Helper()
	w := &world{
		t: t, clock: testingclock.NewFakeClock(epoch), kube: &fake.Clientset{}, fenced: map[string]bool{}, promised: map[string]bool{}, chunks: map[string]bool{},
		activity: map[string]time.Time{}, asked: map[string][]string{}, avoid: map[string][]string{}, interrupt: func(string) {},
	}
	w.objects = plainTracker()
	w.kube.AddReactor("*", "*", clienttesting.ObjectReaction(w.objects))
	w.kube.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		found, err := w.objects.Watch(a.GetResource(), a.GetNamespace())
		return true, found, err
	})
	w.factory = informers.NewSharedInformerFactory(w.kube, 0)
	w.kube.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		node, ok := a.(clienttesting.ListAction).GetListRestrictions().Fields.RequiresExactMatch("spec.nodeName")
		if !ok {
			return false, nil, nil
		}
		w.interrupt("list")
		list := &corev1.PodList{}
		for _, p := range w.pods() {
			if p.Spec.NodeName == node {
				list.Items = append(list.Items, *p)
			}
		}
		return true, list, nil
	})
	w.claims = crfake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjectTracker(plainTracker()).WithObjects(objs...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, inner client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if w.failPatch {
				return errLost
			}
			return inner.Patch(ctx, obj, patch, opts...)
		},
		Delete: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			w.interrupt("delete")
			if w.failDelete {
				return errLost
			}
			w.deleted = append(w.deleted, obj.GetName())
			if err := inner.Delete(ctx, obj, opts...); err != nil || !w.loseDelete {
				return err
			}
			return errLost
		},
	}).Build()
	w.cfg = Config{
		Kube: w.kube, Informers: w.factory, Claims: cached{w.claims, w}, Live: w.claims, Fence: w, Nodes: w, Recorder: w, Clock: w.clock,
		Replacements: w, Brake: brake.New(1000), Taken: func(*karpv1.NodeClaim) (time.Time, string, bool) {
			return epoch.Add(w.taken), "its capacity block ends", w.taken > 0
		}, Lost: func(c *karpv1.NodeClaim) { w.lost = append(w.lost, c.Name) }, Leaving: func(c *karpv1.NodeClaim) { w.leaving = append(w.leaving, c.Name) },
		Ending: func(context.Context, string, string) {}, Needed: func(node string) (needed, known bool) { return w.chunks[node], !w.chunks["unknown"] }, Hold: func() error { return nil },
	}
	c, err := New(w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.c = c
	return w
}

// dryRun makes all passes from now on dry ones.
func (w *world) dryRun() {
	w.cfg.DryRun = true
	w.c.passes = newPasses(&w.cfg, w.c.pods.GetIndexer(), w.c.surges)
}

func (w *world) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	obj, err := meta.Accessor(regarding)
	if err != nil {
		w.t.Fatal(err)
	}
	w.events = append(w.events, fmt.Sprintf("%s %s %s: %s", obj.GetName(), kind, reason, fmt.Sprintf(note, args...)))
}

// Fence stands for the ledger's.
func (w *world) Fence(node string) bool {
	w.interrupt("fence")
	if w.promised[node] || w.chunks[node] {
		return false
	}
	w.fenced[node] = true
	return true
}

// Replace stands for the launch controller's.
func (w *world) Replace(node string, moving []*corev1.Pod, avoid []string) (bool, error) {
	w.asked[node], w.avoid[node] = nil, slices.Sorted(slices.Values(avoid))
	for _, p := range moving {
		w.asked[node] = append(w.asked[node], p.Name)
	}
	slices.Sort(w.asked[node])
	if w.room == "ready" || w.room == "" {
		return w.room == "ready", nil
	}
	return false, errors.New(w.room)
}

func (w *world) Keep(node string)   { w.kept = append(w.kept, node) }
func (w *world) Forget(node string) { w.forgotten = append(w.forgotten, node) }

func (w *world) GiveUpChunks(node string) { delete(w.chunks, node) }

func (w *world) Unfence(node string) { delete(w.fenced, node) }

func (w *world) Disrupt(_ context.Context, node *corev1.Node) error {
	w.interrupt("taint")
	return w.changeNode(node.Name, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{karpv1.DisruptedNoScheduleTaint} })
}

func (w *world) Undisrupt(_ context.Context, node *corev1.Node) error {
	return w.changeNode(node.Name, func(n *corev1.Node) { n.Spec.Taints = nil })
}

func (w *world) LastPodEvent(node string) time.Time { return w.activity[node] }

var nodesResource = corev1.SchemeGroupVersion.WithResource("nodes")

func (w *world) node(name string) *corev1.Node {
	obj, err := w.objects.Get(nodesResource, "", name)
	if err != nil {
		return nil
	}
	return obj.(*corev1.Node)
}

func (w *world) changeNode(name string, change func(*corev1.Node)) error {
	n := w.node(name).DeepCopy()
	change(n)
	return w.objects.Update(nodesResource, n, "")
}

func (w *world) pods() []*corev1.Pod {
	list, err := w.objects.List(corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), "")
	if err != nil {
		w.t.Fatal(err)
	}
	var out []*corev1.Pod
	for i := range list.(*corev1.PodList).Items {
		out = append(out, &list.(*corev1.PodList).Items[i])
	}
	return out
}

func (w *world) bind(name, node string, change ...func(*corev1.Pod)) {
	w.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, f := range change {
		f(p)
	}
	if err := w.objects.Add(p); err != nil {
		w.t.Fatal(err)
	}
}

// machine adds an initialized, Ready node with its claim.
func (w *world) machine(name string, change ...func(*karpv1.NodeClaim, *corev1.Node)) {
	w.t.Helper()
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Labels: map[string]string{karpv1.NodePoolLabelKey: "default"}, Finalizers: []string{karpv1.TerminationFinalizer},
		},
		Status: karpv1.NodeClaimStatus{NodeName: "node-" + name, ProviderID: "aws:///z1/i-" + name},
	}
	for _, kind := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		claim.StatusConditions(status.WithClock(w.clock)).SetTrue(kind)
	}
	claim.Status.Conditions = slices.Clone(claim.Status.Conditions)
	for i := range claim.Status.Conditions {
		claim.Status.Conditions[i].LastTransitionTime = metav1.NewTime(w.clock.Now())
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-" + name, UID: types.UID("node-" + name), Labels: map[string]string{
			karpv1.NodePoolLabelKey: "default", karpv1.NodeInitializedLabelKey: "true"}},
		Spec:   corev1.NodeSpec{ProviderID: "aws:///z1/i-" + name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, f := range change {
		f(claim, node)
	}
	if err := w.claims.Create(w.t.Context(), claim); err != nil {
		w.t.Fatal(err)
	}
	if err := w.objects.Add(node); err != nil {
		w.t.Fatal(err)
	}
}

// sync updates the informers' stores.
func (w *world) sync() {
	w.t.Helper()
	list, err := w.kube.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var nodes, bound []any
	for i := range list.Items {
		nodes = append(nodes, &list.Items[i])
	}
	for _, p := range w.pods() {
		bound = append(bound, p)
	}
	if err := w.factory.Core().V1().Nodes().Informer().GetIndexer().Replace(nodes, "1"); err != nil {
		w.t.Fatal(err)
	}
	if err := w.c.pods.GetIndexer().Replace(bound, "1"); err != nil {
		w.t.Fatal(err)
	}
}

// pass makes one pass with fresh caches.
func (w *world) pass() (time.Duration, error) {
	w.t.Helper()
	w.sync()
	next, _, err := w.c.passes.run(w.t.Context(), time.Time{})
	return next, err
}

func (w *world) mustPass() time.Duration {
	w.t.Helper()
	after, err := w.pass()
	if err != nil {
		w.t.Fatal(err)
	}
	return after
}

func (w *world) alive(name string) bool {
	w.t.Helper()
	claim := w.claim(name)
	return claim != nil && claim.DeletionTimestamp == nil
}

// claim returns the stored claim; nil when there is none.
func (w *world) claim(name string) *karpv1.NodeClaim {
	w.t.Helper()
	claim := &karpv1.NodeClaim{}
	err := w.claims.Get(w.t.Context(), client.ObjectKey{Name: name}, claim)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		w.t.Fatal(err)
	}
	return claim
}

func (w *world) unbind(name string) {
	w.t.Helper()
	if err := w.objects.Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default", name); err != nil {
		w.t.Fatal(err)
	}
}

// pool returns a pool that terminates empty nodes after a minute, all at once.
func pool(change ...func(*karpv1.NodePool)) *karpv1.NodePool {
	p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("1m")
	p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
	for _, f := range change {
		f(p)
	}
	return p
}

// cached is a cache that may be behind.
type cached struct {
	client.Client
	w *world
}

func (c cached) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if l, ok := list.(*karpv1.NodeClaimList); ok && c.w.stale != nil {
		c.w.stale.DeepCopyInto(l)
		return nil
	}
	return c.Client.List(ctx, list, opts...)
}

// freeze keeps the cache as it is now.
func (w *world) freeze() {
	w.t.Helper()
	w.stale = &karpv1.NodeClaimList{}
	if err := w.claims.List(w.t.Context(), w.stale); err != nil {
		w.t.Fatal(err)
	}
}

// plainTracker stores objects and nothing else: trackers with field management build a REST mapper on every write.
func plainTracker() clienttesting.ObjectTracker {
	return clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
}
