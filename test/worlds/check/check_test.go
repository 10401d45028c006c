package check

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/watch"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// counts is a report in numbers.
type counts struct {
	Pods, Planned, AsPlanned, Joined, Replanned, Displaced, Short, Daemons, Nodes, GivenBack, Binds, Late, Refused int
	Off, Empty, Idle, Beyond, Wrong, Stranded, Odd                                                                 int
}

func countsOf(r *Report) counts {
	return counts{
		r.Pods, r.Planned, r.AsPlanned, r.Joined, r.Replanned, r.Displaced, r.Short, r.Daemons, r.Nodes, r.GivenBack, r.Binds, r.Late, r.Refused,
		len(r.Off), len(r.Empty), len(r.Idle), len(r.Beyond), len(r.Wrong), len(r.Stranded), len(r.Odd),
	}
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name   string
		happen func(*journal)
		want   counts
	}{
		{"two pods go where they were planned, in each other's slots", func(j *journal) {
			a, b := j.pod("a", "1"), j.pod("b", "1")
			c1, c2 := j.claim("c1", "k", a), j.claim("c2", "k", b)
			j.launch(c1, "n1", "1")
			j.launch(c2, "n2", "1")
			j.bind(a, "n2")
			j.bind(b, "n1")
		}, counts{Pods: 2, Planned: 2, AsPlanned: 2, Nodes: 2, Binds: 2}},
		{"both go to one node, the other was bought for nothing", func(j *journal) {
			a, b := j.pod("a", "1"), j.pod("b", "1")
			c1, c2 := j.claim("c1", "k", a), j.claim("c2", "k", b)
			j.launch(c1, "n1", "2")
			j.launch(c2, "n2", "1")
			j.bind(a, "n1")
			j.bind(b, "n1")
		}, counts{Pods: 2, Planned: 2, AsPlanned: 1, Nodes: 2, Binds: 2, Off: 1, Idle: 1}},
		{"a pod finds room that wasn't planned, and takes nobody's", func(j *journal) {
			a := j.pod("a", "1")
			j.launch(j.claim("c1", "k", a), "n1", "2")
			j.bind(a, "n1")
			j.bind(j.pod("b", "1"), "n1")
		}, counts{Pods: 2, Planned: 1, AsPlanned: 1, Nodes: 1, Binds: 2}},
		{"a pod joins a claim that is on its way", func(j *journal) {
			a := j.pod("a", "1")
			c := j.claim("c1", "k", a)
			b := j.pod("b", "1")
			j.joins(c, "k", a, b)
			j.launch(c, "n1", "2")
			j.bind(a, "n1")
			j.bind(b, "n1")
		}, counts{Pods: 2, Planned: 2, AsPlanned: 2, Joined: 1, Nodes: 1, Binds: 2}},
		{"its claim fails, and another is made", func(j *journal) {
			a := j.pod("a", "1")
			j.write(watch.Deleted, j.claim("c1", "k", a))
			j.launch(j.claim("c2", "k", a), "n2", "1")
			j.bind(a, "n2")
		}, counts{Pods: 1, Planned: 1, Replanned: 1, Nodes: 1, Binds: 1}},
		{"it trades places with a sibling that was planned to go to a node that is there", func(j *journal) {
			j.launch(j.claim("c1", "k", j.pod("x", "1")), "n1", "2")
			a, b := j.pod("a", "1"), j.pod("b", "1")
			j.launch(j.claim("c2", "k", a), "n2", "1")
			j.bind(a, "n1")
			j.bind(b, "n2")
		}, counts{Pods: 2, Planned: 1, AsPlanned: 1, Nodes: 2, Binds: 2, Stranded: 1}},
		{"it goes to a node that is there, and one that was still to come takes its place", func(j *journal) {
			j.launch(j.claim("c1", "l", j.pod("x", "1")), "n1", "2")
			a := j.pod("a", "1")
			j.launch(j.claim("c2", "k", a, nil), "n2", "2")
			b, c := j.pod("b", "1"), j.pod("c", "1")
			j.bind(a, "n1")
			j.bind(b, "n2")
			j.bind(c, "n2")
		}, counts{Pods: 3, Planned: 3, AsPlanned: 3, Nodes: 2, Binds: 3, Stranded: 1}},
		{"its machine is given back because another of its group didn't come", func(j *journal) {
			a, b := j.pod("a", "1"), j.pod("b", "1")
			n := j.launch(j.claim("c1", "k", a), "n1", "1")
			j.write(watch.Deleted, j.claim("c2", "k", b))
			j.write(watch.Deleted, n)
			j.launch(j.claim("c3", "k", a, b), "n3", "2")
			j.bind(a, "n3")
			j.bind(b, "n3")
		}, counts{Pods: 2, Planned: 2, Replanned: 2, Nodes: 2, GivenBack: 1, Binds: 2}},
		{"a pod of a higher priority takes its room", func(j *journal) {
			a := j.pod("a", "1")
			j.launch(j.claim("c1", "k", a), "n1", "1")
			j.bind(j.pod("b", "1", urgent), "n1")
			j.launch(j.claim("c2", "l", j.pod("c", "1")), "n2", "1")
			j.bind(a, "n2")
		}, counts{Pods: 2, Planned: 1, Displaced: 1, Nodes: 2, Binds: 2, Refused: 1}},
		{"its machine has less memory than planned", func(j *journal) {
			j.launchForTwo("7Gi")
		}, counts{Pods: 2, Planned: 2, AsPlanned: 1, Short: 1, Nodes: 2, Binds: 2}},
		{"its machine has less memory than planned, and its kubelet has made the Node", func(j *journal) {
			j.kubeletsMake = "7Gi"
			j.launchForTwo("7Gi")
		}, counts{Pods: 2, Planned: 2, AsPlanned: 1, Short: 1, Nodes: 2, Binds: 2}},
		{"its machine has less memory than planned, and enough", func(j *journal) {
			j.launchForTwo("8Gi")
		}, counts{Pods: 2, Planned: 2, AsPlanned: 1, Off: 1, Nodes: 2, Binds: 2}},
		{"its machine has too little memory for it", func(j *journal) {
			a := j.pod("a", "1", func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("8Gi")
			})
			n1 := j.launch(j.claim("c1", "k", a), "n1", "2")
			n1.Labels[karpv1.NodeRegisteredLabelKey] = "true"
			n1.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("7Gi")
			j.write(watch.Modified, n1)
			j.launch(j.claim("c2", "k", a), "n2", "2")
			j.bind(a, "n2")
		}, counts{Pods: 1, Planned: 1, AsPlanned: 1, Nodes: 2, Binds: 1}},
		{"a node comes when its pod has gone", func(j *journal) {
			a := j.pod("a", "1")
			c := j.claim("c1", "k", a)
			j.end(a)
			j.launch(c, "n1", "1")
		}, counts{Nodes: 1, Empty: 1, Idle: 1}},
		{"a gang's machine is given back", func(j *journal) {
			a, b := j.pod("a", "1", inGang("g")), j.pod("b", "1", inGang("g"))
			n := j.launch(j.claim("c1", "k", a, b), "n1", "2")
			j.write(watch.Deleted, n)
			j.Gangs = map[string]int{"g": 2}
		}, counts{Nodes: 1, GivenBack: 1, Refused: 2}},
		{"half a gang runs", func(j *journal) {
			a, b := j.pod("a", "1", inGang("g")), j.pod("b", "1", inGang("g"))
			j.launch(j.claim("c1", "k", a, b), "n1", "1")
			j.bind(a, "n1")
			j.Gangs = map[string]int{"g": 2}
		}, counts{Pods: 1, Planned: 1, AsPlanned: 1, Nodes: 1, Binds: 1, Refused: 1, Odd: 1}},
		{"a launch is doubled", func(j *journal) {
			a := j.pod("a", "1")
			j.launch(j.claim("c1", "k", a), "n1", "1")
			j.instance("i-twin", "c1")
			j.bind(a, "n1")
		}, counts{Pods: 1, Planned: 1, AsPlanned: 1, Nodes: 1, Binds: 1, Beyond: 2}},
		{"an instance nobody has heard of", func(j *journal) { j.instance("i-stray", "") }, counts{Beyond: 1}},
		{"a buffer's machine takes a pod", func(j *journal) {
			c := j.claim("c1", "k")
			j.launch(c, "n1", "1")
			a := j.pod("a", "1")
			j.joins(c, "k", a)
			j.bind(a, "n1")
			j.Spare = 1
		}, counts{Pods: 1, Planned: 1, AsPlanned: 1, Joined: 1, Binds: 1}},
		{"a claim for nobody", func(j *journal) { j.launch(j.claim("c1", "k"), "n1", "1") }, counts{Nodes: 1, Beyond: 1, Empty: 1, Idle: 1}},
		{"a node is too small for what is bound to it", func(j *journal) {
			a, b := j.pod("a", "1"), j.pod("b", "1")
			j.launch(j.claim("c1", "k", a, b), "n1", "1")
			j.bind(a, "n1")
			j.bind(b, "n1")
		}, counts{Pods: 2, Planned: 2, AsPlanned: 2, Nodes: 1, Binds: 2, Wrong: 1}},
		{"two that can't stand each other share a node", func(j *journal) {
			a, b := j.pod("a", "1", alone), j.pod("b", "1", alone)
			j.launch(j.claim("c1", "k", a, b), "n1", "2")
			j.bind(a, "n1")
			j.bind(b, "n1")
		}, counts{Pods: 2, Planned: 2, AsPlanned: 2, Nodes: 1, Binds: 2, Wrong: 1}},
		{"a taint that doesn't go by itself", func(j *journal) {
			a := j.pod("a", "1")
			n := j.launch(j.claim("c1", "k", a), "n1", "1")
			n.Spec.Taints = []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectNoSchedule}}
			j.write(watch.Modified, n)
			j.now = j.now.Add(time.Minute)
			j.bind(a, "n1")
		}, counts{Pods: 1, Planned: 1, AsPlanned: 1, Nodes: 1, Binds: 1, Wrong: 1}},
		{"a node that is unreachable only because its kubelet was never there", func(j *journal) {
			a := j.pod("a", "1")
			n := j.launch(j.claim("c1", "k", a), "n1", "1")
			unreachable(n, "")
			j.write(watch.Modified, n)
			j.now = j.now.Add(time.Minute)
			j.bind(a, "n1")
		}, counts{Pods: 1, Planned: 1, AsPlanned: 1, Nodes: 1, Binds: 1}},
		{"a node whose kubelet isn't heard from any more", func(j *journal) {
			a := j.pod("a", "1")
			n := j.launch(j.claim("c1", "k", a), "n1", "1")
			unreachable(n, "v1.36.4")
			j.write(watch.Modified, n)
			j.now = j.now.Add(time.Minute)
			j.bind(a, "n1")
		}, counts{Pods: 1, Planned: 1, AsPlanned: 1, Nodes: 1, Binds: 1, Wrong: 1}},
		{"binds are written in another order than they were decided", func(j *journal) {
			a := j.pod("a", "1", func(p *corev1.Pod) {
				p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey: corev1.LabelHostname, LabelSelector: selector("b")}}}}
			})
			b := j.pod("b", "1", func(p *corev1.Pod) { p.Labels["app"] = "b" })
			j.launch(j.claim("c1", "k", a, b), "n1", "2")
			j.bind(a, "n1")
			j.bind(b, "n1")
			j.atOnce()
		}, counts{Pods: 2, Planned: 2, AsPlanned: 2, Nodes: 1, Binds: 2, Late: 1}},
		{"a kubelet rejects a pod", func(j *journal) {
			a := j.pod("a", "1")
			j.launch(j.claim("c1", "k", a), "n1", "1")
			j.bind(a, "n1")
			a.Status.Phase, a.Status.Message = corev1.PodFailed, "Pod was rejected: Node didn't have enough resource"
			j.write(watch.Modified, a)
		}, counts{Pods: 1, Planned: 1, AsPlanned: 1, Nodes: 1, Binds: 1, Wrong: 1}},
		{"nobody bought what could be bought", func(j *journal) {
			j.pool()
			j.pod("a", "1")
		}, counts{Stranded: 1}},
		{"a node that is there could host it", func(j *journal) {
			a := j.pod("a", "1")
			j.launch(j.claim("c1", "k", a), "n1", "2")
			j.bind(a, "n1")
			j.pod("b", "1")
		}, counts{Pods: 1, Planned: 1, AsPlanned: 1, Nodes: 1, Binds: 1, Stranded: 1}},
		{"nothing could host it", func(j *journal) {
			j.pool()
			j.pod("a", "100000")
		}, counts{Refused: 1}},
		{"what was meant to fit nowhere fits", func(j *journal) {
			j.pool()
			j.pod("a", "1")
			j.Misfits = map[string]bool{"a": true}
		}, counts{Odd: 1}},
		{"a DaemonSet's pod has lost its room", func(j *journal) {
			a := j.pod("a", "2")
			j.launch(j.claim("c1", "k", a), "n1", "2")
			j.bind(a, "n1")
			j.pod("d", "1", ofDaemonSet, func(p *corev1.Pod) {
				p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}}}}}}
			})
		}, counts{Pods: 1, Planned: 1, AsPlanned: 1, Nodes: 1, Binds: 1, Odd: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			j := newJournal()
			tc.happen(j)
			r := j.judge(t)
			if diff := cmp.Diff(tc.want, countsOf(r)); diff != "" {
				t.Errorf("report (-want +got):\n%s%q %q", diff, r.Off, r.Problems())
			}
		})
	}
}

// The fidelity excludes pods that failed launches or higher priorities have displaced, and no others.
func TestFidelity(t *testing.T) {
	r := &Report{}
	if got := r.Fidelity(); got != 1 {
		t.Errorf("nothing was planned: %v, want 1", got)
	}
	r.Add(&Report{Planned: 9, AsPlanned: 5, Replanned: 1, Displaced: 1, Short: 1})
	r.Add(&Report{Planned: 4, AsPlanned: 3, Off: []string{"one"}})
	if got, want := r.Fidelity(), 0.8; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}
