package main

import (
	"context"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
	"github.com/dovetail-scheduler/dovetail/test/scrape"
)

// priced waits until the scheduler knows what instances cost, and its pool is ready.
func priced(ctx context.Context, box *sandbox.Sandbox, scheduler *cluster.SchedulerProcess) error {
	if err := scrape.Priced(ctx, scheduler, 100*time.Millisecond); err != nil {
		return err
	}
	_, err := cluster.Until(ctx, box.Client(), &karpv1.NodePoolList{}, func(pools []*karpv1.NodePool) (bool, string, error) {
		for _, p := range pools {
			if p.Name == "default" && p.StatusConditions().Root().IsTrue() {
				return true, "", nil
			}
		}
		return false, "a pool that is ready", nil
	})
	return err
}
