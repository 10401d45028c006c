package realkubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	noop "go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	remote "k8s.io/cri-client/pkg"
	fakeremote "k8s.io/cri-client/pkg/fake"
	"k8s.io/kubernetes/pkg/kubemark"
	"k8s.io/utils/clock"
)

// orderVariable is the environment variable that holds a kubelet process's order as JSON.
const orderVariable = "DOVETAIL_TEST_KUBELET"

// order configures a kubelet process.
type order struct {
	Kubeconfig string
	Name       string
	ProviderID string
	Labels     map[string]string
	Taints     []corev1.Taint
	// Capacity is the instance's; Reserved is what its image makes the kubelet reserve, including eviction thresholds.
	Capacity, Reserved corev1.ResourceList
	// Devices are announced DevicesAfter the start.
	Devices      corev1.ResourceList
	DevicesAfter time.Duration
}

// Main runs a kubelet if this process was started as one, and then doesn't return. TestMain of a test binary that uses Machines calls
// it first.
func Main() {
	text, ok := os.LookupEnv(orderVariable)
	if !ok {
		return
	}
	if err := run(context.Background(), text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run returns only if the kubelet can't start; otherwise it runs until the process is killed.
func run(ctx context.Context, text string) error {
	o := &order{}
	if err := json.Unmarshal([]byte(text), o); err != nil {
		return fmt.Errorf("reading %s: %w", orderVariable, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubelet's kubeconfig: %w", err)
	}
	config.QPS, config.UserAgent = -1, "hollow-kubelet"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making the kubelet's client: %w", err)
	}
	endpoint, err := fakeremote.GenerateEndpoint()
	if err != nil {
		return fmt.Errorf("choosing the container runtime's socket: %w", err)
	}
	runtime := fakeremote.NewFakeRemoteRuntime()
	if err := runtime.Start(endpoint); err != nil {
		return fmt.Errorf("starting the fake container runtime: %w", err)
	}
	service, err := remote.NewRemoteRuntimeService(ctx, endpoint, 15*time.Second, noop.NewTracerProvider(), false)
	if err != nil {
		return fmt.Errorf("connecting to the fake container runtime: %w", err)
	}
	flags, settings := kubemark.GetHollowKubeletConfig(&kubemark.HollowKubeletOptions{
		NodeName: o.Name, MaxPods: int(o.Capacity.Pods().Value()), NodeLabels: o.Labels, RegisterWithTaints: o.Taints,
	})
	// As nodeadm configures it on EKS: the cloud provides addresses and zone, and the provider ID is given.
	flags.CloudProvider, settings.ProviderID = "external", o.ProviderID
	settings.EnableControllerAttachDetach = true
	settings.EnableServer = false
	settings.NodeStatusUpdateFrequency.Duration = time.Second // devices are reported with the next status
	settings.SyncFrequency.Duration = time.Second
	kubemark.NewHollowKubelet(flags, settings, client, client, &machine{order: o}, runtime.ImageService, service, newContainers(o, clock.RealClock{})).Run(ctx)
	return nil
}
