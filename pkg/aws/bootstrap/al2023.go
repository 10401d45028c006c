package bootstrap

import (
	"encoding/json"
	"fmt"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"sigs.k8s.io/yaml"
)

// AL2023 is Amazon Linux 2023, whose nodes start with nodeadm.
var AL2023 = &Family{
	name: ec2nc.AMIFamilyAL2023, RootDevice: "/dev/xvda", Volumes: []Volume{{"/dev/xvda", 20}},
	ENIMemory: true, PodsPerCore: true, NeedsCluster: true, GPULabel: LabelNVIDIA,
	Unsupported: []string{"a1"}, // its cores lack instructions that Amazon Linux 2023 is built for
	aliases:     al2023Images, userData: nodeadm, nodeName: nodeadmName, ownKubelet: ownAL2023,
}

// LabelNVIDIA is the label that nodeadm has kubelets set on instances with NVIDIA GPUs, and that NVIDIA's device plugin selects. A kubelet
// sets no labels on a Node object that exists already. So Dovetail sets this one; otherwise the plugin would not run and no GPU would appear.
const LabelNVIDIA = "nvidia.com/gpu.present"

// al2023Images follows docs.aws.amazon.com/eks/latest/userguide/retrieve-ami-id.html.
func al2023Images(kubernetes, version string) []ImageAlias {
	var out []ImageAlias
	for _, v := range []struct {
		arch, kube string
		kind       Accelerator
	}{
		{"x86_64", "amd64", NoneKind}, {"x86_64", "amd64", NVIDIAKind}, {"x86_64", "amd64", NeuronKind},
		{"arm64", "arm64", NoneKind}, {"arm64", "arm64", NVIDIAKind},
	} {
		release := "recommended"
		if version != latest {
			release = fmt.Sprintf("amazon-eks-node-al2023-%s-%s-%s-%s", v.arch, v.kind, kubernetes, version)
		}
		out = append(out, ImageAlias{Arch: v.kube, Kinds: []Accelerator{v.kind},
			Path: fmt.Sprintf("/aws/service/eks/optimized-ami/%s/amazon-linux-2023/%s/%s/%s/image_id", kubernetes, v.arch, v.kind, release)})
	}
	return out
}

// NodeConfig is the part of nodeadm's configuration that we use (awslabs.github.io/amazon-eks-ami/nodeadm).
type NodeConfig struct {
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

// nodeadm returns a multi-part document: first the user's parts, then the node's configuration, because nodeadm lets later parts win.
func nodeadm(spec *ec2nc.EC2NodeClassSpec, j *Cluster, b Node, own string) (string, error) {
	c := NodeConfig{APIVersion: "node.eks.aws/v1alpha1", Kind: "NodeConfig"}
	c.Spec.Cluster.Name, c.Spec.Cluster.APIServerEndpoint = b.Cluster, j.endpoint
	c.Spec.Cluster.CertificateAuthority, c.Spec.Cluster.CIDR = j.ca, j.cidr
	if spec.InstanceStorePolicy != nil && *spec.InstanceStorePolicy == ec2nc.InstanceStorePolicyRAID0 {
		c.Spec.Instance = &nodeInstance{}
		c.Spec.Instance.LocalStorage.Strategy = string(ec2nc.InstanceStorePolicyRAID0)
	}
	var err error
	if c.Spec.Kubelet.Config, err = kubeletConfig(spec.Kubelet, b); err != nil {
		return "", err
	}
	if flag := KubeletFlag(b.Labels, "="); flag != "" {
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
func kubeletConfig(k *ec2nc.KubeletConfiguration, b Node) (map[string]any, error) {
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
	out["maxPods"] = b.MaxPods
	out["registerWithTaints"] = b.Taints
	return out, nil
}

// nodeadmName returns NameID if a NodeConfig in the user data enables the feature of nodeadm that names nodes by their instance id.
func nodeadmName(own string) NameForm {
	parts, err := ownParts(own)
	if err != nil {
		return NamePrivateDNS
	}
	for _, p := range parts {
		var c struct {
			Spec struct {
				FeatureGates map[string]bool `json:"featureGates"`
			} `json:"spec"`
		}
		body, err := p.decoded()
		if strings.HasPrefix(p.contentType, nodeConfigType) && err == nil && yaml.Unmarshal([]byte(body), &c) == nil && c.Spec.FeatureGates["InstanceIdNodeName"] {
			return NameID
		}
	}
	return NamePrivateDNS
}
