package clustermetrics

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	facts "github.com/dovetail-scheduler/dovetail/pkg/objects"
)

var everything = labels.Everything()

// nodeLabels are labels of series about nodes. Each is named like a label of the Node, without the prefix and with _ instead of -. Of Karpenter's
// they are those by which users select nodes; what follows from the instance type alone (its hypervisor, the clock rate of its CPU)
// is left out.
var nodeLabels = []string{"nodepool", "region", "zone", "zone_id", "arch", "os", "capacity_type", "instance_type", "instance_category", "instance_family",
	"instance_generation", "instance_size", "instance_cpu", "instance_memory", "instance_network_bandwidth", "instance_gpu_name", "instance_gpu_count"}

// nodeGauge describes a gauge with a series per node and resource.
func nodeGauge(o prometheus.Opts) *gauge {
	return newGauge(o, append([]string{"node_name", "phase", "managed", "resource_type"}, nodeLabels...)...)
}

var (
	allocatable = nodeGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "nodes", Name: "allocatable",
		Help: "What a node has for pods, by resource."})
	podRequests = nodeGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "nodes", Name: "total_pod_requests",
		Help: "What the pods on a node request, including those of DaemonSets, by resource."})
	podLimits = nodeGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "nodes", Name: "total_pod_limits",
		Help: "What the pods on a node are limited to, including those of DaemonSets, by resource."})
	daemonRequests = nodeGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "nodes", Name: "total_daemon_requests",
		Help: "What the pods of DaemonSets on a node request, by resource."})
	daemonLimits = nodeGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "nodes", Name: "total_daemon_limits",
		Help: "What the pods of DaemonSets on a node are limited to, by resource."})
	overhead = nodeGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "nodes", Name: "system_overhead",
		Help: "What a node has and pods don't get, by resource."})
	lifetime = nodeGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "nodes", Name: "current_lifetime_seconds",
		Help: "How long ago a Node was created."})
	utilization = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "cluster", Name: "utilization_percent",
		Help: "How much of what all nodes have their pods request, by resource."}, "resource_type")

	podState = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "pods", Name: "state",
		Help: "1 for each pod; the labels say where it is and how it fares."},
		"name", "namespace", "owner", "node", "scheduled", "nodepool", "zone", "arch", "capacity_type", "instance_type", "phase", "ready", "managed")
	podUnbound = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "pods", Name: "unbound_time_seconds",
		Help: "How long ago a pod that isn't bound was created."}, "name", "namespace")
	podUnstarted = newGauge(prometheus.Opts{Namespace: "karpenter", Subsystem: "pods", Name: "unstarted_time_seconds",
		Help: "How long ago a pod that is still Pending was created."}, "name", "namespace")
)

// gauges are all that the collector exports.
var gauges = slices.Concat([]*gauge{poolUsage, poolLimit, poolCost, offerPrice, offerAvailable, typeCores, typeMemory, synced, unsynced, nodeCount, queueDepth, unschedulable,
	podsWaiting, nodesInFlight, lowerBound, allocatable, podRequests, podLimits, daemonRequests, daemonLimits, overhead, lifetime, utilization, podState, podUnbound, podUnstarted},
	claimConditions.gauges.all(), poolConditions.gauges.all(), classConditions.gauges.all(), nodeConditions.gauges.all(),
	bufferConditions.gauges.all(), anyConditions.all())

// load is what the pods on a node ask for.
type load struct {
	requests, limits, daemonRequests, daemonLimits corev1.ResourceList
}

// objects adds what there is for each node and pod.
func objects(l *list, src *Source, now time.Time) error {
	nodes, err := src.Nodes.List(everything)
	if err != nil {
		return err
	}
	all, err := src.Pods.List(everything)
	if err != nil {
		return err
	}
	byName := make(map[string]*corev1.Node, len(nodes))
	loads := make(map[string]*load, len(nodes))
	for _, n := range nodes {
		byName[n.Name], loads[n.Name] = n, &load{corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}}
	}
	for _, p := range all {
		if on := loads[p.Spec.NodeName]; on != nil && !facts.Ended(p) {
			on.add(p)
		}
		if !src.Objectless {
			on := byName[p.Spec.NodeName]
			pod(l, p, on, on != nil && src.NodeClass.Managed(on), now)
		}
	}
	resources := resourcePairs{}
	have, asked := corev1.ResourceList{}, corev1.ResourceList{}
	for _, n := range nodes {
		sum(have, n.Status.Allocatable)
		sum(asked, loads[n.Name].requests)
		if !src.Objectless {
			node(l, n, src.NodeClass.Managed(n), loads[n.Name], resources, now)
		}
	}
	for name, q := range have {
		if of := amount(name, q); of > 0 {
			l.add(utilization, []*dto.LabelPair{resources.of(name)}, 100*amount(name, asked[name])/of)
		}
	}
	return nil
}

