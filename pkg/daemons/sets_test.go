package daemons

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func newDaemons(t *testing.T) *Sets {
	t.Helper()
	d, err := New(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The API server defaults more in a DaemonSet's pods than in its template; capacity is reserved for the pods.
func TestDaemonRoomIsThatOfThePods(t *testing.T) {
	limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent", UID: "agent"}}
	ds.Spec.Template.Spec = corev1.PodSpec{
		HostNetwork: true,
		Containers: []corev1.Container{
			{Name: "limited", Resources: corev1.ResourceRequirements{Limits: limits}, Ports: []corev1.ContainerPort{{ContainerPort: 9100}}},
			{Name: "both", Resources: corev1.ResourceRequirements{Limits: limits, Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")}}},
		},
	}
	before := ds.DeepCopy()
	d := newDaemons(t)
	d.ObserveSet(ds)
	class := d.List()[0].Class
	want := capacity.Resources{corev1.ResourceCPU: 250, corev1.ResourceMemory: 2 << 30, corev1.ResourcePods: 1}
	if diff := cmp.Diff(want, class.Requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if len(class.HostPorts) != 1 || class.HostPorts[0].HostPort != 9100 {
		t.Errorf("host ports %v, want 9100: it is in the node's network", class.HostPorts)
	}
	if diff := cmp.Diff(before, ds); diff != "" {
		t.Errorf("the DaemonSet itself was changed:\n%s", diff)
	}
}

// admitted is a DaemonSet with its pods and the objects that admission reads, as informers report them.
type admitted struct {
	t       *testing.T
	d       *Sets
	f       informers.SharedInformerFactory
	set     *appsv1.DaemonSet
	told    []bool // changes that were reported, and whether they free capacity
	created time.Time
}

func newAdmitted(t *testing.T) *admitted {
	a := &admitted{t: t, f: informers.NewSharedInformerFactory(fake.NewClientset(), 0), created: time.Unix(1000, 0)}
	var err error
	if a.d, err = New(a.f); err != nil {
		t.Fatal(err)
	}
	a.d.OnChange(func(frees bool) { a.told = append(a.told, frees) })
	a.set = &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "agent", UID: "agent", Generation: 1,
		Annotations: map[string]string{appsv1.DeprecatedTemplateGeneration: "1"}}}
	a.set.Spec.Template.Spec = corev1.PodSpec{NodeSelector: map[string]string{"team": "blue"}, Containers: []corev1.Container{{Name: "main"}}}
	a.d.ObserveSet(a.set)
	a.told = nil
	return a
}

// rule adds an object to an informer, as an event would.
func (a *admitted) rule(informer cache.SharedIndexInformer, o metav1.Object) {
	a.t.Helper()
	old, _, _ := informer.GetStore().Get(o)
	before, _ := old.(metav1.Object)
	if err := informer.GetStore().Add(o); err != nil {
		a.t.Fatal(err)
	}
	a.d.observeRule(before, o)
}

func (a *admitted) limitRange(namespace, cpu string) {
	a.t.Helper()
	a.rule(a.f.Core().V1().LimitRanges().Informer(), &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "usual"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: cpus(cpu)}}}})
}

// change gives the DaemonSet another template, of the next generation.
func (a *admitted) change(how func(*corev1.PodTemplateSpec)) {
	next := a.set.DeepCopy()
	next.Generation++
	next.Annotations[appsv1.DeprecatedTemplateGeneration] = "2"
	how(&next.Spec.Template)
	a.d.observeSet(a.set, next)
	a.set = next
}

// pod returns a live pod, a second younger than the last one, on a node of its own.
func (a *admitted) pod(name, cpu, generation string) *corev1.Pod {
	yes := true
	a.created = a.created.Add(time.Second)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(a.created),
			Labels: map[string]string{labelTemplateGeneration: generation}, OwnerReferences: []metav1.OwnerReference{ownerRef(a.set, &yes)}},
		Spec: corev1.PodSpec{NodeName: "node-of-" + name, Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: cpus(cpu)}}},
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-of-" + name}}}}}}}}},
	}
}

func cpus(cpu string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
}

