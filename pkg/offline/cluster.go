package offline

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/simulate"
)

// cluster is the scheduler's part: its informers, and the filters of its profiles on the objects in them.
type cluster struct {
	informers informers.SharedInformerFactory
	world     *simulate.World
	profiles  []schedulerapi.KubeSchedulerProfile
}

// errOffline is the error of every request to the API server.
var errOffline = errors.New("a plan is made offline: there is no API server")

type nobody struct{}

func (nobody) RoundTrip(*http.Request) (*http.Response, error) { return nil, errOffline }

// newCluster builds a scheduler that never runs, on the objects of the set, the namespaces and the bound pods. Its goroutines end with
// ctx.
func newCluster(ctx context.Context, set *manifest.Set, namespaces []*corev1.Namespace, bound []*corev1.Pod, s *Settings) (*cluster, error) {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://offline.invalid", Transport: nobody{}})
	if err != nil {
		return nil, fmt.Errorf("making a client that sends no requests: %w", err)
	}
	f := informers.NewSharedInformerFactory(client, 0)
	nodes := manifest.All[*corev1.Node](set)
	hide := lifecycle.HideEphemeralTaints(s.NodeClass.Label())
	for i, n := range nodes {
		hidden, err := hide(n)
		if err != nil {
			return nil, fmt.Errorf("Node %s: %w", n.Name, err)
		}
		nodes[i] = hidden.(*corev1.Node)
	}
	err = errors.Join(
		freeze(f, &corev1.Node{}, nodes),
		freeze(f, &corev1.Pod{}, bound),
		freeze(f, &corev1.Namespace{}, namespaces),
		freeze(f, &corev1.PersistentVolume{}, manifest.All[*corev1.PersistentVolume](set)),
		freeze(f, &corev1.PersistentVolumeClaim{}, manifest.All[*corev1.PersistentVolumeClaim](set)),
		freeze(f, &storagev1.StorageClass{}, manifest.All[*storagev1.StorageClass](set)),
		freeze(f, &storagev1.CSINode{}, manifest.All[*storagev1.CSINode](set)),
		freeze(f, &storagev1.CSIDriver{}, manifest.All[*storagev1.CSIDriver](set)),
		freeze(f, &storagev1.CSIStorageCapacity{}, manifest.All[*storagev1.CSIStorageCapacity](set)),
		freeze(f, &appsv1.DaemonSet{}, manifest.All[*appsv1.DaemonSet](set)),
		freeze(f, &corev1.LimitRange{}, manifest.All[*corev1.LimitRange](set)),
		freeze(f, &nodev1.RuntimeClass{}, manifest.All[*nodev1.RuntimeClass](set)),
		freeze(f, &schedulingv1.PriorityClass{}, manifest.PriorityClasses(set)),
		// A profile's default spread constraints count the pods that these objects select.
		freeze(f, &corev1.Service{}, manifest.All[*corev1.Service](set)),
		freeze(f, &appsv1.ReplicaSet{}, replicaSets(set)), freeze(f, &appsv1.StatefulSet{}, statefulSets(set)),
		// Kinds that are not read. Without these, the factory would create informers of its own, which would send requests.
		freeze(f, &corev1.ReplicationController{}, nil), freeze(f, &corev1.ResourceQuota{}, nil), freeze(f, &batchv1.Job{}, nil),
		freeze(f, &storagev1.VolumeAttachment{}, nil),
		freeze(f, &resourcev1.ResourceClaim{}, nil), freeze(f, &resourcev1.ResourceSlice{}, nil), freeze(f, &resourcev1.DeviceClass{}, nil),
	)
	if err != nil {
		return nil, fmt.Errorf("holding the objects: %w", err)
	}
	profiles := s.Profiles
	if len(profiles) == 0 {
		defaults, err := latest.Default()
		if err != nil {
			return nil, fmt.Errorf("reading the scheduler's default configuration: %w", err)
		}
		profiles = defaults.Profiles
	}
	sched, err := scheduler.New(ctx, client, f, nil, func(string) events.EventRecorderLogger { return silent{} }, scheduler.WithProfiles(profiles...))
	if err != nil {
		return nil, fmt.Errorf("building the scheduler: %w", err)
	}
	judges := simulate.Config{Scheduler: sched, Profile: profiles[0]}
	for _, p := range profiles[1:] {
		judges.Also = append(judges.Also, simulate.Also{Profile: p})
	}
	world, err := simulate.New(ctx, judges)
	if err != nil {
		return nil, err
	}
	return &cluster{informers: f, world: world, profiles: profiles}, nil
}

// profileOf returns the profile whose filters check the pods of a scheduler: its own, or else the first.
func (c *cluster) profileOf(name string) schedulerapi.KubeSchedulerProfile {
	if i := slices.IndexFunc(c.profiles, func(p schedulerapi.KubeSchedulerProfile) bool { return p.SchedulerName == name }); i >= 0 {
		return c.profiles[i]
	}
	return c.profiles[0]
}

// replicaSets returns the set's ReplicaSets, reduced to what selects their pods: with 0 replicas, because all their pods exist
// already.
func replicaSets(set *manifest.Set) []*appsv1.ReplicaSet {
	var out []*appsv1.ReplicaSet
	for _, rs := range manifest.All[*appsv1.ReplicaSet](set) {
		out = append(out, &appsv1.ReplicaSet{ObjectMeta: rs.ObjectMeta, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32), Selector: rs.Spec.Selector}})
	}
	return out
}

// statefulSets returns the set's StatefulSets, reduced in the same way.
func statefulSets(set *manifest.Set) []*appsv1.StatefulSet {
	var out []*appsv1.StatefulSet
	for _, s := range manifest.All[*appsv1.StatefulSet](set) {
		out = append(out, &appsv1.StatefulSet{ObjectMeta: s.ObjectMeta, Spec: appsv1.StatefulSetSpec{Replicas: new(int32), Selector: s.Spec.Selector}})
	}
	return out
}

// silent records no events.
type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}
func (s silent) WithLogger(klog.Logger) events.EventRecorderLogger                           { return s }

// worldOf adapts a simulate.World to provisioning.World, whose Nodes has a parameter of an unnamed type.
type worldOf struct{ *simulate.World }

func (w worldOf) Nodes(decorate func(*capacity.Node, *corev1.Node) *capacity.Node) []*capacity.Node {
	return w.World.Nodes(decorate)
}
