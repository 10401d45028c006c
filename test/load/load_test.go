package load

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

func TestDue(t *testing.T) {
	stream := &Load{PerSec: 50, Life: time.Minute}
	bursts := &Load{PerSec: 1, Life: time.Minute, Bursts: true}
	for _, tc := range []struct {
		l     *Load
		since time.Duration
		want  int
	}{
		{stream, -time.Second, 0}, {stream, 0, 0}, {stream, 10 * time.Second, 500},
		{bursts, -time.Second, 0}, {bursts, 0, 60}, {bursts, 119 * time.Second, 60}, {bursts, 2 * time.Minute, 120},
	} {
		if got := tc.l.due(tc.since); got != tc.want {
			t.Errorf("after %s %d pods were due (bursts %v), want %d", tc.since, got, tc.l.Bursts, tc.want)
		}
	}
}

// A pod counts once: as bound when it is first seen with a node, or as lost if it is deleted before.
func TestBindings(t *testing.T) {
	begin := time.Unix(1000, 0)
	b := newBindings(func(p *corev1.Pod) string { return p.Labels["app"] })
	pod := func(uid, app, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + uid, UID: types.UID(uid), Labels: map[string]string{"app": app}}, Spec: corev1.PodSpec{NodeName: node}}
	}
	b.observe(pod("1", "a", ""), begin)
	b.observe(pod("1", "a", "n"), begin.Add(time.Second))
	b.observe(pod("1", "a", "n"), begin.Add(time.Minute))
	b.forget(pod("1", "a", "n"))
	b.observe(pod("2", "a", ""), begin.Add(time.Minute))
	b.forget(cache.DeletedFinalStateUnknown{Obj: pod("2", "a", "")})
	b.observe(pod("3", "a", ""), begin)
	b.observe(pod("4", "b", ""), begin)
	b.forget(pod("4", "b", "n")) // bound and deleted while the watch was interrupted
	b.observe(pod("5", "c", "n"), begin)
	for name, unplaced := range map[string]bool{"pod-1": true, "pod-3": true, "pod-5": false, "pod-6": true} {
		if b.Unplaced(name) != unplaced {
			t.Errorf("%s is unplaced: %v", name, !unplaced)
		}
	}
	if seen, bound, lost := b.Count("a"); seen != 3 || bound != 1 || lost != 1 {
		t.Errorf("a: %d seen, %d bound, %d lost", seen, bound, lost)
	}
	if seen, bound, lost := b.Count("b"); seen != 1 || bound != 1 || lost != 0 {
		t.Errorf("b: %d seen, %d bound, %d lost", seen, bound, lost)
	}
	// 1 was bound, 3 waits; 2 was deleted while it waited.
	if got, want := b.Between("a", begin, begin.Add(time.Second)), []Binding{{begin, begin.Add(time.Second)}, {Seen: begin}}; !slices.Equal(got, want) {
		t.Errorf("at first came %v, want %v", got, want)
	}
	if got, want := b.Between("a", begin.Add(time.Second), begin.Add(time.Hour)), []Binding{{Seen: begin.Add(time.Minute)}}; !slices.Equal(got, want) {
		t.Errorf("then came %v, want %v", got, want)
	}
	b.observe(pod("3", "a", "n"), begin.Add(time.Hour))
	if got := b.Between("a", begin, begin.Add(time.Second)); len(got) != 2 || got[1].Bound.Sub(got[1].Seen) != time.Hour {
		t.Errorf("the slowest pod came in that time, too: %v", got)
	}
	if last, err := b.Until(t.Context(), "a", 1, nil); err != nil || !last.Equal(begin.Add(time.Second)) {
		t.Errorf("the last was bound at %s: %v", last, err)
	}
}
