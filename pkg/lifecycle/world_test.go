package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
)

var (
	nodesResource = corev1.SchemeGroupVersion.WithResource("nodes")
	podsResource  = corev1.SchemeGroupVersion.WithResource("pods")
	leaseResource = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	epoch         = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

const (
	registrationTimeout = 15 * time.Minute
	startupTimeout      = time.Hour
)

// world is a cluster and a cloud under virtual time. Nothing runs by itself: sync updates the informers, step lets the controller reconcile
// everything once.
type world struct {
	t       *testing.T
	ctx     context.Context
	clock   *testingclock.FakeClock
	kube    *fake.Clientset
	objects clienttesting.ObjectTracker // behind kube
	claims  client.WithWatch
	track   clienttesting.ObjectTracker // of claims
	cloud   *fakeCloud
	c       *Controller
	mu      sync.Mutex // of events: evictions are reported by several goroutines
	factory informers.SharedInformerFactory
	events  []string
	done    []string // calls that change something, and the events, in order: for stories
	// version of the last object written; the controller's workers write concurrently with a test.
	version atomic.Int64
	// keepsClaims is why no claim can be deleted.
	keepsClaims error
	// blocked holds pods whose disruption budget allows no eviction.
	blocked map[string]bool
	evicted []string
	killed  []string // pods deleted without grace
	// closed holds the nodes that Close was called for, bindsInFlight the number of pods that the scheduler is still binding there, by
	// node.
	closed        map[string]string
	bindsInFlight map[string]int
	// What Config's functions of these names do; nil: nothing.
	registered    func(*karpv1.NodeClaim, *corev1.Node)
	registering   func(claim, node, providerID string)
	notRegistered func(*karpv1.NodeClaim, string)
	givingUp      func(claim, why string, fault *guard.Fault)
	awaited       func(claim string) bool
	expected      func(pool string) []corev1.Taint
}

// ownClass is the label of the node classes.
var ownClass = capacity.NodeClassLabel{Key: "karpenter.k8s.aws/ec2nodeclass"}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, ctx: t.Context(), clock: testingclock.NewFakeClock(epoch), kube: &fake.Clientset{}, blocked: map[string]bool{}, closed: map[string]string{}, bindsInFlight: map[string]int{}}
	w.version.Store(1000)
	w.cloud = &fakeCloud{w: w, drifted: map[string]cloudprovider.DriftReason{}, instances: map[string]*capacity.Instance{}, hidden: map[string]bool{}, calls: map[string]int{}, fail: map[string]error{}}
	w.objects = plainTracker()
	w.kube.AddReactor("*", "*", clienttesting.ObjectReaction(w.objects))
	w.kube.AddWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		found, err := w.objects.Watch(a.GetResource(), a.GetNamespace())
		return true, found, err
	})
	w.actLikeAnAPIServer()
	w.track = plainTracker()
	w.claims = crfake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjectTracker(w.track).
		WithStatusSubresource(&karpv1.NodeClaim{}).WithInterceptorFuncs(interceptor.Funcs{Delete: w.deleteClaim}).Build()
	w.factory = informers.NewSharedInformerFactory(w.kube, 0)
	c, err := New(Config{
		Kube: w.kube, Informers: w.factory, Claims: w.claims, Live: w.claims, Cloud: w.cloud, NodeClass: ownClass, Kind: &nodeclass.Kind,
		NodeFor: func(claim *karpv1.NodeClaim, inst capacity.Instance) (*corev1.Node, error) {
			return nodeFor(claim, inst), nil
		},
		Recorder: w, Clock: w.clock, Brake: brake.New(1000), Hold: func() error { return nil },
		RegistrationTimeout: registrationTimeout, StartupTimeout: startupTimeout,
		Close: func(node, providerID string) bool {
			w.closed[node] = providerID
			return w.bindsInFlight[node] > 0
		},
		Registered: func(claim *karpv1.NodeClaim, node *corev1.Node) {
			if w.registered != nil {
				w.registered(claim, node)
			}
		},
		Registering: func(claim, node, providerID string) {
			if w.registering != nil {
				w.registering(claim, node, providerID)
			}
		},
		NotRegistered: func(claim *karpv1.NodeClaim, message string) {
			if w.notRegistered != nil {
				w.notRegistered(claim, message)
			}
		},
		GivingUp: func(claim, why string, fault *guard.Fault) {
			if w.givingUp != nil {
				w.givingUp(claim, why, fault)
			}
		},
		Awaited: func(claim string) bool { return w.awaited != nil && w.awaited(claim) },
		ExpectedTaints: func(pool string) []corev1.Taint {
			if w.expected == nil {
				return nil
			}
			return w.expected(pool)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.c = c
	return w
}

func (w *world) nextVersion() string { return strconv.FormatInt(w.version.Add(1), 10) }

// nodeFor returns a Node as it is created ahead of its kubelet.
func nodeFor(claim *karpv1.NodeClaim, inst capacity.Instance) *corev1.Node {
	labels := maps.Clone(claim.Labels)
	labels[labelExcludeDisruption], labels[corev1.LabelNodeExcludeBalancers] = "true", "true"
	taints := append(slices.Clone(claim.Spec.Taints), claim.Spec.StartupTaints...)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: inst.NodeName, Labels: labels, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: claim.Name, UID: claim.UID, BlockOwnerDeletion: ptr.To(true)}}},
		Spec:   corev1.NodeSpec{ProviderID: inst.ProviderID, Taints: append(taints, taint(karpv1.UnregisteredTaintKey, "NoSchedule"))},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: inst.InternalIP}}},
	}
}