// Until a DaemonSet has a pod, the next one is what admission will make of the template; from then on it is like the newest pod.
func TestDaemonsAreSizedAsAdmissionMakesThem(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	for _, tc := range []struct {
		name     string
		happens  func(a *admitted)
		cpu      int64
		priority int32
		told     []bool
	}{
		{name: "a template that says nothing", happens: func(*admitted) {}, cpu: 0},
		{name: "a LimitRange comes", happens: func(a *admitted) { a.limitRange("d", "2") }, cpu: 2000, told: []bool{false}},
		{name: "it changes", happens: func(a *admitted) { a.limitRange("d", "2"); a.limitRange("d", "1") }, cpu: 1000, told: []bool{false, true}},
		{name: "one of another namespace", happens: func(a *admitted) { a.limitRange("other", "2") }, cpu: 0},
		{name: "it goes", happens: func(a *admitted) {
			a.limitRange("d", "2")
			store := a.f.Core().V1().LimitRanges().Informer().GetStore()
			gone := store.List()[0]
			_ = store.Delete(gone)
			a.d.observeRule(gone.(metav1.Object), nil)
		}, cpu: 0, told: []bool{false, true}},
		{name: "a RuntimeClass's overhead", happens: func(a *admitted) {
			vm := "vm"
			a.change(func(s *corev1.PodTemplateSpec) { s.Spec.RuntimeClassName = &vm })
			a.rule(a.f.Node().V1().RuntimeClasses().Informer(), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: vm}, Overhead: &nodev1.Overhead{PodFixed: cpus("250m")}})
			a.rule(a.f.Node().V1().RuntimeClasses().Informer(), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Overhead: &nodev1.Overhead{PodFixed: cpus("1")}})
		}, cpu: 250, told: []bool{false}},
		{name: "a PriorityClass", happens: func(a *admitted) {
			a.change(func(s *corev1.PodTemplateSpec) { s.Spec.PriorityClassName = "high" })
			a.rule(a.f.Scheduling().V1().PriorityClasses().Informer(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000})
		}, priority: 1000, told: []bool{true}},
		{name: "the default PriorityClass", happens: func(a *admitted) {
			a.rule(a.f.Scheduling().V1().PriorityClasses().Informer(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "usual"}, Value: 7, GlobalDefault: true})
		}, priority: 7, told: []bool{true}},
		{name: "it grows, and gives a host port back", happens: func(a *admitted) {
			a.change(func(s *corev1.PodTemplateSpec) { s.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} })
			a.change(func(s *corev1.PodTemplateSpec) {
				s.Spec.Containers[0].Ports, s.Spec.Containers[0].Resources.Requests = nil, cpus("1")
			})
		}, cpu: 1000, told: []bool{true, true}},
		{name: "it grows, and runs on other nodes", happens: func(a *admitted) {
			a.change(func(s *corev1.PodTemplateSpec) {
				s.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
				s.Spec.Containers[0].Resources.Requests = cpus("1")
			})
		}, cpu: 1000, told: []bool{true}},
		{name: "a live pod counts, whatever rules say now", happens: func(a *admitted) {
			a.d.ObservePod(a.pod("a", "3", "1"))
			a.limitRange("d", "1")
		}, cpu: 3000, told: []bool{false}},
		{name: "with its sidecars, overhead and priority", happens: func(a *admitted) {
			pod, high := a.pod("a", "1", "1"), int32(9)
			pod.Spec.InitContainers = []corev1.Container{{RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: cpus("500m")}}}
			pod.Spec.Overhead, pod.Spec.Priority = cpus("20m"), &high
			a.d.ObservePod(pod)
		}, cpu: 1520, priority: 9, told: []bool{false}},
		{name: "as resized", happens: func(a *admitted) {
			pod := a.pod("a", "1", "1")
			a.d.ObservePod(pod)
			resized := pod.DeepCopy()
			resized.Spec.Containers[0].Resources.Requests = cpus("2")
			resized.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Resources: &corev1.ResourceRequirements{Requests: cpus("1")}, AllocatedResources: cpus("1")}}
			a.d.observePod(pod, resized)
		}, cpu: 2000, told: []bool{false, false}},
		{name: "the newest counts", happens: func(a *admitted) {
			a.d.ObservePod(a.pod("a", "1", "1"))
			newest := a.pod("c", "4", "1")
			a.created = time.Unix(1000, 0)
			a.d.ObservePod(newest)
			a.d.ObservePod(a.pod("b", "2", "1"))
		}, cpu: 4000, told: []bool{false, false}},
		{name: "when it has gone the newest that is left does", happens: func(a *admitted) {
			gone := a.pod("c", "4", "1")
			a.created = time.Unix(100, 0)
			a.d.ObservePod(gone)
			a.d.ObservePod(a.pod("a", "1", "1"))
			a.d.ObservePod(a.pod("b", "2", "1"))
			a.d.observePod(gone, nil)
		}, cpu: 2000, told: []bool{false}},
		{name: "a pod that is being deleted is not live", happens: func(a *admitted) {
			a.d.ObservePod(a.pod("a", "1", "1"))
			pod := a.pod("b", "4", "1")
			pod.DeletionTimestamp = &metav1.Time{}
			a.d.ObservePod(pod)
		}, cpu: 1000, told: []bool{false}},
		{name: "the last one counts on when it has gone", happens: func(a *admitted) {
			pod := a.pod("a", "3", "1")
			a.d.ObservePod(pod)
			a.d.observePod(pod, nil)
		}, cpu: 3000, told: []bool{false}},
		{name: "until the rules change", happens: func(a *admitted) {
			pod := a.pod("a", "3", "1")
			a.d.ObservePod(pod)
			a.d.observePod(pod, nil)
			a.limitRange("d", "1")
		}, cpu: 1000, told: []bool{false, true}},
		{name: "or the template does", happens: func(a *admitted) {
			a.d.ObservePod(a.pod("a", "3", "1"))
			a.change(func(s *corev1.PodTemplateSpec) { s.Spec.Containers[0].Resources.Requests = cpus("1") })
		}, cpu: 1000, told: []bool{false, true}},
		{name: "in what matters", happens: func(a *admitted) {
			a.d.ObservePod(a.pod("a", "3", "1"))
			a.change(func(s *corev1.PodTemplateSpec) { s.Spec.Containers[0].Image = "next" })
		}, cpu: 3000, told: []bool{false}},
		{name: "pods of the new template count at once", happens: func(a *admitted) {
			old := a.pod("old", "3", "1")
			a.change(func(s *corev1.PodTemplateSpec) { s.Spec.Containers[0].Resources.Requests = cpus("1") })
			a.d.ObservePod(a.pod("new", "2", "2"))
			a.d.ObservePod(old)
		}, cpu: 2000, told: []bool{false, false}},
		{name: "a pod is known before its DaemonSet", happens: func(a *admitted) {
			a.d.observeSet(a.set, nil)
			a.d.ObservePod(a.pod("a", "3", "1"))
			a.d.ObserveSet(a.set)
		}, cpu: 3000, told: []bool{true, false}},
		{name: "pods of others don't matter", happens: func(a *admitted) {
			other := a.pod("a", "3", "1")
			other.OwnerReferences[0].UID = "other"
			a.d.ObservePod(other)
			bare := a.pod("b", "3", "1")
			bare.OwnerReferences = nil
			a.d.ObservePod(bare)
		}, cpu: 0},
		{name: "news that change nothing tell nobody", happens: func(a *admitted) {
			a.d.ObservePod(a.pod("a", "3", "1"))
			a.d.ObservePod(a.pod("b", "3", "1"))
			a.d.observeSet(a.set, a.set)
		}, cpu: 3000, told: []bool{false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newAdmitted(t)
			tc.happens(a)
			list := a.d.List()
			if len(list) != 1 {
				t.Fatalf("%d DaemonSets", len(list))
			}
			class := list[0].Class
			if class.Requests[corev1.ResourceCPU] != tc.cpu || class.Priority != tc.priority {
				t.Errorf("%dm CPU, priority %d, want %dm, %d", class.Requests[corev1.ResourceCPU], class.Priority, tc.cpu, tc.priority)
			}
			if diff := cmp.Diff(tc.told, a.told); diff != "" {
				t.Errorf("told of changes, true for those that free room (-want +got):\n%s", diff)
			}
			if list[0].RunsOn(map[string]string{"team": "red"}, nil) || !list[0].RunsOn(map[string]string{"team": "blue"}, nil) {
				t.Error("its pods don't run where the template says")
			}
		})
	}
}

