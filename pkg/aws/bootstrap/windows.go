package bootstrap

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
)

// The releases of Windows Server.
var (
	windows2019 = windowsFamily(ec2nc.AMIFamilyWindows2019, ec2nc.Windows2019, ec2nc.Windows2019Build)
	windows2022 = windowsFamily(ec2nc.AMIFamilyWindows2022, ec2nc.Windows2022, ec2nc.Windows2022Build)
	windows2025 = windowsFamily(ec2nc.AMIFamilyWindows2025, ec2nc.Windows2025, ec2nc.Windows2025Build)
)

// windowsFamily returns a release of Windows Server Core. Its pods only get addresses of the first network interface
// (vpc.amazonaws.com/PrivateIPv4Address), and only the newest version of its images can be found.
func windowsFamily(name, year, build string) *Family {
	return &Family{
		name: name, RootDevice: "/dev/sda1", Volumes: []Volume{{"/dev/sda1", 50}}, PodsPerCore: true, NeedsCluster: true,
		OS: "windows", Build: build, DefaultPods: 110, TellsReserved: true, userData: powershell,
		nodeName: func(string) NameForm { return NamePrivateDNS },
		Unused: func(spec *ec2nc.EC2NodeClassSpec) (out []string) {
			if k := spec.Kubelet; k != nil && len(k.ClusterDNS) > 1 {
				out = append(out, "spec.kubelet.clusterDNS[1]: Windows accepts only one address")
			}
			if spec.InstanceStorePolicy != nil {
				out = append(out, "spec.instanceStorePolicy: Windows has no such setting")
			}
			return out
		},
		aliases: func(kubernetes, version string) []ImageAlias {
			if version != latest {
				return nil
			}
			return []ImageAlias{{Arch: "amd64", Kinds: []Accelerator{AnyKind},
				Path: fmt.Sprintf("/aws/service/ami-windows-latest/Windows_Server-%s-English-Core-EKS_Optimized-%s/image_id", year, kubernetes)}}
		},
	}
}

// powershell runs the image's bootstrap script after the user's commands.
//
// Parameters: docs.aws.amazon.com/eks/latest/userguide/eks-optimized-windows-ami.html#bootstrap-script-configuration-parameters
func powershell(spec *ec2nc.EC2NodeClassSpec, j *Cluster, b Node, own string) (string, error) {
	commands, rest := ownPowershell(own)
	dns := j.dns
	if spec.Kubelet != nil && len(spec.Kubelet.ClusterDNS) > 0 {
		dns = spec.Kubelet.ClusterDNS[0]
	}
	var s strings.Builder
	s.WriteString("<powershell>\n")
	if commands != "" {
		s.WriteString(commands + "\n")
	}
	s.WriteString(`& "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"`)
	for _, p := range []struct{ name, value string }{
		{"EKSClusterName", b.Cluster}, {"APIServerEndpoint", j.endpoint}, {"Base64ClusterCA", j.ca}, {"DNSClusterIP", dns}, {"ServiceCIDR", j.cidr},
		{"KubeletExtraArgs", strings.Join(kubeletFlags(spec.Kubelet, b), " ")},
	} {
		if p.value != "" {
			s.WriteString(" -" + p.name + " " + quotePowershell(p.value))
		}
	}
	s.WriteString("\n</powershell>\n")
	if rest != "" {
		s.WriteString(rest + "\n")
	}
	return s.String(), nil
}

// quotePowershell returns a value as a literal.
func quotePowershell(v string) string { return "'" + strings.ReplaceAll(v, "'", "''") + "'" }

var powershellTag = regexp.MustCompile(`(?is)<powershell>(.*)</powershell>`)

// ownPowershell splits the class's user data into the commands and what surrounds them (<persist>). Without tags, all of it is
// commands.
func ownPowershell(own string) (commands, rest string) {
	at := powershellTag.FindStringSubmatchIndex(own)
	if at == nil {
		return strings.TrimSpace(own), ""
	}
	return strings.TrimSpace(own[at[2]:at[3]]), strings.TrimSpace(own[:at[0]] + own[at[1]:])
}

// kubeletFlags returns the settings as flags: there is no configuration file to merge into.
func kubeletFlags(k *ec2nc.KubeletConfiguration, b Node) []string {
	var out []string
	set := func(name, value string) {
		if value != "" {
			out = append(out, "--"+name+"="+value)
		}
	}
	number := func(name string, v *int32) {
		if v != nil {
			set(name, strconv.Itoa(int(*v)))
		}
	}
	set("node-labels", KubeletFlag(b.Labels, "="))
	var taints []string
	for _, t := range b.Taints {
		taints = append(taints, t.Key+"="+t.Value+":"+string(t.Effect))
	}
	set("register-with-taints", strings.Join(taints, ","))
	set("max-pods", strconv.FormatInt(b.MaxPods, 10))
	set("kube-reserved", b.KubeReserved)
	if k == nil {
		return out
	}
	number("pods-per-core", k.PodsPerCore)
	set("system-reserved", KubeletFlag(k.SystemReserved, "="))
	set("eviction-hard", KubeletFlag(k.EvictionHard, "<"))
	set("eviction-soft", KubeletFlag(k.EvictionSoft, "<"))
	periods := map[string]string{}
	for signal, d := range k.EvictionSoftGracePeriod {
		periods[signal] = d.Duration.String()
	}
	set("eviction-soft-grace-period", KubeletFlag(periods, "="))
	number("eviction-max-pod-grace-period", k.EvictionMaxPodGracePeriod)
	number("image-gc-high-threshold", k.ImageGCHighThresholdPercent)
	number("image-gc-low-threshold", k.ImageGCLowThresholdPercent)
	if k.CPUCFSQuota != nil {
		set("cpu-cfs-quota", strconv.FormatBool(*k.CPUCFSQuota))
	}
	return out
}
