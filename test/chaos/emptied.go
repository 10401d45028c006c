package chaos

import (
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
	"github.com/dovetail-scheduler/dovetail/test/outside"
)

// emptyings judges the nodes that the product empties to save money or because they have drifted, at the moment of each deletion of a claim and of each eviction. What
// it finds is only held against the product if the node didn't end for another reason; outcome is asked for it.
//
// Rules, for a node with pods at the moment when its claim is deleted:
//
//   - Its pool consolidates, it is older than its first hour (half of it where it returns to spot capacity), and no pod came within
//     consolidateAfter; or its claim has drifted, or EC2 recommends to leave its capacity.
//   - Nothing on it asks not to be disrupted; all of its pods have a controller and the product's scheduler; and no disruption budget
//     forbids the eviction of one of them. A node that has drifted and has a terminationGracePeriod doesn't wait for that.
//   - No more nodes of the pool are being ended than its budgets allow.
//   - I1: all pods that have to move, those of other nodes that are being emptied among them, fit on Ready, initialized nodes that are not
//     being disrupted. At each later eviction they still fit beside the pods that were there then.
//   - I3, see paid.
//
// Allowances, each counted: what the product has seen may be as old as its watches are slow; two leaders don't know of each other's moves,
// and a new one doesn't know of its predecessor's; a receiving node may be lost.
type emptyings struct {
	api *kubeapi.Server
	sim *ec2.Sim
	// late returns how old what the product knows may be, and whether two leaders may be at work.
	late func() (behind time.Duration, together bool)

	mu      sync.Mutex
	reader  reader
	before  map[string]*moment      // by call that is under way
	nodes   map[string]*emptied     // by claim
	asOf    map[string]receiver     // by node: when it was last one that can receive pods
	shut    map[types.UID]time.Time // by disruption budget: since when it allows nothing
	ended   map[string]bool         // the claims that were not ended by the product's choice
	most    map[string]counted      // by pool
	evicted int
	leader  int // the process that started last
	jumped  time.Duration
	paid    paid
	made    map[string]int // number of checks, by rule
}

// moment is the cluster at the moment of a call.
type moment struct {
	*view
	at      time.Time
	pools   map[string]*karpv1.NodePool
	budgets []*policyv1.PodDisruptionBudget
}

// receiver is a node that could receive pods at a time.
type receiver struct {
	node *corev1.Node
	at   time.Time
}

// counted is how many nodes a pool had at a time.
type counted struct {
	nodes int
	at    time.Time
}

// emptied is a node that had pods when the product deleted its claim.
type emptied struct {
	claim, pool string
	node        *corev1.Node
	at          time.Time
	leader      int
	forced      bool // it had to end
	drifted     bool // its claim had the condition, or it leaves its spot capacity
	wrong       []string
	// going are the claims of its pool that were being deleted then, it among them; allowed is how many its budgets allowed, of nodes.
	going          []string
	allowed, nodes int
	// moving are the pods that had to move, others those on receivers.
	moving, others []*corev1.Pod
	receivers      []string
	lostBefore     bool // a node that could receive pods was lost so shortly before that the product may count on it
	evictions      int
	// cost is what moving its pods costs at least, billed what the nodes of its pool had cost until then, both in $.
	cost, billed float64
}

func newEmptyings(api *kubeapi.Server, sim *ec2.Sim, late func() (time.Duration, bool)) *emptyings {
	return &emptyings{api: api, sim: sim, late: late, reader: newReader(), before: map[string]*moment{}, nodes: map[string]*emptied{}, asOf: map[string]receiver{},
		shut: map[types.UID]time.Time{}, ended: map[string]bool{}, most: map[string]counted{}, made: map[string]int{}}
}

// moment reads the cluster.
func (e *emptyings) moment() (*moment, error) {
	v, err := e.reader.look(e.api, e.sim)
	if err != nil {
		return nil, err
	}
	m := &moment{view: v, at: time.Now(), pools: map[string]*karpv1.NodePool{}}
	e.api.Visit("karpenter.sh", "nodepools", func(o *unstructured.Unstructured) {
		m.pools[o.GetName()] = convert(&e.reader, o, &karpv1.NodePool{}, &err)
	})
	e.api.Visit("policy", "poddisruptionbudgets", func(o *unstructured.Unstructured) {
		m.budgets = append(m.budgets, convert(&e.reader, o, &policyv1.PodDisruptionBudget{}, &err))
	})
	return m, err
}

// starts records that another process has become the leader.
func (e *emptyings) starts(number int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leader = number
}

// judged are the calls that are looked at.
func judged(c *kubeapi.Call) bool {
	return c.Verb == "delete" && c.Resource.Resource == "nodeclaims" || c.Verb == "create" && c.Resource.Resource == "pods" && c.Sub == "eviction"
}

// called is told about a call of the product before it has its effect.
func (e *emptyings) called(c *kubeapi.Call) {
	if !judged(c) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if m, err := e.moment(); err == nil {
		e.before[c.String()] = m
	}
}

