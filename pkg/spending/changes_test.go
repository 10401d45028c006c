package spending

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

var app = guard.Workload{Namespace: "d", Owner: "Deployment/app"}

// paused opens the breakers of a machine fault, of an application's pods and of another one's, and lets their first probes fail.
func (p *purse) paused() *purse {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, k := range []guard.Key{badImage, guard.PodKey("pool", app), guard.PodKey("pool", web)} {
		for try := range 2 {
			name := fmt.Sprint("m", i, try)
			m := guard.Bought{Purchase: guard.Purchase{Round: name}, Pool: "pool", Class: k.Class, Images: []string{""}, At: p.clock.Now()}
			if try > 0 {
				m.Probes = []guard.Key{k}
			}
			if !k.Machine() {
				m.Workloads = []guard.Workload{k.Workload}
			}
			p.state.breakers.Buy(name, m)
			p.state.breakers.Fail(name, guard.Fault{Machine: k.Machine(), Cause: fmt.Sprint("x", i), Message: "x"}, p.clock.Now())
			p.state.breakers.End(name, p.clock.Now())
		}
	}
	return p
}

// early returns which of the breakers are due for a probe: the image's, the application's, the other one's.
func (p *purse) early() (out string) {
	due := p.Due()
	for _, k := range []guard.Key{badImage, guard.PodKey("pool", app), guard.PodKey("pool", web)} {
		if slices.Contains(due, k) {
			out += map[bool]string{true: "image ", false: k.Workload.Owner + " "}[k.Machine()]
		}
	}
	return out
}

func revisionOf(name string, revision int, image string, change ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(epoch.Add(-time.Hour)),
		Annotations:     map[string]string{annotationRevision: fmt.Sprint(revision)},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "app", UID: "app", Controller: ptr.To(true)}}}}
	rs.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: image}}
	for _, f := range change {
		f(rs)
	}
	return rs
}

func asking(value string) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Annotations[objects.AnnotationRetry] = value }
}

// hears reports an object that is created or changed, as its informer would.
func (p *purse) hears(before, after runtime.Object, initial bool) {
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	var informer cache.SharedIndexInformer
	switch after.(type) {
	case *appsv1.DaemonSet:
		informer = f.Apps().V1().DaemonSets().Informer()
	case *corev1.LimitRange:
		informer = f.Core().V1().LimitRanges().Informer()
	case *nodev1.RuntimeClass:
		informer = f.Node().V1().RuntimeClasses().Informer()
	case *storagev1.StorageClass:
		informer = f.Storage().V1().StorageClasses().Informer()
	case *storagev1.CSIDriver:
		informer = f.Storage().V1().CSIDrivers().Informer()
	case *corev1.PersistentVolumeClaim:
		informer = f.Core().V1().PersistentVolumeClaims().Informer()
	case *resourcev1.ResourceClaim:
		informer = f.Resource().V1().ResourceClaims().Informer()
	case *appsv1.ReplicaSet:
		informer = f.Apps().V1().ReplicaSets().Informer()
	case *appsv1.StatefulSet:
		informer = f.Apps().V1().StatefulSets().Informer()
	case *batchv1.Job:
		informer = f.Batch().V1().Jobs().Informer()
	}
	for _, ds := range p.daemonSets {
		if err := f.Apps().V1().DaemonSets().Informer().GetStore().Add(ds); err != nil {
			p.t.Fatal(err)
		}
	}
	for _, w := range p.Changes.watches(f) {
		switch {
		case w.informer != informer:
		case before != nil && before.(metav1.Object).GetName() == after.(metav1.Object).GetName():
			w.handler.OnUpdate(before, after)
			return
		default:
			w.handler.OnAdd(after, initial)
			return
		}
	}
	p.t.Fatalf("nobody hears of %T", after)
}

