package worlds

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/dovetail-scheduler/dovetail/manifests"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
	"github.com/dovetail-scheduler/dovetail/test/record"
	"github.com/dovetail-scheduler/dovetail/test/worlds/check"
	"github.com/dovetail-scheduler/dovetail/test/worlds/draw"
)

// controllers are the controllers of kube-controller-manager that worlds need. Those that attach volumes and protect volumes in use
// would only delay the cleanup of a world.
const controllers = "deployment-controller,replicaset-controller,statefulset-controller,daemonset-controller,job-controller," +
	"garbage-collector-controller,node-lifecycle-controller,taint-eviction-controller,pod-garbage-collector-controller,persistentvolume-binder-controller"

// Options of a Runner.
type Options struct {
	// Dir holds the control plane's files and the schedulers' logs; empty: a temporary directory that Stop removes.
	Dir string
	// Binary is the scheduler to test; empty: that of this tree, built if necessary.
	Binary string
	// Patience bounds the time of a world after its last burst; zero: a minute and a half.
	Patience time.Duration
	// Verbosity of the scheduler's log, default 2.
	Verbosity int
	// Args are set in Provision's arguments.
	Args map[string]any
}

// Runner runs worlds one after the other on one control plane. Each world has its own simulator and scheduler and finds nothing of the
// previous one, so that the seed alone determines it.
type Runner struct {
	options Options
	plane   *cluster.Cluster
	runs    int
}

// Start starts the control plane.
func Start(ctx context.Context, o Options) (*Runner, error) {
	if o.Patience == 0 {
		o.Patience = 90 * time.Second
	}
	plane, err := cluster.Start(ctx, cluster.Options{
		Dir: o.Dir, ControllerManager: true, ControllerManagerArgs: []string{"--controllers=" + controllers},
		APIServerArgs: []string{"--disable-admission-plugins=ServiceAccount,StorageObjectInUseProtection"},
	})
	if err != nil {
		return nil, err
	}
	return &Runner{options: o, plane: plane}, nil
}

// Stop stops the control plane.
func (r *Runner) Stop() { r.plane.Stop() }

// Result is the result of one world.
type Result struct {
	check.Report
	Evidence *check.Evidence
	// Log is the scheduler's log file.
	Log string
	// Took is how long the world ran, without setup and cleanup.
	Took time.Duration
}

// Run runs the world and judges it. An error means that it couldn't be run; faults of the scheduler are in the report.
func (r *Runner) Run(ctx context.Context, w *draw.World) (*Result, error) {
	r.runs++
	run := &run{Runner: r, w: w, api: r.plane.Client()}
	evidence, err := run.happen(ctx)
	if swept := run.sweep(ctx); err == nil {
		err = swept
	}
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w", w.Seed, err)
	}
	report, err := check.Judge(ctx, evidence)
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w", w.Seed, err)
	}
	return &Result{Report: *report, Evidence: evidence, Log: run.scheduler.LogPath, Took: run.took}, nil
}

// run is one running world.
type run struct {
	*Runner
	w         *draw.World
	api       client.WithWatch
	scheduler *cluster.SchedulerProcess
	took      time.Duration
}