// answered is told about a call of the product that has had its effect, or hasn't.
func (e *emptyings) answered(c *kubeapi.Call, err error) {
	if !judged(c) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.before[c.String()]
	delete(e.before, c.String())
	if m == nil || err != nil {
		return
	}
	if c.Sub != "" {
		e.evicts(m, c.Namespace, c.Name)
		return
	}
	if claim := m.claims[c.Name]; claim != nil && claim.DeletionTimestamp == nil {
		e.deletes(m, claim)
	}
}

// look takes over the cluster at a step.
func (e *emptyings) look() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	m, err := e.moment()
	if err != nil {
		return err
	}
	e.paid.bills(m, e.jumped)
	behind, _ := e.late()
	nodes := map[string]int{}
	for _, claim := range m.claims {
		if n := m.nodes[claim.Status.NodeName]; n != nil && outside.Receives(n, claim) && m.live[claim.Status.ProviderID] {
			e.asOf[n.Name] = receiver{n, m.at}
		}
		if condition(claim, karpv1.ConditionTypeInitialized) {
			nodes[claim.Labels[karpv1.NodePoolLabelKey]]++
		}
	}
	for pool, n := range nodes {
		if was := e.most[pool]; n >= was.nodes || m.at.Sub(was.at) > behind {
			e.most[pool] = counted{n, m.at}
		}
	}
	open := map[types.UID]bool{}
	for _, b := range m.budgets {
		if b.Status.ObservedGeneration == b.Generation && b.Status.DisruptionsAllowed > 0 {
			open[b.UID] = true
			delete(e.shut, b.UID)
		} else if e.shut[b.UID].IsZero() {
			e.shut[b.UID] = m.at
		}
	}
	return nil
}

// reschedulable reports whether a drain evicts the pod and its controller makes another one.
func reschedulable(p *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(p)
	return lives(p) && p.DeletionTimestamp == nil && owner != nil && owner.Kind != "DaemonSet" && owner.Kind != "Node"
}

func lives(p *corev1.Pod) bool {
	return p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded
}

// daemonic reports whether the pod belongs to its node.
func daemonic(p *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(p)
	return owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node")
}

// deletes judges the deletion of a claim.
func (e *emptyings) deletes(m *moment, claim *karpv1.NodeClaim) {
	node := m.nodes[claim.Status.NodeName]
	if node == nil || !condition(claim, karpv1.ConditionTypeInitialized) || !m.live[claim.Status.ProviderID] {
		return
	}
	r := &emptied{claim: claim.Name, pool: claim.Labels[karpv1.NodePoolLabelKey], node: node, at: m.at, leader: e.leader}
	if d := claim.Spec.ExpireAfter.Duration; d != nil && m.at.Sub(claim.CreationTimestamp.Time) >= *d/2 {
		r.forced = true // perhaps
	}
	var on []*corev1.Pod
	for _, p := range m.podsInOrder() {
		if p.Spec.NodeName == node.Name && lives(p) && !daemonic(p) {
			on = append(on, p)
		}
	}
	if len(on) == 0 {
		return
	}
	e.nodes[claim.Name] = r
	pool := m.pools[r.pool]
	if pool == nil {
		r.wrong = append(r.wrong, "its pool doesn't exist")
		return
	}
	e.paid.bills(m, e.jumped)
	r.cost, r.billed = m.restarts(pool, on), e.paid.billed[r.pool]
	behind, together := e.late()
	leaves := leavesSpot(claim, pool)
	r.drifted = condition(claim, karpv1.ConditionTypeDrifted) || leaves
	r.wrong = append(r.wrong, e.objections(m, pool, claim, node, on, behind)...)
	for name, other := range m.claims {
		if other.DeletionTimestamp != nil && other.Labels[karpv1.NodePoolLabelKey] == r.pool && m.live[other.Status.ProviderID] {
			r.going = append(r.going, name)
		}
		if condition(other, karpv1.ConditionTypeInitialized) && other.Labels[karpv1.NodePoolLabelKey] == r.pool {
			r.nodes++
		}
	}
	r.going = append(r.going, claim.Name)
	r.nodes = max(r.nodes, e.most[r.pool].nodes)
	r.allowed = outside.Allowed(pool.Spec.Disruption.Budgets, r.nodes, karpv1.DisruptionReasonUnderutilized)
	if r.drifted { // it may be emptied for either reason
		r.allowed = max(r.allowed, outside.Allowed(pool.Spec.Disruption.Budgets, r.nodes, karpv1.DisruptionReasonDrifted))
	}
	if leaves {
		r.allowed = max(r.allowed, outside.Allowed(pool.Spec.Disruption.Budgets, r.nodes, "RebalanceRecommended"))
	}
	if together {
		e.made["consolidation: allowed, two leaders at once"]++
		r.going = nil
	}
	e.room(m, r, behind, together)
}

