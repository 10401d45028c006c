package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// linesOf describes a pod in one line: its name, its controller and the labels that its controller set. Hashes become #.
func linesOf(pod *corev1.Pod) string {
	out := pod.Namespace + "/" + pod.Name
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		out += " of " + ref.Kind + " " + ref.Name
	}
	for _, key := range []string{"pod-template-hash", "apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name", "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-completion-index"} {
		if v, ok := pod.Labels[key]; ok {
			out += " " + key[strings.Index(key, "/")+1:] + "=" + v
		}
	}
	return hash.ReplaceAllString(out, "#")
}

var hash = regexp.MustCompile(`\b[b-df-hj-np-tv-xz24-9]{7,10}\b`)

func reportedAll(pods []*corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, linesOf(p))
	}
	return out
}

func TestPodsOfWorkloads(t *testing.T) {
	for _, tc := range []struct {
		name, text     string
		want, warnings []string
	}{
		{name: "a Deployment's are a ReplicaSet's", text: web("2", ""),
			want: []string{"default/web-#-1 of ReplicaSet web-# pod-template-hash=#", "default/web-#-2 of ReplicaSet web-# pod-template-hash=#"}},
		{name: "a ReplicaSet's", text: strings.Replace(web("1", ""), "Deployment", "ReplicaSet", 1), want: []string{"default/web-1 of ReplicaSet web"}},
		{name: "a ReplicaSet that belongs to a Deployment makes none here", text: strings.Replace(strings.Replace(web("1", ""), "Deployment", "ReplicaSet", 1),
			"{name: web}", "{name: web, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: x, controller: true}]}", 1)},
		{name: "none", text: web("0", "")},
		{name: "a StatefulSet's are numbered, from where it says", text: `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  ordinals: {start: 5}
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: c}]}}
`, want: []string{"default/db-5 of StatefulSet db pod-index=5 pod-name=db-5", "default/db-6 of StatefulSet db pod-index=6 pod-name=db-6"}},
		{name: "a Job's run at one time", text: `
apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec:
  parallelism: 3
  completions: 2
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: c}]}}
`, want: []string{"default/sum-1 of Job sum job-name=sum", "default/sum-2 of Job sum job-name=sum"}},
		{name: "an indexed Job's have an index", text: `
apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec:
  parallelism: 2
  completions: 9
  completionMode: Indexed
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: c}]}}
`, want: []string{"default/sum-0 of Job sum job-name=sum job-completion-index=0", "default/sum-1 of Job sum job-name=sum job-completion-index=1"}},
		{name: "a suspended Job has none", text: `
apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: c}]}}}
`, warnings: []string{"Job default/sum is suspended: it needs no capacity"}},
		{name: "a DaemonSet's come with nodes", text: strings.Replace(strings.Replace(web("1", ""), "Deployment", "DaemonSet", 1), "  replicas: 1\n", "", 1)},
		{name: "pods themselves, finished ones excepted", text: `
{apiVersion: v1, kind: Pod, metadata: {name: one}, spec: {containers: [{name: c, image: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {generateName: more-}, spec: {containers: [{name: c, image: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {generateName: more-}, spec: {containers: [{name: c, image: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: done}, spec: {containers: [{name: c, image: c}]}, status: {phase: Succeeded}}
`, want: []string{"default/one", "default/more-1", "default/more-2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := read(t, tc.text)
			pods := s.Pods()
			if diff := cmp.Diff(tc.want, reportedAll(pods)); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.warnings, s.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			ids := map[string]bool{}
			for _, p := range pods {
				ids[string(p.UID)] = true
			}
			if len(ids) != len(pods) || ids[""] {
				t.Errorf("%d pods have %d identities", len(pods), len(ids))
			}
			if again := read(t, tc.text).Pods(); !slices.EqualFunc(pods, again, func(a, b *corev1.Pod) bool { return a.UID == b.UID && a.Name == b.Name }) {
				t.Error("the same manifests gave other pods")
			}
		})
	}
}

// If some pods of a workload exist, only the missing ones are created.
func TestPodsThatAreThereCount(t *testing.T) {
	var there strings.Builder
	for i, of := range []string{"ReplicaSet/web-5d4f8c7b9", "ReplicaSet/web-5d4f8c7b9", "ReplicaSet/web-6c9d5f8b7", "ReplicaSet/webshop-5d4f8c7b9", "StatefulSet/db", "Job/sum"} {
		kind, name, _ := strings.Cut(of, "/")
		podName := fmt.Sprintf("%s-%d", name, i)
		if kind == "StatefulSet" {
			podName = "db-1"
		}
		phase := "Running"
		if i == 1 {
			phase = "Failed"
		}
		fmt.Fprintf(&there, "---\n{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: default, labels: {app: web}, ownerReferences: [{apiVersion: x/v1, kind: %s, name: %s, uid: u, controller: true}]}, spec: {nodeName: node-a, containers: []}, status: {phase: %s}}\n",
			podName, kind, name, phase)
	}
	file := filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(file, []byte(there.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Read(Options{Definitions: definitions, Manifests: []string{"-"}, Existing: []string{file}, Stdin: strings.NewReader(web("4", "") + `
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 3
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: c}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec: {parallelism: 2, completions: 2, template: {spec: {restartPolicy: Never, containers: [{name: c, image: c}]}}}
`)})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, pod := range s.Pods() {
		if pod.Spec.NodeName == "" {
			counts[metav1.GetControllerOfNoCopy(pod).Kind]++
			if pod.Name == "db-1" {
				t.Error("db-1 is there and was made once more")
			}
		}
	}
	// Two of four web pods exist (one more has failed, one belongs to webshop), one of three db pods, one of two of the Job.
	if diff := cmp.Diff(map[string]int{"ReplicaSet": 2, "StatefulSet": 2, "Job": 1}, counts); diff != "" {
		t.Errorf("pods made (-want +got):\n%s", diff)
	}
}