// A breaker is probed early when the spec of something it depends on changes, and not when a status or a number of replicas does.
func TestEarlyProbes(t *testing.T) {
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	pods, all := "Deployment/app ReplicaSet/web ", "image Deployment/app ReplicaSet/web "
	for _, tt := range []struct {
		name   string
		before runtime.Object // nil: created
		after  func(runtime.Object) runtime.Object
		want   string
	}{
		{"a DaemonSet is made", nil, func(runtime.Object) runtime.Object { return &appsv1.DaemonSet{ObjectMeta: meta("kube-system", "cni")} }, all},
		{"a DaemonSet's template", &appsv1.DaemonSet{ObjectMeta: meta("kube-system", "cni")}, func(o runtime.Object) runtime.Object {
			o.(*appsv1.DaemonSet).Spec.Template.Spec.HostNetwork = true
			return o
		}, all},
		{"a DaemonSet's status", &appsv1.DaemonSet{ObjectMeta: meta("kube-system", "cni")}, func(o runtime.Object) runtime.Object {
			o.(*appsv1.DaemonSet).Status.DesiredNumberScheduled = 7
			return o
		}, ""},
		{"a LimitRange", nil, func(runtime.Object) runtime.Object { return &corev1.LimitRange{ObjectMeta: meta("d", "l")} }, pods},
		{"a RuntimeClass", &nodev1.RuntimeClass{ObjectMeta: meta("", "r"), Handler: "a"}, func(o runtime.Object) runtime.Object {
			o.(*nodev1.RuntimeClass).Handler = "b"
			return o
		}, "ReplicaSet/web "},
		{"a LimitRange where a DaemonSet is", nil, func(runtime.Object) runtime.Object { return &corev1.LimitRange{ObjectMeta: meta("kube-system", "l")} }, pods},
		{"a LimitRange elsewhere", nil, func(runtime.Object) runtime.Object { return &corev1.LimitRange{ObjectMeta: meta("elsewhere", "l")} }, ""},
		{"a RuntimeClass of a DaemonSet", &nodev1.RuntimeClass{ObjectMeta: meta("", "agents"), Handler: "a"}, func(o runtime.Object) runtime.Object {
			o.(*nodev1.RuntimeClass).Handler = "b"
			return o
		}, pods},
		{"a RuntimeClass of nobody", &nodev1.RuntimeClass{ObjectMeta: meta("", "other"), Handler: "a"}, func(o runtime.Object) runtime.Object {
			o.(*nodev1.RuntimeClass).Handler = "b"
			return o
		}, ""},
		{"a ResourceClaim of a waiting pod is allocated", &resourcev1.ResourceClaim{ObjectMeta: meta("d", "device")}, func(o runtime.Object) runtime.Object {
			o.(*resourcev1.ResourceClaim).Status.Allocation = &resourcev1.AllocationResult{}
			return o
		}, "ReplicaSet/web "},
		{"another ResourceClaim is", &resourcev1.ResourceClaim{ObjectMeta: meta("d", "other")}, func(o runtime.Object) runtime.Object {
			o.(*resourcev1.ResourceClaim).Status.Allocation = &resourcev1.AllocationResult{}
			return o
		}, ""},
		{"a StorageClass", nil, func(runtime.Object) runtime.Object { return &storagev1.StorageClass{ObjectMeta: meta("", "gp3")} }, pods},
		{"a CSIDriver", nil, func(runtime.Object) runtime.Object { return &storagev1.CSIDriver{ObjectMeta: meta("", "ebs")} }, pods},
		{"a claim of a waiting pod is bound", &corev1.PersistentVolumeClaim{ObjectMeta: meta("d", "data")}, func(o runtime.Object) runtime.Object {
			o.(*corev1.PersistentVolumeClaim).Spec.VolumeName = "pv"
			return o
		}, "ReplicaSet/web "},
		{"another claim is", &corev1.PersistentVolumeClaim{ObjectMeta: meta("d", "other")}, func(o runtime.Object) runtime.Object {
			o.(*corev1.PersistentVolumeClaim).Spec.VolumeName = "pv"
			return o
		}, ""},
		{"the workload's template", revisionOf("app-1", 1, "a"), func(runtime.Object) runtime.Object { return revisionOf("app-2", 2, "b") }, "Deployment/app "},
		{"the workload's replicas and status", revisionOf("app-1", 1, "a"), func(o runtime.Object) runtime.Object {
			o.(*appsv1.ReplicaSet).Spec.Replicas, o.(*appsv1.ReplicaSet).Status.Replicas = ptr.To[int32](9), 9
			return o
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPurse(t, Config{}).paused()
			agent := &appsv1.DaemonSet{ObjectMeta: meta("kube-system", "agent")}
			agent.Spec.Template.Spec.RuntimeClassName = ptr.To("agents")
			p.daemonSets = []*appsv1.DaemonSet{agent}
			p.pending.Handler().OnAdd(p.pod("waits", "", func(pod *corev1.Pod) {
				pod.Spec.RuntimeClassName = ptr.To("r")
				pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "x", ResourceClaimName: ptr.To("device")}}
				pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
			}), false)
			var o runtime.Object
			if tt.before != nil {
				o = tt.before.DeepCopyObject()
				p.hears(nil, tt.before, true)
			}
			if got := p.early(); got != "" {
				t.Errorf("probed because of what was there before: %s", got)
			}
			p.hears(tt.before, tt.after(o), false)
			if got := p.early(); got != tt.want {
				t.Errorf("probed: %q, want %q", got, tt.want)
			}
		})
	}
}

