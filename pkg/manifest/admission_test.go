package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

func TestWhatAdmissionAdds(t *testing.T) {
	const classes = `
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000, preemptionPolicy: Never}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: vm}, handler: vm, overhead: {podFixed: {cpu: 250m}},
 scheduling: {nodeSelector: {vm: "yes"}, tolerations: [{key: vm, operator: Exists}]}}
---
`
	for _, tc := range []struct {
		name, text, pod string
		priority        int32
		cpu, memory     string
		policy          corev1.PreemptionPolicy
		selector        map[string]string
		warnings        []string
	}{
		{name: "nothing to add", priority: 0, cpu: "0", memory: "0"},
		{name: "requests follow limits", pod: "containers: [{name: c, image: c, resources: {limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 1}}}]", cpu: "1", memory: "1Gi"},
		{name: "the priority of a class", text: classes, pod: "priorityClassName: high", priority: 1000, policy: corev1.PreemptNever, cpu: "0", memory: "0"},
		{name: "of the system's own", pod: "priorityClassName: system-node-critical", priority: 2000001000, cpu: "0", memory: "0"},
		{name: "of the default class", text: "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: usual}, value: 7, globalDefault: true}\n---\n", priority: 7, cpu: "0", memory: "0"},
		{name: "of a class that isn't in the input", pod: "priorityClassName: high", cpu: "0", memory: "0",
			warnings: []string{"Deployment default/web: there is no PriorityClass high in the input: planned with priority 0"}},
		{name: "what a runtime class costs, and where it is", text: classes, pod: "runtimeClassName: vm", cpu: "250m", memory: "0", selector: map[string]string{"vm": "yes"}},
		{name: "a runtime class that isn't in the input", pod: "runtimeClassName: vm", cpu: "0", memory: "0",
			warnings: []string{"Deployment default/web: there is no RuntimeClass vm in the input: planned without its overhead"}},
		{name: "the defaults of a limit range", cpu: "300m", memory: "1Gi",
			text: "{apiVersion: v1, kind: LimitRange, metadata: {name: usual}, spec: {limits: [{type: Container, default: {cpu: 1, memory: 1Gi}, defaultRequest: {cpu: 300m}}]}}\n---\n"},
		{name: "which don't touch what is said", cpu: "100m", memory: "1Gi", pod: "containers: [{name: c, image: c, resources: {requests: {cpu: 100m}}}]",
			text: "{apiVersion: v1, kind: LimitRange, metadata: {name: usual}, spec: {limits: [{type: Container, default: {cpu: 1, memory: 1Gi}, defaultRequest: {cpu: 300m}}]}}\n---\n"},
		{name: "those of another namespace", cpu: "0", memory: "0",
			text: "{apiVersion: v1, kind: LimitRange, metadata: {name: usual, namespace: other}, spec: {limits: [{type: Container, default: {cpu: 1}}]}}\n---\n"},
		{name: "classes of a DaemonSet that aren't in the input", cpu: "0", memory: "0",
			text: "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent}, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, " +
				"spec: {priorityClassName: high, runtimeClassName: vm, containers: [{name: c, image: c}]}}}}\n---\n",
			warnings: []string{"DaemonSet default/agent: there is no PriorityClass high in the input: planned with priority 0",
				"DaemonSet default/agent: there is no RuntimeClass vm in the input: planned without its overhead"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := "containers: [{name: c, image: c}]"
			if tc.pod != "" {
				spec = tc.pod
				if tc.pod[0] != 'c' {
					spec = "containers: [{name: c, image: c}], " + tc.pod
				}
			}
			s := read(t, tc.text+"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: {app: web}}, "+
				"template: {metadata: {labels: {app: web}}, spec: {"+spec+"}}}}")
			pods := s.Pods()
			if len(pods) != 2 {
				t.Fatalf("%d pods", len(pods))
			}
			for _, pod := range pods {
				asks := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
				got := []any{*pod.Spec.Priority, asks.Cpu().String(), asks.Memory().String(), pod.Spec.NodeSelector}
				if diff := cmp.Diff([]any{tc.priority, tc.cpu, tc.memory, tc.selector}, got); diff != "" {
					t.Errorf("priority, cpu, memory, node selector (-want +got):\n%s", diff)
				}
				if tc.policy != "" && *pod.Spec.PreemptionPolicy != tc.policy {
					t.Errorf("preemption policy %s, want %s", *pod.Spec.PreemptionPolicy, tc.policy)
				}
			}
			if diff := cmp.Diff(tc.warnings, s.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}
