package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	model "github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

const (
	// every is which Deployments of the benchmarks' workload are used, one of so many: pods for about 40 nodes.
	every = 8
	// lost is the probability that a pod is deleted.
	lost = 0.4

	namespace = metav1.NamespaceDefault
	appLabel  = "app"
	poolName  = "default"
	zone      = "zone-a"

	// The kwok provider withholds this much of each instance type from pods.
	reservedCPU, reservedMiB = 100, 10
)

func newWorld() (*model.World, error) {
	w := model.Deployments()
	groups := w.Groups[:0]
	for i, g := range w.Groups {
		if i%every == 0 {
			groups = append(groups, g)
		}
	}
	w.Groups = groups
	return model.New(w, catalog.Builtin(), 1, false)
}

// kwokType and kwokOffering are the format of the kwok provider's file of instance types.
type kwokType struct {
	Name             string            `json:"name"`
	Offerings        []kwokOffering    `json:"offerings"`
	Architecture     string            `json:"architecture"`
	OperatingSystems []string          `json:"operatingSystems"`
	Resources        map[string]string `json:"resources"`
}

type kwokOffering struct {
	Price        float64
	Requirements []corev1.NodeSelectorRequirement
}

// instanceTypes returns the file of instance types. What they leave for pods is exactly what the world's leave: DaemonSets are subtracted, not
// run.
func instanceTypes(w *model.World) ([]byte, error) {
	var types []kwokType
	for i, t := range w.Types {
		in := func(key, value string) corev1.NodeSelectorRequirement {
			return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
		}
		types = append(types, kwokType{
			Name:             t.Name,
			Architecture:     t.Capacity.Labels[corev1.LabelArchStable],
			OperatingSystems: []string{"linux"},
			Offerings: []kwokOffering{{Price: w.Price[i], Requirements: []corev1.NodeSelectorRequirement{
				in(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand), in(corev1.LabelTopologyZone, zone)}}},
			Resources: map[string]string{
				"cpu":    fmt.Sprintf("%dm", t.Room[0]+reservedCPU),
				"memory": fmt.Sprintf("%dMi", t.Room[1]+reservedMiB),
				"pods":   fmt.Sprint(t.Room[2]),
			},
		})
	}
	return json.Marshal(types)
}

// lose returns how many pods each class keeps.
func lose(counts []int, random *rand.Rand) []int {
	left := slices.Clone(counts)
	for class, n := range counts {
		for range n {
			if random.Float64() < lost {
				left[class]--
			}
		}
	}
	return left
}

// nodePool returns the NodePool of all nodes, which for now may not be disrupted.
func nodePool(balanced bool) *karpv1.NodePool {
	policy := karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized
	if balanced {
		policy = karpv1.ConsolidationPolicyBalanced
	}
	in := func(key string, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
		return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	return &karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: poolName},
		Spec: karpv1.NodePoolSpec{
			Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.kwok.sh", Kind: "KWOKNodeClass", Name: "default"},
				ExpireAfter:  karpv1.MustParseNillableDuration("Never"),
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
					in(corev1.LabelArchStable, "amd64", "arm64"),
					in(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand),
				},
			}},
			Disruption: karpv1.Disruption{
				ConsolidationPolicy: policy,
				ConsolidateAfter:    karpv1.MustParseNillableDuration("0s"),
				Budgets:             []karpv1.Budget{{Nodes: "0"}},
			},
		},
	}
}

func replicaSet(c *model.Class) *appsv1.ReplicaSet {
	labels := map[string]string{appLabel: c.Name}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.Name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(int32(c.Count)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					AutomountServiceAccountToken:  ptr.To(false),
					Containers: []corev1.Container{{
						Name: "main", Image: "registry.invalid/main",
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
							corev1.ResourceCPU:    *resource.NewMilliQuantity(c.Need[0], resource.DecimalSI),
							corev1.ResourceMemory: *resource.NewQuantity(c.Need[1]<<20, resource.BinarySI),
						}},
					}},
				},
			},
		},
	}
}

// reduce returns the cluster that the nodes and pods are, with the nodes in the order of their names.
func reduce(w *model.World, nodes []*corev1.Node, pods []*corev1.Pod) (*model.Cluster, error) {
	c := &model.Cluster{World: w}
	byName := map[string]*model.Node{}
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		name := n.Labels[corev1.LabelInstanceTypeStable]
		typ := slices.IndexFunc(w.Types, func(t model.Type) bool { return t.Name == name })
		if typ < 0 {
			return nil, fmt.Errorf("node %s has the unknown instance type %q", n.Name, name)
		}
		byName[n.Name] = c.Add(typ, nil)
	}
	for _, p := range pods {
		class := slices.IndexFunc(w.Classes, func(c model.Class) bool { return c.Name == p.Labels[appLabel] })
		node := byName[p.Spec.NodeName]
		if class < 0 || node == nil {
			return nil, fmt.Errorf("pod %s is on node %q, which isn't known, or of an unknown ReplicaSet", p.Name, p.Spec.NodeName)
		}
		c.Put(node, class, 1)
	}
	return c, nil
}
