package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/daemon"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
)

// machine is a node that could be launched, with the DaemonSet pods that would run on it.
type machine struct {
	node    *corev1.Node
	daemons []*corev1.Pod
}

// offered returns the nodes that the pools may launch and that have not run out: one per pool, type, zone and capacity type.
func offered(e *Evidence, pools []*karpv1.NodePool, sets []*appsv1.DaemonSet) []machine {
	var out []machine
	for _, t := range catalog.Builtin().InRegion(e.Region).Types {
		if e.Limits[t.Name] {
			continue
		}
		for _, pool := range pools {
			for _, zone := range e.Zones {
				for _, capacityType := range []string{karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot} {
					if !t.OfferedIn(zone) || !t.Sells(capacityType) {
						continue
					}
					if n := nodeOf(t, pool, e.Region, zone, capacityType, e.Overhead); n != nil && allows(pool, n) {
						out = append(out, machine{n, daemonsOf(n, sets)})
					}
				}
			}
		}
	}
	return out
}

// nodeOf returns the node as it would be when it is initialized; nil if the simulator couldn't boot it.
func nodeOf(t *catalog.Type, pool *karpv1.NodePool, region, zone, capacityType string, overhead kubelet.Overhead) *corev1.Node {
	m := &ec2.Machine{ID: "i-offered", Type: t, Region: region, Zone: zone, RootGiB: 20}
	s, err := kubelet.ShapeOf(m, overhead)
	if err != nil {
		return nil
	}
	arch := "amd64"
	if slices.Contains(t.Arch, "arm64") {
		arch = "arm64"
	}
	category, _, _ := strings.Cut(t.Family(), t.Family()[strings.IndexAny(t.Family(), "0123456789"):])
	name := fmt.Sprintf("%s.%s.%s.%s", pool.Name, t.Name, zone, capacityType)
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelArchStable: arch, corev1.LabelOSStable: "linux", corev1.LabelInstanceTypeStable: t.Name,
			corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: region, karpv1.CapacityTypeLabelKey: capacityType, karpv1.NodePoolLabelKey: pool.Name,
			"karpenter.k8s.aws/instance-category": category, "karpenter.k8s.aws/instance-cpu": strconv.Itoa(t.VCPUs),
		}},
		Spec:   corev1.NodeSpec{Taints: pool.Spec.Template.Spec.Taints},
		Status: corev1.NodeStatus{Capacity: s.Capacity, Allocatable: s.Allocatable},
	}
	for key, v := range pool.Spec.Template.Labels {
		n.Labels[key] = v
	}
	for device, q := range s.Devices {
		n.Status.Capacity[device], n.Status.Allocatable[device] = q, q
	}
	return n
}

// allows reports whether the pool's requirements allow the node. A label that the check doesn't know makes it return false, so that no
// pod is called stranded by mistake.
func allows(pool *karpv1.NodePool, n *corev1.Node) bool {
	term := corev1.NodeSelectorTerm{}
	for _, r := range pool.Spec.Template.Spec.Requirements {
		term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: r.Key, Operator: r.Operator, Values: r.Values})
	}
	ok, err := schedulinghelpers.MatchNodeSelectorTerms(n, &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}})
	return ok && err == nil
}

// daemonsOf returns the pods that DaemonSets would create on the node.
func daemonsOf(n *corev1.Node, sets []*appsv1.DaemonSet) []*corev1.Pod {
	var out []*corev1.Pod
	for _, ds := range sets {
		if should, _ := daemon.NodeShouldRunDaemonPod(klog.Background(), n, ds); should {
			p := daemon.NewPod(ds, n.Name)
			p.Name, p.UID = ds.Name, types.UID(n.Name+ds.Name)
			out = append(out, p)
		}
	}
	return out
}

// fits reports whether the pod alone fits the node, judging by node affinity and resources.
func fits(p *corev1.Pod, m machine) bool {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(m.node); !ok || err != nil {
		return false
	}
	for name, q := range resource.PodRequests(p, resource.PodResourcesOptions{}) {
		if have := m.node.Status.Allocatable[name]; q.Cmp(have) > 0 {
			return false
		}
	}
	return true
}
