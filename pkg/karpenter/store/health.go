package store

import (
	"slices"
	"sync"

	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

const (
	// healthLength is how many launches of a pool are remembered; the pool is unhealthy when at least healthFailures of them have not
	// become nodes.
	healthLength   = 4
	healthFailures = 2

	reasonRegistrationFailed = "RegistrationFailed"
)

// poolsFault are the reasons of a failed launch that a user has to act on. Lack of capacity and throttling by the cloud will pass, and
// a class that isn't ready has its own condition.
var poolsFault = sets.New("LaunchRefused", "LaunchFailed", "LaunchTimeout", "NodeNotCreated")

// health remembers whether the last launches of each pool became nodes.
//
//	unknown -> (first outcome) healthy <-> unhealthy (half of the last four failed) -> (pool or class changed) unknown
type health struct {
	mu    sync.Mutex
	pools map[types.UID][]outcome // the outcomes of the last launches of each pool, by its UID, the oldest first
}

type outcome struct {
	claim  types.UID // the claim's UID; "" if the outcome comes from the pool's condition as an earlier leader left it
	failed bool
	// reason and message say why the launch failed; empty if it didn't.
	reason, message string
}

// note records an outcome, once for each claim.
func (h *health) note(pool types.UID, o outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o.claim != "" && slices.ContainsFunc(h.pools[pool], func(have outcome) bool { return have.claim == o.claim && have.failed == o.failed }) {
		return
	}
	all := append(h.pools[pool], o)
	h.pools[pool] = slices.Clone(all[max(0, len(all)-healthLength):])
}

// clear forgets everything: a replica that wasn't the leader has seen only part of the launches.
func (h *health) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pools = map[types.UID][]outcome{}
}

func (h *health) forget(pool types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pools, pool)
}

// of reports whether any launch of the pool is known, and returns the last failure when the pool is unhealthy.
func (h *health) of(pool types.UID) (known bool, unhealthy *outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	failures := 0
	var last outcome
	for _, o := range h.pools[pool] {
		if o.failed {
			failures++
			last = o
		}
	}
	if failures >= healthFailures {
		unhealthy = &last
	}
	return len(h.pools[pool]) > 0, unhealthy
}

// registrations sets the condition that tells whether the pool's launches become nodes. It is for information; no decision depends on
// it. Outcomes under another spec of the pool or of its class are forgotten.
func (p *poolStatus) registrations(np *karpv1.NodePool, set status.ConditionSet) {
	ref := np.Spec.Template.Spec.NodeClassRef
	if ref == nil || karpenter.Malformed(np) != "" {
		return
	}
	class := p.class(ref.Name)
	if class == nil {
		return
	}
	before := set.Get(karpv1.ConditionTypeNodeRegistrationHealthy)
	if before == nil || before.ObservedGeneration != np.Generation || np.Status.NodeClassObservedGeneration != class.GetGeneration() {
		np.Status.NodeClassObservedGeneration = class.GetGeneration()
		p.health.forget(np.UID)
		set.SetUnknown(karpv1.ConditionTypeNodeRegistrationHealthy)
		return
	}
	known, unhealthy := p.health.of(np.UID)
	switch {
	case unhealthy != nil:
		set.SetFalse(karpv1.ConditionTypeNodeRegistrationHealthy, conditionReason(unhealthy.reason, reasonRegistrationFailed), shorten(unhealthy.message))
	case known:
		set.SetTrue(karpv1.ConditionTypeNodeRegistrationHealthy)
	case before.IsTrue():
		p.health.note(np.UID, outcome{}) // the earlier leader's condition says that launches become nodes: it counts as one success
	case before.IsFalse():
		for range healthFailures {
			p.health.note(np.UID, outcome{failed: true, reason: before.Reason, message: before.Message})
		}
	}
}

// NotRegistered records that a claim was deleted because it did not become a node in time.
func (s *Store) NotRegistered(nc *karpv1.NodeClaim, message string) {
	s.outcome(nc, outcome{claim: nc.UID, failed: true, reason: reasonRegistrationFailed, message: message})
}

// outcome records how a claim's launch ended. A claim of an older template tells nothing about the pool as it is now.
func (s *Store) outcome(nc *karpv1.NodeClaim, o outcome) {
	np := s.poolObject(nc.Labels[karpv1.NodePoolLabelKey])
	owned := func(ref metav1.OwnerReference) bool { return ref.UID == np.UID }
	if np == nil || len(karpenter.Owners(np)) > 0 && !slices.ContainsFunc(nc.OwnerReferences, owned) {
		return
	}
	if st := karpenter.PoolStamp(np); st.Current(nc.Annotations) && !st.On(nc.Annotations) {
		return
	}
	s.status.health.note(np.UID, o)
	s.status.changed(karpenter.NodePools, np.Name)
}