// Of a Deployment's ReplicaSets the latest counts, in whatever order they are seen, also after a rollback.
func TestTemplateOfADeployment(t *testing.T) {
	p := newPurse(t, Config{}).paused()
	// Both change as the rollout proceeds, first the new one, then the old one: neither is a change of the template.
	first, second := revisionOf("app-1", 1, "a"), revisionOf("app-2", 2, "b")
	p.hears(nil, second, true)
	p.hears(nil, first, true)
	for range 3 {
		p.hears(second, second.DeepCopy(), false)
		p.hears(first, first.DeepCopy(), false)
	}
	if got := p.early(); got != "" {
		t.Fatalf("probed without a change: %q", got)
	}
	p.hears(first, revisionOf("app-1", 3, "a"), false) // kubectl rollout undo
	if got, want := p.early(), "Deployment/app "; got != want {
		t.Errorf("rolled back: probed %q, want %q", got, want)
	}
}

// A Deployment that is deleted and created anew begins with revision 1.
func TestTemplateOfADeploymentThatIsMadeAnew(t *testing.T) {
	p := newPurse(t, Config{}).paused()
	p.hears(nil, revisionOf("app-7", 7, "a"), true)
	p.hears(nil, revisionOf("app-x", 1, "b", func(rs *appsv1.ReplicaSet) {
		rs.OwnerReferences[0].UID, rs.CreationTimestamp = "anew", metav1.NewTime(epoch)
	}), false)
	if got, want := p.early(), "Deployment/app "; got != want {
		t.Errorf("probed %q, want %q", got, want)
	}
}

// The retry annotation works with each new value, at most every five minutes, and never because an older ReplicaSet has an older value.
func TestRetryOfAWorkload(t *testing.T) {
	p := newPurse(t, Config{}).paused()
	old, rs := revisionOf("app-1", 1, "a", asking("one")), revisionOf("app-2", 2, "b")
	p.hears(nil, old, true)
	p.hears(nil, rs, true)
	asks := func(value string) bool {
		t.Helper()
		before := rs
		rs = revisionOf("app-2", 2, "b", asking(value))
		if value == "" {
			delete(rs.Annotations, objects.AnnotationRetry)
		}
		p.hears(before, rs, false)
		p.hears(old, old.DeepCopy(), false) // its status changes
		return p.probed(app)
	}
	if !asks("two") {
		t.Error("not heard")
	}
	p.clock.Step(retrySpacing)
	if asks("two") || asks("") || asks("two") {
		t.Error("heard again, though nothing new was asked")
	}
	if !asks("more") {
		t.Error("not heard five minutes later")
	}
	p.clock.Step(retrySpacing - time.Second)
	if asks("three") {
		t.Error("heard within five minutes of the last one")
	}
	p.clock.Step(time.Second)
	if p.Changes.retryNow(); !p.probed(app) {
		t.Error("not heard when the five minutes are over")
	}
	p.clock.Step(50 * time.Minute)
	if p.Changes.retryNow(); p.probed(app) || asks("three") {
		t.Error("heard twice")
	}
}

// probed reports whether a breaker of the workload is due for a probe, and lets that fail.
func (p *purse) probed(w guard.Workload) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, now := guard.PodKey("pool", w), p.clock.Now()
	for _, b := range p.state.breakers.Breakers() {
		if b.Key != k {
			continue
		}
		if b.Next.After(now) {
			return false
		}
		forced := b.Next.Equal(now)
		name := fmt.Sprint("again-", len(p.kept), now)
		p.kept[guard.Owner{Pool: name}] = ""
		p.state.breakers.Buy(name, guard.Bought{Purchase: guard.Purchase{Round: name, Workloads: []guard.Workload{w}, Probes: []guard.Key{k}}, Pool: "pool", At: now})
		p.state.breakers.Fail(name, guard.Fault{Cause: "x", Message: "x"}, now)
		p.state.breakers.End(name, now)
		return forced
	}
	return false
}

