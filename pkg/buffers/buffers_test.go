package buffers

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func template(change ...func(*corev1.PodTemplateSpec)) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{SchedulerName: "ours",
		Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")}}}}}}
	for _, f := range change {
		f(&t)
	}
	return t
}

func buffer(change func(*autoscalingv1beta1.CapacityBufferSpec)) *autoscalingv1beta1.CapacityBuffer {
	b := &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "spare", UID: "uid", Generation: 3}}
	change(&b.Spec)
	return b
}

// world is what a Controller works with.
type world struct {
	*Controller
	kube  *fake.Clientset
	clock *testingclock.FakeClock

	mu     sync.Mutex
	all    []*autoscalingv1beta1.CapacityBuffer
	known  bool
	saved  []*autoscalingv1beta1.CapacityBuffer
	set    [][]ledger.Buffer
	states []ledger.BufferState
	why    map[types.UID]string
}

func (w *world) Buffers() ([]*autoscalingv1beta1.CapacityBuffer, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all, w.known
}

func (w *world) SaveBufferStatus(_ context.Context, _, changed *autoscalingv1beta1.CapacityBuffer) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.saved = append(w.saved, changed)
	for i, b := range w.all {
		if b.UID == changed.UID {
			w.all[i] = changed
		}
	}
	return nil
}

func (w *world) SetBuffers(all []ledger.Buffer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.set = append(w.set, all)
}

func (w *world) Report() ([]ledger.BufferState, map[types.UID]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.states, w.why
}

func newWorld(objects ...runtime.Object) *world {
	w := &world{kube: fake.NewClientset(objects...), clock: testingclock.NewFakeClock(epoch), known: true}
	w.Controller = New(Config{Kube: w.kube, Store: w, Chunks: w, Clock: w.clock, Hold: func() error { return nil }, Admit: func(*corev1.Pod) {},
		Ours: func(s string) bool { return s == "ours" },
		Class: func(pod *corev1.Pod) (*capacity.Class, error) {
			return capacity.ClassOf(pod, capacity.VolumeInfo{})
		}})
	return w
}

func podTemplate(change ...func(*corev1.PodTemplateSpec)) *corev1.PodTemplate {
	return &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "t", Generation: 7}, Template: template(change...)}
}

