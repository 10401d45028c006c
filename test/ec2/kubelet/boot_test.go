package kubelet

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

func TestBootTimesAreLognormal(t *testing.T) {
	c, err := Config{Client: nil, Kube: nil}.withDefaults()
	if err == nil {
		t.Fatalf("a configuration without an API server: %+v", c)
	}
	b := Boot{Median: 40 * time.Second, P95: 80 * time.Second, ReadyMin: 5 * time.Second, ReadyMax: 15 * time.Second, Never: 0.01}
	var times []time.Duration
	never := 0
	for i := range 20000 {
		d := b.draw(1, fmt.Sprint(i))
		times = append(times, d.register)
		if d.never {
			never++
		}
		if d.ready < b.ReadyMin || d.ready > b.ReadyMax {
			t.Fatalf("ready after %v", d.ready)
		}
	}
	slices.Sort(times)
	for _, q := range []struct {
		at   int
		want time.Duration
	}{{10000, 40 * time.Second}, {19000, 80 * time.Second}} {
		if got := times[q.at]; got < q.want*97/100 || got > q.want*103/100 {
			t.Errorf("quantile %d of 20000 is %v, want about %v", q.at, got, q.want)
		}
	}
	if never < 150 || never > 250 {
		t.Errorf("%d of 20000 never come up, want about 200", never)
	}
	if a, b := b.draw(1, "i-1"), b.draw(1, "i-1"); a != b {
		t.Error("the same seed and instance give different times")
	}
}

