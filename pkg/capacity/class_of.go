package capacity

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	schedhelper "k8s.io/component-helpers/scheduling/corev1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// bindEarly is the only value of objects.AnnotationBind.
const bindEarly = "early"

// ErrNotPlannable is wrapped by ClassOf's errors: capacity can't help this pod as it is.
var ErrNotPlannable = errors.New("pod can't be planned for")

// VolumeInfo is what the caller knows about a pod's volumes; the zero value is a pod without volumes.
type VolumeInfo struct {
	// Topology has an entry for each volume that can't be reached from all nodes: node terms, ORed, from the PersistentVolume's node affinity or,
	// while there is no PersistentVolume yet, from the StorageClass's allowedTopologies.
	Topology [][]Requirements
	// Attach is the number of CSI volumes that count against a node's limit, by driver name. Under a key of StorageOf it is the bytes that
	// PersistentVolumeClaims which wait for their first consumer will take of the node's storage.
	Attach map[string]int64
	// Drivers are CSI drivers that the pod needs on its node, besides those in Attach.
	Drivers []string
	// Devices is the key of the devices that the pod's ResourceClaims ask for (DevicesOf); empty: none.
	Devices string
	// Unbound: one of the pod's PersistentVolumeClaims waits for its first consumer.
	Unbound bool
	// Problem is why the pod can't run on any node for now: a PersistentVolumeClaim is missing, lost or waits for its volume. Empty: it can.
	Problem string
}

// ClassOf returns a pod's class if no other pod's selectors matter (ClassAmong).
func ClassOf(pod *corev1.Pod, vol VolumeInfo) (*Class, error) { return ClassAmong(pod, vol, 0) }

// ClassAmong returns a pod's class in a cluster in which selectors in pods' constraints name the labels named, so that pods which differ in such a
// label are not of one class. Its errors wrap ErrNotPlannable and name the field.
func ClassAmong(pod *corev1.Pod, vol VolumeInfo, named LabelsNamed) (*Class, error) {
	if vol.Problem != "" {
		return nil, fmt.Errorf("%w: %s", ErrNotPlannable, vol.Problem)
	}
	requests, err := RequestsOf(pod)
	if err != nil {
		return nil, err
	}
	if said, ok := pod.Annotations[objects.AnnotationBind]; ok && said != bindEarly {
		return nil, fmt.Errorf("%w: annotation %s is %q, it can only be %q", ErrNotPlannable, objects.AnnotationBind, said, bindEarly)
	}
	if vol.Devices != "" {
		vol.Attach = maps.Clone(vol.Attach)
		if vol.Attach == nil {
			vol.Attach = map[string]int64{}
		}
		vol.Attach[vol.Devices] = 1
	}
	c := &Class{
		Pod: pod, Namespace: pod.Namespace, Priority: schedhelper.PodPriority(pod), Requests: requests,
		Tolerations: pod.Spec.Tolerations, HostPorts: HostPorts(pod), Volumes: vol.Attach,
		Request: objects.RequestOf(pod),
	}
	if err := c.nodeTerms(pod, vol.Topology); err != nil {
		return nil, err
	}
	if err := c.podTerms(pod); err != nil {
		return nil, err
	}
	c.Labels = sharedLabels(pod, named.Or(NamedBy(pod)))
	c.Bind, c.BindReason = bindTime(pod, requests)
	if vol.Devices != "" {
		c.Bind, c.BindReason = BindInitialized, "uses devices, which a driver on its node has to publish"
	}
	c.Drivers = slices.Concat(slices.Collect(maps.Keys(vol.Attach)), vol.Drivers)
	slices.Sort(c.Drivers)
	c.Drivers = slices.Compact(c.Drivers)
	c.Key = c.hash(pod, vol)
	return c, nil
}

// Unplannable stands in for the class of a pod that ClassOf returns an error for. Such a pod may still get a node: the class says what it takes
// there and which pods it repels, and that it must be bound as late as possible. It has no key, and nothing can be planned with it.
func Unplannable(pod *corev1.Pod, why error) *Class {
	requests := ResourcesOf(countedRequests(pod))
	maps.DeleteFunc(requests, func(_ corev1.ResourceName, v int64) bool { return v <= 0 })
	requests[corev1.ResourcePods] = 1
	var apart []PodTerm
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		if terms, err := requiredTerms(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, pod.Namespace); err == nil {
			apart = terms // otherwise the pod isn't scheduled at all: the scheduler can't parse the terms either
		}
	}
	return &Class{
		Pod: pod, Namespace: pod.Namespace, Priority: schedhelper.PodPriority(pod), Requests: requests,
		Labels: pod.Labels, AntiAffinity: apart, Tolerations: pod.Spec.Tolerations, HostPorts: HostPorts(pod), Bind: BindInitialized, BindReason: why.Error(),
	}
}