// objections returns what should have kept the node.
func (e *emptyings) objections(m *moment, pool *karpv1.NodePool, claim *karpv1.NodeClaim, node *corev1.Node, on []*corev1.Pod, behind time.Duration) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	d := pool.Spec.Disruption
	drifted := condition(claim, karpv1.ConditionTypeDrifted)
	forced := drifted || leavesSpot(claim, pool)
	switch {
	case forced:
	case d.ConsolidationPolicy == karpv1.ConsolidationPolicyWhenEmpty:
		say("its pool consolidates empty nodes only")
	case d.ConsolidateAfter.Duration == nil:
		say("its pool doesn't consolidate")
	case pool.Spec.Replicas != nil:
		say("its pool is static")
	}
	if age := m.at.Sub(claim.CreationTimestamp.Time) + e.jumped + behind; age < firstHour && !forced && !costsNothing(pool) && !returnsToSpot(claim, age) {
		say("it is %s old, in its first hour", age)
	}
	for what, annotations := range map[string]map[string]string{"NodeClaim": claim.Annotations, "Node": node.Annotations} {
		if annotations[karpv1.DoNotDisruptAnnotationKey] == "true" {
			say("its %s asks not to be disrupted", what)
		}
	}
	for _, p := range on {
		since := boundFor(p, m.at)
		if !forced && d.ConsolidateAfter.Duration != nil && since+e.jumped+behind < *d.ConsolidateAfter.Duration {
			say("pod %s came %s ago, consolidateAfter is %s", p.Name, since, *d.ConsolidateAfter.Duration)
		}
		if since <= behind || p.DeletionTimestamp != nil {
			continue
		}
		deadline := drifted && claim.Spec.TerminationGracePeriod != nil
		switch {
		case p.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" && !deadline:
			say("pod %s asks not to be disrupted", p.Name)
		case metav1.GetControllerOfNoCopy(p) == nil:
			say("pod %s has no controller", p.Name)
		case p.Spec.SchedulerName != scheduler:
			say("pod %s is placed by another scheduler", p.Name)
		}
		for _, b := range m.budgets {
			if !deadline && budgetSelects(b, p) && readyPod(p) && e.refuses(b, m.at, behind) {
				say("the disruption budget %s allows no eviction of pod %s: %+v", b.Name, p.Name, b.Status)
			}
		}
	}
	return out
}

// boundFor returns for how long a pod has been bound; as long as can be, if nothing says so.
func boundFor(p *corev1.Pod, now time.Time) time.Duration {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return now.Sub(c.LastTransitionTime.Time)
		}
	}
	return now.Sub(p.CreationTimestamp.Time)
}

func budgetSelects(b *policyv1.PodDisruptionBudget, p *corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && b.Namespace == p.Namespace && selector.Matches(labelSet(p.Labels))
}

// refuses reports whether a budget has been allowing no eviction, for longer than the product may not know it, and not because of pods
// that were evicted from other nodes meanwhile.
func (e *emptyings) refuses(b *policyv1.PodDisruptionBudget, now time.Time, behind time.Duration) bool {
	since, shut := e.shut[b.UID]
	if !shut || b.Status.DisruptionsAllowed > 0 || now.Sub(since) <= behind {
		return false
	}
	if b.Status.ExpectedPods > 0 && b.Status.DesiredHealthy >= b.Status.ExpectedPods {
		return true
	}
	for _, r := range e.nodes {
		if now.Sub(r.at) < 5*time.Minute {
			return false
		}
	}
	return true
}

// outcome returns what is wrong with emptying a claim's node. voluntary reports which deletions were not forced. found: the claim was deleted
// by the product while its node had pods.
func (e *emptyings) outcome(claim string, voluntary func(claim string) bool) (found bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.nodes[claim]
	if r == nil {
		return false, nil
	}
	e.made["consolidation: a node with pods is emptied"]++
	going := 0
	for _, name := range r.going {
		if name == claim || voluntary(name) {
			going++
		}
	}
	if going > r.allowed {
		r.wrong = append(r.wrong, fmt.Sprintf("%d nodes are being ended, the budgets allow %d of %d", going, r.allowed, r.nodes))
	}
	e.made["consolidation: moves have cost less than waiting for them could have"]++
	if text := e.unpaid(r, voluntary); text != "" {
		r.wrong = append(r.wrong, text)
	}
	return true, r.err()
}

// since returns what is wrong with any of the nodes that were emptied by now.
func (e *emptyings) since(underutilized func(claim string) bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.nodes {
		if len(r.wrong) > 0 && underutilized(r.claim) {
			return r.err()
		}
	}
	return nil
}

func (r *emptied) err() error {
	if len(r.wrong) == 0 {
		return nil
	}
	return fmt.Errorf("node %s was emptied, and %s", r.node.Name, strings.Join(r.wrong, "; "))
}

// forces records that a claim was deleted for another reason than its cost.
func (e *emptyings) forces(claim string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.nodes[claim]; r != nil {
		r.forced = true
	}
}

// others records that a claim was not ended by the product's choice, but by a user, because it expired or because something was wrong with it.
func (e *emptyings) others(claim string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended[claim] = true
}

func (e *emptyings) jumps(by time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jumped += by
}

// counts adds how many checks were made.
func (e *emptyings) counts(to map[string]int) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for rule, n := range e.made {
		to[rule] += n
	}
	if e.evicted > 0 {
		to["consolidation: evictions of its pods"] += e.evicted
	}
}
