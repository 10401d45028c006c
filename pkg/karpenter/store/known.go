package store

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

// knownClaim is a NodeClaim as of the latest watch event or our own last write, whichever is newer.
type knownClaim struct {
	object *karpv1.NodeClaim
	claim  *capacity.Claim
}

// Claims returns all NodeClaims, sorted by name.
func (s *Store) Claims() []*capacity.Claim {
	s.mu.RLock()
	out := make([]*capacity.Claim, 0, len(s.known))
	for _, k := range s.known {
		out = append(out, k.claim)
	}
	s.mu.RUnlock()
	slices.SortFunc(out, func(a, b *capacity.Claim) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Claim returns the NodeClaim with that name, or nil.
func (s *Store) Claim(name string) *capacity.Claim {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if k := s.known[name]; k != nil {
		return k.claim
	}
	return nil
}

func (s *Store) claimOf(nc *karpv1.NodeClaim) *capacity.Claim {
	return karpenter.CachedClaimOf(nc, s.nodeClass.GroupKind(), &s.batches)
}

func (s *Store) claimChanged(before, after *karpv1.NodeClaim) {
	if after == nil {
		s.mu.Lock()
		gone := s.known[before.Name]
		if gone != nil && gone.object.UID == before.UID {
			delete(s.known, before.Name)
			s.used.Drop(before.Name)
		}
		if _, ok := s.creating[before.Name]; ok {
			s.creating[before.Name] = true
		}
		s.mu.Unlock()
		s.tellClaim(s.claimOf(before), true)
		return
	}
	claim := s.keep(after)
	if before != nil && !karpenter.ConditionTrue(before, karpv1.ConditionTypeRegistered) && claim.Registered {
		s.outcome(after, outcome{claim: after.UID})
	}
	if claim.Unreadable != "" && (before == nil || s.claimOf(before).Unreadable != claim.Unreadable) {
		s.recorder.Eventf(after, nil, corev1.EventTypeWarning, reasonUnreadable, "Read", "It will not be launched: %s", shorten(claim.Unreadable))
	}
	s.tellClaim(claim, false)
}

// keep stores a NodeClaim if it is newer than the known version, and returns the version that is known then.
func (s *Store) keep(nc *karpv1.NodeClaim) *capacity.Claim {
	s.mu.RLock()
	have := s.known[nc.Name]
	s.mu.RUnlock()
	if have != nil && have.object.UID == nc.UID && !newer(nc, have.object) {
		return have.claim
	}
	fresh := &knownClaim{object: nc, claim: s.claimOf(nc)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.known[nc.Name]; now != nil && now != have && now.object.UID == nc.UID && !newer(nc, now.object) {
		return now.claim
	}
	s.know(nc.Name, fresh)
	return fresh.claim
}

func (s *Store) know(name string, k *knownClaim) {
	s.known[name] = k
	s.used.Set(k.claim, false)
}

// keepOwn stores the result of one of our own writes, unless the claim was deleted meanwhile: no event would ever remove it again.
func (s *Store) keepOwn(nc *karpv1.NodeClaim) *capacity.Claim {
	fresh := &knownClaim{object: nc, claim: s.claimOf(nc)}
	s.mu.Lock()
	defer s.mu.Unlock()
	gone, created := s.creating[nc.Name]
	have := s.known[nc.Name]
	switch {
	case created && !gone && have == nil, have != nil && have.object.UID == nc.UID && newer(nc, have.object):
		s.know(nc.Name, fresh)
	}
	return fresh.claim
}

// newer reports whether a is a later version of the same object than b.
func newer(a, b *karpv1.NodeClaim) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err != nil || order > 0
}

func (s *Store) knownClaim(name string) *karpv1.NodeClaim {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if k := s.known[name]; k != nil {
		return k.object
	}
	return nil
}

func (s *Store) tellClaim(c *capacity.Claim, gone bool) {
	s.derived.RetireArgs(c.Pool, func() bool { return s.hasClaims(c.Pool) })
	s.status.claimChanged(c, gone)
	for _, f := range s.onClaim {
		f(c, gone)
	}
}
