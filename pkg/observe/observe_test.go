package observe

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

func TestChanges(t *testing.T) {
	pod := func(uid types.UID, version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", UID: uid, ResourceVersion: version}}
	}
	old, now, made := pod("1", "1"), pod("1", "2"), pod("2", "3")
	var got [][2]*corev1.Pod
	h := Changes(func(before, after *corev1.Pod) { got = append(got, [2]*corev1.Pod{before, after}) })
	for _, c := range []struct {
		name  string
		event func()
		want  [][2]*corev1.Pod
	}{
		{"added", func() { h.OnAdd(old, false) }, [][2]*corev1.Pod{{nil, old}}},
		{"changed", func() { h.OnUpdate(old, now) }, [][2]*corev1.Pod{{old, now}}},
		{"deleted and created again while the watch was interrupted", func() { h.OnUpdate(now, made) }, [][2]*corev1.Pod{{now, nil}, {nil, made}}},
		{"deleted", func() { h.OnDelete(made) }, [][2]*corev1.Pod{{made, nil}}},
		{"deleted while the watch was interrupted", func() { h.OnDelete(cache.DeletedFinalStateUnknown{Obj: made}) }, [][2]*corev1.Pod{{made, nil}}},
		{"deleted, and nothing is known of it", func() { h.OnDelete(cache.DeletedFinalStateUnknown{Key: "db-0"}) }, nil},
	} {
		got = nil
		if c.event(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: called with %v, want %v", c.name, got, c.want)
		}
	}
}
