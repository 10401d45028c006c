package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

// fakeCloud behaves like the cloud: instances take their time to end, and may be invisible for a while.
type fakeCloud struct {
	w         *world
	mu        sync.Mutex // the controller's workers and evictions call concurrently; tests look when nothing runs
	instances map[string]*capacity.Instance
	hidden    map[string]bool  // not visible to Describe and List
	calls     map[string]int   // by method, and by method and id
	fail      map[string]error // by method
	tagged    []string
	drifted   map[string]cloudprovider.DriftReason // by id
}

// launch starts an instance.
func (f *fakeCloud) launch(id, batch string) *capacity.Instance {
	n := len(f.instances) + 1
	inst := &capacity.Instance{
		ID: id, ProviderID: "aws:///z1/" + id, State: capacity.InstanceRunning, NodeName: "ip-10-0-0-" + strconv.Itoa(n),
		InternalIP: "10.0.0." + strconv.Itoa(n), LaunchBatch: batch, LaunchedAt: f.w.clock.Now(),
	}
	f.instances[id] = inst
	return inst
}

// ends terminates all instances that are shutting down.
func (f *fakeCloud) ends() {
	for _, i := range f.instances {
		if i.State == capacity.InstanceShuttingDown {
			i.State = capacity.InstanceTerminated
		}
	}
}

func (f *fakeCloud) call(method, id string) error {
	f.calls[method]++
	f.calls[method+" "+id]++
	return f.fail[method]
}

func (f *fakeCloud) Describe(_ context.Context, id string) (capacity.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call("Describe", id); err != nil {
		return capacity.Instance{}, err
	}
	inst := f.instances[id]
	if inst == nil || f.hidden[id] {
		return capacity.Instance{}, fmt.Errorf("describing %s: %w", id, capacity.ErrInstanceNotFound)
	}
	return *inst, nil
}

func (f *fakeCloud) ClusterCA() (string, bool) { return "Q0E=", true }

func (f *fakeCloud) Drifted(_ context.Context, n cloudprovider.LaunchedNode) (cloudprovider.DriftReason, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.drifted[n.InstanceID], nil
}

func (f *fakeCloud) Terminate(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call("Terminate", id); err != nil {
		return err
	}
	inst := f.instances[id]
	if inst == nil || f.hidden[id] {
		return fmt.Errorf("terminating %s: %w", id, capacity.ErrInstanceNotFound)
	}
	f.w.did("cloud: terminate %s", id)
	if inst.State != capacity.InstanceTerminated {
		inst.State = capacity.InstanceShuttingDown
	}
	return nil
}

func (f *fakeCloud) TagClaim(_ context.Context, id, claim, nodeName string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call("TagClaim", id); err != nil {
		return err
	}
	f.w.did("cloud: tag %s with claim %s and node %s", id, claim, nodeName)
	f.tagged = append(f.tagged, id+" "+claim+" "+nodeName)
	f.instances[id].Claim = claim
	f.instances[id].Tags = map[string]string{"Name": nodeName}
	return nil
}

func (f *fakeCloud) List(context.Context) ([]capacity.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.some(func(i *capacity.Instance) bool { return i.State != capacity.InstanceTerminated }), f.call("List", "")
}

func (f *fakeCloud) FindBatch(_ context.Context, token string) ([]capacity.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.some(func(i *capacity.Instance) bool {
		return i.LaunchBatch == token && i.State != capacity.InstanceTerminated && i.State != capacity.InstanceShuttingDown
	}), f.call("FindWave", token)
}

func (f *fakeCloud) some(choose func(*capacity.Instance) bool) []capacity.Instance {
	var out []capacity.Instance
	for _, id := range slices.Sorted(maps.Keys(f.instances)) {
		if i := f.instances[id]; choose(i) && !f.hidden[id] {
			out = append(out, *i)
		}
	}
	return out
}