// add adds a pod.
func (o *load) add(p *corev1.Pod) {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	requests, limits := podRequestsOf(p), resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{})
	requests[corev1.ResourcePods], limits[corev1.ResourcePods] = one, one
	sum(o.requests, requests)
	sum(o.limits, limits)
	if pods.Daemon(p) {
		sum(o.daemonRequests, requests)
		sum(o.daemonLimits, limits)
	}
}

func podRequestsOf(p *corev1.Pod) corev1.ResourceList {
	return resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
}

// sum adds amounts to a list.
func sum(to, amounts corev1.ResourceList) {
	for name, q := range amounts {
		have := to[name]
		have.Add(q)
		to[name] = have
	}
}

// node adds the series of a node.
func node(l *list, n *corev1.Node, managed bool, on *load, resources resourcePairs, now time.Time) {
	values := []string{"node_name", n.Name, "phase", string(n.Status.Phase), "managed", strconv.FormatBool(managed)}
	for key, value := range n.Labels {
		if name := wellKnown()[key]; name != "" {
			values = append(values, name, value)
		}
	}
	of := pairs(values...)
	rest := corev1.ResourceList{}
	for name, q := range n.Status.Capacity {
		left := q.DeepCopy()
		left.Sub(n.Status.Allocatable[name])
		rest[name] = left
	}
	// Where there are no pods of DaemonSets, zeros are exported: in PromQL a sum with a missing series would have no result.
	zero := corev1.ResourceList{corev1.ResourceCPU: {}, corev1.ResourceMemory: {}, corev1.ResourcePods: {}}
	for _, r := range []struct {
		of      *gauge
		amounts corev1.ResourceList
	}{{allocatable, n.Status.Allocatable}, {podRequests, orZero(on.requests, zero)}, {podLimits, orZero(on.limits, zero)},
		{daemonRequests, orZero(on.daemonRequests, zero)}, {daemonLimits, orZero(on.daemonLimits, zero)}, {overhead, rest}} {
		for name, q := range r.amounts {
			l.add(r.of, with(of, resources.of(name)), amount(name, q))
		}
	}
	l.add(lifetime, of, now.Sub(n.CreationTimestamp.Time).Seconds())
}

// orZero adds the amounts that are missing.
func orZero(amounts, zero corev1.ResourceList) corev1.ResourceList {
	for name, q := range zero {
		if _, there := amounts[name]; !there {
			amounts[name] = q
		}
	}
	return amounts
}

// wellKnown returns the labels of series about nodes by the label of the Node. It is worked out when it is first needed: clouds add to
// Karpenter's well-known labels when the program starts.
var wellKnown = sync.OnceValue(func() map[string]string {
	out := map[string]string{}
	for key := range karpv1.WellKnownLabels {
		_, name, _ := strings.Cut(key, "/")
		if name = strings.ReplaceAll(name, "-", "_"); slices.Contains(nodeLabels, name) {
			out[key] = name
		}
	}
	return out
})

// pod adds the series of a pod. on is its node, if there is one, and managed whether that is.
func pod(l *list, p *corev1.Pod, on *corev1.Node, managed bool, now time.Time) {
	owner := ""
	if len(p.OwnerReferences) > 0 {
		o := &p.OwnerReferences[0]
		owner = "/apis/" + o.APIVersion + "/namespaces/" + p.Namespace + "/" + strings.ToLower(o.Kind) + "s/" + o.Name
	}
	values := []string{"name", p.Name, "namespace", p.Namespace, "owner", owner, "node", p.Spec.NodeName, "phase", string(p.Status.Phase),
		"scheduled", strconv.FormatBool(p.Spec.NodeName != ""), "ready", strconv.FormatBool(ready(p)), "managed", strconv.FormatBool(managed)}
	if on != nil {
		values = append(values, "nodepool", on.Labels[karpv1.NodePoolLabelKey], "zone", on.Labels[corev1.LabelTopologyZone], "arch", on.Labels[corev1.LabelArchStable],
			"capacity_type", on.Labels[karpv1.CapacityTypeLabelKey], "instance_type", on.Labels[corev1.LabelInstanceTypeStable])
	}
	l.add(podState, pairs(values...), 1)
	if p.Status.Phase != corev1.PodPending {
		return
	}
	of, age := pairs("name", p.Name, "namespace", p.Namespace), now.Sub(p.CreationTimestamp.Time).Seconds()
	l.add(podUnstarted, of, age)
	if p.Spec.NodeName == "" {
		l.add(podUnbound, of, age)
	}
}

// ready reports whether the pod's condition says that it is Ready.
func ready(p *corev1.Pod) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