func TestUserData(t *testing.T) {
	for name, tc := range map[string]struct {
		data string
		want settings
		err  bool
	}{
		"none":     {"", settings{labels: map[string]string{}}, false},
		"a script": {"#!/bin/bash\nkind: NodeConfig", settings{labels: map[string]string{}}, false},
		"multi-part, with labels from flags and taints from configuration": {multipartData, settings{
			nodeadm: true, labels: map[string]string{"karpenter.sh/nodepool": "default", "team": "a"}, maxPods: 20,
			taints: []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: "NoExecute"}, {Key: "dedicated", Value: "gpu", Effect: "NoSchedule"}},
		}, false},
		"plain NodeConfig, with taints from flags": {`
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config: {kubeReserved: {cpu: 100m}, evictionHard: {memory.available: 5%}}
    flags: ["--register-with-taints=a=b:NoSchedule,c:NoExecute", "--max-pods=12", "--v=2"]
`, settings{
			nodeadm: true, labels: map[string]string{}, maxPods: 12, taints: []corev1.Taint{{Key: "a", Value: "b", Effect: "NoSchedule"}, {Key: "c", Effect: "NoExecute"}},
			kubeReserved: map[string]string{"cpu": "100m"}, evictionHard: map[string]string{"memory.available": "5%"},
		}, false},
		"quoted labels, as Karpenter writes them": {`
kind: NodeConfig
spec: {kubelet: {flags: ['--node-labels="karpenter.sh/nodepool=default,team=a"']}}
`, settings{nodeadm: true, labels: map[string]string{"karpenter.sh/nodepool": "default", "team": "a"}}, false},
		"Bottlerocket": {`
[settings.kubernetes]
max-pods = 8
[settings.kubernetes.node-labels]
team = "a"
[settings.kubernetes.node-taints]
dedicated = ["x:NoSchedule"]
`, settings{labels: map[string]string{"team": "a"}, maxPods: 8, taints: []corev1.Taint{{Key: "dedicated", Value: "x", Effect: "NoSchedule"}}}, false},
		"a taint without effect":  {"kind: NodeConfig\nspec: {kubelet: {flags: [--register-with-taints=a]}}", settings{}, true},
		"a cut multi-part":        {"Content-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: application/node.eks.aws\n\nkind: NodeConfig", settings{}, true},
		"what is no NodeConfig":   {"kind: NodeConfig\nspec: 3", settings{}, true},
		"broken Bottlerocket":     {"[settings.kubernetes]\nmax-pods = many", settings{}, true},
		"an image's own language": {"cloud: yes", settings{labels: map[string]string{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readUserData([]byte(tc.data))
			if (err != nil) != tc.err {
				t.Fatalf("error %v", err)
			}
			if tc.err {
				return
			}
			if diff := cmp.Diff(&tc.want, got, cmp.AllowUnexported(settings{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestWhatANodeHasToGive(t *testing.T) {
	for name, tc := range map[string]struct {
		typ      string
		settings settings
		overhead Overhead
		want     map[corev1.ResourceName]string
	}{
		// 8192 MiB less 100 MiB and 2.5 % is 7887 MiB; reserved are 255 + 11 x 29 and 100 MiB.
		"m5.large": {"m5.large", settings{}, nil, map[corev1.ResourceName]string{"cpu": "1930m", "memory": "7213Mi", "pods": "29", "ephemeral-storage": "17Gi"}},
		"with limits of its own": {"m5.large", settings{maxPods: 10, kubeReserved: map[string]string{"memory": "1Gi"}, systemReserved: map[string]string{"cpu": "70m"},
			evictionHard: map[string]string{"memory.available": "0%"}}, nil, map[corev1.ResourceName]string{"cpu": "1860m", "memory": "6863Mi", "pods": "10", "ephemeral-storage": "17Gi"}},
		// 300 GB less 10 % and 1 GiB.
		"disks of its own":                  {"m5d.2xlarge", settings{localDisks: true}, nil, map[corev1.ResourceName]string{"ephemeral-storage": "250Gi"}},
		"disks of its own that nobody uses": {"m5d.2xlarge", settings{}, nil, map[corev1.ResourceName]string{"ephemeral-storage": "17Gi"}},
		"no disks of its own":               {"m5.large", settings{localDisks: true}, nil, map[corev1.ResourceName]string{"ephemeral-storage": "17Gi"}},
		// 8192 MiB less an eighth is 7168 MiB; reserved as above.
		"a kernel that keeps much": {"m5.large", settings{}, func(instanceType, image string) float64 {
			if instanceType != "m5.large" || image != "ami-1" {
				return 0
			}
			return 0.125
		}, map[corev1.ResourceName]string{"memory": "6494Mi"}},
		"a small one": {"t3.small", settings{}, nil, map[corev1.ResourceName]string{"cpu": "1930m", "memory": "1428Mi", "pods": "11", "ephemeral-storage": "17Gi"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := ec2.Machine{Type: catalog.Builtin().Type(tc.typ), RootGiB: 20, ImageID: "ami-1"}
			s, err := shapeOf(&m, &tc.settings, tc.overhead)
			if err != nil {
				t.Fatal(err)
			}
			got := map[corev1.ResourceName]string{}
			for name := range tc.want {
				q := s.allocatable[name]
				got[name] = q.String()
				switch name {
				case "memory":
					got[name] = fmt.Sprintf("%dMi", q.Value()/mib)
				case "ephemeral-storage":
					got[name] = fmt.Sprintf("%dGi", q.Value()/gib)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	for _, bad := range []settings{{kubeReserved: map[string]string{"cpu": "much"}}, {evictionHard: map[string]string{"memory.available": "a%"}}} {
		if _, err := shapeOf(&ec2.Machine{Type: catalog.Builtin().Type("m5.large"), RootGiB: 20}, &bad, nil); err == nil {
			t.Errorf("%+v gave no error", bad)
		}
	}
}

// What is drawn depends on type, image and seed, and on nothing else.
func TestDrawnOverhead(t *testing.T) {
	const least, most = 0.01, 0.12
	seen := map[float64]bool{}
	for seed := range uint64(2) {
		for _, typ := range []string{"m5.large", "c5.large"} {
			for _, image := range []string{"ami-1", "ami-2"} {
				share := DrawnOverhead(seed, least, most)(typ, image)
				if again := DrawnOverhead(seed, least, most)(typ, image); share != again || share < least || share > most || seen[share] {
					t.Errorf("%d, %s, %s: %v, and %v the next time; seen %v", seed, typ, image, share, again, seen)
				}
				seen[share] = true
			}
		}
	}
}
