package spending

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

var epoch = time.Unix(1_000_000, 0)

// purse is the spending guard with its neighbours in memory and a fake clock.
type purse struct {
	*Guard
	t          *testing.T
	clock      *clocktesting.FakeClock
	seen       map[string][]*corev1.Pod // by node
	tells      map[string][]corev1.Taint
	kept       map[guard.Owner]string
	saved      []string // claims on which it was recorded that they served
	told       []string // events
	fails      error    // of writes
	written    int      // records
	pending    *pending.Pods
	daemonSets []*appsv1.DaemonSet
	drained    []string
}

func newPurse(t *testing.T, cfg Config) *purse {
	p := &purse{t: t, clock: clocktesting.NewFakeClock(epoch), seen: map[string][]*corev1.Pod{}, tells: map[string][]corev1.Taint{}, kept: map[guard.Owner]string{}}
	p.restart(cfg)
	return p
}

// restart replaces the guard by another one, as in a new process, that has read no records yet.
func (p *purse) restart(cfg Config) {
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	p.pending = pending.New(pending.Config{Schedulers: []string{"s"}}, reservations.New(p.clock), pending.NewClasses(f))
	p.Guard = New(cfg, Parts{Clock: p.clock, Records: p, Owners: pending.NewOwners(f), Pending: p.pending, Nodes: Nodes{
		Taints: func(node string) []corev1.Taint { return p.tells[node] }, Pods: func(node string) []*corev1.Pod { return p.seen[node] },
		Pool: func(node string) string { return map[bool]string{true: "pool"}[strings.HasPrefix(node, "node-")] }, Drained: func() []string { return p.drained }}})
	p.state.breakers.Recovered(p.clock.Now())
}

// spent begins a check that finds such cost.
func (p *purse) spent(total int, cost *Cost) *Check {
	a := p.Check(total, nil)
	a.cost = cost
	return a
}

func (p *purse) GuardRecords(context.Context) (map[guard.Owner]string, error) {
	return maps.Clone(p.kept), p.fails
}

func (p *purse) RecordGuard(_ context.Context, o guard.Owner, text string) error {
	p.written++
	if p.fails == nil {
		p.kept[o] = text
	}
	return p.fails
}

func (p *purse) RecordServed(_ context.Context, c *capacity.Claim) error {
	p.saved = append(p.saved, c.Name)
	return p.fails
}

func (p *purse) TellPool(pool, _, reason, note string) {
	p.told = append(p.told, pool+" "+reason+" "+note)
}
func (p *purse) TellClass(class, _, reason, note string) { p.TellPool(class, "", reason, note) }

func (p *purse) BudgetReached(pool, why string) { p.told = append(p.told, pool+" condition "+why) }

// web is the workload of these tests' pods.
var web = guard.Workload{Namespace: "d", Owner: "ReplicaSet/web"}

// buys adds a running instance that was bought for pods of web, with a Node.
func (p *purse) buys(name string, pods ...*corev1.Pod) *capacity.Claim {
	return p.buysProbe(name, nil, pods...)
}

// buysProbe is buys for an instance that probes the breakers of the keys.
func (p *purse) buysProbe(name string, probes []guard.Key, pods ...*corev1.Pod) *capacity.Claim {
	c := &capacity.Claim{Name: name, UID: "uid-" + name, Pool: "pool", NodeClass: "class", CreatedAt: p.clock.Now(), ImageID: "ami", Zone: "a", Launched: true,
		Purchase: &guard.Purchase{Round: "round-of-" + name, Workloads: []guard.Workload{web}, Probes: probes}}
	wanted := map[types.UID]guard.Workload{}
	for _, pod := range pods {
		wanted[pod.UID] = web
	}
	p.Buy(c, nil, wanted)
	p.Named(name, "node-"+name)
	return c
}

// pod returns a pod of web.
func (p *purse) pod(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	yes := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(p.clock.Now()),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: &yes}}},
		Spec: corev1.PodSpec{SchedulerName: "s", NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

// passes lets time pass, a second at a time, with verdicts given. No capacity is reserved for any pod.
func (p *purse) passes(d time.Duration) {
	for range d / time.Second {
		p.clock.Step(time.Second)
		p.Settle(reservations.New(p.clock))
	}
}

// verdict returns the guard's verdict on an instance.
func (p *purse) verdict(claim string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.state.breakers.Breakers() {
		if b.Open() && !b.Trial {
			return fmt.Sprintf("failed: %s: %s", b.Key, b.Cause)
		}
	}
	switch {
	case p.state.breakers.Served(claim):
		return "served"
	case p.state.breakers.Decided(claim):
		return "neither"
	}
	return "undecided"
}

func phase(of corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = of }
}

func target(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message})
	}
}

func deleted(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: epoch} }
