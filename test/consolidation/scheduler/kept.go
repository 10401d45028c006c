package scheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
)

// KeptName is the name of a plugin that prefers nodes worth keeping. The product doesn't have it: docs/design/scoring.md says why.
const KeptName = "PreferKeptNodes"

// kept scores a node by its rank, 0 to 100. The framework doesn't score a node for a pod that has only one, as pinned pods have.
type kept struct{ rank func(node string) int64 }

var _ fwk.ScorePlugin = &kept{}

func (k *kept) factory(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return k, nil
}

func (*kept) Name() string { return KeptName }

func (k *kept) Score(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, n fwk.NodeInfo) (int64, *fwk.Status) {
	return k.rank(n.Node().Name), nil
}

func (*kept) ScoreExtensions() fwk.ScoreExtensions { return nil }
