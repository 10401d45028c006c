package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// world is everything around a Launcher, in memory. It behaves in the simplest way that satisfies the interfaces.
type world struct {
	t            *testing.T
	mu           sync.Mutex
	launcher     *Launcher
	parts        *Controllers
	pending      *pending.Pods
	spending     *spending.Guard
	reservations *reservations.Ledger
	stop         func()

	claims            map[string]*capacity.Claim
	reserved          map[string]*capacity.Claim
	limits            capacity.Resources // of the pool
	overlay           func(*capacity.InstanceType) *capacity.InstanceType
	openArchitectures []string
	prices            [][]float64 // of launch batches that were prepared
	instances         map[string]capacity.Instance
	tokens            map[string][]string // instances launched under each token
	requests          map[string]string   // the request made under each token
	nodes             map[string]*corev1.Node
	bound             map[types.UID]string
	notes             []string
	expected          atomic.Pointer[[]corev1.Taint] // taints that new nodes get and no pool declares; read under any lock
	broken            map[string]error               // calls that fail, by name
	during            map[string]func()              // what else happens while a call is made, by name; under mu
	calls             map[string]int                 // how often each was made
	lost              map[string]int                 // how many calls lose their answer after taking effect, by name
	capacity          map[string]int                 // instances left per type; absent: unlimited
	refused           map[string]bool                // tokens that stand for throttled launches
	throttled         int                            // number of calls whose launches are throttled
	full              int                            // number of calls that find a subnet full
	answered          int                            // number of calls that are answered with an error: their template is gone
	daemons           []*capacity.DaemonSet
	unnamed           bool              // the cloud doesn't know the name that a kubelet will register with
	unread            bool              // the log can't be read, for an unknown reason
	pods              int               // submitted so far
	handed            []*capacity.Claim // claims returned by Create: shared, as those of the store are
	memory            time.Duration     // how long the cloud remembers unavailable offerings; zero: it knows the true capacity
	gone              map[string]bool   // types remembered as unavailable
	lag               time.Duration     // how long it takes until the cloud shows a new instance
	seq               int
	// maxInFlight is how many claims may be in flight; zero: 100.
	maxInFlight int
	planner     provisioning.Planner
	gangs       provisioning.Gangs // nil: no plugin handles groups
	leaders     int64
	// replicas is how many nodes the pool wants, if it is static; stale is the number in a cache that is behind; unseen are claims that the
	// cache doesn't show.
	replicas, stale *int64
	unseen          map[string]bool
	stored          map[string]*capacity.Claim // claims as the API server has them, where the cache is behind
	podsOn          map[string][]*corev1.Pod   // by node
	otherPods       map[string][]*corev1.Pod   // bound to a node name, by an earlier Node
	killed          []string
	denies          func(*corev1.Node) error // admission of Nodes; under mu
	// classProblem is what is wrong with the node class object.
	classProblem string
	// unready is why the cloud can't use the node class; classEnds is why claims with the class have to end, if they do.
	unready, classEnds string
	owner              string          // who owns nodes and claims beside us
	onNode             []*corev1.Pod   // beside the pods of the tests, on every node
	otherPool          string          // another pool of the class; empty: none
	selector           labels.Selector // of namespaces whose pods may cause launches; nil: all
	informers          informers.SharedInformerFactory
	namespaces         cache.Store // the Launcher's informer of namespaces
	others             []string    // other schedulers whose pods are demand
	change             *sync.Cond
	clock              clock.WithTicker
	budget             *spending.Config // nil: no spending guard
	kept               map[guard.Owner]string
	served             []string // claims on which it was recorded that they served
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, clock: clock.RealClock{}, planner: plain{}, kept: map[guard.Owner]string{}, claims: map[string]*capacity.Claim{}, reserved: map[string]*capacity.Claim{}, instances: map[string]capacity.Instance{}, tokens: map[string][]string{}, requests: map[string]string{},
		nodes: map[string]*corev1.Node{}, bound: map[types.UID]string{}, refused: map[string]bool{}, broken: map[string]error{}, during: map[string]func(){}, calls: map[string]int{}, lost: map[string]int{}, gone: map[string]bool{}, capacity: map[string]int{}}
	w.change = sync.NewCond(&w.mu)
	return w
}

