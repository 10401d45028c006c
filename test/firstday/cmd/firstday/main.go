// Command firstday runs the rehearsal of docs/first-day.md. hack/first-day.sh starts it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	ec2sim "github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/firstday"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

// settings are the program's flags.
type settings struct {
	simulate                           bool
	kubeconfig, region                 string
	nodeClass, scheduler, lease, image string
	report                             string
	patience                           time.Duration
}

func main() {
	var set settings
	flag.BoolVar(&set.simulate, "simulate", false, "against a control plane and an EC2 of its own, on the loopback interface; needs no account")
	flag.StringVar(&set.kubeconfig, "kubeconfig-file", os.Getenv("KUBECONFIG"), "the cluster's kubeconfig (default $KUBECONFIG, or ~/.kube/config)")
	flag.StringVar(&set.region, "region", "", "the region (default that of the AWS configuration)")
	flag.StringVar(&set.nodeClass, "node-class", "default", "the EC2NodeClass from which nodes are launched")
	flag.StringVar(&set.scheduler, "scheduler-name", "dovetail-scheduler", "the name of Dovetail's profile")
	flag.StringVar(&set.lease, "lease", "kube-system/dovetail-scheduler", "the Lease that Dovetail's leader holds")
	flag.StringVar(&set.image, "image", "registry.k8s.io/pause:3.10.1", "the image that all pods run")
	flag.StringVar(&set.report, "report", "first-day.json", "where the report is written")
	flag.DurationVar(&set.patience, "patience", 10*time.Minute, "how long a step may take until it differs from what is expected")
	flag.Parse()
	if flag.NArg() > 0 || set.patience < time.Second || strings.Count(set.lease, "/") != 1 {
		fmt.Fprintln(os.Stderr, "first-day: want a -patience of at least a second, a -lease NAMESPACE/NAME, and no other arguments")
		os.Exit(2)
	}
	standalone.Main("first-day", func(ctx context.Context, dir string) error {
		if set.simulate {
			return simulated(ctx, dir, set)
		}
		return real(ctx, set)
	})
}

// real runs against the cluster and the account that the environment names.
func real(ctx context.Context, set settings) error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = set.kubeconfig
	kube, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	r, err := rehearsal(ctx, kube, set)
	if err != nil {
		return err
	}
	r.KillLeader = func(ctx context.Context) error { return killPod(ctx, r.Kube, r.Lease) }
	return tell(ctx, r, kube, set)
}

// killPod deletes the leader's pod without a grace period. Its name is the first part of the Lease's holder.
func killPod(ctx context.Context, kube client.Client, lease client.ObjectKey) error {
	held := &coordinationv1.Lease{}
	if err := kube.Get(ctx, lease, held); err != nil {
		return fmt.Errorf("reading Lease %s: %w", lease, err)
	}
	name, _, _ := strings.Cut(ptr.Deref(held.Spec.HolderIdentity, ""), "_")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: name}}
	if err := kube.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
		return fmt.Errorf("deleting pod %s/%s, which holds the Lease (static pods are ended by hand): %w", lease.Namespace, name, err)
	}
	return nil
}

// simulated starts a system to run against.
func simulated(ctx context.Context, dir string, set settings) error {
	standalone.Say("building what isn't built (the first time this compiles Kubernetes)")
	for _, b := range []cluster.Binary{cluster.ControlPlane, cluster.Scheduler} {
		if _, err := cluster.Build(ctx, b); err != nil {
			return err
		}
	}
	s, err := sandbox.Start(ctx, sandbox.Options{
		Cluster: cluster.Options{Dir: dir + "/cluster", ControllerManager: true}, EC2: ec2sim.Config{Speed: 20, Seed: 1},
		Progress: func(what string) { standalone.Say("starting %s", what) },
	})
	if err != nil {
		return err
	}
	defer s.Stop()
	for _, one := range s.EC2.AdminEnv() {
		name, value, _ := strings.Cut(one, "=")
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	set.region = s.EC2.Region()
	r, err := rehearsal(ctx, s.AdminConfig(), set)
	if err != nil {
		return err
	}
	r.KillLeader = func(ctx context.Context) error {
		s.Scheduler.Kill()
		// The sandbox's leases last long, because its machine may be busy: here nobody waits for that.
		if err := s.Client().Delete(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.Lease.Namespace, Name: r.Lease.Name}}); err != nil {
			return fmt.Errorf("deleting Lease %s: %w", r.Lease, err)
		}
		return s.Scheduler.Restart(ctx)
	}
	return tell(ctx, r, s.AdminConfig(), set)
}

func rehearsal(ctx context.Context, kube *rest.Config, set settings) (*firstday.Rehearsal, error) {
	api, err := client.New(kube, client.Options{Scheme: cluster.Scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	var options []func(*config.LoadOptions) error
	if set.region != "" {
		options = append(options, config.WithRegion(set.region))
	}
	account, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	namespace, name, _ := strings.Cut(set.lease, "/")
	return &firstday.Rehearsal{Kube: api, EC2: ec2.NewFromConfig(account), NodeClass: set.nodeClass, Scheduler: set.scheduler,
		Lease: client.ObjectKey{Namespace: namespace, Name: name}, Image: set.image, Patience: set.patience, Out: os.Stdout}, nil
}

// tell runs the rehearsal and writes its report.
func tell(ctx context.Context, r *firstday.Rehearsal, kube *rest.Config, set settings) error {
	api, err := discovery.NewDiscoveryClientForConfig(kube)
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	version, err := api.ServerVersion()
	if err != nil {
		return fmt.Errorf("asking the API server for its version: %w", err)
	}
	report, differs := r.Run(ctx)
	report.Server = version.GitVersion
	text, err := json.MarshalIndent(report, "", "  ")
	if err == nil {
		err = os.WriteFile(set.report, append(text, '\n'), 0o600)
	}
	if err != nil {
		return errors.Join(differs, fmt.Errorf("writing the report: %w", err))
	}
	fmt.Printf("\nThe report is in %s.\n", set.report)
	return differs
}
