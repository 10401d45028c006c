package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	schedulerserverconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	configscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/test/chaos"
)

// hostedConfig is the shipped configuration without what needs a network: leader election and a server.
const hostedConfig = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
  - schedulerName: dovetail-scheduler
    plugins:
      multiPoint: {enabled: [{name: Provision}, {name: Binder}]}
      preFilter: {enabled: [{name: Binder}]}
      postFilter: {enabled: [{name: Provision}]}
    pluginConfig:
      - name: Provision
        args: {apiVersion: config.dovetail.sh/v1alpha1, kind: ProvisionArgs, clusterName: dovetail, region: us-west-2}
      - name: NodeResourcesFit
        args: {scoringStrategy: {type: MostAllocated}}
`

func init() {
	// The runtime's signal goroutine must not be started inside a bubble.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2)
	// Errors of informers are logged, but not rate limited: the limiter is shared by the whole test process and would use the time of one
	// bubble for another.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
}

// hosted runs the whole scheduler as run does, in this process and on the caller's connections. It is the leader from the beginning.
func hosted(ctx context.Context, p chaos.Process) error { return host(ctx, p, hostedConfig, nil) }

// host does that with a configuration and more plugins.
func host(ctx context.Context, p chaos.Process, text string, more frameworkruntime.Registry) error {
	return hostOn(ctx, simulatedAWS(p), p, text, more)
}

// simulatedAWS returns AWS as a process reaches the simulator.
func simulatedAWS(p chaos.Process) cloud {
	return onAWSThrough(func(_ context.Context, region string) (sdk.Clients, error) {
		return sdk.NewClients(awssdk.Config{
			Region: region, BaseEndpoint: awssdk.String(chaos.Endpoint), HTTPClient: &http.Client{Transport: p.Cloud},
			Credentials: awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) {
				return awssdk.Credentials{AccessKeyID: "SIMULATED", SecretAccessKey: "simulated"}, nil
			}),
		}, p.Clock), nil
	})
}

// hostOn does that on a cloud.
func hostOn(ctx context.Context, on cloud, p chaos.Process, text string, more frameworkruntime.Registry) error {
	decoded, _, err := configscheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	config := decoded.(*schedulerapi.KubeSchedulerConfiguration)
	kube := p.Kube.Config()
	client, err := kubernetes.NewForConfig(kube)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	untyped, err := dynamic.NewForConfig(kube)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	cc := (&schedulerserverconfig.Config{
		ComponentConfig: *config, Client: client, KubeConfig: kube, InformerFactory: scheduler.NewInformerFactory(client, 0),
		DynInformerFactory: dynamicinformer.NewFilteredDynamicSharedInformerFactory(untyped, 0, corev1.NamespaceAll, nil),
		EventBroadcaster:   events.NewEventBroadcasterAdapterWithContext(ctx, client),
	}).Complete()
	defer cc.EventBroadcaster.Shutdown()
	d := newDovetail()
	d.clock = p.Clock
	d.cloud = on
	d.publish = func(context.Context, []profile, liveState) error { return nil } // /configz can hold only one
	d.others = func() frameworkruntime.Registry {
		all := outOfTree()
		maps.Copy(all, more)
		return all
	}
	registry := frameworkruntime.Registry{}
	for _, o := range d.plugins() {
		if err := o(registry); err != nil {
			return err
		}
	}
	sched, err := scheduler.New(ctx, client, cc.InformerFactory, cc.DynInformerFactory,
		func(name string) events.EventRecorderLogger { return cc.EventBroadcaster.NewRecorder(name) },
		scheduler.WithKubeConfig(kube), scheduler.WithProfiles(complete(config.Profiles)...), scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPodInitialBackoffSeconds(config.PodInitialBackoffSeconds), scheduler.WithPodMaxBackoffSeconds(config.PodMaxBackoffSeconds))
	if err != nil {
		return fmt.Errorf("building the scheduler: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		d.wait()
		cc.InformerFactory.Shutdown()
		cc.DynInformerFactory.Shutdown()
	}()
	if err := d.introduce(ctx, &cc, sched); err != nil {
		return err
	}
	cc.EventBroadcaster.StartRecordingToSink(ctx.Done())
	cc.InformerFactory.Start(ctx.Done())
	cc.DynInformerFactory.Start(ctx.Done())
	cc.InformerFactory.WaitForCacheSync(ctx.Done())
	cc.DynInformerFactory.WaitForCacheSync(ctx.Done())
	if sched.WaitForHandlersSync(ctx) == nil {
		sched.Run(ctx)
	}
	return nil
}
