package chaos

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A node has room for two pods. Those that are bound to it too many are a violation, except while a scheduler can't know better.
func TestRoom(t *testing.T) {
	const now, soon = 10 * time.Second, 11 * time.Second
	for _, tc := range []struct {
		name     string
		pods     int
		unheard  map[string]time.Duration // by pod: until when
		together time.Duration            // until when
		crowded  bool
		bad      bool
	}{
		{name: "they fit", pods: 2},
		{name: "one too many", pods: 3, bad: true},
		{name: "one too many beside another leader", pods: 3, together: now},
		{name: "one too many long after another leader", pods: 3, together: now - 1, bad: true},
		{name: "one too many, and the answer to one binding is lost", pods: 3, unheard: map[string]time.Duration{"p0": soon}},
		{name: "two too many, and the answer to one binding is lost", pods: 4, unheard: map[string]time.Duration{"p0": soon}, bad: true},
		{name: "two too many, and the answers to two bindings are lost", pods: 4, unheard: map[string]time.Duration{"p0": soon, "p1": now}},
		{name: "one too many long after the answer to a binding was lost", pods: 3, unheard: map[string]time.Duration{"p0": now - 1}, bad: true},
		{name: "one too many, and the answer to another node's binding is lost", pods: 3, unheard: map[string]time.Duration{"elsewhere": soon}, bad: true},
		{name: "one too many, until the kubelet rejects it", pods: 3, crowded: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, begin := newRoom(), time.Unix(0, 0)
			r.together = begin.Add(tc.together)
			for name, until := range tc.unheard {
				r.unanswered(fmt.Appendf(nil, `{"kind":"Binding","metadata":{"name":%q,"uid":%q},"target":{"name":"n"}}`, name, name), begin.Add(until))
			}
			if tc.crowded {
				r.crowded.Insert("n")
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}
			node.Status.Allocatable = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("5Gi"), corev1.ResourcePods: resource.MustParse("9")}
			v := &view{nodes: map[string]*corev1.Node{"n": node}, pods: map[types.UID]*corev1.Pod{}}
			for i := range tc.pods {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("p", i))}, Spec: corev1.PodSpec{NodeName: "n"}}
				p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("2Gi")}}}}
				v.pods[p.UID] = p
			}
			if _, err := r.look(v, begin.Add(now)); (err != nil) != tc.bad {
				t.Errorf("%d pods with room for 2: %v", tc.pods, err)
			}
		})
	}
}

// A kubelet that rejects a pod because its machine keeps more memory than planned is a violation; one on a Node that two leaders have filled isn't, nor is one
// that rejects a DaemonSet's pod or for another reason.
func TestRejected(t *testing.T) {
	for _, tc := range []struct {
		name, reason, app string
		crowded           bool
		bad               bool
	}{
		{name: "a pod", reason: "OutOfmemory", app: "web", bad: true},
		{name: "on a crowded node", reason: "OutOfmemory", app: "web", crowded: true},
		{name: "of a DaemonSet", reason: "OutOfmemory", app: daemon},
		{name: "for another reason", reason: "OutOfpods", app: "web"},
	} {
		r := newRoom()
		if tc.crowded {
			r.crowded.Insert("n")
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Labels: map[string]string{appLabel: tc.app}}, Spec: corev1.PodSpec{NodeName: "n"}}
		p.Status.Phase, p.Status.Reason = corev1.PodFailed, tc.reason
		v := &view{nodes: map[string]*corev1.Node{"n": {ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}}, pods: map[types.UID]*corev1.Pod{"p": p}}
		if _, err := r.look(v, time.Unix(1, 0)); (err != nil) != tc.bad {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
