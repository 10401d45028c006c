package kubelet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

const nodeName = "ip-10-0-0-4.us-west-2.compute.internal"

// world is a fake API server with kubelets, in a bubble of virtual time.
type world struct {
	*Kubelets
	t   *testing.T
	api *fake.Clientset
}

// inWorld runs f with kubelets that register after 40 s, are Ready 10 s later and announce their drivers and devices 5 s after that.
func inWorld(t *testing.T, f func(*world), objects ...*corev1.Node) {
	inWorldOf(t, func(*Config) {}, f, objects...)
}

func inWorldOf(t *testing.T, set func(*Config), f func(*world), objects ...*corev1.Node) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset()
		for _, n := range objects {
			if _, err := api.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		cfg := Config{Client: api, Seed: 1, Boot: Boot{
			Median: 40 * time.Second, P95: 40 * time.Second, ReadyMin: 10 * time.Second, ReadyMax: 10 * time.Second, PluginsMin: 5 * time.Second, PluginsMax: 5 * time.Second,
		}}
		set(&cfg)
		k, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		synctest.Wait()
		f(&world{k, t, api})
	})
}

// pass advances virtual time.
func pass(d time.Duration) {
	clock.RealClock{}.Sleep(d)
	synctest.Wait()
}

func machine(instanceType, userData string) ec2.Machine {
	return ec2.Machine{
		ID: "i-0123456789abcdef0", Type: catalog.Builtin().Type(instanceType), Region: "us-west-2", Zone: "us-west-2a", ZoneID: "usw2-az1", PrivateIP: "10.0.0.4",
		PrivateDNSName: nodeName, UserData: []byte(userData), CapacityType: "on-demand", RootGiB: 20,
	}
}

func (w *world) node() *corev1.Node {
	w.t.Helper()
	n, err := w.api.CoreV1().Nodes().Get(w.t.Context(), nodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// readiness returns "absent", or the Ready condition with the number of GPUs if the node has any.
func (w *world) readiness() string {
	w.t.Helper()
	n := w.node()
	if n == nil {
		return "absent"
	}
	out := "no condition"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out = string(c.Type) + "=" + string(c.Status)
		}
	}
	if gpus, ok := n.Status.Allocatable["nvidia.com/gpu"]; ok {
		out += " gpus=" + gpus.String()
	}
	return out
}

func (w *world) wantReadiness(want string) {
	w.t.Helper()
	if got := w.readiness(); got != want {
		w.t.Errorf("node is %q, want %q", got, want)
	}
}

func (w *world) drivers() int {
	c, err := w.api.StorageV1().CSINodes().Get(w.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		return -1
	}
	return len(c.Spec.Drivers)
}

func (w *world) renewed() time.Time {
	w.t.Helper()
	l, err := w.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(w.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return l.Spec.RenewTime.Time
}

const multipartData = `MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
echo hello

--//
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster: {name: blue}
  kubelet:
    config:
      maxPods: 20
      registerWithTaints:
      - {key: karpenter.sh/unregistered, effect: NoExecute}
      - {key: dedicated, value: gpu, effect: NoSchedule}
    flags:
    - --node-labels=karpenter.sh/nodepool=default,team=a
--//--
`

func TestANodeComesUp(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Boot(machine("g4dn.xlarge", multipartData))
		pass(39 * time.Second)
		w.wantReadiness("absent")
		pass(2 * time.Second)
		w.wantReadiness("Ready=False")
		n := w.node()
		if n.Spec.ProviderID != "aws:///us-west-2a/i-0123456789abcdef0" || n.Status.Allocatable.Pods().Value() != 20 || n.Status.NodeInfo.KubeletVersion != "v1.36.4" {
			t.Errorf("node %+v", n)
		}
		if diff := cmp.Diff([]corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: "NoExecute"}, {Key: "dedicated", Value: "gpu", Effect: "NoSchedule"}}, n.Spec.Taints); diff != "" {
			t.Errorf("taints: -want +got:\n%s", diff)
		}
		for key, want := range map[string]string{
			"karpenter.sh/nodepool": "default", "team": "a", "kubernetes.io/hostname": nodeName, "kubernetes.io/arch": "amd64", "node.kubernetes.io/instance-type": "g4dn.xlarge",
			"topology.kubernetes.io/zone": "us-west-2a",
		} {
			if n.Labels[key] != want {
				t.Errorf("label %s is %q, want %q", key, n.Labels[key], want)
			}
		}
		pass(10 * time.Second)
		w.wantReadiness("Ready=True")
		if w.drivers() > 0 {
			t.Error("CSI drivers are there before their plugins")
		}
		pass(5 * time.Second)
		w.wantReadiness("Ready=True gpus=1")
		if w.drivers() != 1 {
			t.Errorf("%d CSI drivers", w.drivers())
		}
		first := w.renewed()
		pass(20 * time.Second)
		if age := w.renewed().Sub(first); age < 10*time.Second {
			t.Errorf("the lease was renewed %v later", age)
		}
	})
}