// Eventf makes world a recorder.
func (w *world) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	obj, err := meta.Accessor(regarding)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e := fmt.Sprintf("%s %s %s: %s", obj.GetName(), kind, reason, fmt.Sprintf(note, args...))
	w.events, w.done = append(w.events, e), append(w.done, "event "+e)
}

// did notes a call that changes something.
func (w *world) did(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = append(w.done, fmt.Sprintf(format, args...))
}

// launched creates an instance and its launched claim, but no Node.
func (w *world) launched(name string, change ...func(*karpv1.NodeClaim)) (*karpv1.NodeClaim, *capacity.Instance) {
	w.t.Helper()
	inst := w.cloud.launch("i-"+name, "")
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(w.clock.Now()),
			Labels:     map[string]string{karpv1.NodePoolLabelKey: "default", corev1.LabelTopologyZone: "z1"},
			Finalizers: []string{karpv1.TerminationFinalizer},
		},
		Spec:   karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}},
		Status: karpv1.NodeClaimStatus{ProviderID: inst.ProviderID, NodeName: inst.NodeName, Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("29")}},
	}
	claim.StatusConditions(status.WithClock(w.clock)).SetTrue(karpv1.ConditionTypeLaunched)
	for _, f := range change {
		f(claim)
	}
	w.createClaim(claim)
	return claim, inst
}

// up creates a launched claim with an initialized node.
func (w *world) up(name string, change ...func(*karpv1.NodeClaim)) {
	w.t.Helper()
	claim, inst := w.launched(name, change...)
	w.createNode(nodeFor(claim, *inst))
	w.kubelet(inst.NodeName)
	w.step()
	if !conditionTrue(w.claim(name), karpv1.ConditionTypeInitialized) {
		w.t.Fatalf("claim %s is not initialized: %+v", name, w.claim(name).Status.Conditions)
	}
}

func (w *world) createClaim(claim *karpv1.NodeClaim) {
	w.t.Helper()
	if err := w.claims.Create(w.ctx, claim); err != nil {
		w.t.Fatal(err)
	}
}

// claim returns the stored claim; nil when there is none.
func (w *world) claim(name string) *karpv1.NodeClaim {
	w.t.Helper()
	claim := &karpv1.NodeClaim{}
	if err := w.claims.Get(w.ctx, client.ObjectKey{Name: name}, claim); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		w.t.Fatal(err)
	}
	return claim
}

// deleteClaim deletes as an API server does, under virtual time.
func (w *world) deleteClaim(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
	if w.keepsClaims != nil {
		return w.keepsClaims
	}
	claim := &karpv1.NodeClaim{}
	if err := inner.Get(ctx, client.ObjectKeyFromObject(obj), claim); err != nil {
		return err
	}
	var o client.DeleteOptions
	o.ApplyOptions(opts)
	if o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != claim.UID {
		return apierrors.NewConflict(schema.GroupResource{Resource: "nodeclaims"}, claim.Name, fmt.Errorf("other UID"))
	}
	if claim.DeletionTimestamp != nil {
		return nil
	}
	if len(claim.Finalizers) == 0 {
		return inner.Delete(ctx, obj, opts...)
	}
	now := metav1.NewTime(w.clock.Now())
	claim.DeletionTimestamp = &now
	claim.ResourceVersion = w.nextVersion()
	return w.track.Update(schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}, claim, "")
}

