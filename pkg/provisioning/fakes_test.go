package provisioning

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// unscheduled returns a pod of a ReplicaSet that wants one CPU.
func unscheduled(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("u", i)),
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", UID: "rs", Controller: ptr.To(true)}}},
		Spec: corev1.PodSpec{SchedulerName: "s", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}},
	}
}

// smallType returns an instance type with one CPU and without offerings.
func smallType() *capacity.InstanceType {
	size := capacity.Resources{corev1.ResourceCPU: 1000, corev1.ResourcePods: 10}
	return &capacity.InstanceType{Name: "small", Capacity: size, Allocatable: size, Labels: map[string]string{}}
}
