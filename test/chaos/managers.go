package chaos

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	daemonset "k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"
)

// manageWorkloads runs Kubernetes' own controllers of everything that has pods, and a garbage collector.
func (w *world) manageWorkloads() error {
	kube := kubernetes.NewForConfigOrDie(w.api.Client().Config())
	core, apps, batch := w.factory.Core().V1(), w.factory.Apps().V1(), w.factory.Batch().V1()
	deployments, err := deployment.NewDeploymentController(w.ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), kube)
	if err != nil {
		return fmt.Errorf("making the deployment controller: %w", err)
	}
	jobs, err := job.NewController(w.ctx, kube, core.Pods(), batch.Jobs(), nil, nil)
	if err != nil {
		return fmt.Errorf("making the job controller: %w", err)
	}
	cronJobs, err := cronjob.NewControllerV2(w.ctx, batch.Jobs(), batch.CronJobs(), kube)
	if err != nil {
		return fmt.Errorf("making the cron job controller: %w", err)
	}
	daemons, err := daemonset.NewDaemonSetsController(w.ctx, apps.DaemonSets(), apps.ControllerRevisions(), core.Pods(), core.Nodes(), kube,
		flowcontrol.NewBackOff(time.Second, 15*time.Minute))
	if err != nil {
		return fmt.Errorf("making the daemon set controller: %w", err)
	}
	sets := statefulset.NewStatefulSetController(w.ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(), apps.ControllerRevisions(), kube)
	replicas := replicaset.NewReplicaSetController(w.ctx, apps.ReplicaSets(), core.Pods(), kube, replicaset.BurstReplicas)
	finished := ttlafterfinished.New(w.ctx, batch.Jobs(), kube)
	orphans, err := newOrphans(w, kube)
	if err != nil {
		return err
	}
	var parts []func(context.Context)
	for _, run := range []func(context.Context, int){deployments.Run, jobs.Run, cronJobs.Run, daemons.Run, sets.Run, replicas.Run, finished.Run} {
		parts = append(parts, func(ctx context.Context) { run(ctx, 2) })
	}
	w.run(append(parts, orphans.run)...)
	return nil
}
