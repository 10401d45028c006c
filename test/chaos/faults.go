package chaos

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
)

// faults injects failures into calls, and counts them. While it is calm no call fails, except for kills that were planned for a point.
type faults struct {
	h *history

	mu    sync.Mutex
	rng   *rand.Rand
	calm  bool
	count map[string]int
	// due is how often a point has still to be passed before the process that passes it is killed.
	due map[point]int
	// passed is how often a point was passed.
	passed map[point]int
	// slow is the longest delay of watch events at the moment.
	slow time.Duration
	// blind: watches don't deliver what happens now.
	blind bool
	// api and cloud are the shares of calls that fail.
	api, cloud float64
}

// newFaults plans kills at some points: two are determined by the seed, so that consecutive seeds cover all, the others are random.
func newFaults(h *history, rng *rand.Rand) *faults {
	f := &faults{h: h, rng: rng, count: map[string]int{}, due: map[point]int{}, passed: map[point]int{}}
	f.api, f.cloud = 0.03*rng.Float64(), 0.08*rng.Float64()
	for range rng.IntN(3) {
		f.due[points[rng.IntN(len(points))]] = 1 + rng.IntN(5)
	}
	for i := range uint64(2) {
		f.due[points[(2*h.seed+i)%uint64(len(points))]] = 1 + rng.IntN(2)
	}
	return f
}

// injected counts a fault.
func (f *faults) injected(kind string) { f.add(kind, 1) }

func (f *faults) add(kind string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count[kind] += n
}

// quiet ends all faults.
func (f *faults) quiet() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calm, f.slow = true, 0
	clear(f.due)
}

// passes reports whether the process that passes the point is to be killed there.
func (f *faults) passes(p point) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.passed[p]++
	left, planned := f.due[p]
	if !planned {
		return false
	}
	if left > 1 {
		f.due[p] = left - 1
		return false
	}
	delete(f.due, p)
	f.count["kill "+p.String()]++
	return true
}

// lag returns the delay of a watch event.
func (f *faults) lag() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.blind {
		return time.Hour
	}
	if f.slow == 0 {
		return 0
	}
	return time.Duration(f.rng.Int64N(int64(f.slow)))
}

// slowest returns the longest delay of watch events at the moment.
func (f *faults) slowest() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.slow
}

// draw returns true for that share of calls, unless it is calm, and which of n kinds of failure to inject.
func (f *faults) draw(share float64, n int) (int, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calm || f.rng.Float64() >= share {
		return 0, false
	}
	return f.rng.IntN(n), true
}

func (f *faults) beforeKube(p *process, c *kubeapi.Call) *kubeapi.Fault {
	f.h.check.emptied.called(c)
	if f.passes(point{named(c), false}) {
		return &kubeapi.Fault{Call: func() { f.h.kill(p, point{named(c), false}) }, Drop: true}
	}
	kind, bad := f.draw(f.api, 6)
	if !bad {
		return nil
	}
	resource := c.Resource.GroupResource()
	switch kind {
	case 0:
		f.injected("API server: 500")
		return &kubeapi.Fault{Err: apierrors.NewInternalError(errors.New("injected fault"))}
	case 1:
		f.injected("API server: 503")
		return &kubeapi.Fault{Err: apierrors.NewServiceUnavailable("injected fault")}
	case 2:
		f.injected("API server: 429")
		return &kubeapi.Fault{Err: apierrors.NewTooManyRequests("injected fault", 1)}
	case 3:
		if c.Verb == "update" || c.Verb == "patch" {
			f.injected("API server: conflict")
			return &kubeapi.Fault{Err: apierrors.NewConflict(resource, c.Name, errors.New("injected fault"))}
		}
		return nil
	case 4:
		f.injected("API server: connection cut")
		return &kubeapi.Fault{Drop: true}
	}
	f.injected("API server: slow call")
	return &kubeapi.Fault{Delay: time.Duration(1+kind) * time.Second}
}