// A RuntimeClass's nodeSelector limits where the DaemonSet's pods run. Its tolerations have no effect: the DaemonSet controller creates no
// pod for a node whose taints the template doesn't tolerate.
func TestWhereDaemonsOfARuntimeClassRun(t *testing.T) {
	a := newAdmitted(t)
	vm := "vm"
	a.change(func(s *corev1.PodTemplateSpec) { s.Spec.RuntimeClassName = &vm })
	a.rule(a.f.Node().V1().RuntimeClasses().Informer(), &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: vm}, Scheduling: &nodev1.Scheduling{
		NodeSelector: map[string]string{"vm": "yes"}, Tolerations: []corev1.Toleration{{Key: "vm", Operator: corev1.TolerationOpExists}}}})
	a.d.ObservePod(a.pod("a", "1", "2"))
	d := a.d.List()[0]
	if d.RunsOn(map[string]string{"team": "blue"}, nil) {
		t.Error("it runs on nodes that the RuntimeClass doesn't name")
	}
	labels := map[string]string{"team": "blue", "vm": "yes"}
	if !d.RunsOn(labels, nil) {
		t.Error("it doesn't run on the nodes of its RuntimeClass")
	}
	if d.RunsOn(labels, []corev1.Taint{{Key: "vm", Effect: corev1.TaintEffectNoSchedule}}) {
		t.Error("it runs on nodes with a taint that only the RuntimeClass tolerates")
	}
}

// Deleted DaemonSets and pods are forgotten.
func TestDaemonsForget(t *testing.T) {
	a := newAdmitted(t)
	pod := a.pod("a", "1", "1")
	a.d.ObservePod(pod)
	a.d.observeSet(a.set, nil)
	if got := a.d.List(); len(got) != 0 {
		t.Errorf("%d DaemonSets", len(got))
	}
	a.d.observePod(pod, nil)
	if len(a.d.sets) != 0 {
		t.Errorf("%d are still known", len(a.d.sets))
	}
}

// Planner, static pools and standalone NodeClaims list the DaemonSets concurrently.
func TestDaemonsAreAskedForByMany(t *testing.T) {
	d := newDaemons(t)
	for _, name := range []string{"a", "b", "c"} {
		d.ObserveSet(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID(name)},
			Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x"}}}}}})
	}
	daemons := d.List
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if got := daemons(); len(got) != 3 {
					t.Errorf("%d DaemonSets", len(got))
				}
			}
		})
	}
	wg.Wait()
}
