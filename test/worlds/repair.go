package worlds

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
	"github.com/dovetail-scheduler/dovetail/test/record"
	"github.com/dovetail-scheduler/dovetail/test/worlds/check"
)

// failing is the condition that makes a node unhealthy; EKS's node monitoring agent sets it. Pools tolerate it for five seconds.
const failing corev1.NodeConditionType = "KernelReady"

// repair makes one node unhealthy, waits until it has been replaced, and returns what happened; nil if there is no node to fail.
func (r *run) repair(ctx context.Context, sim *ec2.Sim, kubelets *kubelet.Kubelets, seen *record.Recorder, before []record.Event) (*check.Repair, error) {
	live := sim.Live()
	if len(live) == 0 {
		return nil, nil
	}
	slices.SortFunc(live, func(a, b ec2.Instance) int { return strings.Compare(a.ID, b.ID) })
	in := live[r.w.Seed%uint64(len(live))]
	out := &check.Repair{ProviderID: "aws:///" + in.Zone + "/" + in.ID, Launched: len(sim.Instances())}
	for _, e := range before {
		out.Since = max(out.Since, e.Revision)
	}
	var pools karpv1.NodePoolList
	if err := r.api.List(ctx, &pools); err != nil {
		return nil, err
	}
	for i := range pools.Items {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"dovetail.sh/repair":"%s=5s"}}}`, failing)
		if err := r.api.Patch(ctx, &pools.Items[i], client.RawPatch("application/merge-patch+json", patch)); err != nil {
			return nil, fmt.Errorf("changing pool %s: %w", pools.Items[i].Name, err)
		}
	}
	kubelets.Fail(in.ID, failing)
	waiting, cancel := context.WithTimeout(ctx, r.options.Patience)
	defer cancel()
	_, err := cluster.Until(waiting, r.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		for _, c := range claims {
			if c.Status.ProviderID == out.ProviderID {
				return false, fmt.Sprintf("the end of unhealthy node %s", c.Status.NodeName), nil
			}
		}
		return initialized(claims)
	})
	if err == nil {
		want := r.w.AfterRepair()
		_, err = cluster.Until(waiting, r.api, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string, error) { return r.sized(pods, want) },
			client.InNamespace(r.w.Namespace))
	}
	if err != nil {
		out.Unsettled = err.Error()
	}
	out.Launched = len(sim.Instances()) - out.Launched
	out.Events, err = seen.Events(ctx)
	return out, err
}
