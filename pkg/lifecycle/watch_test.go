package lifecycle

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// After a watch was interrupted, a pod that was deleted and created again under its name is reported as one update: the old one has left
// its node.
func TestPodThatWasReplacedHasLeftItsNode(t *testing.T) {
	w := newWorld(t)
	w.up("a")
	name := w.claim("a").Status.NodeName
	w.c.watcher.podEvents.forget(name)
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "db-0", UID: "1"}, Spec: corev1.PodSpec{NodeName: name}}
	made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "db-0", UID: "2"}}
	w.c.watcher.handlePods().OnUpdate(old, made)
	if at, ok := w.c.watcher.podEvents.get(name); !ok || !at.Equal(w.clock.Now()) {
		t.Errorf("its leaving is noted: %t, at %v", ok, at)
	}
}