// build makes a Launcher on the world that doesn't run.
func (w *world) build() {
	w.leaders++
	w.reservations = reservations.New(w.clock)
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	pods := pending.New(pending.Config{Schedulers: []string{"s"}, Others: w.others, Events: w}, w.reservations, pending.NewClasses(f))
	owners := pending.NewOwners(f)
	var guarding *spending.Guard
	if w.budget != nil {
		guarding = spending.New(*w.budget, spending.Parts{Clock: w.clock, Records: w, Owners: owners, Pending: pods, Types: w.InstanceTypes,
			Nodes: spending.Nodes{Taints: func(string) []corev1.Taint { return nil }, Pods: w.PodsOn}})
	}
	w.informers, w.namespaces = f, f.Core().V1().Namespaces().Informer().GetStore()
	w.parts = New(Config{NamespaceSelector: w.selector, Cluster: "c", BatchIdle: 5 * time.Millisecond, BatchMax: 50 * time.Millisecond, MaxInFlight: cmp.Or(w.maxInFlight, 100), Parallel: 8}, Parts{
		Clock: w.clock, Reservations: w.reservations, Cloud: w, Claims: w, World: w, Recheck: w, Planner: current{w}, Rooms: plain{}, Nodes: w, Cluster: w, Queue: w, Events: w,
		Pending: pods, Owners: owners, Spending: guarding, Gangs: w.gangs, Daemons: w.daemonSets, Hold: w.hold, Seed: w.leaders,
	})
	w.launcher, w.pending, w.spending = w.parts.Launcher, pods, guarding
	for _, n := range w.nodes {
		w.parts.Nodes.NodeCached(n)
	}
	for i := range w.pods { // a leader's informers have synced before it does anything
		if pod := w.pod(i); w.bound[pod.UID] == "" {
			pods.Handler().OnAdd(pod, false)
		}
	}
}

// run starts a Launcher on the world, as a new leader would.
func (w *world) run() {
	w.build()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		w.launcher.Run(ctx)
		close(done)
	}()
	w.stop = func() {
		cancel()
		<-done
	}
	w.t.Cleanup(w.stop)
}

func (w *world) daemonSets() []*capacity.DaemonSet {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.daemons
}

func (w *world) pod(i int) *corev1.Pod {
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("u", i)),
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", UID: "rs", Controller: &yes}}},
		Spec: corev1.PodSpec{SchedulerName: "s", Tolerations: defaultTolerations(), Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}},
	}
}

// defaultTolerations returns those that the API server's admission adds to pods.
func defaultTolerations() []corev1.Toleration {
	return []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)}}
}

// submit does what the scheduler does with pods that fit nowhere. All arrive at once: on a slow machine a burst must not split.
func (w *world) submit(n int) {
	pods := make([]int, n)
	for i := range pods {
		pods[i] = i
	}
	w.submitPod(pods...)
}

func (w *world) submitPod(pods ...int) {
	w.t.Helper()
	classes := map[int]*capacity.Class{}
	for _, i := range pods {
		w.pods = max(w.pods, i+1)
		w.pending.Handler().OnAdd(w.pod(i), false)
		c, err := w.pending.Classes.Class(w.pod(i))
		if err != nil {
			w.t.Fatal(err)
		}
		classes[i] = c
	}
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		for _, i := range pods {
			l.Submit(capacity.RefOf(w.pod(i)), classes[i], now)
		}
	})
}

// until waits until a condition on the world holds. It checks after every change.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	deadline := time.AfterFunc(20*time.Second, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seq = -1
		w.change.Broadcast()
	})
	defer deadline.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for !ok() {
		if w.seq < 0 {
			w.t.Fatalf("waited in vain for %s; events: %q", what, w.notes)
		}
		w.change.Wait()
	}
}

func (w *world) changed() { w.change.Broadcast() }

func (w *world) hold() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.owner
}

