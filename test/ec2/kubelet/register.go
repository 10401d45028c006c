package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"
)

// register creates the Node. It adopts an existing Node of that name as the real kubelet does: spec, taints and annotations stay,
// labels from user data are not applied, the kubelet's own labels are set, and extended resources are zeroed until device plugins
// start.
func (k *Kubelets) register(ctx context.Context, n *node) error {
	created, err := k.client.CoreV1().Nodes().Create(ctx, k.newNode(n), metav1.CreateOptions{})
	if err == nil {
		n.become(created.UID)
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating node %s: %w", n.name, err)
	}
	have, err := k.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading node %s: %w", n.name, err)
	}
	n.become(have.UID)
	n.adopted = true
	klog.FromContext(ctx).V(2).Info("Adopting the node that is there", "node", n.name, "providerID", have.Spec.ProviderID)
	return k.adopt(ctx, n, have)
}

func (k *Kubelets) adopt(ctx context.Context, n *node, have *corev1.Node) error {
	labels := map[string]string{}
	for key, v := range ownLabels(n) {
		if have.Labels[key] != v {
			labels[key] = v
		}
	}
	zero := map[corev1.ResourceName]resource.Quantity{}
	for name := range have.Status.Capacity {
		if extended(name) {
			zero[name] = resource.MustParse("0")
		}
	}
	if len(labels) == 0 && len(zero) == 0 {
		return nil
	}
	return k.patchNode(ctx, n, map[string]any{
		"metadata": map[string]any{"labels": labels},
		"status":   map[string]any{"capacity": zero, "allocatable": zero},
	})
}

// patchNode patches the Node's status subresource, through which kubelets write everything, including labels.
func (k *Kubelets) patchNode(ctx context.Context, n *node, patch any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("writing node %s: %w", n.name, err)
	}
	_, err = k.client.CoreV1().Nodes().Patch(ctx, n.name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil // the Node was deleted; a kubelet creates it only at its start
	}
	if err != nil {
		return fmt.Errorf("writing node %s: %w", n.name, err)
	}
	return nil
}

// ownLabels returns the labels that the kubelet and the cloud's node controller set.
func ownLabels(n *node) map[string]string {
	m := &n.machine
	arch := architecture(n)
	return map[string]string{
		corev1.LabelHostname: n.name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: arch, "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": arch,
		corev1.LabelInstanceTypeStable: m.Type.Name, corev1.LabelInstanceType: m.Type.Name, corev1.LabelTopologyZone: m.Zone, corev1.LabelTopologyRegion: m.Region,
		corev1.LabelFailureDomainBetaZone: m.Zone, corev1.LabelFailureDomainBetaRegion: m.Region, "topology.k8s.aws/zone-id": m.ZoneID,
	}
}

func architecture(n *node) string {
	if slices.Contains(n.machine.Type.Arch, "arm64") {
		return "arm64"
	}
	return "amd64"
}

// newNode returns the Node that a kubelet creates if there is none. It asks a cloud controller manager to initialize it. The provider ID and the
// topology labels, which that would set a moment later, are there already.
func (k *Kubelets) newNode(n *node) *corev1.Node {
	labels := maps.Clone(n.settings.labels)
	if _, nvidia := n.shape.devices["nvidia.com/gpu"]; nvidia && n.settings.nodeadm {
		labels[labelNVIDIA] = "true" // one of the --node-labels that nodeadm adds; on an existing Node these have no effect
	}
	maps.Copy(labels, ownLabels(n))
	taints := slices.Clone(n.settings.taints)
	if !k.cfg.NoCloudController {
		taints = append(taints, corev1.Taint{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: labels, Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
		Spec:       corev1.NodeSpec{ProviderID: n.machine.ProviderID(), Taints: taints},
		Status:     k.status(n, registered),
	}
}

// extended reports whether the resource is one that device plugins and the like announce.
func extended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), "kubernetes.io/")
}
