package draw

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

// machines draws how EC2 behaves: its delays, and what it has run out of.
func (g *generator) machines() {
	median := g.duration(15*time.Second, 50*time.Second)
	g.w.EC2 = ec2.Config{
		Seed: g.w.Seed, Speed: 20, Cluster: "dovetail",
		FleetLatency: g.duration(0, 3*time.Second), DescribeLag: pick(g, 0, 0, g.duration(0, 10*time.Second)), HideNetworkWhilePending: g.maybe(0.3),
	}
	g.w.Kubelet = kubelet.Config{
		Seed: g.w.Seed, Speed: 20, Boot: kubelet.Boot{Median: median, P95: time.Duration(float64(median) * (1.2 + 2*g.Float64()))},
	}
	g.tell("boot %v", median.Round(time.Second))
	// What is drawn for each type must not change what is drawn after it. The scheduler plans with its default, 7.5 %, which is too little for some
	// machines of half of the worlds.
	g.w.MemoryOverhead = 0.075
	if g.w.Seed%2 == 0 {
		g.w.MemoryOverhead = 0.12
	}
	g.w.Kubelet.Overhead = kubelet.DrawnOverhead(g.w.Seed, 0.01, g.w.MemoryOverhead)
	g.tell("memory overhead up to %.1f %%", 100*g.w.MemoryOverhead)
	if !g.maybe(0.6) {
		return
	}
	var small []string
	for _, t := range catalog.Builtin().Types {
		if t.VCPUs <= 8 && len(t.GPUs) == 0 && slices.Contains([]byte("cmr"), t.Name[0]) {
			small = append(small, t.Name)
		}
	}
	g.Shuffle(len(small), func(i, j int) { small[i], small[j] = small[j], small[i] })
	small = small[:len(small)*g.between(10, 60)/100]
	for _, name := range small {
		g.w.Limits = append(g.w.Limits, Limit{Type: name, Zone: ec2.Any, CapacityType: ec2.Any, N: g.between(0, 2)})
	}
	g.tell("%d types scarce", len(small))
}

// pools draws one to three pools and their class.
func (g *generator) pools() {
	g.w.Setup = append(g.w.Setup, sandbox.NodeClass("default"))
	g.arm, g.gpu = g.maybe(0.25), g.maybe(0.2)
	names := []string{"general"}
	if g.maybe(0.3) {
		names = append(names, "second")
	}
	if g.arm {
		names = append(names, "arm")
	}
	if g.gpu {
		names = append(names, "gpu")
	}
	if g.maybe(0.3) {
		g.w.StartupTaint = "agent.example.com/starting"
		g.tell("startup taint")
	}
	for _, name := range names {
		g.w.Setup = append(g.w.Setup, sandbox.NodePool(name, func(p *karpv1.NodePool) { g.pool(name, p) }))
	}
	g.tell("pools %v", names)
}

func (g *generator) pool(name string, p *karpv1.NodePool) {
	spec := &p.Spec.Template.Spec
	p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
	p.Spec.Template.Labels = map[string]string{"example.com/pool": name}
	arch, categories := "amd64", []string{"c", "m", "r"}
	switch name {
	case "arm":
		arch = "arm64"
		if g.maybe(0.5) {
			spec.Taints = []corev1.Taint{{Key: "example.com/arm", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
		}
	case "gpu":
		categories = []string{"g", "p"}
		spec.Taints = []corev1.Taint{{Key: "nvidia.com/gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	case "second":
		weight := int32(g.between(1, 100))
		p.Spec.Weight = &weight
		categories = categories[:g.between(1, 3)]
	}
	types := []string{"on-demand"}
	if g.maybe(0.4) {
		types = append(types, "spot")
	}
	spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
		sandbox.Require(corev1.LabelArchStable, arch),
		sandbox.Require(karpv1.CapacityTypeLabelKey, types...),
		sandbox.Require("karpenter.k8s.aws/instance-category", categories...),
	}
	if name != "gpu" {
		// Small instance types lead to many nodes with few pods.
		spec.Requirements = append(spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{
			Key: "karpenter.k8s.aws/instance-cpu", Operator: corev1.NodeSelectorOpLt, Values: []string{strconv.Itoa(pick(g, 5, 9, 17))},
		})
	}
	if g.w.StartupTaint != "" && g.maybe(0.7) {
		spec.StartupTaints = []corev1.Taint{{Key: g.w.StartupTaint, Effect: corev1.TaintEffectNoSchedule}}
	}
}
