package launch

import (
	"slices"
	"strings"
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const volumeLimit = "Client.VolumeLimitExceeded: Volume limit exceeded"

// When EC2 ends an instance before it is a node, the events of its pods have EC2's reason.
func TestPodsHearWhyAnInstanceEnded(t *testing.T) {
	w := newWorld(t)
	w.during["Describe"] = func() {
		for id, i := range w.instances {
			i.State, i.EndReason = capacity.InstanceTerminated, volumeLimit
			w.instances[id] = i
		}
	}
	w.run()
	w.submit(1)
	w.until("the pod told", func() bool {
		return slices.ContainsFunc(w.notes, func(n string) bool {
			return strings.HasPrefix(n, "p0 LaunchFailed node pool-") && strings.HasSuffix(n, " failed to start: instance i-0001 is terminated: "+volumeLimit)
		})
	})
}

// When an instance with a claim but no kubelet yet is given up, the pods that wait for it get one event that says why.
func TestPodsHearWhyANodeIsGivenUp(t *testing.T) {
	w := newWorld(t)
	w.unnamed = true // no Node is created ahead: the pod waits for one
	w.run()
	w.submit(1)
	var name string
	w.until("the claim launched", func() bool {
		for n, c := range w.claims {
			name = n
			return c.Launched
		}
		return false
	})
	w.parts.Claims.GivingUp(name, "the instance is terminated: "+volumeLimit)
	for range 2 {
		w.mu.Lock()
		w.claims[name].Deleting = true
		w.mu.Unlock()
		w.parts.Claims.ClaimGone(name, "its NodeClaim was deleted")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	want := "p0 LaunchFailed node " + name + " failed to start: the instance is terminated: " + volumeLimit
	if n := strings.Count(strings.Join(w.notes, "\n"), want); n != 1 {
		t.Errorf("told %d times: %q", n, w.notes)
	}
}