func (w *world) createNode(n *corev1.Node) {
	w.t.Helper()
	if _, err := w.kube.CoreV1().Nodes().Create(w.ctx, n, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// node returns the stored Node; nil when there is none.
func (w *world) node(name string) *corev1.Node {
	obj, err := w.objects.Get(nodesResource, "", name)
	if err != nil {
		return nil
	}
	return obj.(*corev1.Node)
}

func (w *world) changeNode(name string, change func(*corev1.Node)) {
	w.t.Helper()
	n := w.node(name).DeepCopy()
	change(n)
	w.put(n)
}

func (w *world) put(n *corev1.Node) {
	w.t.Helper()
	n.ResourceVersion = w.nextVersion()
	if err := w.objects.Update(nodesResource, n, ""); err != nil {
		w.t.Fatal(err)
	}
}

// kubelet makes the node's kubelet post its status and be Ready.
func (w *world) kubelet(name string) {
	w.t.Helper()
	w.changeNode(name, func(n *corev1.Node) {
		n.Status.NodeInfo.KubeletVersion = "v1.36.4"
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	})
}

// pod binds a pod to a node.
func (w *world) pod(name, node string, change ...func(*corev1.Pod)) {
	w.t.Helper()
	grace := int64(30)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: &grace},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: w.clock.Now()}},
	}
	for _, f := range change {
		f(p)
	}
	if err := w.objects.Add(p); err != nil {
		w.t.Fatal(err)
	}
}

// endPods makes the kubelet end all terminating pods.
func (w *world) endPods() {
	for _, p := range w.podsLeft() {
		if p.DeletionTimestamp != nil {
			_ = w.objects.Delete(podsResource, p.Namespace, p.Name)
		}
	}
}

func (w *world) podsLeft() []*corev1.Pod {
	w.t.Helper()
	list, err := w.kube.CoreV1().Pods("").List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []*corev1.Pod
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

// sync updates the informers' stores.
func (w *world) sync() {
	w.t.Helper()
	var nodes []any
	list, err := w.kube.CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		seen, err := HideEphemeralTaints(ownClass)(&list.Items[i])
		if err != nil {
			w.t.Fatal(err)
		}
		nodes = append(nodes, seen)
	}
	w.replace(w.c.nodes.informer.GetIndexer(), nodes)
	var bound []any
	for _, p := range w.podsLeft() {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			bound = append(bound, p)
		}
	}
	w.replace(w.c.watcher.pods.GetIndexer(), bound)
}

func (w *world) replace(store cache.Indexer, objs []any) {
	if err := store.Replace(objs, "1"); err != nil {
		w.t.Fatal(err)
	}
}

// step lets the controller reconcile every claim and every Node once, with fresh caches, and returns the soonest time at which it wants to
// do so again.
func (w *world) step() time.Duration {
	w.t.Helper()
	var soon time.Duration
	var all karpv1.NodeClaimList
	if err := w.claims.List(w.ctx, &all); err != nil {
		w.t.Fatal(err)
	}
	var keys []key
	for i := range all.Items {
		keys = append(keys, key{claim: all.Items[i].Name})
	}
	if _, err := w.c.reconcile(w.ctx, key{pools: true}); err != nil {
		w.t.Fatal(err)
	}
	w.sync()
	for _, obj := range w.c.nodes.informer.GetIndexer().List() {
		keys = append(keys, key{node: obj.(*corev1.Node).Name})
	}
	slices.SortFunc(keys, func(a, b key) int { return strings.Compare(a.claim+a.node, b.claim+b.node) })
	for _, k := range keys {
		w.sync()
		after, err := w.c.reconcile(w.ctx, k)
		if err != nil && !apierrors.IsConflict(err) {
			w.t.Fatalf("%+v: %v", k, err)
		}
		soon = soonest(soon, after)
	}
	return soon
}

// pass lets time pass in steps.
func (w *world) pass(d time.Duration, every time.Duration) {
	w.t.Helper()
	for ; d > 0; d -= every {
		w.clock.Step(every)
		w.step()
	}
}

// plainTracker stores objects and nothing else: trackers with field management build a REST mapper on every write.
func plainTracker() clienttesting.ObjectTracker {
	return clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())
}