// happen runs the world:
//  1. begin to record, and create the objects that exist before the scheduler,
//  2. start EC2 with its kubelets, the agents and the scheduler,
//  3. create burst after burst,
//  4. wait until every pod is placed,
//  5. in some worlds make a node unhealthy, or make the workloads smaller and have used nodes emptied; and stop the scheduler.
func (r *run) happen(ctx context.Context) (*check.Evidence, error) {
	most := r.options.Patience + 2*time.Minute
	if r.w.Repair {
		most += r.options.Patience
	}
	if r.w.Cut != nil {
		most += consolidationPatience + r.options.Patience
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	seen, err := record.Start(ctx, r.api, &corev1.PodList{}, &corev1.NodeList{}, &karpv1.NodeClaimList{}, &corev1.PersistentVolumeClaimList{},
		&corev1.PersistentVolumeList{}, &storagev1.CSINodeList{}, &storagev1.StorageClassList{}, &appsv1.DaemonSetList{}, &batchv1.JobList{}, &karpv1.NodePoolList{})
	if err != nil {
		return nil, err
	}
	// The namespace is kept when a world is cleaned up, and the same world may have run here before.
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.w.Namespace}}
	if err := r.api.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating namespace %s: %w", namespace.Name, err)
	}
	if err := r.create(ctx, r.w.Setup); err != nil {
		return nil, err
	}
	sim, kubelets, stop, err := r.cloud()
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := startAgents(ctx, r.plane.AdminConfig(), r.w); err != nil {
		return nil, err
	}
	if err := r.startScheduler(ctx, sim); err != nil {
		return nil, err
	}
	defer r.scheduler.Kill()
	began := time.Now()
	for _, burst := range r.w.Bursts {
		if err := r.arrive(ctx, burst); err != nil {
			return nil, err
		}
	}
	unsettled := r.settle(ctx)
	r.took = time.Since(began)
	if err := r.scheduler.Failed(); err != nil {
		return nil, err
	}
	events, err := seen.Events(ctx)
	if err != nil {
		return nil, err
	}
	out := &check.Evidence{
		Events: events, Instances: sim.Instances(), Zones: sim.Zones(), Region: sim.Region(), Limits: limits(r.w), Misfits: r.w.Misfits, Gangs: r.w.Gangs, Unsettled: unsettled,
		Spare: r.w.Chunks * (1 + len(r.w.Bursts)), Overhead: func(string, string) float64 { return r.w.MemoryOverhead },
	}
	if unsettled == "" {
		if out.Lacking, err = r.lacking(ctx); err != nil {
			return nil, err
		}
	}
	if r.w.Repair && unsettled == "" {
		if out.Repair, err = r.repair(ctx, sim, kubelets, seen, events); err != nil {
			return nil, err
		}
	}
	if r.w.Cut != nil && unsettled == "" {
		if out.Consolidation, err = r.consolidate(ctx, sim, seen, events); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func limits(w *draw.World) map[string]bool {
	out := map[string]bool{}
	for _, l := range w.Limits {
		out[l.Type] = true
	}
	return out
}

// create creates objects in the given order.
func (r *run) create(ctx context.Context, objects []client.Object) error {
	for _, o := range objects {
		if err := r.api.Create(ctx, o); err != nil {
			return fmt.Errorf("creating %T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

// cloud starts the simulator with the world's limits, and kubelets on its instances.
func (r *run) cloud() (*ec2.Sim, *kubelet.Kubelets, func(), error) {
	k := r.w.Kubelet
	k.Kube = r.plane.NodesConfig()
	kubelets, err := kubelet.New(k)
	if err != nil {
		return nil, nil, nil, err
	}
	admin := r.plane.AdminConfig()
	cfg := r.w.EC2
	cfg.Machines, cfg.ClusterEndpoint, cfg.ClusterCA = kubelets, admin.Host, admin.CAData
	cfg.Policy = manifests.IAMPolicy()
	sim, err := ec2.New(cfg)
	if err != nil {
		kubelets.Close()
		return nil, nil, nil, err
	}
	for _, l := range r.w.Limits {
		sim.SetCapacity(l.Type, l.Zone, l.CapacityType, l.N)
	}
	return sim, kubelets, func() { kubelets.Close(); sim.Close() }, nil
}

func (r *run) startScheduler(ctx context.Context, sim *ec2.Sim) error {
	cfg, err := r.plane.ShippedConfig()
	if err != nil {
		return err
	}
	cfg["leaderElection"] = map[string]any{"leaderElect": false}                                                   // don't wait for the lease of the previous world
	cfg.SetProvisionArgs(map[string]any{"clusterName": sim.Cluster(), "region": sim.Region(), "clusterCIDR": nil}) // EKS is asked for it
	cfg.SetProvisionArgs(r.options.Args)
	if len(r.w.Gangs) > 0 {
		cfg.EnableGangs()
	}
	r.scheduler, err = r.plane.StartScheduler(ctx, cluster.SchedulerOptions{
		Name: fmt.Sprintf("scheduler-%d-%d", r.w.Seed, r.runs), Binary: r.options.Binary, Config: cfg, AWSEnv: sim.Env(), Verbosity: r.options.Verbosity,
	})
	return err
}

// arrive creates a burst's objects when it is due.
func (r *run) arrive(ctx context.Context, burst draw.Burst) error {
	timer := time.NewTimer(burst.After)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for name, replicas := range burst.Scale {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: r.w.Namespace, Name: name}}
		if err := r.api.Patch(ctx, d, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))); err != nil {
			return fmt.Errorf("scaling %s: %w", name, err)
		}
	}
	return r.create(ctx, burst.Objects)
}