// goes ends the other controller's ownership.
func (w *world) goes() {
	w.mu.Lock()
	w.owner = ""
	w.mu.Unlock()
	w.parts.Triggers.Changed()
}

// call begins every fake call, which may be set to fail.
func (w *world) call(name string) error {
	w.calls[name]++
	w.changed()
	if f := w.during[name]; f != nil {
		f()
	}
	return w.broken[name]
}

// after ends every fake call: the answer may be lost.
func (w *world) after(name string) error {
	w.changed()
	if w.lost[name] > 0 {
		w.lost[name]--
		return errors.New("connection reset")
	}
	return nil
}

// Claims.

func (w *world) Problem() error { return nil }
func (w *world) WaitForSync(ctx context.Context) bool {
	if w.unread {
		<-ctx.Done()
	}
	return ctx.Err() == nil
}
func (w *world) Pools(types func(string) ([]*capacity.InstanceType, string)) []*capacity.Pool {
	all, _ := types("class")
	var ts []*capacity.InstanceType
	for _, t := range all {
		ts = append(ts, w.Overlaid("pool", t))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	out := []*capacity.Pool{{Name: "pool", NodeClass: "class", Types: ts, Labels: map[string]string{labelPool: "pool"}, Limits: w.limits.Clone(), Used: w.takenLocked(), Replicas: cmp.Or(w.stale, w.replicas)}}
	if w.otherPool != "" {
		out = append(out, &capacity.Pool{Name: w.otherPool, NodeClass: "class", Types: ts, Labels: map[string]string{labelPool: w.otherPool}})
	}
	return out
}

// takenLocked returns what claims, written and reserved, use of the pool.
func (w *world) takenLocked() capacity.Resources {
	out := capacity.Resources{}
	for name, c := range w.reserved {
		if w.claims[name] == nil {
			out.Add(c.Takes(), 1)
		}
	}
	for _, c := range w.claims {
		out.Add(c.Takes(), 1)
	}
	return out
}

func (w *world) Overlaid(_ string, t *capacity.InstanceType) *capacity.InstanceType {
	if w.overlay == nil {
		return t
	}
	return w.overlay(t)
}

func (w *world) Reserve(claims ...*capacity.Claim) []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]error, len(claims))
	for i, c := range claims {
		would := w.takenLocked()
		would.Add(c.Takes(), 1)
		for name, limit := range w.limits {
			if would[name] > limit {
				out[i] = fmt.Errorf("pool: %w: %s", capacity.ErrOverLimit, name)
			}
		}
		if out[i] == nil {
			w.reserved[c.Name] = c
		}
	}
	return out
}

func (w *world) Release(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.reserved, name)
}

func (w *world) Claims() []*capacity.Claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*capacity.Claim
	for name, c := range w.claims {
		if w.unseen[name] {
			continue
		}
		cp := *c
		out = append(out, &cp)
	}
	return out
}

func (w *world) Claim(name string) *capacity.Claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.claims[name]
	if !ok || w.unseen[name] {
		return nil
	}
	cp := *c
	if f := w.during["Claim"]; f != nil {
		f()
	}
	return &cp
}

func (w *world) Create(_ context.Context, c *capacity.Claim) (*capacity.Claim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("Create"); err != nil {
		return nil, err
	}
	cp := *c
	cp.UID = "uid-" + c.Name
	w.claims[c.Name] = &cp
	out := cp
	w.handed = append(w.handed, &out)
	return &out, w.after("Create")
}

func (w *world) onClaim(name string, f func(*capacity.Claim)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.claims[name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nodeclaims"}, name)
	}
	f(c)
	w.changed()
	return nil
}

// onThe is onClaim for this very claim.
func (w *world) onThe(of *capacity.Claim, f func(*capacity.Claim)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.claims[of.Name]
	if !ok || c.UID != of.UID {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nodeclaims"}, of.Name)
	}
	f(c)
	w.changed()
	return nil
}

