package karpenter

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/status"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	reasonArchitectureOpen = "ArchitectureOpen"
	// openFor is how long it is said that a workload names no architecture after it was last planned for.
	openFor = 24 * time.Hour
)

// architectures are the workloads that name no architecture and for which nodes were planned that may be arm64, by pool. The first few of
// a pool are kept, so that what is said of it doesn't change with every Job.
type architectures struct {
	mu    sync.Mutex
	pools map[string][]openWorkload
	since time.Time // the record begins: nodes are planned by the leader only
}

type openWorkload struct {
	name string
	last time.Time // planned for
}

func (a *architectures) begin(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = now
}

// see takes down a workload, and is true if that is news.
func (a *architectures) see(pool, workload string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.pools[pool]
	for i := range known {
		if known[i].name == workload {
			known[i].last = now
			return false
		}
	}
	// One more than is named: that there are others is said, too, and which one doesn't matter.
	if len(known) > capacity.MaxOpenWorkloads {
		known[capacity.MaxOpenWorkloads].last = now
		return false
	}
	a.pools[pool] = append(known, openWorkload{workload, now})
	return true
}

// of are the workloads of a pool, after those that are too old were forgotten. known is false if there are none, and might be if the
// record went further back.
func (a *architectures) of(pool string, now time.Time) (workloads []string, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pools[pool] = slices.DeleteFunc(a.pools[pool], func(w openWorkload) bool { return now.Sub(w.last) > openFor })
	for _, w := range a.pools[pool] {
		workloads = append(workloads, w.name)
	}
	if len(workloads) == 0 {
		delete(a.pools, pool)
	}
	return workloads, len(workloads) > 0 || now.Sub(a.since) > openFor
}

func (a *architectures) forget(pool string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pools, pool)
}

// ArchitecturesOpen takes down for which workloads nodes were planned that may be arm64 although neither pool nor pods say so.
func (s *Store) ArchitecturesOpen(open []capacity.OpenArchitecture) {
	now := s.clock.Now()
	for _, one := range open {
		news := false
		for _, w := range one.Workloads {
			news = s.architectures.see(one.Pool, w, now) || news
		}
		if news {
			s.status.changed(nodePools, one.Pool)
		}
	}
}

// architectureDeclared says in a condition, in the words of dovetail plan, that nodes of the pool may be arm64 for workloads that don't say
// whether they can be. Pools without such a workload don't have the condition. It outlives a restart: what this process hasn't seen yet
// it doesn't take back until it would have seen it.
func (p *poolStatus) architectureDeclared(np *karpv1.NodePool, set status.ConditionSet) error {
	p.mu.RLock()
	open := p.parsed[np.Name] != nil && p.parsed[np.Name].pool.LeavesArchitectureOpen()
	p.mu.RUnlock()
	if !open {
		p.architectures.forget(np.Name)
	}
	workloads, known := p.architectures.of(np.Name, p.clock.Now())
	switch {
	case len(workloads) > 0:
		set.SetFalse(objects.ConditionArchitectureDeclared, reasonArchitectureOpen, shorten(capacity.OpenArchitecture{Pool: np.Name, Workloads: workloads}.String()))
	case !open || known:
		if err := set.Clear(objects.ConditionArchitectureDeclared); err != nil {
			return fmt.Errorf("clearing condition %s of NodePool %s: %w", objects.ConditionArchitectureDeclared, np.Name, err)
		}
		return nil
	case set.Get(objects.ConditionArchitectureDeclared) == nil:
		return nil
	}
	p.enqueue(statusKey{nodePools.Kind, np.Name}, openFor+time.Minute)
	return nil
}
