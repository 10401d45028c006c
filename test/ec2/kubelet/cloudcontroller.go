package kubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// Labels of the network topology, which cloud-provider-aws gives only to Nodes that it initializes, and only to these families (its topology.go).
const networkLayer = "topology.k8s.aws/network-node-layer-"

var networked = []string{"hpc", "p3", "p4", "p5", "p6", "trn"}

func awaitsCloud(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider })
}

// initialize does for a Node with the taint for it what a cloud controller manager does once it sees the instance: it completes the labels and
// takes the taint off. Until the instance runs it returns an error.
func (k *Kubelets) initialize(ctx context.Context, name string) error {
	if k.cfg.NoCloudController {
		return nil
	}
	have, err := k.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("initializing node %s: %w", name, err)
	}
	if !awaitsCloud(have) {
		return nil
	}
	id := have.Spec.ProviderID[strings.LastIndexByte(have.Spec.ProviderID, '/')+1:]
	k.mu.Lock()
	m, runs := k.machines[id]
	k.mu.Unlock()
	if !runs {
		return fmt.Errorf("initializing node %s: there is no instance %q", name, id)
	}
	node := have.DeepCopy()
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	maps.Copy(node.Labels, cloudLabels(&m))
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider })
	if _, err := k.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("initializing node %s: %w", name, err)
	}
	return nil
}

func cloudLabels(m *ec2.Machine) map[string]string {
	out := map[string]string{
		corev1.LabelInstanceTypeStable: m.Type.Name, corev1.LabelTopologyZone: m.Zone, corev1.LabelTopologyRegion: m.Region, "topology.k8s.aws/zone-id": m.ZoneID,
	}
	if slices.ContainsFunc(networked, func(family string) bool { return strings.HasPrefix(m.Type.Name, family) }) {
		for i := 1; i <= 3; i++ {
			out[fmt.Sprint(networkLayer, i)] = fmt.Sprintf("nn-%s%d", m.ZoneID, i)
		}
	}
	return out
}
