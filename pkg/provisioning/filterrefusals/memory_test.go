package filterrefusals

import (
	"fmt"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestMemoryIsBounded(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	m := New(clock)
	var pools []*capacity.Pool
	for i := range 10 {
		pools = append(pools, &capacity.Pool{Name: fmt.Sprintf("pool-%d", i)})
	}
	for i := range 3 * maxRefusals / 10 {
		class := capacity.ClassKey(fmt.Sprintf("class-%d", i))
		var found []capacity.Forbidden
		for _, p := range pools {
			found = append(found, capacity.Forbidden{Class: class, Pool: p.Name, Zone: "a"})
		}
		m.Keep(pools, class, found)
		if len(m.Recall(pools, []capacity.ClassKey{class})) != len(found) {
			t.Fatalf("%s is forgotten at once", class)
		}
		clock.SetTime(clock.Now().Add(time.Millisecond))
	}
	n := 0
	for _, all := range m.classes {
		n += len(all)
	}
	if n != m.size || n > maxRefusals {
		t.Errorf("%d are remembered, said to be %d", n, m.size)
	}
}
