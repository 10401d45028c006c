package launch

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// What the world does as the log of claims.

func (w *world) Problem() error { return nil }
func (w *world) WaitForSync(ctx context.Context) bool {
	if w.unread {
		<-ctx.Done()
	}
	return ctx.Err() == nil
}
func (w *world) Pools(types func(string) ([]*capacity.InstanceType, error)) []*capacity.Pool {
	all, _ := types("class")
	var ts []*capacity.InstanceType
	for _, t := range all {
		ts = append(ts, w.Overlaid("pool", t))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	out := []*capacity.Pool{{Name: "pool", NodeClass: "class", Types: ts, Labels: map[string]string{labelPool: "pool"}, Limits: w.limits.Clone(), Used: w.takenLocked(), Replicas: cmp.Or(w.stale, w.replicas)}}
	if w.otherPool != "" {
		out = append(out, &capacity.Pool{Name: w.otherPool, NodeClass: "class", Types: ts, Labels: map[string]string{labelPool: w.otherPool}})
	}
	return out
}

// takenLocked returns what claims, written and reserved, use of the pool.
func (w *world) takenLocked() capacity.Resources {
	out := capacity.Resources{}
	for name, c := range w.reserved {
		if w.claims[name] == nil {
			out.Add(c.Takes(), 1)
		}
	}
	for _, c := range w.claims {
		out.Add(c.Takes(), 1)
	}
	return out
}

func (w *world) Overlaid(_ string, t *capacity.InstanceType) *capacity.InstanceType {
	if w.overlay == nil {
		return t
	}
	return w.overlay(t)
}

func (w *world) Reserve(claims ...*capacity.Claim) []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]error, len(claims))
	for i, c := range claims {
		would := w.takenLocked()
		would.Add(c.Takes(), 1)
		for name, limit := range w.limits {
			if would[name] > limit {
				out[i] = fmt.Errorf("pool: %w: %s", capacity.ErrOverLimit, name)
			}
		}
		if out[i] == nil {
			w.reserved[c.Name] = c
		}
	}
	return out
}

func (w *world) Release(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.reserved, name)
}

func (w *world) Claims() []*capacity.Claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*capacity.Claim
	for name, c := range w.claims {
		if w.unseen[name] {
			continue
		}
		cp := *c
		out = append(out, &cp)
	}
	return out
}

func (w *world) Claim(name string) *capacity.Claim {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.claims[name]
	if !ok || w.unseen[name] {
		return nil
	}
	cp := *c
	if f := w.during["Claim"]; f != nil {
		f()
	}
	return &cp
}

func (w *world) Create(_ context.Context, c *capacity.Claim) (*capacity.Claim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("Create"); err != nil {
		return nil, err
	}
	cp := *c
	cp.UID = "uid-" + c.Name
	w.claims[c.Name] = &cp
	out := cp
	w.handed = append(w.handed, &out)
	return &out, w.after("Create")
}

func (w *world) onClaim(name string, f func(*capacity.Claim)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.claims[name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nodeclaims"}, name)
	}
	f(c)
	w.changed()
	return nil
}

// onThe is onClaim for this very claim.
func (w *world) onThe(of *capacity.Claim, f func(*capacity.Claim)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.claims[of.Name]
	if !ok || c.UID != of.UID {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nodeclaims"}, of.Name)
	}
	f(c)
	w.changed()
	return nil
}

func (w *world) RecordBatch(_ context.Context, of *capacity.Claim, batch capacity.LaunchBatch) error {
	return w.onThe(of, func(c *capacity.Claim) { c.LaunchBatch = &batch })
}

func (w *world) RecordSlots(_ context.Context, name string, slots []capacity.Slot) error {
	return w.onClaim(name, func(c *capacity.Claim) { c.Slots = slots })
}

func (w *world) RecordLaunched(_ context.Context, of *capacity.Claim, i capacity.Instance, labels map[string]string, total, alloc capacity.Resources) error {
	return w.onThe(of, func(c *capacity.Claim) {
		w.calls["RecordLaunched"]++
		c.Launched, c.ProviderID, c.Labels, c.Capacity, c.Allocatable = true, i.ProviderID, labels, total, alloc
		c.InstanceType, c.Zone, c.CapacityType, c.ImageID = i.InstanceType, i.Zone, i.CapacityType, i.ImageID
	})
}

func (w *world) RecordBatchUnlessLater(ctx context.Context, of *capacity.Claim, batch capacity.LaunchBatch) (*capacity.Claim, error) {
	w.mu.Lock()
	now, err := w.stored[of.Name], w.broken["RecordBatch "+of.Name]
	if now != nil {
		w.claims[of.Name] = now
	}
	w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if now != nil && (now.ProviderID != "" || now.LaunchBatch != nil && now.LaunchBatch.Attempt > batch.Attempt) {
		cp := *now
		return &cp, nil
	}
	return nil, w.RecordBatch(ctx, of, batch)
}

func (w *world) RecordLaunchFailed(context.Context, *capacity.Claim, string, string) error {
	return nil
}

func (w *world) RecordNode(_ context.Context, name string, inst capacity.Instance) error {
	return w.onClaim(name, func(c *capacity.Claim) { c.NodeName = inst.NodeName })
}

func (w *world) Delete(_ context.Context, name, uid string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.claims[name]; c == nil || uid == "" || c.UID == uid {
		delete(w.claims, name)
	}
	return w.after("Delete")
}

func (w *world) Drop(_ context.Context, name string) (*capacity.Claim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := cmp.Or(w.call("Drop"), w.broken["Drop "+name]); err != nil {
		return nil, err
	}
	if now := w.stored[name]; now != nil {
		w.claims[name] = now
	}
	if c := w.claims[name]; c != nil && (c.Launched || c.LaunchBatch != nil && c.LaunchBatch.Token != "") {
		cp := *c
		return &cp, w.after("Drop")
	}
	delete(w.claims, name)
	return nil, w.after("Drop")
}
