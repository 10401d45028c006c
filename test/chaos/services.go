package chaos

import (
	"fmt"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Saving returns a pool that consolidates. Moving pods costs restart, which is the default if it is empty.
func Saving(restart string, budget string) *karpv1.NodePool {
	pool := Pool("default", "default", ec2nc.LabelInstanceCategory+"=c,m,r", ec2nc.LabelInstanceCPU+"=4,8,16")
	pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized
	pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: budget}}
	if restart != "" {
		pool.Annotations = map[string]string{restartCost: restart}
	}
	return pool
}

// Services are Deployments of several shapes that need about so many nodes, by app.
func Services(nodes int) map[string]*appsv1.Deployment {
	out := map[string]*appsv1.Deployment{}
	for i, shape := range []struct{ cpu, memory string }{
		{"250m", "512Mi"}, {"500m", "2Gi"}, {"1", "1Gi"}, {"1", "6Gi"}, {"1500m", "3Gi"}, {"2", "4Gi"}, {"3", "12Gi"}, {"700m", "5Gi"},
	} {
		app := fmt.Sprintf("svc%d", i)
		cpu := Template(app, shape.cpu, shape.memory)
		millis := cpu.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
		out[app] = Deployment(max(2, nodes*14500/8/int(millis)), cpu) // a node has about 15 CPUs
	}
	return out
}

// Scaled returns how many replicas each has, after a change.
func Scaled(all map[string]*appsv1.Deployment, share float64) map[string]int {
	out := map[string]int{}
	for app, d := range all {
		out[app] = int(float64(*d.Spec.Replicas)*share + 0.5)
	}
	return out
}