// What each buffer asks for, or what is wrong with it.
func TestResolve(t *testing.T) {
	type spec = autoscalingv1beta1.CapacityBufferSpec
	ref := &autoscalingv1beta1.LocalObjectRef{Name: "t"}
	scalable := func(kind string) *autoscalingv1beta1.ScalableRef {
		return &autoscalingv1beta1.ScalableRef{APIGroup: "apps", Kind: kind, Name: "w"}
	}
	limits := func(of ...string) autoscalingv1beta1.Limits {
		out := autoscalingv1beta1.Limits{}
		for i := 0; i < len(of); i += 2 {
			out[corev1.ResourceName(of[i])] = resource.MustParse(of[i+1])
		}
		return out
	}
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "w"}
	workload := func(replicas int32) []runtime.Object {
		return []runtime.Object{
			&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Template: template()}},
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Template: template()}},
			&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Template: template()}},
		}
	}
	for _, tc := range []struct {
		name    string
		objects []runtime.Object
		spec    func(*spec)
		chunks  int32
		reason  string // empty: Resolved
		problem string
	}{
		{name: "replicas", objects: []runtime.Object{podTemplate()}, spec: func(s *spec) { s.PodTemplateRef, s.Replicas = ref, ptr.To[int32](5) }, chunks: 5},
		{name: "limits alone", objects: []runtime.Object{podTemplate()}, spec: func(s *spec) { s.PodTemplateRef, s.Limits = ref, limits("cpu", "9", "memory", "100Gi") }, chunks: 4},
		{name: "limits bound replicas", objects: []runtime.Object{podTemplate()}, spec: func(s *spec) {
			s.PodTemplateRef, s.Replicas, s.Limits = ref, ptr.To[int32](5), limits("memory", "3Gi")
		}, chunks: 3},
		{name: "limits of other resources don't", objects: []runtime.Object{podTemplate()}, spec: func(s *spec) {
			s.PodTemplateRef, s.Replicas, s.Limits = ref, ptr.To[int32](5), limits("nvidia.com/gpu", "1")
		}, chunks: 5},
		{name: "but there must be some bound", objects: []runtime.Object{podTemplate()}, spec: func(s *spec) { s.PodTemplateRef, s.Limits = ref, limits("nvidia.com/gpu", "1") },
			reason: reasonFailed, problem: `spec.limits: spec.podTemplateRef: PodTemplate "t" requests none of the resources`},
		{name: "no bound at all", objects: []runtime.Object{podTemplate()}, spec: func(s *spec) { s.PodTemplateRef = ref }, reason: reasonFailed, problem: "spec: one of replicas, percentage (of a scalableRef) and limits must be set"},
		{name: "a percentage, rounded up", objects: workload(11), spec: func(s *spec) { s.ScalableRef, s.Percentage = scalable("Deployment"), ptr.To[int32](20) }, chunks: 3},
		{name: "at least one", objects: workload(1), spec: func(s *spec) { s.ScalableRef, s.Percentage = scalable("StatefulSet"), ptr.To[int32](1) }, chunks: 1},
		{name: "of none none, whatever the limits", objects: workload(0), spec: func(s *spec) {
			s.ScalableRef, s.Percentage, s.Limits = scalable("ReplicaSet"), ptr.To[int32](50), limits("cpu", "100")
		}},
		{name: "the larger of both", objects: workload(10), spec: func(s *spec) {
			s.ScalableRef, s.Percentage, s.Replicas = scalable("Deployment"), ptr.To[int32](20), ptr.To[int32](3)
		}, chunks: 3},
		{name: "too many", objects: []runtime.Object{podTemplate()}, spec: func(s *spec) { s.PodTemplateRef, s.Replicas = ref, ptr.To[int32](math.MaxInt32) }, chunks: 10_000},
		{name: "no reference", spec: func(s *spec) { s.Replicas = ptr.To[int32](1) }, reason: reasonFailed, problem: "spec: one of podTemplateRef and scalableRef must be set"},
		{name: "two references", spec: func(s *spec) { s.PodTemplateRef, s.ScalableRef = ref, scalable("Deployment") }, reason: reasonFailed, problem: "spec: only one of podTemplateRef and scalableRef"},
		{name: "no such template", spec: func(s *spec) { s.PodTemplateRef, s.Replicas = ref, ptr.To[int32](1) }, reason: reasonTemplateNotFound, problem: `spec.podTemplateRef: PodTemplate "t" is not in namespace shop`},
		{name: "no such workload", spec: func(s *spec) { s.ScalableRef, s.Replicas = scalable("Deployment"), ptr.To[int32](1) }, reason: reasonScalableNotFound, problem: `spec.scalableRef: Deployment "w" is not in namespace shop`},
		{name: "a kind that isn't known", spec: func(s *spec) { s.ScalableRef = scalable("Rollout") }, reason: reasonFailed, problem: `spec.scalableRef.kind: "Rollout" is not supported`},
		{name: "a group that isn't known", spec: func(s *spec) {
			s.ScalableRef = &autoscalingv1beta1.ScalableRef{APIGroup: "argoproj.io", Kind: "Deployment", Name: "w"}
		}, reason: reasonFailed, problem: `spec.scalableRef.apiGroup: "argoproj.io" is not supported`},
		{name: "another strategy", spec: func(s *spec) { s.ProvisioningStrategy = ptr.To("standby") }, reason: reasonFailed, problem: `spec.provisioningStrategy: "standby" is not supported`},
		{name: "another scheduler", objects: []runtime.Object{podTemplate(func(t *corev1.PodTemplateSpec) { t.Spec.SchedulerName = "other" })}, spec: func(s *spec) { s.PodTemplateRef, s.Replicas = ref, ptr.To[int32](1) },
			reason: reasonFailed, problem: `PodTemplate "t": pods of its schedulerName, "other", are not planned for here`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(tc.objects...)
			r, err := w.resolution(t.Context(), buffer(tc.spec))
			if err != nil {
				t.Fatal(err)
			}
			if want := tc.reason; want != "" && (r.reason != want || r.class != nil || !strings.Contains(r.problem, tc.problem)) {
				t.Errorf("%s: %s, want %s: %s", r.reason, r.problem, want, tc.problem)
			} else if want == "" && (r.class == nil || r.chunks != tc.chunks || r.capped != (tc.chunks == 10_000)) {
				t.Errorf("%+v, want %d chunks", r, tc.chunks)
			}
		})
	}
}

// Where there are several Dovetails, the one that plans for pods of the template's scheduler answers a buffer; the others say nothing about it.
func TestAnotherDovetailsBuffer(t *testing.T) {
	for scheduler, ours := range map[string]bool{"other": false, "ours": true} {
		w := newWorld(podTemplate(func(t *corev1.PodTemplateSpec) { t.Spec.SchedulerName = scheduler }))
		w.Several = true
		r, err := w.resolution(t.Context(), buffer(func(s *autoscalingv1beta1.CapacityBufferSpec) {
			s.PodTemplateRef, s.Replicas = &autoscalingv1beta1.LocalObjectRef{Name: "t"}, ptr.To[int32](1)
		}))
		if err != nil || (r != nil) != ours || ours && r.class == nil {
			t.Errorf("a buffer for pods of %s: %+v, %v", scheduler, r, err)
		}
	}
}

