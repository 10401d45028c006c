package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
)

const (
	namespace     = "default"
	schedulerName = "dovetail-scheduler"
	appLabel      = "app"
)

// shape is one workload of the demonstration.
type shape struct {
	name string
	why  string // what is special about it
	pods int
	job  bool
	pod  corev1.PodSpec
	// placed returns an error that describes what is wrong with where the shape's pods are; nil if nothing is.
	placed func(pods []*corev1.Pod, nodes map[string]*corev1.Node) error
}

// shapes divides n pods among the workloads; the misfit, which fits no node, is not among them.
func shapes(n int) []shape {
	list := []shape{
		{name: "spread", why: "across zones, maxSkew 1", pods: n * 20 / 100, pod: pod("500m", "1Gi"), placed: evenZones},
		{name: "quorum", why: "never two on a node", pods: min(n*5/100, 30), pod: pod("1", "2Gi"), placed: oneEach},
		{name: "arm", why: "arm64 only", pods: n * 15 / 100, pod: pod("500m", "2Gi"), placed: allOnARM},
		{name: "cache", why: "mostly memory", pods: n * 10 / 100, pod: pod("250m", "6Gi")},
		{name: "batch", why: "a Job, bound once the node has joined", pods: n * 10 / 100, job: true, pod: pod("1", "1Gi")},
	}
	rest := n
	for _, s := range list {
		rest -= s.pods
	}
	list = append([]shape{{name: "web", why: "plain", pods: rest, pod: pod("250m", "512Mi")}}, list...)
	for i := range list {
		s := &list[i]
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: s.name}}
		switch s.name {
		case "spread":
			s.pod.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector,
			}}
		case "quorum":
			s.pod.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname, LabelSelector: selector}},
			}}
		case "arm":
			s.pod.NodeSelector = map[string]string{corev1.LabelArchStable: "arm64"}
			s.pod.Tolerations = []corev1.Toleration{{Key: corev1.LabelArchStable, Operator: corev1.TolerationOpExists}} // the pool's taint
		case "batch":
			s.pod.RestartPolicy = corev1.RestartPolicyNever
		}
	}
	return list
}

// misfit is the workload that no instance type can run.
func misfit() shape {
	return shape{name: "misfit", why: "asks for more than any machine has", pods: 1, pod: pod("1000", "1Gi")}
}

func pod(cpu, memory string) corev1.PodSpec {
	return corev1.PodSpec{
		SchedulerName:                 schedulerName,
		TerminationGracePeriodSeconds: ptr.To[int64](1),
		Containers: []corev1.Container{{
			Name: "main", Image: "registry.invalid/main",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
			}},
		}},
	}
}

// object returns the Deployment or Job of the shape.
func (s shape) object() client.Object {
	labels := map[string]string{appLabel: s.name}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: s.name, Labels: labels}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: s.pod}
	if s.job {
		template.Annotations = map[string]string{kubelet.RunFor: "1h"} // longer than the demonstration
	}
	count := ptr.To(int32(s.pods))
	if s.job {
		return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{
			Parallelism: count, Completions: count, Template: template,
			// Without this rule, one node's evicted pods would be more failures than a Job tolerates. And without a limit per index
			// the Job controller would wait 10 s after the first failure and twice as long after each further one: five minutes for
			// six.
			CompletionMode: ptr.To(batchv1.IndexedCompletion), BackoffLimitPerIndex: ptr.To[int32](6),
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:          batchv1.PodFailurePolicyActionIgnore,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
			}}},
		}}
	}
	return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: count, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
	}}
}

// describe returns the line of the demonstration that lists the shape.
func (s shape) describe() string {
	c := s.pod.Containers[0].Resources.Requests
	return fmt.Sprintf("%-8s %4d pods of %5s CPU, %6s  %s", s.name, s.pods, c.Cpu(), c.Memory(), s.why)
}

// evenZones counts as kube-scheduler does: a zone exists once it has a node. On a slow host, pods may be scheduled while only some of
// the zones have a node, so it doesn't blame those pods for the skew.
func evenZones(pods []*corev1.Pod, nodes map[string]*corev1.Node) error {
	first := map[string]time.Time{} // when each zone's first node was created
	for _, n := range nodes {
		zone, came := n.Labels[corev1.LabelTopologyZone], n.CreationTimestamp.Time
		if known, ok := first[zone]; !ok || came.Before(known) {
			first[zone] = came
		}
	}
	var all time.Time // from here on, every zone has a node
	for _, came := range first {
		if came.After(all) {
			all = came
		}
	}
	counts, before := map[string]int{}, map[string]int{}
	for zone := range first {
		counts[zone], before[zone] = 0, 0 // a zone without a pod counts too
	}
	for _, p := range pods {
		zone := nodes[p.Spec.NodeName].Labels[corev1.LabelTopologyZone]
		counts[zone]++
		if scheduled(p).Before(all) {
			before[zone]++
		}
	}
	low := math.MaxInt
	for _, n := range counts {
		low = min(low, n)
	}
	for zone, n := range counts {
		if n > before[zone] && n > low+1 {
			return fmt.Errorf("zones hold %v pods: more than 1 apart", counts)
		}
	}
	return nil
}

// scheduled returns when the pod was scheduled, to the second, or a time far in the future if no condition states it.
func scheduled(p *corev1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Unix(1<<40, 0)
}

func oneEach(pods []*corev1.Pod, _ map[string]*corev1.Node) error {
	on := map[string]string{}
	var twice []string
	for _, p := range pods {
		if other := on[p.Spec.NodeName]; other != "" {
			twice = append(twice, fmt.Sprintf("%s and %s on %s", other, p.Name, p.Spec.NodeName))
		}
		on[p.Spec.NodeName] = p.Name
	}
	if len(twice) > 0 {
		return fmt.Errorf("two pods share a node: %s", strings.Join(twice, ", "))
	}
	return nil
}

func allOnARM(pods []*corev1.Pod, nodes map[string]*corev1.Node) error {
	for _, p := range pods {
		if arch := nodes[p.Spec.NodeName].Labels[corev1.LabelArchStable]; arch != "arm64" {
			return fmt.Errorf("%s is on %s, whose architecture is %q", p.Name, p.Spec.NodeName, arch)
		}
	}
	return nil
}