func TestTheNodeThatIsThereIsAdopted(t *testing.T) {
	ahead := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "u1", Labels: map[string]string{"team": "b", "kubernetes.io/hostname": "planned", "kubernetes.io/arch": "amd64"},
			Annotations: map[string]string{"note": "kept"}, Finalizers: []string{"karpenter.sh/termination"}},
		Spec: corev1.NodeSpec{ProviderID: "aws:///us-west-2a/i-0123456789abcdef0", Taints: []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: "NoSchedule"}}},
		Status: corev1.NodeStatus{
			Capacity:    corev1.ResourceList{"cpu": resource.MustParse("4"), "nvidia.com/gpu": resource.MustParse("1")},
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("3900m"), "nvidia.com/gpu": resource.MustParse("1")},
		},
	}
	inWorld(t, func(w *world) {
		w.Boot(machine("g4dn.xlarge", multipartData))
		w.wantReadiness("no condition gpus=1")
		pass(41 * time.Second)
		w.wantReadiness("Ready=False gpus=0")
		n := w.node()
		if diff := cmp.Diff(ahead.Spec, n.Spec); diff != "" {
			t.Errorf("spec: -want +got:\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"note": "kept"}, n.Annotations); diff != "" {
			t.Errorf("annotations: -want +got:\n%s", diff)
		}
		if n.Labels["team"] != "b" || n.Labels["karpenter.sh/nodepool"] != "" || n.Labels["kubernetes.io/hostname"] != nodeName || len(n.Finalizers) != 1 {
			t.Errorf("metadata %+v", n.ObjectMeta)
		}
		if q := n.Status.Allocatable["cpu"]; q.String() != "3920m" {
			t.Errorf("allocatable cpu %s, want what the machine has", q.String())
		}
		pass(10 * time.Second)
		w.wantReadiness("Ready=True gpus=0")
		pass(5 * time.Second)
		w.wantReadiness("Ready=True gpus=1")
	}, ahead)
}

// NVIDIA's device plugin runs where its label is. On a Node created before the kubelet registers, the label must already be there.
func TestDevicePluginGoesByItsLabel(t *testing.T) {
	ahead := func(labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "u1", Labels: labels}, Spec: corev1.NodeSpec{ProviderID: "aws:///us-west-2a/i-0123456789abcdef0"}}
	}
	for name, tc := range map[string]struct {
		there []*corev1.Node
		want  string
	}{
		"a Node made ahead without it": {[]*corev1.Node{ahead(nil)}, "Ready=True"},
		"with it":                      {[]*corev1.Node{ahead(map[string]string{"nvidia.com/gpu.present": "true"})}, "Ready=True gpus=1"},
		"the kubelet's own Node":       {nil, "Ready=True gpus=1"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorldOf(t, func(c *Config) { c.PluginsByLabel = true }, func(w *world) {
				w.Boot(machine("g4dn.xlarge", multipartData))
				pass(2 * time.Minute)
				w.wantReadiness(tc.want)
			}, tc.there...)
		})
	}
}

