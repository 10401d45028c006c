package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

// withSystem builds and starts everything, runs f and stops everything. It keeps the files if f fails.
func withSystem(ctx context.Context, st *stage, set settings, f func(context.Context, *sandbox.Sandbox) error) (err error) {
	options, err := systemOptions(st, set)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && !interrupted(ctx) {
			err = fmt.Errorf("%w\nlogs and configuration: %s", err, options.Cluster.Dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(options.Cluster.Dir))
	}()
	st.act("building what is out of date")
	for _, b := range []cluster.Binary{cluster.ControlPlane, cluster.Scheduler} {
		if err := build(ctx, st, b); err != nil {
			return err
		}
	}
	st.act("starting")
	quiet, err := logTo(filepath.Join(options.Cluster.Dir, "demo.log"))
	if err != nil {
		return err
	}
	defer quiet()
	system, err := sandbox.Start(ctx, options)
	if err != nil {
		return err
	}
	defer system.Stop()
	st.say("  instances and kubelets are simulated; their boot and shutdown delays, and consolidateAfter of the example pools, are divided by %g (DEMO_SPEED=1 for real ones); the pools' disruption budget is 100%%", set.speed)
	return f(ctx, system)
}

// build builds one binary and shows progress meanwhile.
func build(ctx context.Context, st *stage, b cluster.Binary) error {
	begin := time.Now()
	built := make(chan error, 1)
	go func() {
		_, err := cluster.Build(ctx, b)
		built <- err
	}()
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-built:
			if err == nil {
				st.say("  %-20s %s", b.Name, time.Since(begin).Round(100*time.Millisecond))
			}
			return err
		case <-tick.C:
			st.say("  %-20s %s so far", b.Name, time.Since(begin).Round(time.Second))
		}
	}
}

// logTo sends the logs of libraries, the simulator and its kubelets to a file, so that they don't disturb the timeline.
func logTo(path string) (end func(), err error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	klog.LogToStderr(false)
	klog.SetOutput(file)
	return func() {
		klog.Flush()
		klog.SetOutput(io.Discard)
		file.Close()
	}, nil
}

func systemOptions(st *stage, set settings) (sandbox.Options, error) {
	var o sandbox.Options
	root, err := cluster.ModuleRoot()
	if err != nil {
		return o, err
	}
	parent := filepath.Join(root, ".demo")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return o, fmt.Errorf("making a directory for the run: %w", err)
	}
	if o.Cluster.Dir, err = os.MkdirTemp(parent, "run-"); err != nil {
		return o, fmt.Errorf("making a directory for the run: %w", err)
	}
	o.Cluster.ControllerManager = true
	o.Scheduler.Verbosity = set.verbosity
	o.EC2 = ec2.Config{Speed: set.speed, Seed: 1, FleetLatency: 500 * time.Millisecond}
	if o.EC2.Catalog, err = instanceTypes(set); err != nil {
		return o, err
	}
	if o.Objects, err = pools(set); err != nil {
		return o, err
	}
	o.Progress = func(what string) { st.say("  %s", what) }
	return o, nil
}

// instanceTypes returns what the simulated EC2 offers.
func instanceTypes(set settings) (*catalog.Catalog, error) {
	if set.catalog == "" {
		return catalog.Builtin(), nil
	}
	return loadCatalog(set.catalog)
}

func loadCatalog(path string) (*catalog.Catalog, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("DEMO_CATALOG: %w", err)
	}
	defer file.Close()
	loaded, err := catalog.Load(file)
	if err != nil {
		return nil, fmt.Errorf("DEMO_CATALOG=%s: %w", path, err)
	}
	return loaded, nil
}

// pools returns the shipped examples, changed so that empty nodes are removed sooner, by the same factor as nodes boot faster, and all
// at once instead of a tenth at a time.
func pools(set settings) ([]client.Object, error) {
	objects, err := sandbox.Examples()
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if pool, ok := o.(*karpv1.NodePool); ok {
			pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
			if after := pool.Spec.Disruption.ConsolidateAfter.Duration; after != nil {
				pool.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration((*after / time.Duration(max(1, set.speed))).String())
			}
		}
	}
	return objects, nil
}

// toTry are commands for somebody who has just started the sandbox. make sandbox builds bin/dovetail.
var toTry = []string{
	"kubectl apply -f manifests/examples/first-pod/web.yaml",
	"kubectl get nodeclaims,nodes,pods -o wide",
	"bin/dovetail view   (a page in your browser)",
	"bin/dovetail why pod NAME   (or node NAME, or nodepool NAME)",
}

// runSandbox leaves the cluster running until ctrl-C.
func runSandbox(ctx context.Context, st *stage, set settings) error {
	return withSystem(ctx, st, set, func(ctx context.Context, system *sandbox.Sandbox) error {
		st.act("running until ctrl-C")
		st.say("  export KUBECONFIG=%s", system.AdminKubeconfig())
		for _, variable := range system.EC2.AdminEnv() {
			st.say("  export %s", variable)
		}
		st.say("\n  Pods with schedulerName: %s get nodes; all others stay pending, because there is no other scheduler. Logs are in %s. To try in another terminal, with these variables:", sandbox.SchedulerName, system.Dir)
		for _, line := range toTry {
			st.say("    %s", line)
		}
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done(): // ctrl-C; a sandbox has no deadline
				return nil
			case <-tick.C:
				if err := system.Failed(); err != nil {
					return err
				}
			}
		}
	})
}
