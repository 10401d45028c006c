package buffers

import (
	"context"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"

	"github.com/dovetail-scheduler/dovetail/pkg/admission"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	chunks "github.com/dovetail-scheduler/dovetail/pkg/capacity/buffers"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// resolution is what a buffer asks for.
type resolution struct {
	class  *capacity.Class // nil: problem says why
	chunks int32
	// capped: more were asked for than a buffer may have.
	capped     bool
	template   string // the PodTemplate's name; empty: the chunks are like the pods of a workload
	generation int64  // of the PodTemplate
	reason     string
	problem    string
	// foreign: its strategy may be another controller's.
	foreign bool
}

// Reasons of the condition ReadyForProvisioning, as Karpenter has them.
const (
	reasonResolved         = "Resolved"
	reasonScalableNotFound = "ScalableRefNotFound"
	reasonTemplateNotFound = "PodTemplateNotFound"
	reasonFailed           = "ResolutionFailed"
)

func refused(reason, format string, args ...any) *resolution {
	return &resolution{reason: reason, problem: fmt.Sprintf(format, args...)}
}

// source is what chunks are like, and how many pods a workload has.
type source struct {
	template corev1.PodTemplateSpec
	field    string // of the buffer, for messages
	name     string // of the PodTemplate
	number   int64  // its generation
	scalable bool
	replicas int32
}

// resolution resolves a buffer. Nil: another Dovetail does. An error means that the API server gave no answer.
func (c *Controller) resolution(ctx context.Context, b *autoscalingv1beta1.CapacityBuffer) (*resolution, error) {
	if why := karpenter.Malformed(b); why != "" {
		return refused(karpenter.ReasonMalformed, "%s", why), nil
	}
	spec := &b.Spec
	if s := spec.ProvisioningStrategy; s != nil && *s != "" && *s != autoscalingv1beta1.ActiveProvisioningStrategy {
		r := refused(reasonFailed, "spec.provisioningStrategy: %q is not supported, only %q is", *s, autoscalingv1beta1.ActiveProvisioningStrategy)
		r.foreign = true
		return r, nil
	}
	from, bad, err := c.source(ctx, b)
	if err != nil || bad != nil {
		return bad, err
	}
	pod := chunkPod(b, &from.template)
	admission.Default(pod)
	c.Admit(pod)
	if !c.Ours(pod.Spec.SchedulerName) {
		if c.Several {
			return nil, nil
		}
		return refused(reasonFailed, "%s: pods of its schedulerName, %q, are not planned for here", from.field, pod.Spec.SchedulerName), nil
	}
	class, err := c.Class(pod)
	if err != nil {
		return refused(reasonFailed, "%s: its pods can't be planned for: %v", from.field, err), nil
	}
	r := &resolution{class: class, reason: reasonResolved, template: from.name, generation: from.number}
	if r.chunks, bad = count(spec, from, class.Requests); bad != nil {
		return bad, nil
	}
	if r.chunks > chunks.MostChunks {
		r.chunks, r.capped = chunks.MostChunks, true
	}
	return r, nil
}

// source finds the template of a buffer's chunks.
func (c *Controller) source(ctx context.Context, b *autoscalingv1beta1.CapacityBuffer) (from *source, bad *resolution, err error) {
	switch spec := &b.Spec; {
	case spec.PodTemplateRef != nil && spec.ScalableRef != nil:
		return nil, refused(reasonFailed, "spec: only one of podTemplateRef and scalableRef may be set"), nil
	case spec.PodTemplateRef != nil:
		name := spec.PodTemplateRef.Name
		t, err := c.Kube.CoreV1().PodTemplates(b.Namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, refused(reasonTemplateNotFound, "spec.podTemplateRef: PodTemplate %q is not in namespace %s", name, b.Namespace), nil
		} else if err != nil {
			return nil, nil, err
		}
		return &source{template: t.Template, field: fmt.Sprintf("spec.podTemplateRef: PodTemplate %q", name), name: t.Name, number: t.Generation}, nil, nil
	case spec.ScalableRef != nil:
		return c.workload(ctx, b.Namespace, spec.ScalableRef)
	}
	return nil, refused(reasonFailed, "spec: one of podTemplateRef and scalableRef must be set"), nil
}

// workload finds the template of a scalable workload.
func (c *Controller) workload(ctx context.Context, namespace string, ref *autoscalingv1beta1.ScalableRef) (*source, *resolution, error) {
	if ref.APIGroup != "" && ref.APIGroup != "apps" {
		return nil, refused(reasonFailed, "spec.scalableRef.apiGroup: %q is not supported, only \"apps\" is", ref.APIGroup), nil
	}
	from := &source{scalable: true, replicas: 1, field: fmt.Sprintf("spec.scalableRef: %s %q", ref.Kind, ref.Name)}
	var replicas *int32
	var err error
	apps := c.Kube.AppsV1()
	switch ref.Kind {
	case autoscalingv1beta1.KindDeployment:
		o, e := apps.Deployments(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err = e; e == nil {
			from.template, replicas = o.Spec.Template, o.Spec.Replicas
		}
	case autoscalingv1beta1.KindStatefulSet:
		o, e := apps.StatefulSets(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err = e; e == nil {
			from.template, replicas = o.Spec.Template, o.Spec.Replicas
		}
	case autoscalingv1beta1.KindReplicaSet:
		o, e := apps.ReplicaSets(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err = e; e == nil {
			from.template, replicas = o.Spec.Template, o.Spec.Replicas
		}
	default:
		return nil, refused(reasonFailed, "spec.scalableRef.kind: %q is not supported, only Deployment, StatefulSet and ReplicaSet are", ref.Kind), nil
	}
	if apierrors.IsNotFound(err) {
		return nil, refused(reasonScalableNotFound, "%s is not in namespace %s", from.field, namespace), nil
	} else if err != nil {
		return nil, nil, err
	}
	if replicas != nil {
		from.replicas = *replicas
	}
	return from, nil, nil
}

// count returns how many chunks a buffer asks for: the larger of replicas and percentage, but no more than fit into limits. If neither is set,
// as many as fit into limits. (Where a percentage of a workload with 0 replicas is asked for, Karpenter 1.14 takes limits alone; here that is none.)
func count(spec *autoscalingv1beta1.CapacityBufferSpec, from *source, requests capacity.Resources) (n int32, bad *resolution) {
	sized := false
	if spec.Replicas != nil {
		n, sized = max(0, *spec.Replicas), true
	}
	if spec.Percentage != nil && from.scalable {
		share := math.Ceil(float64(from.replicas) * float64(*spec.Percentage) / 100) // of one replica and more than 0 %, at least one
		n, sized = max(n, int32(min(share, math.MaxInt32))), true
	}
	if len(spec.Limits) == 0 {
		if !sized {
			return 0, refused(reasonFailed, "spec: one of replicas, percentage (of a scalableRef) and limits must be set")
		}
		return n, nil
	}
	fit, matched := int64(math.MaxInt32), false
	for name, limit := range capacity.ResourcesOf(corev1.ResourceList(spec.Limits)) {
		if each := requests[name]; each > 0 {
			fit, matched = min(fit, max(0, limit)/each), true
		}
	}
	switch {
	case !matched && !sized:
		return 0, refused(reasonFailed, "spec.limits: %s requests none of the resources that are limited", from.field)
	case matched && (!sized || int64(n) > fit):
		n = int32(fit)
	}
	return n, nil
}

// chunkPod returns the pod that a chunk is like: it has no node, no priority over any pod, and no volumes that would have to exist.
func chunkPod(b *autoscalingv1beta1.CapacityBuffer, template *corev1.PodTemplateSpec) *corev1.Pod {
	t := template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: "capacity-buffer-" + b.Name, UID: b.UID, Labels: t.Labels, Annotations: t.Annotations,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(b, karpenter.CapacityBuffers.GroupVersionKind)}}, Spec: t.Spec}
	delete(pod.Labels, objects.LabelPodGroup) // capacity is kept for single pods
	spec := &pod.Spec
	priority := autoscalingv1beta1.VirtualPodPriority
	spec.NodeName, spec.SchedulingGates, spec.SchedulingGroup = "", nil, nil
	spec.Priority, spec.PriorityClassName = &priority, ""
	objects.DropClaims(spec)
	return pod
}
