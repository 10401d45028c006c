package aws

import (
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"regexp"
	"strings"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// allKubelet sets every field.
func allKubelet() *ec2nc.KubeletConfiguration {
	return &ec2nc.KubeletConfiguration{
		ClusterDNS: []string{"172.20.0.53"}, MaxPods: ptr.To[int32](58), PodsPerCore: ptr.To[int32](40),
		SystemReserved: map[string]string{"cpu": "100m", "memory": "200Mi"}, KubeReserved: map[string]string{"cpu": "90m"},
		EvictionHard: map[string]string{"memory.available": "5%", "nodefs.available": "10Gi"}, EvictionSoft: map[string]string{"memory.available": "10%"},
		EvictionSoftGracePeriod:     map[string]metav1.Duration{"memory.available": {Duration: 90 * time.Second}},
		EvictionMaxPodGracePeriod:   ptr.To[int32](30),
		ImageGCHighThresholdPercent: ptr.To[int32](80), ImageGCLowThresholdPercent: ptr.To[int32](60), CPUCFSQuota: ptr.To(false),
	}
}

// wantLabels are the launch batch's labels that the kubelet gets: not those that follow from the type, nor those that kubelets may not
// set.
var wantLabels = map[string]string{"karpenter.k8s.aws/ec2nodeclass": "default", "karpenter.sh/capacity-type": "on-demand", "karpenter.sh/nodepool": "pool", "team": "a"}

var authority = base64.StdEncoding.EncodeToString([]byte("a certificate"))

// The user data of an instance, read as the family's own software reads it.
func TestUserData(t *testing.T) {
	for _, tt := range []struct {
		name  string
		class func(*ec2nc.EC2NodeClassSpec)
		check func(*testing.T, string)
	}{
		{
			name: "AL2023: the user's script, then a NodeConfig with everything",
			class: func(s *ec2nc.EC2NodeClassSpec) {
				s.UserData, s.Kubelet, s.InstanceStorePolicy = ptr.To("#!/bin/bash\necho hello\n"), allKubelet(), ptr.To(ec2nc.InstanceStorePolicyRAID0)
			},
			check: func(t *testing.T, data string) {
				parts := readParts(t, data)
				if len(parts) != 2 || parts[0].kind != "text/x-shellscript" || parts[0].body != "#!/bin/bash\necho hello" {
					t.Fatalf("parts %+v", parts)
				}
				var got map[string]any
				if err := yaml.Unmarshal([]byte(parts[1].body), &got); err != nil || parts[1].kind != "application/node.eks.aws" {
					t.Fatalf("%s: %v", parts[1].kind, err)
				}
				want := map[string]any{
					"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig",
					"spec": map[string]any{
						"cluster":  map[string]any{"name": "films", "apiServerEndpoint": "https://cluster.invalid", "certificateAuthority": authority, "cidr": "172.20.0.0/16"},
						"instance": map[string]any{"localStorage": map[string]any{"strategy": "RAID0"}},
						"kubelet": map[string]any{
							"config": map[string]any{
								"clusterDNS": []any{"172.20.0.53"}, "maxPods": 58.0, "podsPerCore": 40.0,
								"systemReserved": map[string]any{"cpu": "100m", "memory": "200Mi"}, "kubeReserved": map[string]any{"cpu": "90m"},
								"evictionHard": map[string]any{"memory.available": "5%", "nodefs.available": "10Gi"}, "evictionSoft": map[string]any{"memory.available": "10%"},
								"evictionSoftGracePeriod": map[string]any{"memory.available": "1m30s"}, "evictionMaxPodGracePeriod": 30.0,
								"imageGCHighThresholdPercent": 80.0, "imageGCLowThresholdPercent": 60.0, "cpuCFSQuota": false,
								"registerWithTaints": []any{
									map[string]any{"key": "dedicated", "value": "a", "effect": "NoSchedule"}, map[string]any{"key": "karpenter.sh/unregistered", "effect": "NoSchedule"}},
							},
							"flags": []any{"--node-labels=karpenter.k8s.aws/ec2nodeclass=default,karpenter.sh/capacity-type=on-demand,karpenter.sh/nodepool=pool,team=a"},
						},
					},
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("NodeConfig (-want +got):\n%s", diff)
				}
			},
		},
		{
			name: "AL2023: nothing said, a NodeConfig of the user's own before ours",
			class: func(s *ec2nc.EC2NodeClassSpec) {
				s.UserData = ptr.To("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {config: {maxPods: 7, serializeImagePulls: false}}}\n")
			},
			check: func(t *testing.T, data string) {
				parts := readParts(t, data)
				var own, ours bootstrap.NodeConfig
				if len(parts) != 2 || yaml.Unmarshal([]byte(parts[0].body), &own) != nil || yaml.Unmarshal([]byte(parts[1].body), &ours) != nil {
					t.Fatalf("parts %+v", parts)
				}
				// nodeadm merges them, later ones win.
				if own.Spec.Kubelet.Config["serializeImagePulls"] != false || ours.Spec.Kubelet.Config["maxPods"] != 29.0 || ours.Spec.Instance != nil {
					t.Errorf("the user's %+v, ours %+v", own, ours)
				}
			},
		},
		{
			name: "AL2023: parts of the user's own keep their encoding",
			class: func(s *ec2nc.EC2NodeClassSpec) {
				s.UserData = ptr.To("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\nContent-Type: text/cloud-config\nContent-Transfer-Encoding: base64\n\n" +
					base64.StdEncoding.EncodeToString([]byte("packages: [htop]")) + "\n--//--\n")
			},
			check: func(t *testing.T, data string) {
				parts := readParts(t, data)
				if len(parts) != 2 || parts[0].kind != "text/cloud-config" || parts[0].body != "packages: [htop]" || !strings.Contains(parts[1].body, "kind: NodeConfig") {
					t.Errorf("parts %+v", parts)
				}
			},
		},
		{
			name: "Bottlerocket: settings merged, ours win",
			class: func(s *ec2nc.EC2NodeClassSpec) {
				s.AMISelectorTerms = []ec2nc.AMISelectorTerm{{Alias: "bottlerocket@latest"}}
				s.UserData = ptr.To("[settings.host-containers.admin]\nenabled = true\n[settings.kubernetes]\nmax-pods = 7\nlog-level = 3\n[settings.kubernetes.node-labels]\nmine = 'yes'\n")
				s.Kubelet, s.InstanceStorePolicy = allKubelet(), ptr.To(ec2nc.InstanceStorePolicyRAID0)
			},
			check: func(t *testing.T, data string) {
				var got map[string]any
				if err := toml.Unmarshal([]byte(data), &got); err != nil {
					t.Fatal(err)
				}
				labels := map[string]any{"mine": "yes"}
				for k, v := range wantLabels {
					labels[k] = v
				}
				want := map[string]any{"settings": map[string]any{
					"host-containers": map[string]any{"admin": map[string]any{"enabled": true}},
					"bootstrap-commands": map[string]any{"000-mount-instance-storage": map[string]any{"commands": []any{
						[]any{"apiclient", "ephemeral-storage", "init"},
						[]any{"apiclient", "ephemeral-storage", "bind", "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"},
					}, "mode": "always", "essential": true}},
					"kubernetes": map[string]any{
						"cluster-name": "films", "api-server": "https://cluster.invalid", "cluster-certificate": authority, "cluster-dns-ip": "172.20.0.53",
						"max-pods": int64(58), "log-level": int64(3), "node-labels": labels,
						"node-taints":     map[string]any{"dedicated": []any{"a:NoSchedule"}, "karpenter.sh/unregistered": []any{":NoSchedule"}},
						"system-reserved": map[string]any{"cpu": "100m", "memory": "200Mi"}, "kube-reserved": map[string]any{"cpu": "90m"},
						"eviction-hard": map[string]any{"memory.available": "5%", "nodefs.available": "10Gi"}, "eviction-soft": map[string]any{"memory.available": "10%"},
						"eviction-soft-grace-period": map[string]any{"memory.available": "1m30s"}, "eviction-max-pod-grace-period": int64(30),
						"image-gc-high-threshold-percent": "80", "image-gc-low-threshold-percent": "60", "cpu-cfs-quota-enforced": false,
					},
				}}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("settings (-want +got):\n%s", diff)
				}
			},
		},
		{
			name: "Bottlerocket: nothing said",
			class: func(s *ec2nc.EC2NodeClassSpec) {
				s.AMISelectorTerms = []ec2nc.AMISelectorTerm{{Alias: "bottlerocket@latest"}}
			},
			check: func(t *testing.T, data string) {
				var got struct {
					Settings struct{ Kubernetes map[string]any }
				}
				if err := toml.Unmarshal([]byte(data), &got); err != nil {
					t.Fatal(err)
				}
				if k := got.Settings.Kubernetes; k["max-pods"] != int64(29) || k["cluster-dns-ip"] != "172.20.0.10" || k["system-reserved"] != nil {
					t.Errorf("settings %v", k)
				}
			},
		},
		{
			name: "Windows: the user's commands, then the image's script with everything",
			class: func(s *ec2nc.EC2NodeClassSpec) {
				s.AMISelectorTerms = []ec2nc.AMISelectorTerm{{Alias: "windows2022@latest"}}
				s.UserData, s.Kubelet = ptr.To("<powershell>\nWrite-Host 'hello'\n</powershell>\n<persist>true</persist>\n"), allKubelet()
			},
			check: func(t *testing.T, data string) {
				commands, rest := readPowershell(t, data)
				if len(commands) != 2 || commands[0] != "Write-Host 'hello'" || rest != "<persist>true</persist>" {
					t.Fatalf("commands %q, beside them %q", commands, rest)
				}
				want := map[string]string{
					"EKSClusterName": "films", "APIServerEndpoint": "https://cluster.invalid", "Base64ClusterCA": authority, "DNSClusterIP": "172.20.0.53", "ServiceCIDR": "172.20.0.0/16",
					"KubeletExtraArgs": strings.Join([]string{
						"--node-labels=karpenter.k8s.aws/ec2nodeclass=default,karpenter.sh/capacity-type=on-demand,karpenter.sh/nodepool=pool,team=a",
						"--register-with-taints=dedicated=a:NoSchedule,karpenter.sh/unregistered=:NoSchedule", "--max-pods=58",
						// 1 GiB of disk and 255 + 11 x 58 MiB, because the class doesn't set them
						"--kube-reserved=cpu=90m,ephemeral-storage=1Gi,memory=893Mi", "--pods-per-core=40", "--system-reserved=cpu=100m,memory=200Mi",
						"--eviction-hard=memory.available<5%,nodefs.available<10Gi", "--eviction-soft=memory.available<10%",
						"--eviction-soft-grace-period=memory.available=1m30s", "--eviction-max-pod-grace-period=30",
						"--image-gc-high-threshold=80", "--image-gc-low-threshold=60", "--cpu-cfs-quota=false",
					}, " "),
				}
				if diff := cmp.Diff(want, parametersOf(t, commands[1])); diff != "" {
					t.Errorf("parameters (-want +got):\n%s", diff)
				}
			},
		},
		{
			name: "Windows: commands without tags",
			class: func(s *ec2nc.EC2NodeClassSpec) {
				s.AMISelectorTerms = []ec2nc.AMISelectorTerm{{Alias: "windows2025@latest"}}
				s.UserData = ptr.To("Write-Host hello")
			},
			check: func(t *testing.T, data string) {
				commands, _ := readPowershell(t, data)
				if commands[0] != "Write-Host hello" {
					t.Errorf("commands %q", commands)
				}
				// 110 pods by default; 60 m for the first core, 10 m for the second
				if a := parametersOf(t, commands[1])["KubeletExtraArgs"]; !strings.Contains(a, "--max-pods=110 --kube-reserved=cpu=70m,ephemeral-storage=1Gi,memory=1465Mi") {
					t.Errorf("arguments %q", a)
				}
			},
		},
		{
			name: "Custom is left alone",
			class: func(s *ec2nc.EC2NodeClassSpec) {
				s.AMIFamily, s.AMISelectorTerms = ptr.To("Custom"), []ec2nc.AMISelectorTerm{{Tags: map[string]string{"team": "platform"}}}
				s.UserData = ptr.To("join my way")
			},
			check: func(t *testing.T, data string) {
				if data != "join my way" {
					t.Errorf("user data %q", data)
				}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			machines := newMachines()
			w := newWorld(t, func(_ *Config, s *sim.Config) { s.Machines = machines })
			w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { tt.class(&nc.Spec) }))
			w.types("default")
			res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand"))))
			if err != nil {
				t.Fatal(err)
			}
			tt.check(t, string(machines.await(t, res.Instances[0].ID).UserData))
		})
	}
}

