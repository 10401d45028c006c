// Command ec2sim runs the EC2 simulator as a process for any EC2 client: an SDK, the AWS CLI, the scheduler.
//
//	go run ./test/ec2/cmd/ec2sim --listen 127.0.0.1:4599
//
// With --kubeconfig, simulated kubelets boot on its instances and join that cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ec2sim:", err)
		os.Exit(1)
	}
}

type options struct {
	sim                  ec2.Config
	boots                kubelet.Config
	catalog, kube, zones string
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("ec2sim", flag.ContinueOnError)
	f.StringVar(&o.sim.Listen, "listen", "127.0.0.1:0", "address to listen on; port 0: a free one")
	f.StringVar(&o.catalog, "catalog", "", "file with instance types and prices (docs/catalog.md); empty: the built-in table")
	f.DurationVar(&o.boots.Boot.Median, "boot", 40*time.Second, "median time from running instance to registered node")
	f.Float64Var(&o.boots.Boot.Never, "never", 0, "share of nodes that never register, 0 to 1")
	f.Uint64Var(&o.sim.Seed, "seed", 1, "seed of ids, delays and pool depths")
	f.StringVar(&o.kube, "kubeconfig", "", "cluster that instances join; empty: nothing boots on them")
	f.StringVar(&o.sim.Cluster, "cluster", "dovetail", "name of the EKS cluster, value of discovery tags")
	f.StringVar(&o.sim.Region, "region", "us-west-2", "region")
	f.StringVar(&o.zones, "zones", "", "zones, like us-west-2a,us-west-2b; empty: the region's a, b and c")
	f.Float64Var(&o.sim.Speed, "speed", 1, "divides every delay of the simulated world")
	f.BoolVar(&o.sim.Throttle, "throttle", false, "turn EC2's request token buckets on")
	f.DurationVar(&o.sim.DescribeLag, "describe-lag", 0, "how long a new instance may be unknown to DescribeInstances")
	f.DurationVar(&o.sim.FleetLatency, "fleet-latency", 0, "middle of CreateFleet's answer time")
	klog.InitFlags(f)
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.zones != "" {
		o.sim.Zones = strings.Split(o.zones, ",")
	}
	o.boots.Seed, o.boots.Speed = o.sim.Seed, o.sim.Speed
	return o, nil
}

// run serves until ctx is done.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.catalog != "" {
		if o.sim.Catalog, err = load(o.catalog); err != nil {
			return err
		}
	}
	if o.kube != "" {
		if o.boots.Kube, err = clientcmd.BuildConfigFromFlags("", o.kube); err != nil {
			return fmt.Errorf("--kubeconfig: %w", err)
		}
		if err := rest.LoadTLSFiles(o.boots.Kube); err != nil {
			return fmt.Errorf("--kubeconfig: %w", err)
		}
		o.sim.ClusterEndpoint, o.sim.ClusterCA = o.boots.Kube.Host, o.boots.Kube.CAData
		machines, err := kubelet.New(o.boots)
		if err != nil {
			return err
		}
		defer machines.Close()
		o.sim.Machines = machines
	}
	sim, err := ec2.New(o.sim)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "EC2 simulator at %s (region %s, zones %s, cluster %s). Point a client at it:\n\n", sim.Endpoint(), sim.Region(), strings.Join(sim.Zones(), ","), sim.Cluster())
	for _, line := range sim.AdminEnv() {
		fmt.Fprintf(out, "  export %s\n", line)
	}
	fmt.Fprintf(out, "\nJournal: %[1]s/_sim/journal   Instances: %[1]s/_sim/instances   Queue: %[2]s\n", sim.Endpoint(), sim.QueueURL())
	if o.sim.Speed != 1 {
		fmt.Fprintf(out, "Delays are divided by %g.\n", o.sim.Speed)
	}
	<-ctx.Done()
	return sim.Close()
}

func load(path string) (*catalog.Catalog, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--catalog: %w", err)
	}
	defer file.Close()
	c, err := catalog.Load(file)
	if err != nil {
		return nil, fmt.Errorf("--catalog %s: %w", path, err)
	}
	return c, nil
}
