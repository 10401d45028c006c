package chaos

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// FillNodes adds a controller that puts a pod of its own on every node. The product doesn't know of the pod before it exists, and its
// priority is above any other: it preempts pods that are in its way. The controller is called DaemonSet, like OpenKruise's.
func (s *Stage) FillNodes(cpu string) *Fault {
	f := &Fault{}
	done := map[types.UID]bool{} // used by the informer's goroutine only
	owner := metav1.OwnerReference{APIVersion: "apps.kruise.io/v1alpha1", Kind: "DaemonSet", Name: "inspector", UID: "inspector", Controller: ptr.To(true)}
	s.watch(s.factory.Core().V1().Nodes().Informer(), func(obj any) {
		n := obj.(*corev1.Node)
		if !f.Lasts() || done[n.UID] {
			return
		}
		done[n.UID] = true
		p := daemonPod(n.Name)
		p.Namespace, p.GenerateName, p.Labels, p.OwnerReferences = metav1.NamespaceSystem, "", map[string]string{appLabel: "inspector"}, []metav1.OwnerReference{owner}
		p.Name = fmt.Sprintf("inspector-%s", n.UID)
		p.Spec.PriorityClassName = "system-node-critical"
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Mi")}
		if _, err := s.kube.CoreV1().Pods(p.Namespace).Create(s.ctx, p, metav1.CreateOptions{}); err != nil {
			s.logger.Error(err, "Could not fill a node")
		}
	})
	return f
}
