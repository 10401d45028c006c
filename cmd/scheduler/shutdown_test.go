package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/dovetail-scheduler/dovetail/manifests"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

const wanted = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  instanceProfile: DovetailNode
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: dovetail}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: dovetail}}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
`

// The whole program runs in this process, buys a node for a pod, and is stopped: no goroutine of it goes on.
func TestNoGoroutineIsLeft(t *testing.T) {
	// As processes: in this one the API server would be linked into every test of this package, and into what finds mistakes.
	c, err := cluster.Start(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	boots, err := kubelet.New(kubelet.Config{Kube: c.NodesConfig(), Speed: 20})
	if err != nil {
		t.Fatal(err)
	}
	defer boots.Close()
	sim, err := ec2.New(ec2.Config{Speed: 20, Cluster: "dovetail", Machines: boots, Policy: manifests.IAMPolicy()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, v := range os.Environ() { // of the user who runs the test
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
			if err := os.Unsetenv(name); err != nil { // Setenv restores it afterwards
				t.Fatal(err)
			}
		}
	}
	for _, v := range sim.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	if err := c.Apply(t.Context(), []byte(wanted)); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), sandbox.Pods("web", 3, "500m", "1Gi")...); err != nil {
		t.Fatal(err)
	}

	before := ours(nil)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	opts := arguments(t, c, sim.Region())
	go func() { done <- run(ctx, opts) }()
	waiting, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if _, err := cluster.UntilPods(waiting, c.Client(), 3, cluster.Running); err != nil {
		t.Fatal(err)
	}
	if len(ours(before)) == 0 {
		t.Fatal("the program runs, and none of its goroutines is recognized")
	}
	stop()
	select {
	case err := <-done:
		if err != nil && !strings.Contains(err.Error(), "finished without leader elect") {
			t.Errorf("run: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("still running a minute after it was told to stop")
	}
	var left map[string]string
	_ = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		left = ours(before)
		return len(left) == 0, nil
	})
	for _, stack := range left {
		t.Errorf("goroutine left behind:\n%s", stack)
	}
}

// arguments returns what the manifests run the program with, but without leader election: a process that loses the lease exits at once.
func arguments(t *testing.T, c *cluster.Cluster, region string) *options.Options {
	t.Helper()
	cfg, err := c.ShippedConfig()
	if err != nil {
		t.Fatal(err)
	}
	cfg.SetProvisionArgs(map[string]any{"clusterName": "dovetail", "region": region, "clusterEndpoint": "https://cluster.invalid"})
	cfg.SetKubeconfig(c.SchedulerKubeconfig())
	data, err := cfg.YAML()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	opts := options.NewOptions()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	for _, set := range opts.Flags.FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse([]string{"--config=" + path, "--secure-port=0", "--leader-elect=false"}); err != nil {
		t.Fatal(err)
	}
	if err := opts.ComponentGlobalsRegistry.Set(); err != nil {
		t.Fatal(err)
	}
	return opts
}

var (
	ofOurs = regexp.MustCompile(`github\.com/dovetail-scheduler/dovetail/(pkg|plugins)/|dovetail/cmd/scheduler|main\.\(\*dovetail\)`)
	number = regexp.MustCompile(`^goroutine (\d+) `)
)

// ours returns the goroutines that run shipped code of this module or were started by it, by number, without the known ones.
func ours(known map[string]string) map[string]string {
	buf := make([]byte, 64<<20)
	out := map[string]string{}
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		m := number.FindStringSubmatch(stack)
		if m == nil || !ofOurs.MatchString(stack) || strings.Contains(stack, "testing.tRunner") {
			continue
		}
		if _, ok := known[m[1]]; !ok {
			out[m[1]] = stack
		}
	}
	return out
}
