package bootstrap

import (
	"strings"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

const (
	multipartUserData = `MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      systemReserved: {cpu: 100m, memory: 1Gi}
      evictionHard: {memory.available: 5%}
    flags: ["--node-labels=team=a,tier=gold"]

--//
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
systemctl start agent --node-labels=no=matter

--//
Content-Type: application/node.eks.aws
Content-Transfer-Encoding: base64

YXBpVmVyc2lvbjogbm9kZS5la3MuYXdzL3YxYWxwaGExCmtpbmQ6IE5vZGVDb25maWcKc3BlYzog
e2t1YmVsZXQ6IHtjb25maWc6IHtzeXN0ZW1SZXNlcnZlZDoge2NwdTogNTAwbX19LCBmbGFnczog
WyItLW5vZGUtbGFiZWxzPXRlYW09aW5mcmEiXX19Cg==
--//--
`
	script = `#!/bin/bash
/etc/eks/bootstrap.sh cluster --use-max-pods false \
  --kubelet-extra-args '--node-labels=team=infra --register-with-taints=dedicated=infra:NoSchedule --max-pods=40 --kube-reserved="cpu=200m,memory=1Gi"'
`
)

func TestOwnKubelet(t *testing.T) {
	dedicated := []corev1.Taint{{Key: "dedicated", Value: "infra", Effect: "NoSchedule"}}
	for name, tc := range map[string]struct {
		family *Family
		own    string
		want   Kubelet
		err    string
	}{
		"nothing":                 {family: AL2023},
		"a script beside nodeadm": {family: AL2023, own: "#!/bin/bash\necho --system-reserved=cpu=1\n"},
		"a NodeConfig": {family: AL2023, own: `
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec: {kubelet: {maxPodsExpression: "110", config: {maxPods: 7, kubeReserved: {cpu: 300m}, registerWithTaints: [{key: a, effect: NoSchedule}]},
  flags: ["--v=2"]}}
`, want: Kubelet{KubeReserved: map[string]string{"cpu": "300m"}, MaxPodsExpression: "110"}},
		"taints by flag": {family: AL2023, own: "kind: NodeConfig\nspec: {kubelet: {flags: [\"--register-with-taints=dedicated=infra:NoSchedule\"]}}\n",
			err: "--register-with-taints"},
		"taints by flag, as Karpenter wants them": {family: AL2023, want: Kubelet{Taints: dedicated},
			own: "kind: NodeConfig\nspec: {kubelet: {flags: [\"--register-with-taints=karpenter.sh/unregistered:NoExecute,dedicated=infra:NoSchedule\"]}}\n"},
		"a custom image as Karpenter wants it": {family: Custom, own: "#!/bin/sh\nkubelet --register-with-taints karpenter.sh/unregistered=:NoExecute\n",
			want: Kubelet{Taints: []corev1.Taint{}, Script: true}},
		"a custom image with nodeadm's taints": {family: Custom, want: Kubelet{Taints: dedicated},
			own: "kind: NodeConfig\nspec: {kubelet: {flags: [\"--register-with-taints=dedicated=infra:NoSchedule\"]}}\n"},
		"a custom image's comments": {family: Custom, own: "#!/bin/sh\n  # kubelet --node-labels=a=b\nkubelet\n", want: Kubelet{Script: true}},
		"several parts, the later ones over the earlier": {family: AL2023, own: multipartUserData, want: Kubelet{
			Labels:         map[string]string{"team": "infra", "tier": "gold"},
			SystemReserved: map[string]string{"cpu": "500m", "memory": "1Gi"}, EvictionHard: map[string]string{"memory.available": "5%"}}},
		"a flag replaces the file's": {family: AL2023, own: `
kind: NodeConfig
spec: {kubelet: {config: {systemReserved: {cpu: 1, memory: 1Gi}}, flags: ["--system-reserved=cpu=2"]}}
`, want: Kubelet{SystemReserved: map[string]string{"cpu": "2"}}},
		"not a NodeConfig": {family: AL2023, own: "kind: NodeConfig\nspec: {kubelet: {flags: many}}\n", err: "reading NodeConfig"},
		"Bottlerocket": {family: bottlerocket, own: `
[settings.kubernetes]
node-labels = {team = "infra"}
system-reserved = {cpu = "500m"}
[settings.kubernetes.node-taints]
dedicated = ["infra:NoSchedule"]
old = "x:PreferNoSchedule"
`, want: Kubelet{Labels: map[string]string{"team": "infra"}, SystemReserved: map[string]string{"cpu": "500m"},
			Taints: append(dedicated, corev1.Taint{Key: "old", Value: "x", Effect: "PreferNoSchedule"})}},
		"Bottlerocket, no taint": {family: bottlerocket, own: "[settings.kubernetes.node-taints]\na = [\"b\"]\n", err: `"a=b" is not a taint`},
		"a custom image's script": {family: Custom, own: script, want: Kubelet{Labels: map[string]string{"team": "infra"}, Taints: dedicated, MaxPods: ptr.To[int32](40),
			KubeReserved: map[string]string{"cpu": "200m", "memory": "1Gi"}, Script: true}},
		"a custom image with variables": {family: Custom, own: "#!/bin/sh\nkubelet --max-pods=$MAX --node-labels=a=b\n",
			want: Kubelet{Labels: map[string]string{"a": "b"}, Script: true}},
		"a custom image with variables in values": {family: Custom, own: "#!/bin/sh\nbootstrap --kubelet-extra-args '--node-labels=id=$ID --register-with-taints=team=$T:NoSchedule'" +
			" --kube-reserved=memory=${M}Mi --system-reserved=cpu=`cores` --eviction-hard=memory.available<{{ free }} --max-pods=40\n", want: Kubelet{MaxPods: ptr.To[int32](40), Script: true}},
		"a custom image with parts in quotes": {family: Custom, own: "#!/bin/sh\nkubelet --node-labels=id=\"$ID\" --kube-reserved=cpu=many --max-pods=9\n",
			want: Kubelet{MaxPods: ptr.To[int32](9), Script: true}},
		"a custom image like AL2023's": {family: Custom, own: "kind: NodeConfig\nspec: {kubelet: {config: {maxPods: 8, kubeReserved: {cpu: 1m}}}}\n",
			want: Kubelet{MaxPods: ptr.To[int32](8), KubeReserved: map[string]string{"cpu": "1m"}}},
		"a custom image without user data": {family: Custom, want: Kubelet{Script: true}},
		"no such label":                    {family: AL2023, own: "kind: NodeConfig\nspec: {kubelet: {flags: [\"--node-labels=a=b c\"]}}\n", err: "label a=b c"},
		"no value":                         {family: AL2023, own: "kind: NodeConfig\nspec: {kubelet: {flags: [\"--node-labels=a\"]}}\n", err: "--node-labels"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &ec2nc.EC2NodeClassSpec{}
			if tc.own != "" {
				spec.UserData = &tc.own
			}
			got, err := tc.family.OwnKubelet(spec)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || !strings.HasPrefix(err.Error(), "spec.userData: ") {
					t.Errorf("error %v, want one of spec.userData with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("kubelet (-want +got):\n%s", diff)
			}
		})
	}
}

// What anybody writes into user data is read or refused, and what is read is what a Node can have.
func FuzzOwnKubelet(f *testing.F) {
	for _, seed := range []string{multipartUserData, script, "kind: NodeConfig\n", "[settings.kubernetes]\nnode-taints = 1\n", "MIME-Version: 1.0\n", "--node-labels=,"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, own string) {
		for _, family := range families {
			k, err := family.OwnKubelet(&ec2nc.EC2NodeClassSpec{UserData: &own})
			if (k == nil) == (err == nil) {
				t.Fatalf("%s: %v and %v", family.name, k, err)
			}
			if k != nil && k.valid() != nil {
				t.Fatalf("%s: %v", family.name, k.valid())
			}
		}
	})
}