func TestAnEndedInstanceFallsSilent(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Boot(machine("m5.xlarge", ""))
		pass(time.Minute)
		w.create(pod("a"))
		pass(2 * time.Second)
		last := w.renewed()
		w.Halt("i-0123456789abcdef0")
		w.create(pod("b"))
		pass(2 * time.Minute)
		if !w.renewed().Equal(last) && w.renewed().Sub(last) > 15*time.Second {
			t.Error("the lease is still renewed")
		}
		w.wantReadiness("Ready=True")
		w.wantPhases(map[string]string{"a": "Running", "b": "Pending"})
	})
}

func TestANameThatIsUsedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Boot(machine("m5.xlarge", ""))
		pass(time.Minute)
		w.Halt("i-0123456789abcdef0")
		next := machine("m5.xlarge", "")
		next.ID = "i-0fedcba9876543210"
		w.Boot(next)
		pass(time.Minute)
		// It adopts the existing Node by its name only, as the real one does: the provider ID is still the old instance's.
		if got := w.node(); got.Spec.ProviderID != "aws:///us-west-2a/i-0123456789abcdef0" || got.Status.NodeInfo.MachineID != "ec20fedcba9876543210" {
			t.Errorf("provider id %s, machine %s", got.Spec.ProviderID, got.Status.NodeInfo.MachineID)
		}
		if c, err := w.api.StorageV1().CSINodes().Get(t.Context(), nodeName, metav1.GetOptions{}); err != nil || c.Spec.Drivers[0].NodeID != next.ID {
			t.Errorf("CSINode %+v, %v", c, err)
		}
		w.create(pod("a"))
		pass(2 * time.Second)
		w.wantPhases(map[string]string{"a": "Running"})
	})
}

func TestADeletedNodeIsNotMadeAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Boot(machine("m5.xlarge", ""))
		pass(45 * time.Second)
		if err := w.api.CoreV1().Nodes().Delete(t.Context(), nodeName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		w.wantReadiness("absent")
	})
}

func TestBadUserDataNeverComesUp(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Boot(machine("m5.xlarge", "kind: NodeConfig\nspec: [this is not a NodeConfig]"))
		pass(10 * time.Minute)
		w.wantReadiness("absent")
	})
}

func TestAKubeletCorrectsItsNode(t *testing.T) {
	for name, spoil := range map[string]func(*world){
		"taken for dead": func(w *world) {
			n := w.node()
			for i := range n.Status.Conditions {
				n.Status.Conditions[i].Status = corev1.ConditionUnknown
			}
			if _, err := w.api.CoreV1().Nodes().UpdateStatus(w.t.Context(), n, metav1.UpdateOptions{}); err != nil {
				w.t.Fatal(err)
			}
		},
		"made anew": func(w *world) {
			if err := w.api.CoreV1().Nodes().Delete(w.t.Context(), nodeName, metav1.DeleteOptions{}); err != nil {
				w.t.Fatal(err)
			}
			if _, err := w.api.CoreV1().Nodes().Create(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "u2"}}, metav1.CreateOptions{}); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.Boot(machine("m5.xlarge", ""))
				pass(2 * time.Minute)
				spoil(w)
				if w.readiness() == "Ready=True" {
					t.Fatal("the node was not spoilt")
				}
				pass(11 * time.Second)
				w.wantReadiness("Ready=True")
				calls := len(w.api.Actions())
				pass(2 * time.Minute)
				patches := 0
				for _, a := range w.api.Actions()[calls:] {
					if a.GetResource().Resource == "nodes" {
						patches++
					}
				}
				if patches > 0 {
					t.Errorf("%d more patches of a node that is right", patches)
				}
			})
		})
	}
}