// A chunk is like a pod of the template, without what only a pod can have.
func TestChunkPod(t *testing.T) {
	pod := chunkPod(buffer(func(*autoscalingv1beta1.CapacityBufferSpec) {}), ptr.To(template(func(t *corev1.PodTemplateSpec) {
		t.Labels[objects.LabelPodGroup] = "gang"
		t.Spec.NodeName, t.Spec.PriorityClassName, t.Spec.SchedulingGates = "n", "high", []corev1.PodSchedulingGate{{Name: "g"}}
		t.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}, {Name: "tmp"}}
		t.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data"}, {Name: "tmp"}}
	})))
	class, err := capacity.ClassOf(pod, capacity.VolumeInfo{})
	if err != nil || class.Priority != math.MinInt32 || class.Requests[corev1.ResourceCPU] != 2000 || class.Namespace != "shop" {
		t.Errorf("class %+v, %v", class, err)
	}
	if pod.Spec.NodeName != "" || len(pod.Spec.SchedulingGates) > 0 || len(pod.Spec.Volumes) != 1 || len(pod.Spec.Containers[0].VolumeMounts) != 1 || len(pod.Labels) != 1 {
		t.Errorf("pod %+v", pod)
	}
}

func TestStatus(t *testing.T) {
	b := buffer(func(*autoscalingv1beta1.CapacityBufferSpec) {})
	r := &resolution{class: &capacity.Class{}, chunks: 5, template: "t", generation: 7, reason: reasonResolved}
	state := func(ready, launching int) *ledger.BufferState {
		return &ledger.BufferState{Buffer: ledger.Buffer{Chunks: 5}, Ready: ready, Launching: launching}
	}
	small := state(0, 0)
	small.Misfits, small.Next = 1, epoch.Add(5*time.Minute)
	for _, tc := range []struct {
		name  string
		r     *resolution
		state *ledger.BufferState
		why   string
		want  string // the conditions
	}{
		{"all have capacity", r, state(5, 0), "", "ReadyForProvisioning=True Resolved: Pod template resolved\nProvisioning=True FitsExistingCapacity: All 5 chunks have capacity on initialized nodes"},
		{"some wait", r, state(1, 2), "no offer", "ReadyForProvisioning=True Resolved: Pod template resolved\nProvisioning=False RequiresNewCapacity: 1 of 5 chunks have capacity on initialized nodes, 2 have it on nodes that are being launched, 2 have none: no offer"},
		{"too small a node", r, small, "", "ReadyForProvisioning=True Resolved: Pod template resolved\nProvisioning=False RequiresNewCapacity: 0 of 5 chunks have capacity on initialized nodes, 5 have none: the last node that was launched for them has less capacity than planned; no other one is launched before 2026-03-01T12:05:00Z"},
		{"not looked at yet", r, nil, "", "ReadyForProvisioning=True Resolved: Pod template resolved"},
		{"none wanted", &resolution{class: &capacity.Class{}, reason: reasonResolved}, nil, "", "ReadyForProvisioning=True Resolved: Pod template resolved\nProvisioning=False BufferEmpty: Buffer has zero desired replicas"},
		{"wrong", refused(reasonFailed, "spec: wrong"), nil, "", "ReadyForProvisioning=False ResolutionFailed: spec: wrong\nProvisioning=False NotReadyForProvisioning: Buffer is not ReadyForProvisioning"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := tc.r.status(b, tc.state, tc.why, epoch)
			var got []string
			for _, c := range out.Status.Conditions {
				if c.ObservedGeneration != 3 {
					t.Errorf("condition %s is of generation %d", c.Type, c.ObservedGeneration)
				}
				got = append(got, c.Type+"="+string(c.Status)+" "+c.Reason+": "+c.Message)
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if again := tc.r.status(out, tc.state, tc.why, epoch.Add(time.Minute)); again != nil {
				t.Errorf("it would be written again: %+v", again.Status)
			}
			if tc.r.class != nil && (out.Status.Replicas == nil || *out.Status.Replicas != tc.r.chunks) || tc.r.class == nil && out.Status.Replicas != nil {
				t.Errorf("replicas %v", out.Status.Replicas)
			}
			if tc.r == r && (out.Status.PodTemplateRef.Name != "t" || *out.Status.PodTemplateGeneration != 7) {
				t.Errorf("template %v, generation %v", out.Status.PodTemplateRef, out.Status.PodTemplateGeneration)
			}
		})
	}
}

