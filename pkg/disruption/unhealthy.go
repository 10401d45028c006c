package disruption

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/annotations"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/repair"
)

// ReasonUnhealthy is the reason that Config.Ending gets when a node is repaired.
const ReasonUnhealthy = string(consolidation.Unhealthy)

// repairEvery is how often it is said again that an unhealthy node isn't repaired, as in Karpenter.
const repairEvery = 5 * time.Minute

// unhealthy: the node is unhealthy by a repair policy, for longer than that tolerates. It is replaced and drained like others that have to end,
// but its drain has a deadline, because pods of a kubelet that doesn't answer never end. Only the goroutine that makes the passes uses it.
//
//	healthy -> tolerated:   a condition of its Node, or a check of its instance, says that it is unhealthy
//	tolerated -> blocked:   its time is over, and too many nodes are unhealthy (repair.Breaker), or the spending guard stops a loop
//	tolerated, blocked -> replaced: nothing blocks it. After ten minutes it is drained without replacement
//	any -> healthy:         the condition is gone
type unhealthy struct {
	policies repair.Policies
	settings *annotations.Reader
	health   cloudprovider.Health                        // nil: only conditions of Nodes count
	held     func(pool string, launched time.Time) error // why the spending guard stops the repair of a node (Config.HoldsRepair)
	recorder events.EventRecorder
	// nodes are the unhealthy ones, by the UIDs of their claims. What they remember may be lost at any moment.
	nodes map[string]*unhealthyNode
	pools map[string]time.Time // when it was last said of a pool that its nodes aren't repaired
}

// unhealthyNode is what is known of an unhealthy node.
type unhealthyNode struct {
	fault *repair.Fault
	// blocked is why it isn't repaired, told is when an event last said that.
	blocked error
	told    time.Time
	// from is since when the node may be repaired; zero: its fault is still tolerated, or blocked says why it isn't repaired.
	from time.Time
}

func newUnhealthy(cfg *Config) *unhealthy {
	u := &unhealthy{settings: annotations.NewReader(cfg.Recorder), health: cfg.Health, held: cfg.HoldsRepair, recorder: cfg.Recorder,
		pools: map[string]time.Time{}}
	if cfg.NodeClass != nil {
		u.policies = cfg.NodeClass.RepairPolicies
	}
	if u.held == nil {
		u.held = func(string, time.Time) error { return nil }
	}
	return u
}

func (*unhealthy) budget() karpv1.DisruptionReason { return "" }

// observe finds the unhealthy nodes, and what keeps each from being repaired.
func (u *unhealthy) observe(s *cluster, now time.Time) {
	before, impaired := u.nodes, map[string]cloudprovider.Impairment(nil)
	if u.health != nil {
		impaired = u.health.Impaired()
	}
	policies := map[string]repair.Policies{"": u.policies}
	for _, p := range s.pools {
		policies[p.Name] = u.settings.Repair(p, u.policies)
	}
	maps.DeleteFunc(u.pools, func(_ string, at time.Time) bool { return now.Sub(at) >= repairEvery })
	u.nodes = map[string]*unhealthyNode{}
	breaker := repair.Breaker{}
	for _, m := range s.candidates {
		if m.node == nil || condition(m.claim, karpv1.ConditionTypeInitialized) == nil || condition(m.claim, karpv1.ConditionTypeInstanceTerminating) != nil {
			continue
		}
		var check *cloudprovider.Impairment
		if x, fails := impaired[capacity.InstanceID(m.claim.Status.ProviderID)]; fails {
			check = &x
		}
		f := policies[poolOf(m)].Find(m.node, check)
		if f != nil && m.claim.DeletionTimestamp != nil && f.Since.After(m.claim.DeletionTimestamp.Time) {
			f = nil // every node becomes unhealthy while it is terminated
		}
		breaker.Add(poolOf(m), m.claim.Labels[corev1.LabelTopologyZone], m.claim.CreationTimestamp.Time, f)
		if f == nil || m.claim.DeletionTimestamp != nil {
			continue
		}
		n := before[m.uid()]
		if n == nil {
			n = &unhealthyNode{}
		}
		n.fault = f
		u.nodes[m.uid()] = n
	}
	for _, m := range s.candidates {
		if n := u.nodes[m.uid()]; n != nil {
			u.block(n, m, breaker, now)
		}
	}
}

// block finds out what keeps an unhealthy node from being repaired now, and says so.
func (u *unhealthy) block(n *unhealthyNode, m *candidate, breaker repair.Breaker, now time.Time) {
	n.blocked = breaker.Open(poolOf(m), m.claim.Labels[corev1.LabelTopologyZone])
	if n.blocked == nil && n.from.IsZero() { // once its repair has begun, its replacement may have been launched already
		n.blocked = u.held(poolOf(m), m.claim.CreationTimestamp.Time)
	}
	switch {
	case now.Before(n.fault.Due):
		n.from = time.Time{}
		return
	case n.blocked == nil:
		if n.from.IsZero() {
			n.from = now
		}
		return
	}
	n.from = time.Time{}
	if now.Sub(n.told) < repairEvery {
		return
	}
	n.told = now
	note := fmt.Sprintf("The node is unhealthy (%s) and is not repaired: %v", n.fault.Text, n.blocked)
	u.recorder.Eventf(m.claim, nil, corev1.EventTypeWarning, reasonRepairBlocked, "Repair", "%s", note)
	u.recorder.Eventf(m.node, nil, corev1.EventTypeWarning, reasonRepairBlocked, "Repair", "%s", note)
	if m.pool != nil && now.Sub(u.pools[m.pool.Name]) >= repairEvery {
		u.pools[m.pool.Name] = now
		u.recorder.Eventf(m.pool, nil, corev1.EventTypeWarning, reasonRepairBlocked, "Repair", "Node %s is unhealthy and is not repaired: %v", m.node.Name, n.blocked)
	}
}

func (u *unhealthy) decide(m *candidate, now time.Time) (*decision, error) {
	n := u.nodes[m.uid()]
	if n == nil || n.blocked != nil {
		return nil, nil
	}
	from := n.from
	if from.IsZero() {
		from = n.fault.Due
	}
	d := &decision{candidate: m, reason: ReasonUnhealthy, message: "it is unhealthy: " + n.fault.Text, avoid: n.fault.Since, prepare: from, at: from.Add(leadMost),
		idle: true, deadline: now.Add(n.fault.Grace)}
	if m.pool != nil && m.pool.Spec.Replicas != nil {
		d.at = from // the static pool's controller launches another node when this one has ended
	}
	return d, nil
}

// kept returns why an unhealthy node is kept; nil: it is healthy, or being repaired.
func (u *unhealthy) kept(m *candidate) *consolidation.Kept {
	n := u.nodes[m.uid()]
	switch {
	case n == nil || !n.from.IsZero():
		return nil
	case n.blocked != nil:
		return &consolidation.Kept{Kind: consolidation.NotRepaired, Message: n.fault.Text + ", and it is not repaired: " + n.blocked.Error()}
	}
	return &consolidation.Kept{Kind: consolidation.NotRepaired, Until: n.fault.Due, Message: n.fault.Text + ", which is tolerated until " + n.fault.Due.UTC().Format(time.RFC3339)}
}

// poolOf returns the name of a candidate's pool; empty: it has none.
func poolOf(m *candidate) string {
	if m.pool == nil {
		return ""
	}
	return m.pool.Name
}
