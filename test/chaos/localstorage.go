package chaos

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

const (
	localDriver = "local.csi.example.com"
	localLabel  = "topology.local.csi.example.com/node"
)

// LocalStorage adds a storage class for volumes on the node itself, like those of LVM drivers: the driver publishes its capacity, and
// each node is a segment of its topology. The driver registers on every node that is Ready, and publishes the node's capacity (size)
// when publishes returns true, which is called with how long the node has been Ready.
func (s *Stage) LocalStorage(class, size string, publishes func(ready time.Duration) bool) {
	s.Create(storageClass(class, localDriver), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: localDriver}, Spec: storagev1.CSIDriverSpec{
		StorageCapacity: ptr.To(true), AttachRequired: ptr.To(false)}})
	s.Each(func() {
		nodes, err := s.factory.Core().V1().Nodes().Lister().List(labels.Everything())
		if err != nil {
			return
		}
		for _, n := range nodes {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && s.localDriverOn(n) && publishes(time.Since(c.LastTransitionTime.Time)) {
					s.publish(n, class, resource.MustParse(size))
				}
			}
		}
		for _, c := range s.selected(class) {
			s.provide(c, localDriver, localLabel)
		}
	})
}

// selected returns the claims of the class whose volume is to be created.
func (s *Stage) selected(class string) (out []*corev1.PersistentVolumeClaim) {
	claims, err := s.kube.CoreV1().PersistentVolumeClaims(namespace).List(s.ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	for i := range claims.Items {
		if c := &claims.Items[i]; c.Spec.VolumeName == "" && c.Annotations[selectedNode] != "" && *c.Spec.StorageClassName == class {
			out = append(out, c)
		}
	}
	return out
}

// localDriverOn registers the driver with the node's kubelet, which adds it to the CSINode and labels the Node.
func (s *Stage) localDriverOn(n *corev1.Node) bool {
	csi, err := s.kube.StorageV1().CSINodes().Get(s.ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return false // the kubelet has not created it yet
	}
	if !slices.ContainsFunc(csi.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == localDriver }) {
		csi.Spec.Drivers = append(csi.Spec.Drivers, storagev1.CSINodeDriver{Name: localDriver, NodeID: n.Name, TopologyKeys: []string{localLabel}})
		if _, err := s.kube.StorageV1().CSINodes().Update(s.ctx, csi, metav1.UpdateOptions{}); err != nil {
			return false
		}
	}
	if n.Labels[localLabel] == "" {
		n = n.DeepCopy()
		n.Labels[localLabel] = n.Name
		if _, err := s.kube.CoreV1().Nodes().Update(s.ctx, n, metav1.UpdateOptions{}); err != nil {
			return false
		}
	}
	return true
}

// publish publishes the free capacity of the node, as external-provisioner does.
func (s *Stage) publish(n *corev1.Node, class string, free resource.Quantity) {
	volumes, err := s.kube.CoreV1().PersistentVolumes().List(s.ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for i := range volumes.Items {
		v := &volumes.Items[i]
		if v.Spec.CSI != nil && v.Spec.CSI.Driver == localDriver && v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] == n.Name {
			free.Sub(v.Spec.Capacity[corev1.ResourceStorage])
		}
	}
	capacities := s.kube.StorageV1().CSIStorageCapacities(namespace)
	c, err := capacities.Get(s.ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		_, _ = capacities.Create(s.ctx, &storagev1.CSIStorageCapacity{
			ObjectMeta:       metav1.ObjectMeta{Name: n.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}},
			StorageClassName: class, Capacity: &free, NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{localLabel: n.Name}},
		}, metav1.CreateOptions{})
		return
	}
	if c.Capacity.Cmp(free) != 0 {
		c.Capacity = &free
		_, _ = capacities.Update(s.ctx, c, metav1.UpdateOptions{})
	}
}

// Ready returns how many nodes are Ready.
func (s *Stage) Ready() (n int) {
	nodes, err := s.factory.Core().V1().Nodes().Lister().List(labels.Everything())
	if err != nil {
		return 0
	}
	for _, node := range nodes {
		if slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			n++
		}
	}
	return n
}