// Buffers of another strategy may be another controller's: what that has written stays.
func TestForeignBuffersAreLeftAlone(t *testing.T) {
	b := buffer(func(*autoscalingv1beta1.CapacityBufferSpec) {})
	r := refused(reasonFailed, "spec.provisioningStrategy")
	r.foreign = true
	told := r.status(b, nil, "", epoch)
	if told == nil || !apimeta.IsStatusConditionFalse(told.Status.Conditions, autoscalingv1beta1.ReadyForProvisioningCondition) {
		t.Errorf("nothing says that it has no effect here: %+v", told)
	}
	b.SetCondition(autoscalingv1beta1.ReadyForProvisioningCondition, metav1.ConditionTrue, "Theirs", "")
	if out := r.status(b, nil, "", epoch); out != nil {
		t.Errorf("theirs would become %+v", out.Status)
	}
}

// A template that isn't there takes the chunks away; an API server without an answer doesn't, and before it has answered once nothing is set.
func TestUnansweredTemplatesKeepTheirChunks(t *testing.T) {
	w := newWorld(podTemplate())
	w.all = []*autoscalingv1beta1.CapacityBuffer{buffer(func(s *autoscalingv1beta1.CapacityBufferSpec) {
		s.PodTemplateRef, s.Replicas = &autoscalingv1beta1.LocalObjectRef{Name: "t"}, ptr.To[int32](2)
	})}
	var fail error
	w.kube.PrependReactor("get", "podtemplates", func(clienttesting.Action) (bool, runtime.Object, error) { return fail != nil, nil, fail })
	w.known = false
	if again := w.resolve(t.Context()); again != firstTry || len(w.set) != 0 {
		t.Errorf("set %v before the buffers are known", w.set)
	}
	w.known, fail = true, errors.New("no answer")
	if again := w.resolve(t.Context()); again != firstTry || len(w.set) != 0 {
		t.Errorf("set %v before the template was read", w.set)
	}
	fail = nil
	if again := w.resolve(t.Context()); again != resync || len(w.set) != 1 || len(w.set[0]) != 1 || w.set[0][0].Chunks != 2 {
		t.Errorf("set %v", w.set)
	}
	fail = errors.New("no answer")
	if w.resolve(t.Context()); len(w.set) != 2 || len(w.set[1]) != 1 {
		t.Errorf("an API server without an answer took the chunks away: %v", w.set)
	}
	fail = nil
	if err := w.kube.CoreV1().PodTemplates("shop").Delete(t.Context(), "t", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if w.resolve(t.Context()); len(w.set) != 3 || len(w.set[2]) != 0 {
		t.Errorf("chunks of a deleted template stay: %v", w.set)
	}
	w.tell(t.Context())
	if len(w.saved) != 1 || w.saved[0].Status.Conditions[0].Reason != reasonTemplateNotFound {
		t.Errorf("status %+v", w.saved)
	}
}

// A report of chunks writes the status without resolving anything: else each look would lead to the next.
func TestReportsDontResolve(t *testing.T) {
	w := newWorld(podTemplate())
	w.all = []*autoscalingv1beta1.CapacityBuffer{buffer(func(s *autoscalingv1beta1.CapacityBufferSpec) {
		s.PodTemplateRef, s.Replicas = &autoscalingv1beta1.LocalObjectRef{Name: "t"}, ptr.To[int32](2)
	})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { _ = w.Run(ctx); close(done) }()
	step := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; {
			w.mu.Lock()
			yes := ok()
			w.mu.Unlock()
			if yes {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("waited in vain: %s", what)
			}
			if w.clock.HasWaiters() {
				w.clock.Step(gather)
			}
		}
	}
	step("it is resolved", func() bool { return len(w.set) == 1 && len(w.saved) == 1 })
	w.mu.Lock()
	w.states = []ledger.BufferState{{Buffer: ledger.Buffer{UID: "uid", Chunks: 2}, Ready: 2}}
	sets := len(w.set)
	w.mu.Unlock()
	w.Reported()
	step("its capacity is told", func() bool { return len(w.saved) >= 2 })
	cancel()
	<-done
	if elapsed := w.clock.Since(epoch); len(w.set) > sets+int(elapsed/resync) {
		t.Errorf("set %d times within %v", len(w.set), elapsed)
	}
}
