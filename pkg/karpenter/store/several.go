package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Several Dovetails may run in one cluster, each with pools of its own (docs/design/several.md); one of them may have no name. The caches have
// only the objects of this Dovetail, so that it launches nothing for the others, and neither writes nor deletes their objects:
//
//	NodeClaim               the label dovetail.sh/managed-by has this Dovetail's name, or is absent if it has none
//	NodePool, Provisioner   a profile's nodePoolSelector matches; all, if this Dovetail has no name
//	node class and others   all: several pools may use one

// SharedChanged must be called when Sources.Shared may return something else.
func (s *Store) SharedChanged() {
	s.mu.RLock()
	names := make([]string, 0, len(s.parsed))
	for name := range s.parsed {
		names = append(names, name)
	}
	s.mu.RUnlock()
	for _, name := range names {
		s.status.changed(karpenter.NodePools, name)
	}
	s.tellPool()
}

// leaves returns why an object belongs to another provider or to another Dovetail, or "".
func (s *Store) leaves(o client.Object) string {
	if group := karpenter.ForeignGroup(o, s.nodeClass.GroupKind()); group != "" {
		return "its node class belongs to another provider, of group " + group
	}
	switch o.(type) {
	case *karpv1.NodeClaim:
		if by := o.GetLabels()[objects.LabelManagedBy]; by != s.nodeClass.ManagedBy {
			return fmt.Sprintf("its label %s is %q", objects.LabelManagedBy, by)
		}
	case *karpv1.NodePool, *legacy.Provisioner:
		if s.nodeClass.ManagedBy != "" && !s.derived.Selects(o.GetLabels()) {
			return "no profile selects it (nodePoolSelector)"
		}
	}
	return ""
}

// mark makes a NodeClaim that is about to be written ours, whatever labels its pool's template has.
func (s *Store) mark(nc *karpv1.NodeClaim) {
	if delete(nc.Labels, objects.LabelManagedBy); s.nodeClass.ManagedBy != "" {
		nc.Labels[objects.LabelManagedBy] = s.nodeClass.ManagedBy
	}
}

// PoolLabels returns the labels of all NodePools and Provisioners that are there now, by kind and name ("NodePool default"): the API server is
// asked. Those of other providers are left out. A kind whose definition isn't installed has no objects.
func (s *Store) PoolLabels(ctx context.Context) (map[string]labels.Set, error) {
	out := map[string]labels.Set{}
	for _, k := range []karpenter.CustomKind{karpenter.NodePools, karpenter.Provisioners} {
		all, err := s.listLive(ctx, k)
		if err != nil {
			return nil, err
		}
		for i := range all {
			if o := karpenter.Decode(&all[i], k.New); karpenter.ForeignGroup(o, s.nodeClass.GroupKind()) == "" {
				out[k.Kind+" "+o.GetName()] = o.GetLabels()
			}
		}
	}
	return out, nil
}

// listLive asks the API server for all objects of a kind. They are decoded one by one, so that one that can't be doesn't fail the others.
func (s *Store) listLive(ctx context.Context, k karpenter.CustomKind) ([]unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
	if err := s.live.List(ctx, list); err != nil && !noDefinition(err) {
		return nil, fmt.Errorf("listing %s: %w", k.Resource, err)
	}
	return list.Items, nil
}

// otherUsers returns the names of the claims that refer to a class and aren't in the cache, because another Dovetail manages them. The class must
// keep its finalizer as long as there are any.
func otherUsers(ctx context.Context, p *poolStatus, class string) (users []string, err error) {
	all, err := p.listLive(ctx, karpenter.NodeClaims)
	for i := range all {
		if nc := karpenter.Decode(&all[i], karpenter.NodeClaims.New).(*karpv1.NodeClaim); p.refersTo(nc, class) && p.leaves(nc) != "" {
			users = append(users, nc.Name)
		}
	}
	return users, err
}

// contested reports whether another Dovetail selects a pool, too, and says so in an event. Both would write its status, again and again.
func (p *poolStatus) contested(np *karpv1.NodePool) bool {
	why := p.sources.Shared(np.Labels)
	before, _ := p.contests.Swap(np.UID, why)
	if why != "" && before != why {
		p.recorder.Eventf(np, nil, corev1.EventTypeWarning, "SelectedTwice", "Validate", "%s", shorten(why))
	}
	return why != ""
}

// foundBy is added to what a Dovetail with a name says of a NodeOverlay, which may be wrong for its pools only.
func foundBy(by string) string { return fmt.Sprintf(" (found by Dovetail %q)", by) }

// foundByAnother reports whether another Dovetail has set the condition. Then only that Dovetail may clear it.
func foundByAnother(c *status.Condition, ours string) bool {
	return c != nil && c.IsFalse() && strings.Contains(c.Message, " (found by Dovetail ") && !strings.HasSuffix(c.Message, foundBy(ours))
}