func (w *world) RecordBatch(_ context.Context, of *capacity.Claim, batch capacity.LaunchBatch) error {
	return w.onThe(of, func(c *capacity.Claim) { c.LaunchBatch = &batch })
}

func (w *world) RecordSlots(_ context.Context, name string, slots []capacity.Slot) error {
	return w.onClaim(name, func(c *capacity.Claim) { c.Slots = slots })
}

func (w *world) RecordLaunched(_ context.Context, of *capacity.Claim, i capacity.Instance, labels map[string]string, total, alloc capacity.Resources) error {
	return w.onThe(of, func(c *capacity.Claim) {
		w.calls["RecordLaunched"]++
		c.Launched, c.ProviderID, c.Labels, c.Capacity, c.Allocatable = true, i.ProviderID, labels, total, alloc
		c.InstanceType, c.Zone, c.CapacityType, c.ImageID = i.InstanceType, i.Zone, i.CapacityType, i.ImageID
	})
}

func (w *world) RecordLaunchFailed(context.Context, string, string, string) error { return nil }

func (w *world) RecordNode(_ context.Context, name string, inst capacity.Instance) error {
	return w.onClaim(name, func(c *capacity.Claim) { c.NodeName = inst.NodeName })
}

func (w *world) Delete(_ context.Context, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.claims, name)
	return w.after("Delete")
}

func (w *world) Drop(_ context.Context, name string) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("Drop"); err != nil {
		return false, err
	}
	c := w.claims[name]
	if now := w.stored[name]; now != nil {
		c = now
	}
	if c != nil && (c.Launched || c.LaunchBatch != nil && c.LaunchBatch.Token != "") {
		return false, w.after("Drop")
	}
	delete(w.claims, name)
	return true, w.after("Drop")
}

// Cloud: small holds one pod, large four.

func (w *world) InstanceTypes(string) ([]*capacity.InstanceType, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*capacity.InstanceType
	for i, name := range []string{"small", "large"} {
		room := capacity.Resources{corev1.ResourceCPU: int64(1000 + 3000*i), corev1.ResourcePods: 10}
		left, limited := w.capacity[name]
		out = append(out, &capacity.InstanceType{Name: name, Capacity: room, Allocatable: room, Labels: map[string]string{},
			Offers: []capacity.Offer{{Zone: "a", CapacityType: "on-demand", Price: float64(1 + i), Available: w.available(name, !limited || left > 0)}}})
	}
	return out, w.unready
}

// available is what the cloud says about a type before it is asked to launch one.
func (w *world) available(name string, is bool) bool {
	if w.memory > 0 {
		return !w.gone[name]
	}
	return is
}

// exhaust remembers a type as unavailable, and reports when that is over.
func (w *world) exhaust(name string) {
	if w.memory == 0 || w.gone[name] {
		return
	}
	w.gone[name] = true
	time.AfterFunc(w.memory, func() {
		w.mu.Lock()
		delete(w.gone, name)
		w.mu.Unlock()
		w.parts.Triggers.Changed()
	})
}

func (w *world) Prepare(_ context.Context, batch capacity.LaunchBatch) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("Prepare"); err != nil {
		return nil, err
	}
	w.prices = append(w.prices, batch.Prices)
	return fmt.Appendf(nil, "%v", batch.Offers), nil
}