// mimeText is a part of a multi-part document, decoded.
type mimeText struct{ kind, body string }

// readParts reads a document as cloud-init does.
func readParts(t *testing.T, data string) []mimeText {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(data))
	if err != nil {
		t.Fatalf("%v in %q", err, data)
	}
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/mixed" || m.Header.Get("MIME-Version") != "1.0" {
		t.Fatalf("%s: %v", kind, err)
	}
	var out []mimeText
	for r := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		kind, _, err := mime.ParseMediaType(p.Header.Get("Content-Type"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(p)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.TrimSpace(string(body))
		if p.Header.Get("Content-Transfer-Encoding") == "base64" {
			raw, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			text = string(raw)
		}
		out = append(out, mimeText{kind, text})
	}
}

// readPowershell reads a document as EC2Launch does: the commands between the tags, and what surrounds them.
func readPowershell(t *testing.T, data string) (commands []string, rest string) {
	t.Helper()
	before, inner, ok := strings.Cut(data, "<powershell>\n")
	inner, after, closed := strings.Cut(inner, "\n</powershell>")
	if !ok || !closed || before != "" || strings.Contains(after, "<powershell>") {
		t.Fatalf("no script in %q", data)
	}
	return strings.Split(inner, "\n"), strings.TrimSpace(after)
}

var parameterPattern = regexp.MustCompile(` -(\w+) '((?:[^']|'')*)'`)

// parametersOf returns the parameters of the bootstrap script's call.
func parametersOf(t *testing.T, call string) map[string]string {
	t.Helper()
	rest, ok := strings.CutPrefix(call, `& "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"`)
	if !ok {
		t.Fatalf("the last command is %q", call)
	}
	out := map[string]string{}
	for _, m := range parameterPattern.FindAllStringSubmatch(rest, -1) {
		out[m[1]] = strings.ReplaceAll(m[2], "''", "'")
	}
	if left := parameterPattern.ReplaceAllString(rest, ""); left != "" {
		t.Errorf("left over: %q", left)
	}
	return out
}
