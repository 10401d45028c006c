package peers

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Scope is what a Dovetail manages. The annotation dovetail.sh/scope has it as JSON.
type Scope struct {
	// Name is its name; empty: it has none, and manages all node pools.
	Name string `json:"name,omitempty"`
	// NodePools are the label selectors of its profiles: a pool is its own if one of them matches.
	NodePools []string `json:"nodePools,omitempty"`
	// Schedulers are those for whose pods it launches nodes: its profiles, and provisionFor.
	Schedulers []string `json:"schedulers,omitempty"`
	// Queue is the name of its interruption queue, of which each message is received once.
	Queue string `json:"interruptionQueue,omitempty"`
	// Holder is the identity, in the leader election, of the replica that wrote the record.
	Holder string `json:"holder,omitempty"`
}

// Encode returns the annotation's value.
func (s Scope) Encode() string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings can be encoded
	}
	return string(raw)
}

// peer is another Dovetail, as its Lease says.
type peer struct {
	scope Scope
	lease *coordinationv1.Lease
}

// peerOf reads a Lease. A record that can't be read is an error: what that Dovetail manages is not known.
func peerOf(l *coordinationv1.Lease) (peer, error) {
	p := peer{lease: l}
	if err := json.Unmarshal([]byte(l.Annotations[objects.AnnotationScope]), &p.scope); err != nil {
		return p, fmt.Errorf("lease %s: annotation %s, which says what another Dovetail manages, can't be read: %w", klog.KObj(l), objects.AnnotationScope, err)
	}
	return p, nil
}

// held reports whether a process holds the Lease, or did when it was last heard of.
func held(l *coordinationv1.Lease) bool {
	return l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != ""
}

// stale reports whether the Lease's holder is not the one that wrote the record: the next leader has yet to write its own or, where kube-scheduler
// is back in Dovetail's place and renews the Lease with the record on it, never will.
func (p peer) stale() bool {
	return p.scope.Holder != "" && ptr.Deref(p.lease.Spec.HolderIdentity, "") != p.scope.Holder
}

func (p peer) String() string {
	who := "a Dovetail without a name"
	if p.scope.Name != "" {
		who = fmt.Sprintf("Dovetail %q", p.scope.Name)
	}
	by := ""
	if held(p.lease) {
		by = ", held by " + *p.lease.Spec.HolderIdentity
	}
	return fmt.Sprintf("%s (lease %s%s)", who, klog.KObj(p.lease), by)
}

// conflict returns which of our arguments another Dovetail doesn't go together with, or nil. pools are the labels of the pools that there are.
func (s Scope) conflict(other peer, pools map[string]labels.Set) *field.Error {
	name := field.NewPath("name")
	switch {
	case s.Name == "":
		return field.Required(name, fmt.Sprintf("%s manages nodes of this cluster: a second one needs a name, a nodePoolSelector in each of its profiles and a lease of its own", other))
	case other.scope.Name == "":
		return field.Invalid(name, s.Name, fmt.Sprintf("%s manages all nodes of this cluster: first give that one a name and a nodePoolSelector, too", other))
	case other.scope.Name == s.Name:
		return field.Invalid(name, s.Name, fmt.Sprintf("%s has this name already: replicas of one Dovetail share a lease, and two Dovetails need two names", other))
	}
	for _, scheduler := range s.Schedulers {
		if slices.Contains(other.scope.Schedulers, scheduler) {
			return field.Invalid(field.NewPath("schedulerName"), scheduler, fmt.Sprintf("%s launches nodes for the pods of this scheduler, too (schedulerName of a profile, or provisionFor)", other))
		}
	}
	if s.Queue != "" && s.Queue == other.scope.Queue {
		return field.Invalid(field.NewPath("interruptionQueue"), s.Queue, fmt.Sprintf("%s reads this queue, too, and each message is received by one of the two: give each a queue of its own", other))
	}
	return s.poolConflict(other, pools)
}

// poolConflict looks for a pool that both select. Two equal selectors are a conflict before there is any.
func (s Scope) poolConflict(other peer, pools map[string]labels.Set) *field.Error {
	path := field.NewPath("nodePoolSelector")
	for _, selector := range s.NodePools {
		if slices.Contains(other.scope.NodePools, selector) {
			return field.Invalid(path, selector, fmt.Sprintf("%s has the same one: a pool belongs to one of them", other))
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		ours, by := selecting(s.NodePools, pools[pool]), selecting(other.scope.NodePools, pools[pool])
		if ours != nil && by != nil {
			return field.Invalid(path, *ours, fmt.Sprintf("%s is also selected by %s, whose nodePoolSelector is %q: a pool belongs to one of them", pool, other, *by))
		}
	}
	return nil
}

// selecting returns the first of the selectors that matches; nil: none does. One that can't be parsed, perhaps because a newer version wrote
// it, counts as matching: whether it does isn't known.
func selecting(selectors []string, of labels.Set) *string {
	for i := range selectors {
		if selector, err := labels.Parse(selectors[i]); err != nil || selector.Matches(of) {
			return &selectors[i]
		}
	}
	return nil
}