func (w *world) Launch(_ context.Context, batch capacity.LaunchBatch) (capacity.LaunchResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("Launch"); err != nil {
		return capacity.LaunchResult{}, err
	}
	if w.full > 0 { // the requested subnet, but not the other one in its zone
		w.full--
		return capacity.LaunchResult{Message: "InsufficientFreeAddressesInSubnet", Again: true}, capacity.ErrInsufficientCapacity
	}
	if w.answered > 0 {
		w.answered--
		return capacity.LaunchResult{Message: "InvalidLaunchTemplateName.NotFoundException"}, capacity.ErrRequestStale
	}
	if w.refused[batch.Token] || w.throttled > 0 {
		w.throttled = max(0, w.throttled-1)
		w.refused[batch.Token] = true
		return capacity.LaunchResult{Message: "RequestLimitExceeded"}, capacity.ErrThrottled
	}
	if ids, again := w.tokens[batch.Token]; again {
		if w.requests[batch.Token] != string(batch.Request) {
			return capacity.LaunchResult{}, capacity.ErrTokenMismatch
		}
		var out capacity.LaunchResult
		for _, id := range ids {
			out.Instances = append(out.Instances, w.instances[id])
		}
		return out, w.after("Launch")
	}
	var out capacity.LaunchResult
	w.requests[batch.Token] = string(batch.Request)
	for range batch.Claims {
		for _, o := range batch.Offers {
			if left, limited := w.capacity[o.InstanceType]; limited && left == 0 {
				if !slices.Contains(out.Exhausted, o) {
					out.Exhausted = append(out.Exhausted, o)
					w.exhaust(o.InstanceType)
				}
				continue
			} else if limited {
				w.capacity[o.InstanceType]--
			}
			w.seq++
			id := fmt.Sprintf("i-%04d", w.seq)
			w.instances[id] = capacity.Instance{ID: id, ProviderID: "aws:///a/" + id, InstanceType: o.InstanceType, Zone: "a", CapacityType: "on-demand",
				State: capacity.InstanceRunning, NodeName: "node-" + id, LaunchBatch: batch.Token, LaunchedAt: time.Now()}
			w.tokens[batch.Token] = append(w.tokens[batch.Token], id)
			out.Instances = append(out.Instances, w.instances[id])
			break
		}
	}
	if err := w.after("Launch"); err != nil {
		return capacity.LaunchResult{}, err
	}
	if len(out.Instances) == 0 {
		return out, capacity.ErrInsufficientCapacity
	}
	return out, nil
}

func (w *world) FindBatch(_ context.Context, token string) ([]capacity.Instance, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("FindWave"); err != nil {
		return nil, err
	}
	var out []capacity.Instance
	for _, id := range w.tokens[token] {
		if i, ok := w.instances[id]; ok && time.Since(i.LaunchedAt) >= w.lag {
			out = append(out, i)
		}
	}
	return out, nil
}

func (w *world) Describe(_ context.Context, id string) (capacity.Instance, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("Describe"); err != nil {
		return capacity.Instance{}, err
	}
	i, ok := w.instances[id]
	if !ok || time.Since(i.LaunchedAt) < w.lag {
		return i, capacity.ErrInstanceNotFound
	}
	i.NameUnsure = w.unnamed
	return i, nil
}

func (w *world) TagClaim(context.Context, string, string, string) error { return nil }

func (w *world) Terminate(_ context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.instances, id)
	return w.after("Terminate")
}

// World: there are only the nodes of claims, and every filter accepts.

func (w *world) Refresh(context.Context) error { return nil }
func (w *world) Nodes(decorate func(*capacity.Node, *corev1.Node) *capacity.Node) []*capacity.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*capacity.Node
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		n := w.nodes[name]
		room := capacity.ResourcesOf(n.Status.Allocatable)
		free := room.Clone()
		for _, on := range w.bound {
			if on == name {
				free.Sub(capacity.Resources{corev1.ResourceCPU: 1000, corev1.ResourcePods: 1})
			}
		}
		out = append(out, decorate(&capacity.Node{Name: name, Labels: n.Labels, Allocatable: room, Free: free, Pods: append(slices.Clone(w.onNode), w.podsOn[name]...)}, n))
	}
	return out
}

func (w *world) Verify(context.Context, capacity.Trial) ([]capacity.Rejection, error) {
	return nil, nil
}

// Nodes.

func (w *world) NodeFor(c *capacity.Claim, inst capacity.Instance, _ []string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: inst.NodeName, Labels: map[string]string{labelPool: c.Pool}}}
	n.Spec.ProviderID = inst.ProviderID
	n.Status.Allocatable = c.Allocatable.List()
	return n
}

