package capacity

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/test/pods"
)

func mustClass(t testing.TB, pod *corev1.Pod) *Class {
	t.Helper()
	c, err := ClassOf(pod, VolumeInfo{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRequestsOfAPod(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   Resources
	}{
		"one container counts as one pod": {func(*corev1.Pod) {}, Resources{"cpu": 500, "memory": 1 << 30, "pods": 1}},
		"an init container that asks for more decides": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Requests: pods.Amounts("cpu=2")}}}
		}, Resources{"cpu": 2000, "memory": 1 << 30, "pods": 1}},
		"a sidecar adds": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: pods.Amounts("cpu=100m")}}}
		}, Resources{"cpu": 600, "memory": 1 << 30, "pods": 1}},
		"overhead adds": {func(p *corev1.Pod) { p.Spec.Overhead = pods.Amounts("cpu=50m") }, Resources{"cpu": 550, "memory": 1 << 30, "pods": 1}},
		"pod-level requests replace the sum": {func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: pods.Amounts("cpu=3")}
		}, Resources{"cpu": 3000, "memory": 1 << 30, "pods": 1}},
		"zero requests vanish": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = pods.Amounts("cpu=0", "nvidia.com/gpu=0")
		}, Resources{"pods": 1}},
		"absurd amounts end at the largest number": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = pods.Amounts("cpu=1000000000000000", "memory=8E")
			p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0])
		}, Resources{"cpu": 2e18, "memory": math.MaxInt64, "pods": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := pods.Of("a", "cpu=500m", "memory=1Gi")
			tc.change(pod)
			if diff := cmp.Diff(tc.want, mustClass(t, pod).Requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodsThatCannotBePlannedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		vol    VolumeInfo
		want   string
	}{
		"a negative request": {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = pods.Amounts("cpu=-1") }, VolumeInfo{},
			"pod can't be planned for: container main: request of cpu is negative (-1)"},
		"Gt with a word": {func(p *corev1.Pod) { p.Spec.Affinity = pods.NodeAffinity(pods.Requires("k", "Gt", "many")) }, VolumeInfo{},
			`pod can't be planned for: required node affinity, term 0: k: operator Gt needs an integer, has "many"`},
		"selector against affinity": {func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"k": "a"}
			p.Spec.Affinity = pods.NodeAffinity(pods.Requires("k", "In", "b"))
		}, VolumeInfo{}, "pod can't be planned for: node selector and required node affinity contradict each other"},
		"a word that the annotation doesn't know": {func(p *corev1.Pod) { p.Annotations = map[string]string{objects.AnnotationBind: "erly"} }, VolumeInfo{},
			`pod can't be planned for: annotation dovetail.sh/bind is "erly", it can only be "early"`},
		"a lost claim": {func(*corev1.Pod) {}, VolumeInfo{Problem: "claim data is lost"}, "pod can't be planned for: claim data is lost"},
		"volumes in two zones": {func(*corev1.Pod) {}, VolumeInfo{Topology: [][]Requirements{
			{{LabelZone: ValueIn(LabelZone, "a")}}, {{"topology.ebs.csi.aws.com/zone": ValueIn("topology.ebs.csi.aws.com/zone", "b")}}}},
			"pod can't be planned for: its volumes can't be reached from the nodes it asks for"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := pods.Of("a")
			tc.change(pod)
			_, err := ClassOf(pod, tc.vol)
			if !errors.Is(err, ErrNotPlannable) {
				t.Fatalf("got %v, want an error that wraps ErrNotPlannable", err)
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNodeTermsOfAPod(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		vol    VolumeInfo
		want   []string // each term's requirements in key order
	}{
		"none": {func(*corev1.Pod) {}, VolumeInfo{}, nil},
		"selectors by an old name": {func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"beta.kubernetes.io/arch": "arm64"} }, VolumeInfo{},
			[]string{"[kubernetes.io/arch in (arm64)]"}},
		"ORed terms, each with the selector": {func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"a": "1"}
			p.Spec.Affinity = pods.NodeAffinity(pods.Requires("b", "Exists"), pods.Requires("c", "NotIn", "x"))
		}, VolumeInfo{}, []string{"[a in (1) b exists]", "[a in (1) c not in (x)]"}},
		"a volume in one of two zones cuts the term that asks for another": {func(p *corev1.Pod) {
			p.Spec.Affinity = pods.NodeAffinity(pods.Requires(LabelZone, "In", "a"), pods.Requires(LabelZone, "In", "b", "c"))
		}, VolumeInfo{Topology: [][]Requirements{{{LabelZone: ValueIn(LabelZone, "b")}, {LabelZone: ValueIn(LabelZone, "d")}}}},
			[]string{"[topology.kubernetes.io/zone in (b)]"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := pods.Of("a")
			tc.change(pod)
			c, err := ClassOf(pod, tc.vol)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, term := range c.Terms {
				got = append(got, fmt.Sprint(term.Sorted()))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("terms (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodsOfOneClass(t *testing.T) {
	spread := corev1.TopologySpreadConstraint{TopologyKey: LabelZone, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule, MatchLabelKeys: []string{"rev"},
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
	for name, tc := range map[string]struct {
		a, b func(*corev1.Pod)
		same bool
	}{
		"another name":            {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Name, p.UID = "b", "other" }, true},
		"another image":           {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "x" }, true},
		"another StatefulSet pod": {func(p *corev1.Pod) { p.Labels["apps.kubernetes.io/pod-index"] = "0" }, func(p *corev1.Pod) { p.Labels["apps.kubernetes.io/pod-index"] = "1" }, true},
		"the same memory in other words": {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = pods.Amounts("memory=1Gi") },
			func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = pods.Amounts("memory=1024Mi") }, true},
		"another label":        {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Labels["app"] = "db" }, false},
		"another namespace":    {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Namespace = "b" }, false},
		"another scheduler":    {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Spec.SchedulerName = "b" }, false},
		"nobody recreates it":  {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.OwnerReferences = nil }, false},
		"a toleration":         {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "a"}} }, false},
		"too short a patience": {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Spec.Tolerations = pods.NotReadyFor(10) }, false},
		"a host port":          {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} }, false},
		"a claimed device":     {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }, false},
		"another node term":    {func(*corev1.Pod) {}, func(p *corev1.Pod) { p.Spec.Affinity = pods.NodeAffinity(pods.Requires("a", "Exists")) }, false},
		"Exists is not absent": {func(p *corev1.Pod) { p.Spec.Affinity = pods.NodeAffinity(pods.Requires("a", "DoesNotExist")) }, func(p *corev1.Pod) { p.Spec.Affinity = pods.NodeAffinity(pods.Requires("a", "Exists")) }, false},
		"another revision in matchLabelKeys": {
			func(p *corev1.Pod) {
				p.Labels["rev"] = "1"
				p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{spread}
			},
			func(p *corev1.Pod) {
				p.Labels["rev"] = "2"
				p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{spread}
			}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pods.Of("a", "cpu=1"), pods.Of("a", "cpu=1")
			tc.a(a)
			tc.b(b)
			if same := mustClass(t, a).Key == mustClass(t, b).Key; same != tc.same {
				t.Errorf("same class: %v, want %v", same, tc.same)
			}
		})
	}
}

