package devices

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A count that ran out of time, or that failed, is no truth about the node: it is made again.
func TestACountThatWasCutOffIsMadeAgain(t *testing.T) {
	l := newLesson(t)
	l.declare(two)
	node := &corev1.Node{}
	node.Name = "n1"
	l.SliceChanged(publish("n1", 0, 1, "a", "b"), false)
	free := func(want int64) {
		t.Helper()
		if got := l.Free().On(node)[l.shape]; got != want {
			t.Errorf("%d devices are free, want %d", got, want)
		}
	}
	l.allocator.time = -time.Second
	l.expect("without time", 0)
	free(0)
	l.allocator.time = countTime
	l.expect("not at once: each may take its time", 0)
	l.pass(recountAfter - time.Second)
	l.Tend()
	l.expect("not yet", 0)
	l.pass(tendEvery)
	l.expect("the next time", 2)
	free(2)
	l.allocator.time = -time.Second
	l.expect("from the cache", 2)
}

func TestRefusedPodsArePlannedForAgainAfterACutOffCount(t *testing.T) {
	l := newLesson(t)
	l.declare(two)
	l.allocator.time = -time.Second
	l.expect("without time", 0)
	l.pass(recountAfter)
	if !l.Tend() {
		t.Error("pods that were refused are not planned for again")
	}
	if l.pass(recountAfter); l.Tend() {
		t.Error("the same is told twice")
	}
}
