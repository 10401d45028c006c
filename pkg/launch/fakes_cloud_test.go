package launch

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// What the world does as the cloud: small holds one pod, large four.

func (w *world) InstanceTypes(string) ([]*capacity.InstanceType, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*capacity.InstanceType
	for i, name := range []string{"small", "large"} {
		room := capacity.Resources{corev1.ResourceCPU: int64(1000 + 3000*i), corev1.ResourcePods: 10}
		left, limited := w.capacity[name]
		out = append(out, &capacity.InstanceType{Name: name, Capacity: room, Allocatable: room, Labels: map[string]string{}, VolumeLimits: w.volumeLimits[name],
			Offers: []capacity.Offer{{Zone: "a", CapacityType: "on-demand", Price: float64(1 + i), Available: w.available(name, !limited || left > 0)}}})
	}
	return out, failure(w.unready)
}

// available is what the cloud says about a type before it is asked to launch one.
func (w *world) available(name string, is bool) bool {
	if w.memory > 0 {
		return !w.gone[name]
	}
	return is
}

// exhaust remembers a type as unavailable, and reports when that is over.
func (w *world) exhaust(name string) {
	if w.memory == 0 || w.gone[name] {
		return
	}
	w.gone[name] = true
	time.AfterFunc(w.memory, func() {
		w.mu.Lock()
		delete(w.gone, name)
		w.mu.Unlock()
		w.parts.Triggers.Changed()
	})
}

func (w *world) Prepare(_ context.Context, batch capacity.LaunchBatch) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("Prepare"); err != nil {
		return nil, err
	}
	w.prices = append(w.prices, batch.Prices)
	return fmt.Appendf(nil, "%v", batch.Offers), nil
}

func (w *world) Launch(_ context.Context, batch capacity.LaunchBatch) (capacity.LaunchResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("Launch"); err != nil {
		return capacity.LaunchResult{}, err
	}
	if w.full > 0 { // the requested subnet, but not the other one in its zone
		w.full--
		return capacity.LaunchResult{Message: "InsufficientFreeAddressesInSubnet", Again: true}, capacity.ErrInsufficientCapacity
	}
	if w.answered > 0 {
		w.answered--
		return capacity.LaunchResult{Message: "InvalidLaunchTemplateName.NotFoundException"}, capacity.ErrRequestStale
	}
	if w.refused[batch.Token] || w.throttled > 0 {
		w.throttled = max(0, w.throttled-1)
		w.refused[batch.Token] = true
		return capacity.LaunchResult{Message: "RequestLimitExceeded"}, capacity.ErrThrottled
	}
	if ids, again := w.tokens[batch.Token]; again {
		if w.requests[batch.Token] != string(batch.Request) {
			return capacity.LaunchResult{}, capacity.ErrTokenMismatch
		}
		var out capacity.LaunchResult
		for _, id := range ids {
			out.Instances = append(out.Instances, w.instances[id])
		}
		return out, w.after("Launch")
	}
	var out capacity.LaunchResult
	w.requests[batch.Token] = string(batch.Request)
	for range batch.Claims {
		for _, o := range batch.Offers {
			if left, limited := w.capacity[o.InstanceType]; limited && left == 0 {
				if !slices.Contains(out.Exhausted, o) {
					out.Exhausted = append(out.Exhausted, o)
					w.exhaust(o.InstanceType)
				}
				continue
			} else if limited {
				w.capacity[o.InstanceType]--
			}
			w.seq++
			id := fmt.Sprintf("i-%04d", w.seq)
			w.instances[id] = capacity.Instance{ID: id, ProviderID: "aws:///a/" + id, InstanceType: o.InstanceType, Zone: "a", CapacityType: "on-demand",
				State: capacity.InstanceRunning, NodeName: "node-" + id, LaunchBatch: batch.Token, LaunchedAt: time.Now()}
			w.tokens[batch.Token] = append(w.tokens[batch.Token], id)
			out.Instances = append(out.Instances, w.instances[id])
			break
		}
	}
	if err := w.after("Launch"); err != nil {
		return capacity.LaunchResult{}, err
	}
	if len(out.Instances) == 0 {
		return out, capacity.ErrInsufficientCapacity
	}
	return out, nil
}

func (w *world) FindBatch(_ context.Context, token string) ([]capacity.Instance, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("FindWave"); err != nil {
		return nil, err
	}
	var out []capacity.Instance
	for _, id := range w.tokens[token] {
		if i, ok := w.instances[id]; ok && time.Since(i.LaunchedAt) >= w.lag {
			out = append(out, i)
		}
	}
	return out, nil
}

func (w *world) Describe(_ context.Context, id string) (capacity.Instance, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("Describe"); err != nil {
		return capacity.Instance{}, err
	}
	i, ok := w.instances[id]
	if !ok || time.Since(i.LaunchedAt) < w.lag {
		return i, capacity.ErrInstanceNotFound
	}
	i.NameUnsure = w.unnamed
	return i, nil
}

func (w *world) TagClaim(context.Context, string, string, string) error { return nil }

func (w *world) Terminate(_ context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.call("Terminate"); err != nil {
		return err
	}
	if i, ok := w.instances[id]; ok && time.Since(i.LaunchedAt) < w.lag {
		return fmt.Errorf("terminating %s: %w", id, capacity.ErrInstanceNotFound)
	}
	delete(w.instances, id)
	return w.after("Terminate")
}

// World: there are only the nodes of claims, and every filter accepts.