func TestEarliestMomentToBind(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   BindTime
		reason string
	}{
		"a ReplicaSet's pod": {func(*corev1.Pod) {}, BindEarly, ""},
		"a GPU": {func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = pods.Amounts("nvidia.com/gpu=1") }, BindInitialized,
			"requests nvidia.com/gpu, which a device plugin has to provide"},
		"a pod security group": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = pods.Amounts("vpc.amazonaws.com/pod-eni=1")
		}, BindInitialized, "requests vpc.amazonaws.com/pod-eni, which a device plugin has to provide"},
		"hugepages and local storage are the kubelet's": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = pods.Amounts("hugepages-2Mi=4Mi", "ephemeral-storage=1Gi")
		}, BindEarly, ""},
		"no controller":   {func(p *corev1.Pod) { p.OwnerReferences = nil }, BindRegistered, "has no controller that would recreate it"},
		"a Job":           {func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Job" }, BindRegistered, "belongs to a Job, which would count a lost pod as failed"},
		"never restarted": {func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }, BindRegistered, "is never restarted"},
		"a Job that dares": {func(p *corev1.Pod) {
			p.OwnerReferences[0].Kind, p.Annotations = "Job", map[string]string{objects.AnnotationBind: "early"}
		}, BindEarly, ""},
		"tolerates not-ready for 119 s": {func(p *corev1.Pod) { p.Spec.Tolerations = pods.NotReadyFor(119) }, BindReady,
			"tolerates node.kubernetes.io/not-ready for 1m59s only, and would be evicted before its node is Ready"},
		"for 120 s": {func(p *corev1.Pod) { p.Spec.Tolerations = pods.NotReadyFor(120) }, BindEarly, ""},
		"for ever":  {func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }, BindEarly, ""},
		"the shortest toleration counts": {func(p *corev1.Pod) { p.Spec.Tolerations = pods.NotReadyFor(300, 5) }, BindReady,
			"tolerates node.kubernetes.io/not-ready for 5s only, and would be evicted before its node is Ready"},
		"not at all, with another effect": {func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
		}, BindReady, "tolerates node.kubernetes.io/not-ready for 0s only, and would be evicted before its node is Ready"},
		"a Job that dares and would be evicted": {func(p *corev1.Pod) {
			p.OwnerReferences[0].Kind, p.Annotations, p.Spec.Tolerations = "Job", map[string]string{objects.AnnotationBind: "early"}, nil
		}, BindReady, "tolerates node.kubernetes.io/not-ready for 0s only, and would be evicted before its node is Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := pods.Of("a")
			tc.change(pod)
			c := mustClass(t, pod)
			if c.Bind != tc.want || c.BindReason != tc.reason {
				t.Errorf("got %d %q, want %d %q", c.Bind, c.BindReason, tc.want, tc.reason)
			}
		})
	}
}

func BenchmarkClassOf(b *testing.B) {
	pod := pods.Of("a", "cpu=500m", "memory=1Gi")
	pod.Spec.NodeSelector = map[string]string{"kubernetes.io/arch": "arm64"}
	pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: LabelZone, MaxSkew: 1,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ClassOf(pod, VolumeInfo{}); err != nil {
			b.Fatal(err)
		}
	}
}

// Pods that name a ProvisioningRequest are of another class than those that don't, or that name another one; which annotation they use doesn't matter.
func TestClassOfPodsThatNameARequest(t *testing.T) {
	of := func(annotations map[string]string) *Class {
		c, err := ClassOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Annotations: annotations}}, VolumeInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	none, other := of(nil), of(map[string]string{"autoscaling.x-k8s.io/consume-provisioning-request": "other"})
	newer := of(map[string]string{"autoscaling.x-k8s.io/consume-provisioning-request": "train"})
	older := of(map[string]string{"cluster-autoscaler.kubernetes.io/consume-provisioning-request": "train"})
	if newer.Key != older.Key || newer.Request != "train" || older.Request != "train" {
		t.Errorf("%+v and %+v name the same request", newer, older)
	}
	if none.Key == newer.Key || other.Key == newer.Key || none.Request != "" {
		t.Error("pods that name no request, or another one, are of the same class")
	}
}
