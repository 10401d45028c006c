package workload

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// View returns the workload on an empty cluster, in the form in which the planner sees it.
func (w *Workload) View(c *catalog.Catalog) (*capacity.View, error) {
	v := &capacity.View{Pools: []*capacity.Pool{{Name: "default", Labels: map[string]string{labelNodePool: "default"}, Types: w.Pool.Types(c)}}}
	for _, d := range w.Daemons {
		pod := podOf("kube-system", d.Name, d.CPU, d.Mem, 0)
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		class, err := capacity.ClassOf(pod, capacity.VolumeInfo{})
		if err != nil {
			return nil, fmt.Errorf("workload %s: daemon %s: %w", w.Name, d.Name, err)
		}
		v.DaemonSets = append(v.DaemonSets, &capacity.DaemonSet{Namespace: "kube-system", Name: d.Name, Class: class})
	}
	for i := range w.Groups {
		g := &w.Groups[i]
		class, err := capacity.ClassOf(g.pod(), capacity.VolumeInfo{})
		if err != nil {
			return nil, fmt.Errorf("workload %s: group %d of app %s: %w", w.Name, i, g.App, err)
		}
		d := capacity.Demand{Class: class, Pods: make([]capacity.PodRef, g.Count)}
		for n := range d.Pods {
			name := fmt.Sprintf("%s-%d-%d", g.App, i, n)
			d.Pods[n] = capacity.PodRef{UID: types.UID(name), Namespace: "default", Name: name}
		}
		v.Demand = append(v.Demand, d)
	}
	return v, nil
}

func podOf(namespace, app string, cpu, mem, gpu int64) *corev1.Pod {
	requests := corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(cpu, resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(mem<<20, resource.BinarySI)}
	if gpu > 0 {
		requests["nvidia.com/gpu"] = *resource.NewQuantity(gpu, resource.DecimalSI)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app, Labels: map[string]string{"app": app},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: types.UID(app), Controller: new(true)}}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: requests}}}},
	}
}

func (g *Group) pod() *corev1.Pod {
	pod := podOf("default", g.App, g.CPU, g.Mem, g.GPU)
	selector := map[string]string{}
	for key, value := range map[string]string{corev1.LabelArchStable: g.Arch, labelCapacityType: g.CapacityType, corev1.LabelTopologyZone: g.Zone} {
		if value != "" {
			selector[key] = value
		}
	}
	if len(selector) > 0 {
		pod.Spec.NodeSelector = selector
	}
	same := &metav1.LabelSelector{MatchLabels: pod.Labels}
	spread := func(key string, skew int32) {
		if skew > 0 {
			pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
				TopologyKey: key, MaxSkew: skew, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: same})
		}
	}
	spread(corev1.LabelTopologyZone, g.SpreadZone)
	spread(corev1.LabelHostname, g.MaxPerHost)
	term := []corev1.PodAffinityTerm{{LabelSelector: same, TopologyKey: corev1.LabelHostname}}
	if g.AntiHost {
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term}}
	}
	if g.ZoneAffinity {
		if pod.Spec.Affinity == nil {
			pod.Spec.Affinity = &corev1.Affinity{}
		}
		pod.Spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{LabelSelector: same, TopologyKey: corev1.LabelTopologyZone}}}
	}
	return pod
}
