package provisioningrequest

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/admission"
	"github.com/dovetail-scheduler/dovetail/pkg/bookings"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	provisioningv1 "github.com/dovetail-scheduler/dovetail/pkg/provisioningrequest/v1"
)

// resolution is what a request asks for. A request's spec never changes, and neither do the templates that Kueue makes for it: they are read once.
type resolution struct {
	sets    []bookings.Set
	buys    bool // nodes may be launched for it
	noRetry bool
	valid   time.Duration // for how long capacity is looked for
	problem string        // why it gets none
	others  bool          // another Dovetail answers it
}

func refused(format string, args ...any) *resolution {
	return &resolution{problem: fmt.Sprintf(format, args...)}
}

// resolve reads what a request asks for. Nil: one of its templates is missing, which may still be created. An error means that the API server
// gave no answer.
func (c *Controller) resolve(ctx context.Context, pr *provisioningv1.ProvisioningRequest) (*resolution, error) {
	if why := karpenter.Malformed(pr); why != "" {
		return refused("%s", why), nil
	}
	r := parameters(pr)
	if r.problem != "" {
		return r, nil
	}
	if len(pr.Spec.PodSets) == 0 {
		return refused("spec.podSets: must not be empty"), nil
	}
	pods := 0
	for i := range pr.Spec.PodSets {
		set := &pr.Spec.PodSets[i]
		field := fmt.Sprintf("spec.podSets[%d]", i)
		if set.Count < 1 {
			return refused("%s.count: %d is less than 1", field, set.Count), nil
		}
		if pods += int(set.Count); pods > bookings.MostPods {
			return refused("spec.podSets: %d pods and more are asked for, a request can have at most %d", pods, bookings.MostPods), nil
		}
		t, err := c.Kube.CoreV1().PodTemplates(pr.Namespace).Get(ctx, set.PodTemplateRef.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && c.Clock.Since(pr.CreationTimestamp.Time) < templateTime:
			return nil, nil
		case apierrors.IsNotFound(err):
			return refused("%s.podTemplateRef: PodTemplate %q is not in namespace %s", field, set.PodTemplateRef.Name, pr.Namespace), nil
		case err != nil:
			return nil, err
		}
		field = fmt.Sprintf("%s.podTemplateRef: PodTemplate %q", field, t.Name)
		pod := podOf(pr, &t.Template)
		admission.Default(pod)
		c.Admit(pod)
		if c.Several && i == 0 && !c.Ours(pod.Spec.SchedulerName) {
			return &resolution{others: true}, nil
		}
		if !c.Ours(pod.Spec.SchedulerName) {
			return refused("%s: pods of its schedulerName, %q, are not scheduled here", field, pod.Spec.SchedulerName), nil
		}
		class, err := c.Class(pod)
		if err != nil {
			return refused("%s: its pods can't be planned for: %v", field, err), nil
		}
		r.sets = append(r.sets, bookings.Set{Class: class, Pods: int(set.Count)})
	}
	return r, nil
}

// parameters reads a request's parameters. Those that are not known here may be meant for others.
func parameters(pr *provisioningv1.ProvisioningRequest) *resolution {
	r := &resolution{buys: pr.Spec.ProvisioningClassName == provisioningv1.ClassBestEffortAtomic, valid: defaultValid}
	field := func(key string) string { return fmt.Sprintf("spec.parameters[%s]", key) }
	if text, ok := pr.Spec.Parameters[provisioningv1.ParameterValidUntil]; ok {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 1 {
			return refused("%s: %q is not a number of seconds above 0", field(provisioningv1.ParameterValidUntil), text)
		}
		r.valid = time.Duration(n) * time.Second
	}
	switch text := pr.Spec.Parameters[provisioningv1.ParameterNoRetry]; {
	case text == "true":
		r.noRetry = !r.buys
	case text != "" && text != "false":
		return refused("%s: %q is neither true nor false", field(provisioningv1.ParameterNoRetry), text)
	}
	if text := pr.Spec.Parameters[provisioningv1.ParameterPartial]; text != "" && !r.buys {
		return refused("%s: %q is not supported: capacity is booked for all pods or for none", field(provisioningv1.ParameterPartial), text)
	}
	return r
}

// podOf returns a pod as the request asks capacity for. It names the request, so that it is of the same class as the pods that will use the capacity
// if these have the same labels.
func podOf(pr *provisioningv1.ProvisioningRequest, template *corev1.PodTemplateSpec) *corev1.Pod {
	t := template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pr.Namespace, Name: pr.Name, UID: pr.UID, Labels: t.Labels, Annotations: t.Annotations,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pr, karpenter.ProvisioningRequests.GroupVersionKind)}}, Spec: t.Spec}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[objects.AnnotationConsumeRequest] = pr.Name
	delete(pod.Labels, objects.LabelPodGroup) // they are booked together anyway
	pod.Spec.NodeName, pod.Spec.SchedulingGates, pod.Spec.SchedulingGroup = "", nil, nil
	objects.DropClaims(&pod.Spec)
	return pod
}
