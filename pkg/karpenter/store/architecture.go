package store

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/status"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	reasonArchitectureOpen = "ArchitectureOpen"
	// openFor is how long the condition keeps naming a workload without an architecture after nodes were last planned for it.
	openFor = 24 * time.Hour
)

// architectures records, by pool, the workloads that name no architecture and for which nodes were planned that may be arm64. Only the
// first few of a pool are kept, so that the condition's text doesn't change with every new Job.
type architectures struct {
	mu    sync.Mutex
	pools map[string][]openWorkload
	since time.Time // when the record began: only the leader plans nodes
}

type openWorkload struct {
	name string
	last time.Time // when nodes that may be arm64 were last planned for it
}

func (a *architectures) begin(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = now
}

// see records a workload and reports whether it is new in the record.
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
	// The record keeps one workload more than the condition names, by which the condition knows that there are others; which one doesn't matter.
	if len(known) > capacity.MaxOpenWorkloads {
		known[capacity.MaxOpenWorkloads].last = now
		return false
	}
	a.pools[pool] = append(known, openWorkload{workload, now})
	return true
}

// of returns the workloads of a pool, after it has dropped those that are too old. known is false if the list is empty but isn't
// complete, because the record began less than openFor ago.
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

// ArchitecturesOpen records the workloads for which nodes were planned that may be arm64 although neither pool nor pods name an
// architecture.
func (s *Store) ArchitecturesOpen(open []capacity.OpenArchitecture) {
	now := s.clock.Now()
	for _, one := range open {
		news := false
		for _, w := range one.Workloads {
			news = s.architectures.see(one.Pool, w, now) || news
		}
		if news {
			s.status.changed(karpenter.NodePools, one.Pool)
		}
	}
}

// architectureDeclared sets a condition, in the words of dovetail plan, that nodes of the pool may be arm64 for workloads that don't
// state whether they support it. Pools without such a workload don't have the condition. It survives a restart: a new process removes
// it only once its own record reaches back far enough (openFor) to show that there is no such workload.
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
	p.enqueue(statusKey{karpenter.NodePools.Kind, np.Name}, openFor+time.Minute)
	return nil
}