// countedRequests returns the requests as kube-scheduler counts them. Those of a pod that is resized downwards in place count in full until the
// kubelet has resized it.
func countedRequests(pod *corev1.Pod) corev1.ResourceList {
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
}

// Shrank reports whether a pod takes less of any resource of its node than before, because it was resized in place.
func Shrank(before, now *corev1.Pod) bool {
	counted := countedRequests(now)
	for name, q := range countedRequests(before) {
		if q.Cmp(counted[name]) > 0 {
			return true
		}
	}
	return false
}

// RequestsOf returns the requests as kube-scheduler counts them, and one "pods". It leaves out zero requests.
func RequestsOf(pod *corev1.Pod) (Resources, error) {
	list := countedRequests(pod)
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for name, q := range containers[i].Resources.Requests {
				if q.Sign() < 0 {
					return nil, fmt.Errorf("%w: container %s: request of %s is negative (%s)", ErrNotPlannable, containers[i].Name, name, q.String())
				}
			}
		}
	}
	out := ResourcesOf(list)
	for name, v := range out {
		if v < 0 {
			return nil, fmt.Errorf("%w: request of %s is negative", ErrNotPlannable, name)
		}
		if v == 0 {
			delete(out, name)
		}
	}
	out[corev1.ResourcePods] = 1
	return out, nil
}

// sharedLabels returns the pod's labels without those whose value differs from pod to pod and that no selector names.
func sharedLabels(pod *corev1.Pod, named LabelsNamed) map[string]string {
	var own []string
	for key := range pod.Labels {
		if named.leavesOut(key) {
			own = append(own, key)
		}
	}
	if len(own) == 0 {
		return pod.Labels
	}
	out := maps.Clone(pod.Labels)
	for _, key := range own {
		delete(out, key)
	}
	return out
}

// bindTime returns the earliest safe time to bind the pod (docs/early-binding.md), and the reason if that is not at once.
func bindTime(pod *corev1.Pod, requests Resources) (BindTime, string) {
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if DeviceResource(name) {
			return BindInitialized, fmt.Sprintf("requests %s, which a device plugin has to provide", name)
		}
	}
	if d, ends := notReadyTolerance(pod.Spec.Tolerations); ends && d < longNotReady {
		return BindReady, fmt.Sprintf("tolerates %s for %v only, and would be evicted before its node is Ready", corev1.TaintNodeNotReady, d)
	}
	if pod.Annotations[objects.AnnotationBind] == bindEarly {
		return BindEarly, ""
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	switch {
	case owner == nil:
		return BindRegistered, "has no controller that would recreate it"
	case owner.Kind == "Job":
		return BindRegistered, "belongs to a Job, which would count a lost pod as failed"
	case pod.Spec.RestartPolicy == corev1.RestartPolicyNever:
		return BindRegistered, "is never restarted"
	}
	return BindEarly, ""
}

// longNotReady is how long a pod must tolerate the not-ready taint to be bound before its node is Ready. A kubelet first reports its node as not
// ready, and it may take a minute until the network plugin's agent is up and that changes. By default pods tolerate the taint for five minutes.
const longNotReady = 2 * time.Minute

// notReadyTolerance returns how long the pod may stay on a node that isn't Ready, as the taint eviction controller computes it: the
// shortest of all matching tolerations, or no time if none matches. ends is false if the pod may stay for ever.
func notReadyTolerance(tolerations []corev1.Toleration) (d time.Duration, ends bool) {
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}
	matched := false
	for i := range tolerations {
		t := &tolerations[i]
		if !Tolerates(tolerations[i:i+1], &taint) {
			continue
		}
		matched = true
		if t.TolerationSeconds == nil {
			continue
		}
		if s := time.Duration(min(max(*t.TolerationSeconds, 0), int64(longNotReady/time.Second))) * time.Second; !ends || s < d {
			d, ends = s, true
		}
	}
	return d, ends || !matched
}

// DeviceResource reports whether a device plugin (or the VPC controller, for vpc.amazonaws.com/pod-eni) reports the resource, and not the
// kubelet itself.
func DeviceResource(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}