// The annotation works on a Job without a controller, too: its pods count by their shape. A Job that was created with it asks for nothing.
func TestRetryOfAJob(t *testing.T) {
	p := newPurse(t, Config{})
	pod := p.pod("p", "", func(pod *corev1.Pod) {
		pod.OwnerReferences[0] = metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "job", Controller: ptr.To(true)}
	})
	p.pending.Handler().OnAdd(pod, false)
	shape := p.WorkloadOf(pod)
	k := guard.PodKey("pool", shape)
	p.mu.Lock()
	for i, probes := range [][]guard.Key{nil, {k}} {
		name := fmt.Sprint("m", i)
		p.state.breakers.Buy(name, guard.Bought{Purchase: guard.Purchase{Round: name, Workloads: []guard.Workload{shape}, Probes: probes}, Pool: "pool", At: p.clock.Now()})
		p.state.breakers.Fail(name, guard.Fault{Cause: "x"}, p.clock.Now())
		p.state.breakers.End(name, p.clock.Now())
	}
	p.mu.Unlock()
	job := func(retry string) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "job", UID: "job", Annotations: map[string]string{}}}
		if retry != "" {
			j.Annotations[objects.AnnotationRetry] = retry
		}
		return j
	}
	p.hears(nil, job("made with"), false)
	if p.probed(shape) {
		t.Error("a Job that is made with it was heard")
	}
	p.hears(job(""), job("now"), false)
	if !p.probed(shape) {
		t.Error("not heard")
	}
	p.hears(job("now"), job("again"), false)
	if p.probed(shape) {
		t.Error("heard within five minutes")
	}
}

// A pool-wide breaker is probed when one of the workloads it is open for changes, not when any does.
func TestPausedPoolIsProbedForItsOwn(t *testing.T) {
	p := newPurse(t, Config{})
	wide := guard.PoolKey("pool", "x")
	p.mu.Lock()
	for i := range 4 {
		w, name := guard.Workload{Namespace: "d", Owner: fmt.Sprint("Deployment/app", i)}, fmt.Sprint("m", i)
		m := guard.Bought{Purchase: guard.Purchase{Round: name, Workloads: []guard.Workload{w}}, Pool: "pool", At: p.clock.Now()}
		if i == 3 {
			m.Probes = []guard.Key{wide}
		}
		p.state.breakers.Buy(name, m)
		p.state.breakers.Fail(name, guard.Fault{Cause: "x", Message: "x"}, p.clock.Now())
		p.state.breakers.End(name, p.clock.Now())
	}
	p.mu.Unlock()
	of := func(app string) func(*appsv1.ReplicaSet) {
		return func(rs *appsv1.ReplicaSet) { rs.OwnerReferences[0].Name = app }
	}
	for _, app := range []string{"stranger", "app1"} {
		p.hears(nil, revisionOf(app+"-1", 1, "a", of(app)), true)
		p.hears(nil, revisionOf(app+"-2", 2, "b", of(app)), false)
		if got := slices.Contains(p.Due(), wide); got != (app == "app1") {
			t.Errorf("%s: probed: %v", app, got)
		}
	}
}

// A change is not recorded for a pool-wide breaker that has closed: nothing fails for a pool as a whole before there is a breaker, so it would
// only take the place of a change that machines may be excused by.
func TestAClosedPoolWideBreakerHearsOfNoChange(t *testing.T) {
	p := newPurse(t, Config{})
	wide, now := guard.PoolKey("pool", "x"), p.clock.Now()
	p.mu.Lock()
	for i := range 3 {
		w, name := guard.Workload{Namespace: "d", Owner: fmt.Sprint("Deployment/app", i)}, fmt.Sprint("m", i)
		p.state.breakers.Buy(name, guard.Bought{Purchase: guard.Purchase{Round: name, Workloads: []guard.Workload{w}}, Pool: "pool", At: now})
		p.state.breakers.Fail(name, guard.Fault{Cause: "x", Message: "x"}, now)
		p.state.breakers.End(name, now)
	}
	p.mu.Unlock()
	member := guard.Workload{Namespace: "d", Owner: "Deployment/app1"}
	if got := p.Changes.poolWide(member); !got[wide] || len(got) != 1 {
		t.Fatalf("open: a change of the workload concerns %v, want %v", got, wide)
	}
	p.mu.Lock()
	p.state.breakers.Buy("probe", guard.Bought{Purchase: guard.Purchase{Round: "probe", Workloads: []guard.Workload{member}, Probes: []guard.Key{wide}}, Pool: "pool", At: now})
	p.state.breakers.Serve("probe", member, now)
	p.mu.Unlock()
	if b := p.state.breaker(wide); b == nil || b.Open() || !slices.Contains(b.Members, member) {
		t.Fatalf("the probe served: breaker %+v, want a closed one with its members", b)
	}
	if got := p.Changes.poolWide(member); len(got) > 0 {
		t.Errorf("closed: a change of the workload concerns %v", got)
	}
}
