package capacity

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestUndeclaredTaints(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	scanner := corev1.Taint{Key: "scanner", Value: "pending", Effect: corev1.TaintEffectNoExecute}
	see := func(pool, claim string) func(*UndeclaredTaints) {
		return func(u *UndeclaredTaints) { u.See(pool, claim, scanner, start) }
	}
	for _, tc := range []struct {
		name  string
		steps []func(*UndeclaredTaints)
		after time.Duration
		want  []UndeclaredTaint
	}{
		{name: "one node teaches nothing", steps: []func(*UndeclaredTaints){see("p", "a"), see("p", "a")}},
		{name: "two nodes do", steps: []func(*UndeclaredTaints){see("p", "a"), see("p", "b")}, want: []UndeclaredTaint{{Taint: scanner, Seen: start}}},
		{name: "of the same pool", steps: []func(*UndeclaredTaints){see("p", "a"), see("q", "b")}},
		{name: "a day without such a node", steps: []func(*UndeclaredTaints){see("p", "a"), see("p", "b")}, after: 24 * time.Hour},
		{name: "a node in that day", after: 30 * time.Hour, steps: []func(*UndeclaredTaints){see("p", "a"), see("p", "b"),
			func(u *UndeclaredTaints) { u.See("p", "c", scanner, start.Add(20*time.Hour)) }}, want: []UndeclaredTaint{{Taint: scanner, Seen: start.Add(20 * time.Hour)}}},
		{name: "the pool declares it, with whatever value", steps: []func(*UndeclaredTaints){see("p", "a"), see("p", "b"),
			func(u *UndeclaredTaints) {
				u.Declared("p", corev1.Taint{Key: "scanner", Effect: corev1.TaintEffectNoExecute})
			}}},
		{name: "as it was before a restart", steps: []func(*UndeclaredTaints){func(u *UndeclaredTaints) { u.Restore("p", []UndeclaredTaint{{Taint: scanner, Seen: start}}) }},
			want: []UndeclaredTaint{{Taint: scanner, Seen: start}}},
		{name: "the pool has gone", steps: []func(*UndeclaredTaints){see("p", "a"), see("p", "b"), func(u *UndeclaredTaints) { u.Forget("p") }}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var u UndeclaredTaints
			for _, step := range tc.steps {
				step(&u)
			}
			if diff := cmp.Diff(tc.want, u.Learned("p", start.Add(tc.after)), cmp.AllowUnexported(UndeclaredTaint{})); diff != "" {
				t.Errorf("learned (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTaintsOfOthers(t *testing.T) {
	for _, tc := range []struct {
		taint corev1.Taint
		want  bool
	}{
		{corev1.Taint{Key: "scanner", Effect: corev1.TaintEffectNoExecute}, true},
		{corev1.Taint{Key: "example.com/agent", Effect: corev1.TaintEffectNoExecute}, true},
		{corev1.Taint{Key: "example.com/agent", Effect: corev1.TaintEffectNoSchedule}, false},
		{corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}, false},
		{corev1.Taint{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}, false},
	} {
		if got := OthersTaint(&tc.taint); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.taint.ToString(), got, tc.want)
		}
	}
}
