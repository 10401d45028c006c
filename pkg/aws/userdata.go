package aws

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"
)

// unregistered is the taint a kubelet sets on a Node it has to create itself. NoSchedule, never NoExecute: pods may be bound before
// the kubelet registers.
var unregistered = corev1.Taint{Key: karpv1.UnregisteredTaintKey, Effect: corev1.TaintEffectNoSchedule}

// boot is the data that a node needs besides the class and the cluster's join data.
type boot struct {
	cluster string
	maxPods int64
	labels  map[string]string
	taints  []corev1.Taint
	// kubeReserved is set for families whose user data must contain it.
	kubeReserved map[string]string
}

// userData returns what the instance starts with, in the family's format, not encoded. The class's own user data is merged in; where
// they differ, what the node needs to join wins.
func userData(f *family, spec *ec2nc.EC2NodeClassSpec, j *joined, b boot) (string, error) {
	own := ""
	if spec.UserData != nil {
		own = *spec.UserData
	}
	switch f.name {
	case ec2nc.AMIFamilyAL2023:
		return nodeadm(spec, j, b, own)
	case ec2nc.AMIFamilyBottlerocket:
		return bottlerocket(spec, j, b, own)
	}
	if f.windows() {
		return powershell(spec, j, b, own), nil
	}
	return own, nil // Custom: the image and its user data know how to join
}

// nodeConfig is the part of nodeadm's configuration that we use (awslabs.github.io/amazon-eks-ami/nodeadm).
type nodeConfig struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Cluster struct {
			Name                 string `json:"name,omitempty"`
			APIServerEndpoint    string `json:"apiServerEndpoint,omitempty"`
			CertificateAuthority string `json:"certificateAuthority,omitempty"`
			CIDR                 string `json:"cidr,omitempty"`
		} `json:"cluster"`
		Instance *nodeInstance `json:"instance,omitempty"`
		Kubelet  struct {
			Config map[string]any `json:"config,omitempty"`
			Flags  []string       `json:"flags,omitempty"`
		} `json:"kubelet"`
	} `json:"spec"`
}

type nodeInstance struct {
	LocalStorage struct {
		Strategy string `json:"strategy"`
	} `json:"localStorage"`
}

// nodeadm returns a multi-part document of the user's parts and, last, because later ones win, the node's configuration.
func nodeadm(spec *ec2nc.EC2NodeClassSpec, j *joined, b boot, own string) (string, error) {
	c := nodeConfig{APIVersion: "node.eks.aws/v1alpha1", Kind: "NodeConfig"}
	c.Spec.Cluster.Name, c.Spec.Cluster.APIServerEndpoint = b.cluster, j.endpoint
	c.Spec.Cluster.CertificateAuthority, c.Spec.Cluster.CIDR = j.ca, j.cidr
	if spec.InstanceStorePolicy != nil && *spec.InstanceStorePolicy == ec2nc.InstanceStorePolicyRAID0 {
		c.Spec.Instance = &nodeInstance{}
		c.Spec.Instance.LocalStorage.Strategy = string(ec2nc.InstanceStorePolicyRAID0)
	}
	var err error
	if c.Spec.Kubelet.Config, err = kubeletConfig(spec.Kubelet, b); err != nil {
		return "", err
	}
	if flag := joinLabels(b.labels); flag != "" {
		c.Spec.Kubelet.Flags = []string{"--node-labels=" + flag}
	}
	config, err := yaml.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("writing NodeConfig: %w", err)
	}
	parts, err := ownParts(own)
	if err != nil {
		return "", err
	}
	return multipartOf(append(parts, mimePart{contentType: nodeConfigType, body: string(config)})), nil
}

// kubeletConfig returns the class's kubelet settings in the kubelet's format, with the settings that we determine.
func kubeletConfig(k *ec2nc.KubeletConfiguration, b boot) (map[string]any, error) {
	out := map[string]any{}
	if k != nil {
		raw, err := json.Marshal(k)
		if err != nil {
			return nil, fmt.Errorf("writing kubelet configuration: %w", err)
		}
		if err := json.Unmarshal(raw, &out); err != nil {
			return nil, fmt.Errorf("writing kubelet configuration: %w", err)
		}
	}
	out["maxPods"] = b.maxPods
	out["registerWithTaints"] = b.taints
	return out, nil
}

// joinLabels returns a=b,c=d sorted by key.
func joinLabels(labels map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, k+"="+labels[k])
	}
	return strings.Join(parts, ",")
}
