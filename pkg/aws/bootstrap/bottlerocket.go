package bootstrap

import (
	"fmt"
	"strconv"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/pelletier/go-toml/v2"
)

// bottlerocket is Bottlerocket, whose nodes start with settings in TOML.
var bottlerocket = &Family{
	name: ec2nc.AMIFamilyBottlerocket, RootDevice: "/dev/xvdb", Volumes: []Volume{{"/dev/xvda", 4}, {"/dev/xvdb", 20}},
	NeedsCluster: true, aliases: bottlerocketImages, userData: bottlerocketUserData, nodeName: bottlerocketName,
	ownKubelet: ownBottlerocket,
	Unused: func(spec *ec2nc.EC2NodeClassSpec) (out []string) {
		k := spec.Kubelet
		if k != nil && k.PodsPerCore != nil {
			out = append(out, "spec.kubelet.podsPerCore: Bottlerocket has no such setting")
		}
		if k != nil && len(k.ClusterDNS) > 1 {
			out = append(out, "spec.kubelet.clusterDNS[1]: Bottlerocket accepts only one address")
		}
		return out
	},
}

// bottlerocketImages returns Bottlerocket's parameters. Releases have a v in their names, but not in the parameters' names.
func bottlerocketImages(kubernetes, version string) []ImageAlias {
	version = strings.TrimPrefix(version, "v")
	var out []ImageAlias
	for _, v := range []struct {
		variant, arch, kube string
		kinds               []Accelerator
	}{
		{"", "x86_64", "amd64", []Accelerator{NoneKind, NeuronKind}}, {"", "arm64", "arm64", []Accelerator{NoneKind}},
		{"-nvidia", "x86_64", "amd64", []Accelerator{NVIDIAKind}}, {"-nvidia", "arm64", "arm64", []Accelerator{NVIDIAKind}},
	} {
		out = append(out, ImageAlias{Arch: v.kube, Kinds: v.kinds,
			Path: fmt.Sprintf("/aws/service/bottlerocket/aws-k8s-%s%s/%s/%s/image_id", kubernetes, v.variant, v.arch, version)})
	}
	return out
}

// bottlerocketUserData merges what the node needs into the user's settings (bottlerocket.dev, settings reference). Other settings are passed
// on unchanged.
func bottlerocketUserData(spec *ec2nc.EC2NodeClassSpec, j *Cluster, b Node, own string) (string, error) {
	doc := map[string]any{}
	if err := toml.Unmarshal([]byte(own), &doc); err != nil {
		return "", fmt.Errorf("reading TOML: %w", err)
	}
	settings, err := table(doc, "settings")
	if err != nil {
		return "", err
	}
	k, err := table(settings, "kubernetes")
	if err != nil {
		return "", err
	}
	k["cluster-name"], k["api-server"], k["cluster-certificate"] = b.Cluster, j.endpoint, j.ca
	k["max-pods"] = b.MaxPods
	if j.dns != "" {
		k["cluster-dns-ip"] = j.dns
	}
	labels, err := table(k, "node-labels")
	if err != nil {
		return "", err
	}
	for name, v := range b.Labels {
		labels[name] = v
	}
	taints := map[string][]string{}
	for _, t := range b.Taints {
		taints[t.Key] = append(taints[t.Key], t.Value+":"+string(t.Effect))
	}
	k["node-taints"] = taints
	kubeletTOML(k, spec.Kubelet)
	if spec.InstanceStorePolicy != nil && *spec.InstanceStorePolicy == ec2nc.InstanceStorePolicyRAID0 {
		commands, err := table(settings, "bootstrap-commands")
		if err != nil {
			return "", err
		}
		commands["000-mount-instance-storage"] = map[string]any{
			"commands": [][]string{
				{"apiclient", "ephemeral-storage", "init"},
				{"apiclient", "ephemeral-storage", "bind", "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"},
			},
			"mode": "always", "essential": true,
		}
	}
	out, err := toml.Marshal(doc)
	if err != nil {
		return "", fmt.Errorf("writing TOML: %w", err)
	}
	return string(out), nil
}

// table returns the table with that name, and creates it if it doesn't exist.
func table(in map[string]any, name string) (map[string]any, error) {
	switch t := in[name].(type) {
	case nil:
		m := map[string]any{}
		in[name] = m
		return m, nil
	case map[string]any:
		return t, nil
	}
	return nil, fmt.Errorf("reading TOML: %s is not a table", name)
}

// kubeletTOML writes the class's kubelet settings. Bottlerocket has no setting for podsPerCore.
func kubeletTOML(k map[string]any, c *ec2nc.KubeletConfiguration) {
	if c == nil {
		return
	}
	if len(c.ClusterDNS) > 0 {
		k["cluster-dns-ip"] = c.ClusterDNS[0]
	}
	for name, m := range map[string]map[string]string{
		"system-reserved": c.SystemReserved, "kube-reserved": c.KubeReserved, "eviction-hard": c.EvictionHard, "eviction-soft": c.EvictionSoft,
	} {
		if len(m) > 0 {
			k[name] = m
		}
	}
	if len(c.EvictionSoftGracePeriod) > 0 {
		periods := map[string]string{}
		for signal, d := range c.EvictionSoftGracePeriod {
			periods[signal] = d.Duration.String()
		}
		k["eviction-soft-grace-period"] = periods
	}
	if c.EvictionMaxPodGracePeriod != nil {
		k["eviction-max-pod-grace-period"] = int64(*c.EvictionMaxPodGracePeriod)
	}
	if c.ImageGCHighThresholdPercent != nil {
		k["image-gc-high-threshold-percent"] = strconv.Itoa(int(*c.ImageGCHighThresholdPercent))
	}
	if c.ImageGCLowThresholdPercent != nil {
		k["image-gc-low-threshold-percent"] = strconv.Itoa(int(*c.ImageGCLowThresholdPercent))
	}
	if c.CPUCFSQuota != nil {
		k["cpu-cfs-quota-enforced"] = *c.CPUCFSQuota
	}
}

// bottlerocketName returns how the settings name the node.
func bottlerocketName(own string) NameForm {
	var doc struct {
		Settings struct {
			Kubernetes struct {
				Override string `toml:"hostname-override"`
				Source   string `toml:"hostname-override-source"`
			} `toml:"kubernetes"`
		} `toml:"settings"`
	}
	if err := toml.Unmarshal([]byte(own), &doc); err == nil {
		switch k := doc.Settings.Kubernetes; {
		case k.Override != "":
			return NameOther
		case k.Source == "instance-id":
			return NameID
		}
	}
	return NamePrivateDNS
}
