package chaos

import (
	"fmt"
	"maps"
	"slices"

	"github.com/awslabs/operatorpkg/status"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Drifted returns the reason of each launched claim's condition Drifted, by claim; "": it has none, or isn't True.
func (s *Stage) Drifted() map[string]string {
	out := map[string]string{}
	for _, c := range s.Claims() {
		out[c.Name] = ""
		if got := c.StatusConditions(status.WithObservedOnly()).Get(karpv1.ConditionTypeDrifted); got != nil && got.IsTrue() {
			out[c.Name] = got.Reason
		}
	}
	return out
}

// unchanged: no claim has drifted that was created after the last change of what nodes come from: pool and class; images, network and the
// control plane's version stay the same in a history. A node that counts as drifted from its launch on would be launched and ended for ever.
func (c *checker) unchanged(v *view) error {
	for name, claim := range v.claims {
		if condition(claim, karpv1.ConditionTypeLaunched) {
			c.made["drift: no claim drifts when nothing changes"]++
		}
		for i := range claim.Status.Conditions {
			d := &claim.Status.Conditions[i]
			if old := claim.CreationTimestamp.Time.Before(c.edited.Add(editLag + c.jumped)); old && !c.edited.IsZero() {
				continue
			}
			if d.Type == karpv1.ConditionTypeDrifted {
				return fmt.Errorf("claim %s has drifted, though nothing has changed: %s", name, d.Reason)
			}
		}
	}
	return nil
}

// Claims returns the claims that exist, sorted by name.
func (s *Stage) Claims() []*karpv1.NodeClaim {
	var list karpv1.NodeClaimList
	if err := s.objects.List(s.ctx, &list); err != nil {
		s.Failf("claims: %v", err)
		return nil
	}
	byName := map[string]*karpv1.NodeClaim{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	var out []*karpv1.NodeClaim
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[name])
	}
	return out
}

// DriftedAs is for Until: it returns "" when exactly the claims for which of returns a reason have drifted for that reason.
func (s *Stage) DriftedAs(of func(*karpv1.NodeClaim) string) func() string {
	return func() string {
		now := s.Drifted()
		for _, c := range s.Claims() {
			if want := of(c); now[c.Name] != want {
				return fmt.Sprintf("claim %s has drifted because of %q, want %q", c.Name, now[c.Name], want)
			}
		}
		return ""
	}
}
