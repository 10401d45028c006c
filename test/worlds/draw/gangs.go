package draw

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
)

// GangLabel is the label with the name of a pod's group.
const GangLabel = "scheduling.x-k8s.io/pod-group"

// gang draws workers and their leader, with different requests, that start together or not at all.
func (g *generator) gang() []client.Object {
	name := fmt.Sprintf("gang-%d", len(g.w.Gangs))
	workers := int32(g.between(2, max(2, g.size.Replicas/2)))
	group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": int64(workers + 1)}}}
	group.SetGroupVersionKind(schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroup"})
	group.SetNamespace(g.w.Namespace)
	group.SetName(name)
	g.w.Gangs[name] = int(workers) + 1
	zone := ""
	if g.maybe(0.3) {
		zone = pick(g, zones...)
	}
	g.tell("%s of 1 and %d", name, workers)
	return []client.Object{group, g.members(name, name+"-leader", 1, zone), g.members(name, name+"-worker", workers, zone)}
}

// members returns the pods of a gang that have the same requests.
func (g *generator) members(gang, name string, n int32, zone string) client.Object {
	pod := g.pod(name)
	pod.Labels[GangLabel] = gang
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Annotations = map[string]string{kubelet.RunFor: "1h"}
	if zone != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: zone}
	}
	return &batchv1.Job{ObjectMeta: g.meta(name), Spec: batchv1.JobSpec{Parallelism: &n, Completions: &n, Template: *pod}}
}
