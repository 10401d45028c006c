package launch

import (
	"cmp"
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// What standalone NodeClaims need of the world.

func (w *world) NodeClassProblem(string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return failure(w.classProblem)
}

// failure returns an error with the text, or nil if there is none.
func failure(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

func (w *world) NodeClassEnds(context.Context, string) (reason, why string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("NodeClassEnds"); err != nil {
		return "", "", err
	}
	return w.classEnds, w.classProblem, nil
}

func (w *world) Take(_ context.Context, c *capacity.Claim) error {
	if err := w.broken["Take"]; err != nil {
		return err
	}
	return w.onClaim(c.Name, func(have *capacity.Claim) {
		w.calls["Take"]++
		have.Largest, have.Purchase = c.Largest, c.Purchase
	})
}

func (w *world) RecordRefused(_ context.Context, name, reason, message string, again bool) error {
	return w.onClaim(name, func(*capacity.Claim) {
		word := " for good: "
		if again {
			word = " for now: "
		}
		w.notes = append(w.notes, name+" "+reason+word+message)
	})
}

func (w *world) FindClaim(_ context.Context, name string) ([]capacity.Instance, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("FindClaim"); err != nil {
		return nil, err
	}
	var out []capacity.Instance
	for _, i := range w.instances {
		if i.Claim == name {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b capacity.Instance) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// writes creates a standalone NodeClaim, as a user does who wants a node.
func (w *world) writes(name string, change ...func(*capacity.Claim)) {
	c := &capacity.Claim{Name: name, UID: "uid-of-" + name, NodeClass: "class", Labels: map[string]string{"by": "hand"},
		Requests: capacity.Resources{corev1.ResourceCPU: 2000}, Order: &capacity.Order{Requirements: capacity.Requirements{}}}
	for _, f := range change {
		f(c)
	}
	w.mu.Lock()
	cp := *c
	w.claims[name] = &cp
	w.changed()
	w.mu.Unlock()
	if w.launcher != nil {
		w.parts.Claims.ClaimChanged(c)
	}
}

// isNode reports whether the claim has a Node and a live instance. The caller holds mu.
func (w *world) isNode(name string) bool {
	c := w.claims[name]
	if c == nil || c.NodeName == "" || w.nodes[c.NodeName] == nil {
		return false
	}
	_, lives := w.instances[c.Instance().ID]
	return lives
}

// What static pools need of the world.

func (w *world) StaticClaims(_ context.Context, pool string) (int64, bool, map[string]bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("Standing"); err != nil || w.replicas == nil {
		return 0, false, nil, err
	}
	out := map[string]bool{}
	for name, c := range w.claims {
		if c.Pool == pool {
			out[name] = c.Deleting
		}
	}
	return *w.replicas, true, out, nil
}

func (w *world) TaintSeen(pool, claim string, t corev1.Taint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, pool+" "+claim+" "+t.ToString())
	w.changed()
}

func (w *world) ArchitecturesOpen(open []capacity.OpenArchitecture) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range open {
		w.openArchitectures = append(w.openArchitectures, o.String())
	}
}

func (w *world) ExpectedTaints(string) []corev1.Taint {
	if t := w.expected.Load(); t != nil {
		return *t
	}
	return nil
}

func (w *world) TellPool(pool, _, reason, note string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, pool+" "+reason+" "+note)
	w.changed()
}

func (w *world) TellClaim(name, _, reason, note string) { w.TellPool(name, "", reason, note) }
