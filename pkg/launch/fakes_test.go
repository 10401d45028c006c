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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/burst"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// world is everything around a Launcher, in memory. It behaves in the simplest way that satisfies the interfaces.
type world struct {
	there string // a Node that the scheduler's cache has

	t            *testing.T
	mu           sync.Mutex
	launcher     *Launcher
	parts        *Controllers
	spare        atomic.Bool // static pools want one
	arrivals     burst.Arrivals
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
	volumeLimits      map[string]map[string]int64    // per type, by driver
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
	drained           []string          // nodes that are being emptied
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
	rejects         func(capacity.Trial) []capacity.Rejection
	// classProblem is what is wrong with the node class object.
	classProblem string
	// unready is why the cloud can't use the node class; classEnds is why claims with the class have to end, if they do.
	unready, classEnds string
	owner              string          // who owns nodes and claims beside us
	ownerUnknown       bool            // that is not known yet
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
			Nodes: spending.Nodes{Taints: func(string) []corev1.Taint { return nil }, Pods: w.PodsOn, Pool: func(string) string { return "" }, Drained: func() []string { return w.drained }}})
	}
	w.informers, w.namespaces = f, f.Core().V1().Namespaces().Informer().GetStore()
	w.parts = New(Config{NamespaceSelector: w.selector, Cluster: "c", BatchIdle: 5 * time.Millisecond, BatchMax: 50 * time.Millisecond, MaxInFlight: cmp.Or(w.maxInFlight, 100), Parallel: 8}, Parts{
		Spare: func(string) (wanted, known bool) { return w.spare.Load(), true },
		Clock: w.clock, Reservations: w.reservations, Cloud: w, NodeClass: capacity.NodeClassLabel{Key: "karpenter.k8s.aws/ec2nodeclass"}, Claims: w, World: w, Recheck: w, Planner: current{w}, Rooms: plain{}, Nodes: w, Cluster: w, Queue: w, Events: w,
		Pending: pods, Owners: owners, Arrivals: w.arrivals, Spending: guarding, Gangs: w.gangs, Daemons: w.daemonSets, Hold: w.hold, Seed: w.leaders,
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
	w.start()
}

// start runs the Launcher that build has made.
func (w *world) start() {
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

func (w *world) hold() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ownerUnknown {
		return fmt.Errorf("%w: no answer", capacity.ErrOwnerUnknown)
	}
	return failure(w.owner)
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
				var n *capacity.PlannedNode
				if len(v.Pools) > 0 {
					n = cheapest(v.Pools[0], fmt.Sprint("new-", len(p.Nodes)))
				}
				if n == nil {
					p.Refused = append(p.Refused, capacity.Refusal{Class: d.Class, Pods: []capacity.PodRef{ref}, Message: "no offer", Retryable: true})
					continue
				}
				p.Nodes = append(p.Nodes, n)
				p.CostPerHour += n.Price
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
	n.Allocatable, n.Largest, n.Price = n.Offers[0].Type.Allocatable, n.Offers[0].Type.Capacity, n.Offers[0].Offer.Price
	return n
}