func (f *faults) afterKube(p *process, c *kubeapi.Call, err error) *kubeapi.Fault {
	f.h.check.emptied.answered(c, err)
	if err == nil && c.Resource.Resource == "nodeclaims" && c.Writes() {
		f.h.check.writes(c.Body)
	}
	if err == nil && c.Verb == "create" && c.Resource.Resource == "events" {
		f.h.check.hears(c.Body)
	}
	if err == nil && f.passes(point{named(c), true}) {
		return &kubeapi.Fault{Call: func() { f.h.kill(p, point{named(c), true}) }, Drop: true}
	}
	if !c.Writes() {
		return nil
	}
	kind, bad := f.draw(f.api/2, 2)
	if !bad {
		return nil
	}
	if kind == 0 {
		f.injected("API server: answer lost")
		if named(c) == "create pods/binding" {
			f.h.check.room.unanswered(c.Body, time.Now().Add(2*step+f.slowest()))
		}
		return &kubeapi.Fault{Drop: true}
	}
	f.injected("API server: time-out after effect")
	return &kubeapi.Fault{Hang: time.Minute}
}

// cloudWire is a process's connection to the cloud.
func (f *faults) cloudWire(p *process, handler http.Handler) *wire {
	return &wire{
		handler: handler,
		before:  func(action string) bool { return f.cloudCut(p, point{action, false}, "EC2: connection cut") },
		after:   func(action string) bool { return f.cloudCut(p, point{action, true}, "EC2: time-out after effect") },
	}
}

func (f *faults) cloudCut(p *process, at point, kind string) bool {
	if f.passes(at) {
		f.h.kill(p, at)
		return true
	}
	if _, bad := f.draw(f.cloud/2, 1); bad {
		f.injected(kind)
		return true
	}
	return false
}

// beforeEC2 injects errors that any EC2 call may get.
func (f *faults) beforeEC2(r *ec2.Request) *ec2.Fault {
	if r.Service != "ec2" {
		return nil
	}
	kind, bad := f.draw(f.cloud, 4)
	if !bad {
		return nil
	}
	switch kind {
	case 0:
		f.injected("EC2: throttled")
		return &ec2.Fault{Code: "RequestLimitExceeded"}
	case 1:
		f.injected("EC2: 500")
		return &ec2.Fault{Code: "InternalError", Status: http.StatusInternalServerError}
	case 2:
		f.injected("EC2: 503")
		return &ec2.Fault{Code: "Unavailable", Status: http.StatusServiceUnavailable}
	}
	f.injected("EC2: slow call")
	return &ec2.Fault{Delay: 3 * time.Second}
}

// counted returns the injected faults by kind.
func (f *faults) counted() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	for k, n := range f.count {
		out[strings.TrimSpace(k)] = n
	}
	return out
}

// passages returns how often each point was passed, by name.
func (f *faults) passages() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	for _, p := range points {
		out[p.String()] = f.passed[p]
	}
	return out
}

// Kinds returns the kinds of faults, other than kills at points.
func Kinds() []string {
	return []string{
		"API server: 429",
		"API server: 500",
		"API server: 503",
		"API server: all claims and Nodes changed by somebody else",
		"API server: answer lost",
		"API server: conflict",
		"API server: connection cut",
		replacedUnseen,
		"API server: slow call",
		"API server: slow watches",
		"API server: time-out after effect",
		"API server: watches lost",
		"API server: watches lost and expired",
		"EC2: 500",
		"EC2: 503",
		"EC2: a zone without capacity",
		"EC2: connection cut",
		"EC2: instance described late",
		"EC2: instance terminated behind our back",
		"EC2: slow call",
		"EC2: throttled",
		"EC2: time-out after effect",
		secondProfile,
		"clock jump",
		consolidates,
		consolidatesBalanced,
		consolidatesAged,
		consolidatesAtOnce,
		edits,
		"kill at any moment",
		freshTainted,
		noDevices,
		nodesDenied,
		refusedByOurs,
		"restart in order",
		buffersEdited,
		nodeFails,
		recommended,
		reclaimed,
		"two leaders for a moment",
	}
}
