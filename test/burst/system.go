package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/replicaset"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/load"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

const (
	// speed divides the times that instances and kubelets take to boot, so that nodes are ready at once.
	speed = 1000
	// longest bounds a run.
	longest = 6 * time.Minute
	// rest is how long after the last binding instances may still come that no pod uses.
	rest = 2 * time.Second
	// workers is kube-controller-manager's default number of Deployments and ReplicaSets that it looks after at a time.
	workers = 5
)

// side is a scheduler that is measured.
type side struct {
	binary   string         // its path; empty: that of this tree
	settings map[string]any // fields of Provision's arguments that differ from the shipped ones
	latency  time.Duration  // what CreateFleet takes, on average
	logs     string         // folder that keeps the scheduler's logs; empty: none
	name     string
}

// outcome is what a run has brought about.
type outcome struct {
	cost      float64 // $/h of the instances that live in the end
	instances int
	ended     int // instances that were launched and have ended, although nothing disrupts them
	fleets    int // calls of CreateFleet
	// created and bound are how long it took until all Deployments existed, and until all pods were bound.
	created, bound time.Duration
	// decided is the time from the first scheduling cycle that failed to the first CreateFleet.
	decided time.Duration
}

// run lets the pods of an arrival come, and returns what was bought when all of them are bound.
func (s *side) run(ctx context.Context, dir string, a *arrival) (out outcome, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("not done within %s", longest))
	defer cancel()
	box, err := sandbox.Start(ctx, sandbox.Options{
		Cluster: cluster.Options{Dir: dir}, EC2: ec2.Config{Seed: 1, Speed: speed, FleetLatency: s.latency * speed}, Idle: true, Objects: pools(),
	})
	if err != nil {
		return out, err
	}
	defer box.Stop()
	scheduler, err := s.start(ctx, box)
	if err != nil {
		return out, err
	}
	if s.logs != "" {
		defer func() {
			if text, logErr := scheduler.Log(); logErr == nil {
				_ = os.WriteFile(fmt.Sprintf("%s/%s-%s.log", s.logs, a.name, s.name), []byte(text), 0o644) // for people, who notice
			}
		}()
	}
	if err := control(ctx, box, a); err != nil {
		return out, err
	}
	client, err := newClient(box.Cluster, -1)
	if err != nil {
		return out, err
	}
	watched, err := load.Watch(ctx, client, nil)
	if err != nil {
		return out, err
	}
	begin := time.Now()
	out.created, err = a.create(ctx, func(ctx context.Context, d *appsv1.Deployment) error { return box.Create(ctx, d) })
	if err != nil {
		return out, err
	}
	last, err := watched.Until(ctx, "", a.pods(), box.Failed)
	if err != nil {
		return out, err
	}
	out.bound = last.Sub(begin)
	select {
	case <-ctx.Done():
		return out, context.Cause(ctx)
	case <-time.After(rest):
	}
	for _, instance := range box.EC2.Live() {
		out.cost += instance.Price
		out.instances++
	}
	out.ended = len(box.EC2.Instances()) - out.instances
	calls := box.EC2.Calls("CreateFleet")
	out.fleets = len(calls)
	failed, err := firstFailure(ctx, client)
	if err != nil {
		return out, err
	}
	if len(calls) == 0 {
		return out, fmt.Errorf("all pods are bound, and nothing was launched")
	}
	out.decided = calls[0].Time.Sub(failed)
	return out, nil
}

// start starts the scheduler with the shipped configuration, and waits until it knows what instances cost.
func (s *side) start(ctx context.Context, box *sandbox.Sandbox) (*cluster.SchedulerProcess, error) {
	config, err := box.ShippedConfig()
	if err != nil {
		return nil, err
	}
	args := map[string]any{"clusterName": box.EC2.Cluster(), "region": box.EC2.Region(), "newImageNodes": 0} // no run has launched the image before
	maps.Copy(args, s.settings)
	config.SetProvisionArgs(args)
	config["leaderElection"] = map[string]any{"leaderElect": false}
	scheduler, err := box.Cluster.StartScheduler(ctx, cluster.SchedulerOptions{Binary: s.binary, Config: config, AWSEnv: box.EC2.Env(), Verbosity: 4})
	if err != nil {
		return nil, err
	}
	// A scheduler that has just started reads the account. The first pods that come are not to wait for that.
	return scheduler, priced(ctx, box, scheduler)
}

// control runs the controllers of Deployments and ReplicaSets, which may write as often as the arrival says.
func control(ctx context.Context, box *sandbox.Sandbox, a *arrival) error {
	reader, err := newClient(box.Cluster, -1)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(reader, 0)
	apps, pods := factory.Apps().V1(), factory.Core().V1().Pods()
	// Each controller of kube-controller-manager has a client and a limit of its own.
	deployments, err := newClient(box.Cluster, a.perSecond)
	if err != nil {
		return err
	}
	sets, err := newClient(box.Cluster, a.perSecond)
	if err != nil {
		return err
	}
	d, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), pods, deployments)
	if err != nil {
		return fmt.Errorf("making the controller of Deployments: %w", err)
	}
	r := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), pods, sets, replicaset.BurstReplicas)
	many := workers
	if a.sequence {
		many = 1
	}
	ctx, cancel := context.WithCancel(ctx)
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	go d.Run(ctx, workers)
	go r.Run(ctx, many)
	box.OnStop(func() {
		cancel()
		factory.Shutdown()
	})
	return nil
}

// create creates the Deployments, and returns after what time all of them existed. In a sequence their order counts, so one is created after another.
func (a *arrival) create(ctx context.Context, create func(context.Context, *appsv1.Deployment) error) (time.Duration, error) {
	begin := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	if a.sequence {
		group.SetLimit(1)
	}
	for i := range a.workloads {
		group.Go(func() error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Until(begin.Add(time.Duration(i) * a.apart))):
			}
			return create(ctx, a.workloads[i].deployment())
		})
	}
	err := group.Wait()
	return time.Since(begin), err
}

// newClient returns a client that makes so many requests per second; negative: as many as it likes.
func newClient(c *cluster.Cluster, perSecond int) (kubernetes.Interface, error) {
	config := c.AdminConfig()
	config.ContentType, config.QPS, config.Burst = runtime.ContentTypeProtobuf, float32(perSecond), max(1, perSecond/5)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}

// firstFailure returns when the first scheduling cycle of a pod ended without a node.
func firstFailure(ctx context.Context, client kubernetes.Interface) (first time.Time, err error) {
	list, err := client.EventsV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return first, fmt.Errorf("listing events: %w", err)
	}
	for _, e := range list.Items {
		if e.Reason == "FailedScheduling" && e.Regarding.Kind == "Pod" && e.Type == corev1.EventTypeWarning && (first.IsZero() || e.EventTime.Time.Before(first)) {
			first = e.EventTime.Time
		}
	}
	if first.IsZero() {
		return first, fmt.Errorf("no scheduling cycle has failed")
	}
	return first, nil
}