func (w *world) PlannedNode(_ *capacity.PlannedNode, name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func (w *world) CreateNode(_ context.Context, n *corev1.Node) error {
	w.mu.Lock()
	if w.denies != nil {
		if err := w.denies(n); err != nil {
			w.changed()
			w.mu.Unlock()
			return err
		}
	}
	if _, have := w.nodes[n.Name]; have {
		w.mu.Unlock()
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "nodes"}, n.Name)
	}
	w.nodes[n.Name] = n
	w.changed()
	w.mu.Unlock()
	w.parts.Nodes.NodeCached(n)
	return nil
}

func (w *world) TryNode(_ context.Context, n *corev1.Node) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls["TryNode"]++
	return w.broken["CreateNode"]
}

func (w *world) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[name]
	if err := w.call("GetNode"); err != nil || n != nil {
		return n, err
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name)
}

func (w *world) PodsOn(name string) []*corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.otherPods[name]
}

func (w *world) EndPod(_ context.Context, pod *corev1.Pod) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	on := pod.Spec.NodeName
	w.otherPods[on] = slices.DeleteFunc(slices.Clone(w.otherPods[on]), func(p *corev1.Pod) bool { return p.UID == pod.UID })
	w.killed = append(w.killed, pod.Name)
	return w.call("EndPod")
}

// Activate stands for the scheduler: it runs each pod's scheduling cycle.
func (w *world) Activate(pods []*corev1.Pod) {
	for _, pod := range pods {
		if closed, _ := w.reservations.Gate(pod.UID); closed {
			continue
		}
		node, _ := w.reservations.Pin(pod.UID)
		if node == "" {
			continue // refused: it stays in the queue
		}
		if why := w.reservations.Assume(pod.UID, node, false); why != "" {
			continue
		}
		w.mu.Lock()
		w.bound[pod.UID] = node
		w.changed()
		w.mu.Unlock()
		w.reservations.Settled(pod.UID, node)
	}
}

func (w *world) Pod(ref capacity.PodRef, _, reason, note string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, ref.Name+" "+reason+" "+note)
	w.changed()
}

// plain packs pods of one CPU first-fit on existing nodes, then on large new nodes, or small ones if large ones are unavailable.
type plain struct{}

// current is the planner that the world has now.
type current struct{ w *world }

func (c current) Plan(v *capacity.View, opts capacity.Options) *capacity.Plan {
	return c.w.planner.Plan(v, opts)
}

func (plain) Plan(v *capacity.View, _ capacity.Options) *capacity.Plan {
	p := &capacity.Plan{}
	free := map[string]int64{}
	for _, n := range v.Nodes {
		if !n.Unschedulable && !n.Closed {
			free[n.Name] = n.Free[corev1.ResourceCPU]
		}
	}
	for _, d := range v.Demand {
		for _, ref := range d.Pods {
			on := ""
			for _, name := range slices.Sorted(maps.Keys(free)) {
				if free[name] >= 1000 {
					on = name
					break
				}
			}
			if on == "" {
				n := cheapest(v.Pools[0], fmt.Sprint("new-", len(p.Nodes)))
				if n == nil {
					p.Refused = append(p.Refused, capacity.Refusal{Class: d.Class, Pods: []capacity.PodRef{ref}, Message: "no offer", Retryable: true})
					continue
				}
				p.Nodes = append(p.Nodes, n)
				on, free[n.ID] = n.ID, n.Allocatable[corev1.ResourceCPU]
			}
			free[on] -= 1000
			p.Placements = append(p.Placements, capacity.Placement{Class: d.Class, Pod: ref, Node: on})
		}
	}
	return p
}

func cheapest(pool *capacity.Pool, id string) *capacity.PlannedNode {
	n := &capacity.PlannedNode{ID: id, Pool: pool, CapacityType: "on-demand", Labels: pool.Labels}
	for _, t := range slices.Backward(pool.Types) {
		if t.Offers[0].Available {
			n.Offers = append(n.Offers, capacity.NodeOffer{Type: t, Offer: t.Offers[0]})
			break
		}
	}
	if len(n.Offers) == 0 {
		return nil
	}
	n.Allocatable, n.Largest = n.Offers[0].Type.Allocatable, n.Offers[0].Type.Capacity
	return n
}
