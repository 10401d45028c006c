package chaos

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	appsdefaults "k8s.io/kubernetes/pkg/apis/apps/v1"
	batchdefaults "k8s.io/kubernetes/pkg/apis/batch/v1"
	coredefaults "k8s.io/kubernetes/pkg/apis/core/v1"

	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
)

// defaults knows Kubernetes' own defaults.
var defaults = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{coredefaults.AddToScheme, appsdefaults.AddToScheme, batchdefaults.AddToScheme} {
		utilruntime.Must(add(s))
	}
	return s
}()

// admission does what every API server does with new objects: it sets the kind's defaults, and what the admission plugins that are
// always enabled add to pods. Kubernetes' controllers depend on it.
func admission() kubeapi.Admission {
	priorities := map[string]int32{"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}
	return func(_ *kubeapi.Call, o *unstructured.Unstructured) error {
		typed, err := defaults.New(o.GroupVersionKind())
		if err != nil {
			return nil // a kind without defaults
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed); err != nil {
			return fmt.Errorf("admitting %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		defaults.Default(typed)
		if p, ok := typed.(*corev1.Pod); ok {
			p.Spec.Tolerations = tolerating(p.Spec.Tolerations)
			if v, ok := priorities[p.Spec.PriorityClassName]; ok {
				p.Spec.Priority = &v
			} else if p.Spec.Priority == nil {
				p.Spec.Priority = new(int32)
			}
		}
		out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			return fmt.Errorf("admitting %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		out["kind"], out["apiVersion"] = o.GetKind(), o.GetAPIVersion()
		if meta, ok := out["metadata"].(map[string]any); ok {
			delete(meta, "creationTimestamp")
		}
		o.Object = out
		return nil
	}
}

// tolerating adds what the admission plugin DefaultTolerationSeconds adds.
func tolerating(have []corev1.Toleration) []corev1.Toleration {
	for _, t := range patience() {
		told := false
		for _, h := range have {
			told = told || (h.Key == t.Key || h.Key == "") && (h.Effect == "" || h.Effect == corev1.TaintEffectNoExecute)
		}
		if !told {
			have = append(have, t)
		}
	}
	return have
}
