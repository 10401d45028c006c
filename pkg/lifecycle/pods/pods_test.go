package pods

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestQuestions(t *testing.T) {
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }
	owner := func(apiVersion, kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind}}
	}
	note := func(k, v string) metav1.ObjectMeta { return metav1.ObjectMeta{Annotations: map[string]string{k: v}} }
	everything := corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}
	for _, tc := range []struct {
		name string
		pod  corev1.Pod
		want string // of: occupies awaited evictable critical
	}{
		{name: "plain", want: "occupies awaited evictable"},
		{name: "succeeded", pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}},
		{name: "failed", pod: corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}},
		{name: "ending", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: at(time.Second)}}, want: "occupies awaited"},
		{name: "should have ended a moment ago", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: at(-time.Minute)}}, want: "occupies awaited"},
		{name: "should have ended long ago", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: at(-time.Minute - time.Second)}}},
		{name: "daemon", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner("apps/v1", "DaemonSet")}}, want: "awaited evictable"},
		{name: "another thing called DaemonSet", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner("example.com/v1", "DaemonSet")}}, want: "occupies awaited evictable"},
		{name: "daemon that tolerates everything", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner("apps/v1", "DaemonSet")}, Spec: everything}},
		{name: "tolerates everything", pod: corev1.Pod{Spec: everything}, want: "occupies"},
		{name: "tolerates the taint as NoExecute only", pod: corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{
			{Key: "karpenter.sh/disrupted", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}}}, want: "occupies awaited evictable"},
		{name: "static, by its owner", pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: owner("v1", "Node")}}},
		{name: "static, by its annotation", pod: corev1.Pod{ObjectMeta: note(corev1.MirrorPodAnnotationKey, "x")}},
		{name: "critical by class", pod: corev1.Pod{Spec: corev1.PodSpec{PriorityClassName: "system-cluster-critical"}}, want: "occupies awaited evictable critical"},
		{name: "critical by number", pod: corev1.Pod{Spec: corev1.PodSpec{Priority: new(int32(2_000_000_000))}}, want: "occupies awaited evictable critical"},
		{name: "important is not critical", pod: corev1.Pod{Spec: corev1.PodSpec{Priority: new(int32(1_000_000_000))}}, want: "occupies awaited evictable"},
		{name: "asks not to be disrupted", pod: corev1.Pod{ObjectMeta: note("karpenter.sh/do-not-disrupt", "true")}, want: "occupies awaited"},
		{name: "asks in other words", pod: corev1.Pod{ObjectMeta: note("karpenter.sh/do-not-disrupt", "True")}, want: "occupies awaited"},
		{name: "asks for a day, which is no duration", pod: corev1.Pod{ObjectMeta: note("karpenter.sh/do-not-disrupt", "1d")}, want: "occupies awaited"},
		{name: "false is not true", pod: corev1.Pod{ObjectMeta: note("karpenter.sh/do-not-disrupt", "false")}, want: "occupies awaited evictable"},
		{name: "for an hour, started half an hour ago", want: "occupies awaited",
			pod: corev1.Pod{ObjectMeta: note("karpenter.sh/do-not-disrupt", "1h"), Status: corev1.PodStatus{StartTime: at(-30 * time.Minute)}}},
		{name: "for an hour, started two hours ago", want: "occupies awaited evictable",
			pod: corev1.Pod{ObjectMeta: note("karpenter.sh/do-not-disrupt", "1h"), Status: corev1.PodStatus{StartTime: at(-2 * time.Hour)}}},
		{name: "for an hour, not started", pod: corev1.Pod{ObjectMeta: note("karpenter.sh/do-not-disrupt", "1h")}, want: "occupies awaited"},
		{name: "for less than no time", pod: corev1.Pod{ObjectMeta: note("karpenter.sh/do-not-disrupt", "-1h")}, want: "occupies awaited evictable"},
		{name: "the older annotation", pod: corev1.Pod{ObjectMeta: note("karpenter.sh/do-not-evict", "true")}, want: "occupies awaited"},
		{name: "the other autoscaler's annotation", pod: corev1.Pod{ObjectMeta: note("cluster-autoscaler.kubernetes.io/safe-to-evict", "false")}, want: "occupies awaited"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			for _, q := range []struct {
				name string
				yes  bool
			}{
				{"occupies", Occupies(&tc.pod, now)}, {"awaited", Awaited(&tc.pod, now)},
				{"evictable", Evictable(&tc.pod, now)}, {"critical", Critical(&tc.pod)},
			} {
				if q.yes && got != "" {
					got += " "
				}
				if q.yes {
					got += q.name
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIndex(t *testing.T) {
	informer := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Pods().Informer()
	for range 2 { // more than one caller adds it
		if err := Index(informer); err != nil {
			t.Fatal(err)
		}
	}
	for name, node := range map[string]string{"a": "n1", "b": "n1", "c": "n2", "pending": ""} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: corev1.PodSpec{NodeName: node}}
		if err := informer.GetIndexer().Add(p); err != nil {
			t.Fatal(err)
		}
	}
	found, err := OnNode(informer.GetIndexer(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range found {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" {
		t.Errorf("on n1 (-want +got):\n%s", diff)
	}
}
