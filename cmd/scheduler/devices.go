package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerserverconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	"github.com/dovetail-scheduler/dovetail/pkg/devices"
)

// knowDevices creates the devices.Source that all profiles share, if the setting asks for it.
func (d *dovetail) knowDevices(profiles []profile, sched *scheduler.Scheduler) error {
	if !profiles[0].args.DynamicResources {
		return nil
	}
	gates := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	running := sched.Profiles[profiles[0].config.SchedulerName]
	if !gates.EnableDynamicResourceAllocation || running.SharedDRAManager() == nil {
		return errors.New("ProvisionArgs: dynamicResources: needs the feature gate DynamicResourceAllocation")
	}
	state := draState{running.SharedDRAManager(), &lastAllocated{}}
	of := devices.New(state, devices.NewAllocator(dynamicresources.AllocatorFeatures(gates), gates.EnableDRAListTypeAttributes, state), d.clock)
	of.SetPatience(profiles[0].binder.GateDeadline.Duration)
	d.classes.SetDevices(of)
	return nil
}

// draState is what the scheduler knows of ResourceClaims, DeviceClasses and allocated devices.
type draState struct {
	manager fwk.SharedDRAManager
	last    *lastAllocated
}

// lastAllocated is the result of the last read of the allocated devices that succeeded.
type lastAllocated struct {
	mu    sync.Mutex
	state *structured.AllocatedState
}

func (s draState) Claim(namespace, name string) (*resourcev1.ResourceClaim, error) {
	return s.manager.ResourceClaims().Get(namespace, name)
}

// allocatedTries is how often at most the allocated devices are read if they change during each read. allocatedPause is the pause between two reads.
const (
	allocatedTries = 10
	allocatedPause = time.Millisecond
)

// Allocated returns the allocated devices. If they change during every try, it returns those of the last read that succeeded: an error would look as
// if no device were free, and nodes would be bought. The filters check the current state anyway. The caller must not change the result.
func (s draState) Allocated() (state *structured.AllocatedState, err error) {
	for i := range allocatedTries {
		if i > 0 {
			time.Sleep(allocatedPause)
		}
		if state, err = s.manager.ResourceClaims().GatherAllocatedState(); err == nil {
			s.last.mu.Lock()
			defer s.last.mu.Unlock()
			s.last.state = state
			return state, nil
		}
	}
	s.last.mu.Lock()
	defer s.last.mu.Unlock()
	if s.last.state != nil {
		return s.last.state, nil
	}
	return nil, fmt.Errorf("reading the allocated devices: %w", err)
}

func (s draState) List() ([]*resourcev1.DeviceClass, error) { return s.manager.DeviceClasses().List() }

func (s draState) Get(name string) (*resourcev1.DeviceClass, error) {
	return s.manager.DeviceClasses().Get(name)
}

// watchDevices registers the handlers for ResourceSlices and DeviceClasses.
func (p *parts) watchDevices(cc *schedulerserverconfig.CompletedConfig) error {
	of := p.pending.Classes.Devices()
	if of == nil {
		return nil
	}
	of.OnShape(func() { go p.launch.Nodes.DevicesAsked() }) // in the background: the caller may be a pod's scheduling cycle, which must not wait
	f := cc.InformerFactory.Resource().V1()
	read, err := f.ResourceSlices().Informer().AddEventHandler(p.launch.Nodes.ResourceSlices())
	if err != nil {
		return fmt.Errorf("watching ResourceSlices: %w", err)
	}
	p.synced = append(p.synced, read.HasSynced)
	if _, err = f.DeviceClasses().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { p.deviceClassChanged(of) },
		UpdateFunc: func(before, now any) {
			if before.(*resourcev1.DeviceClass).ResourceVersion != now.(*resourcev1.DeviceClass).ResourceVersion {
				p.deviceClassChanged(of)
			}
		},
		DeleteFunc: func(any) { p.deviceClassChanged(of) },
	}); err != nil {
		return fmt.Errorf("watching DeviceClasses: %w", err)
	}
	return nil
}

// deviceClassChanged is called when a DeviceClass has changed: it may select other devices than before, of new nodes and of existing ones.
func (p *parts) deviceClassChanged(of *devices.Source) {
	of.ClassesChanged()
	p.launch.Nodes.DevicesDeclared()
	go p.launch.Nodes.DevicesAsked() // counting takes its time
}

// declareDevices reads which devices a node class declares for its nodes.
func (p *parts) declareDevices(nc status.Object, gone bool) {
	of := p.pending.Classes.Devices()
	if of == nil {
		return
	}
	changed, err := of.SetNodeClass(nc.GetName(), nc.GetAnnotations(), gone)
	if !changed {
		return
	}
	if err != nil {
		p.store.Recorder().Eventf(nc, nil, corev1.EventTypeWarning, "InvalidDevices", "Validating", "%v; no devices are known for nodes of the class", err)
	}
	p.launch.Nodes.DevicesDeclared()
}
