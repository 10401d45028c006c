package disruption

import (
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// candidate is a claim with its Node and its pool. All are shared and must not be changed.
type candidate struct {
	claim *karpv1.NodeClaim
	node  *corev1.Node     // nil: it doesn't exist
	pool  *karpv1.NodePool // nil: none
	// watched is when this process began to end nodes: it knows which pods came and went since then.
	watched time.Time
}

func (m *candidate) uid() string { return string(m.claim.UID) }

// cluster holds the claims, nodes and pools at the beginning of a pass.
type cluster struct {
	candidates []*candidate
	pools      []*karpv1.NodePool
	byNode     map[string]*candidate // candidates with a Node, by the Node's name
	byUID      map[string]*candidate
	byName     map[string]*candidate
	nodes      corelisters.NodeLister
}

// index fills the maps of the cluster from its candidates.
func (s *cluster) index() {
	s.byNode, s.byUID, s.byName = map[string]*candidate{}, map[string]*candidate{}, map[string]*candidate{}
	for _, m := range s.candidates {
		s.byUID[m.uid()], s.byName[m.claim.Name] = m, m
		if m.node != nil {
			s.byNode[m.node.Name] = m
		}
	}
}

func (m *candidate) initialized() bool {
	return condition(m.claim, karpv1.ConditionTypeInitialized) != nil && m.node.Labels[karpv1.NodeInitializedLabelKey] == "true"
}

// condition returns a claim's condition if it is True, else nil.
func condition(claim *karpv1.NodeClaim, kind string) *status.Condition {
	cond := claim.StatusConditions(status.WithObservedOnly()).Get(kind)
	if cond == nil || cond.Status != metav1.ConditionTrue {
		return nil
	}
	return cond
}
