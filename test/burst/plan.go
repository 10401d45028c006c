package main

import (
	"context"
	"fmt"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	simulated "github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

// pools returns what instances are launched from: a pool for general use, whose nodes aren't disrupted.
func pools() []client.Object {
	pool := sandbox.NodePool("default", func(p *karpv1.NodePool) {
		p.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
			sandbox.Require(corev1.LabelArchStable, "amd64", "arm64"),
			sandbox.Require("karpenter.sh/capacity-type", "on-demand"),
			sandbox.Require("karpenter.k8s.aws/instance-category", "c", "m", "r"),
		}
		p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("Never")
	})
	pool.TypeMeta = metav1.TypeMeta{APIVersion: "karpenter.sh/v1", Kind: "NodePool"}
	class := sandbox.NodeClass("default", func(c *ec2nc.EC2NodeClass) {
		c.TypeMeta = metav1.TypeMeta{APIVersion: "karpenter.k8s.aws/v1", Kind: "EC2NodeClass"}
	})
	return []client.Object{class, pool}
}

// planned returns what the nodes of one plan for all pods of the arrival cost, in $/h. It writes the manifests to a file in dir.
func planned(ctx context.Context, dir string, a *arrival) (float64, error) {
	objects := pools()
	for i := range a.workloads {
		objects = append(objects, a.workloads[i].deployment())
	}
	report, err := sandbox.Planned(ctx, dir, a.name, simulated.Builtin(), objects...)
	if err != nil {
		return 0, err
	}
	if len(report.Refused) > 0 || report.Pods != a.pods() {
		return 0, fmt.Errorf("the plan for all pods at once has %d pods, of which it refuses %d; want %d", report.Pods, len(report.Refused), a.pods())
	}
	return report.TotalPerHour, nil
}
