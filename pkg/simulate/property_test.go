package simulate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// TestVerifyAgreesWithFreshFilters: for random clusters and steps in any order, Verify's answer to each step is that of PreFilter and
// Filter run from scratch on everything accepted so far.
func TestVerifyAgreesWithFreshFilters(t *testing.T) {
	const worlds = 1000
	nominated := &nominated{}
	c := newCluster(t, sharedObjects(), func(cfg *clusterConfig) {
		cfg.before = func(s *scheduler.Scheduler) {
			nominated.SchedulingQueue = s.SchedulingQueue
			s.SchedulingQueue = nominated
		}
	})
	accepted, plugins := 0, map[string]int{}
	for seed := range uint64(worlds) {
		g := newGenerator(seed)
		c.load(g.nodes, g.pods)
		trial := g.trial()
		nominated.pods = g.nominate(trial)
		want := c.replay(g, trial)
		for run := range 2 { // the first run must leave nothing behind
			got := c.verify(trial)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d, run %d: rejections (-fresh +verify):\n%s", seed, run, diff)
			}
		}
		accepted += len(trial.Steps) - len(want)
		for _, r := range want {
			plugins[strings.Fields(r)[1]]++
		}
		c.unload(g.nodes, g.pods)
	}
	t.Logf("%d steps accepted, refused by %v", accepted, plugins)
	// The random clusters must cause rejections by many plugins, otherwise agreement means nothing.
	for _, p := range []string{"NodeResourcesFit:", "PodTopologySpread:", "InterPodAffinity:", "NodePorts:", "TaintToleration:", "NodeAffinity:", "VolumeRestrictions:"} {
		if plugins[p] < worlds/20 {
			t.Errorf("only %d steps were refused by %s", plugins[p], p)
		}
	}
	if accepted < 5*worlds {
		t.Errorf("only %d steps were accepted in %d worlds", accepted, worlds)
	}
}

// nominated is a queue with pods for which preemption has freed capacity, by node.
type nominated struct {
	queue.SchedulingQueue
	pods map[string][]fwk.PodInfo
}

func (n *nominated) NominatedPodsForNode(node string) []fwk.PodInfo { return n.pods[node] }

// replay checks each step with a new PreFilter and Filter, on a snapshot built from scratch.
func (c *cluster) replay(g *generator, trial capacity.Trial) []string {
	c.Helper()
	nodes := map[string]*corev1.Node{}
	var pods []*corev1.Pod
	for _, n := range g.nodes {
		nodes[n.Name] = n
	}
	for _, n := range trial.Nodes {
		nodes[n.Node.Name] = n.Node
		for _, p := range n.Pods {
			pods = append(pods, on(p, n.Node.Name))
		}
	}
	pods = append(pods, g.pods...)
	for _, p := range trial.Promised {
		pods = append(pods, on(p.Pod, p.Node))
	}
	var all []*corev1.Node
	for _, n := range nodes {
		all = append(all, n)
	}
	defer func() { c.world.lister.SharedLister = c.world.snapshot }()
	var out []string
	for i, s := range trial.Steps {
		fresh := internalcache.NewSnapshot(pods, all)
		c.world.lister.SharedLister = fresh
		state := framework.NewCycleState()
		result, status, by := c.world.first.framework.RunPreFilterPlugins(c.ctx, state, s.Pod)
		if status.IsSuccess() && !result.AllNodes() && !result.NodeNames.Has(s.Node) {
			list := sets.List(by)
			out = append(out, fmt.Sprintf("%d %s: node(s) didn't satisfy plugin(s) %v", i, strings.Join(list, ","), list))
			continue
		}
		if status.IsSuccess() {
			info, err := fresh.Get(s.Node)
			if err != nil {
				c.Fatalf("step %d: %v", i, err)
			}
			status = c.world.first.framework.RunFilterPluginsWithNominatedPods(c.ctx, state, s.Pod, info)
		}
		switch {
		case status.IsSuccess():
			pods = append(pods, on(s.Pod, s.Node))
		case status.IsRejected():
			out = append(out, fmt.Sprintf("%d %s: %s", i, status.Plugin(), status.Message()))
		default:
			out = append(out, fmt.Sprintf("%d %s: %v", i, status.Plugin(), status.AsError()))
		}
	}
	return out
}

func on(p *corev1.Pod, node string) *corev1.Pod {
	p = p.DeepCopy()
	p.Spec.NodeName = node
	return p
}

// generator creates a random small cluster. There are few names and labels, so that everything interferes with everything.
type generator struct {
	*rand.Rand
	nodes  []*corev1.Node
	pods   []*corev1.Pod
	serial int
	seed   uint64
}

func newGenerator(seed uint64) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), seed: seed}
	for i := range g.IntN(6) {
		g.nodes = append(g.nodes, g.node(fmt.Sprintf("real%d", i)))
	}
	if len(g.nodes) > 0 {
		for range g.IntN(12) {
			p := on(g.pod(g.IntN(6)), g.nodes[g.IntN(len(g.nodes))].Name)
			if g.IntN(8) == 0 {
				p.DeletionTimestamp = ptr.To(p.CreationTimestamp)
			}
			g.pods = append(g.pods, p)
		}
	}
	return g
}

func (g *generator) one(of ...string) string { return of[g.IntN(len(of))] }

func (g *generator) node(name string) *corev1.Node {
	n := node(name, g.one("z1", "z2", "z3", "z3", "")).Label("disk", g.one("ssd", "hdd"))
	if g.IntN(6) == 0 {
		n.Taints([]corev1.Taint{{Key: g.one("team", "gpu"), Value: "x", Effect: corev1.TaintEffectNoSchedule}})
	}
	return n.Unschedulable(g.IntN(20) == 0).Obj()
}

// pod returns a pod of one of a few classes; the class's number and the seed determine its spec.
func (g *generator) pod(class int) *corev1.Pod {
	g.serial++
	shape := rand.New(rand.NewPCG(uint64(class), g.seed))
	pick := func(of ...string) string { return of[shape.IntN(len(of))] }
	p := st.MakePod().Name(fmt.Sprintf("p%d", g.serial)).UID(fmt.Sprintf("p%d", g.serial)).
		Namespace(pick("default", "default", "other")).Label("app", fmt.Sprintf("app%d", class)).Label("tier", pick("web", "db")).
		Req(map[corev1.ResourceName]string{corev1.ResourceCPU: pick("100m", "500m", "1")})
	selector := func() *st.LabelSelectorWrapper {
		switch shape.IntN(5) {
		case 0:
			return st.MakeLabelSelector().Label("tier", pick("web", "db"))
		case 1:
			return st.MakeLabelSelector() // empty: all pods
		default:
			return st.MakeLabelSelector().Label("app", fmt.Sprintf("app%d", class))
		}
	}
	key := func() string {
		return pick(corev1.LabelTopologyZone, corev1.LabelTopologyZone, corev1.LabelHostname, "disk")
	}
	policy := func() *corev1.NodeInclusionPolicy {
		return ptr.To(corev1.NodeInclusionPolicy(pick("Honor", "Ignore")))
	}
	for range []int{0, 0, 1, 1, 2}[shape.IntN(5)] {
		var minDomains *int32
		if shape.IntN(4) == 0 {
			minDomains = ptr.To(int32(1 + shape.IntN(4)))
		}
		p.SpreadConstraint(1+shape.IntN(2), key(), corev1.DoNotSchedule, selector().Obj(), minDomains, policy(), policy(), nil)
	}
	switch shape.IntN(6) {
	case 0:
		p.PodAntiAffinity(key(), selector().Obj(), st.PodAntiAffinityWithRequiredReq)
	case 1:
		p.PodAffinity(key(), selector().Obj(), st.PodAffinityWithRequiredReq)
	case 2:
		p.PodAntiAffinityExists("app", corev1.LabelHostname, st.PodAntiAffinityWithRequiredReq)
	}
	if shape.IntN(8) == 0 {
		p.HostPort(int32(8080 + shape.IntN(2)))
	}
	if shape.IntN(8) == 0 {
		p.NodeSelector(map[string]string{"disk": pick("ssd", "hdd")})
	}
	if shape.IntN(12) == 0 {
		p.NodeAffinityIn("metadata.name", []string{"real0", "new1"}, st.NodeSelectorTypeMatchFields)
	}
	if shape.IntN(2) == 0 {
		p.Toleration("team")
	}
	if shape.IntN(6) == 0 {
		p.PVC(pick("one", "many"))
	}
	return p.Obj()
}

func (g *generator) trial() capacity.Trial {
	var trial capacity.Trial
	for i := range 1 + g.IntN(6) {
		name := fmt.Sprintf("new%d", i)
		if len(g.nodes) > 0 && g.IntN(10) == 0 {
			name = g.nodes[g.IntN(len(g.nodes))].Name // stands in for a real one
		}
		n := capacity.TrialNode{Node: g.node(name)}
		for range g.IntN(3) {
			n.Pods = append(n.Pods, g.pod(g.IntN(6)))
		}
		trial.Nodes = append(trial.Nodes, n)
	}
	// A later node of the same name replaces an earlier one, which would make the replay differ.
	seen := sets.New[string]()
	unique := trial.Nodes[:0]
	for _, n := range trial.Nodes {
		if !seen.Has(n.Node.Name) {
			seen.Insert(n.Node.Name)
			unique = append(unique, n)
		}
	}
	trial.Nodes = unique
	for range g.IntN(4) {
		trial.Promised = append(trial.Promised, g.step())
	}
	for range 10 + g.IntN(30) {
		trial.Steps = append(trial.Steps, g.step())
	}
	for i := range trial.Promised {
		trial.Promised[i].Node = g.target(trial)
	}
	tried := []string{g.target(trial), g.target(trial)} // what PreFilter has to look at depends on these
	for i := range trial.Steps {
		if g.seed%2 == 0 {
			trial.Steps[i].Node = g.target(trial)
		} else {
			trial.Steps[i].Node = tried[i%len(tried)]
		}
	}
	return trial
}

func (g *generator) step() capacity.Step {
	class := g.IntN(6)
	return capacity.Step{Pod: g.pod(class), Class: capacity.ClassKey(fmt.Sprint(class))}
}

func (g *generator) target(trial capacity.Trial) string {
	n := g.IntN(len(g.nodes) + len(trial.Nodes))
	if n < len(g.nodes) {
		return g.nodes[n].Name
	}
	return trial.Nodes[n-len(g.nodes)].Node.Name
}

// nominate returns pods that are nominated for nodes, in a third of the worlds.
func (g *generator) nominate(trial capacity.Trial) map[string][]fwk.PodInfo {
	if g.seed%3 != 0 {
		return nil
	}
	out := map[string][]fwk.PodInfo{}
	for range 1 + g.IntN(3) {
		node := g.target(trial)
		info, _ := framework.NewPodInfo(g.pod(g.IntN(6)))
		out[node] = append(out[node], info)
	}
	return out
}

// sharedObjects returns the objects that all random clusters have.
func sharedObjects() []runtime.Object {
	var out []runtime.Object
	for _, name := range []string{"default", "other"} {
		out = append(out, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		for claim, mode := range map[string]corev1.PersistentVolumeAccessMode{"one": corev1.ReadWriteOncePod, "many": corev1.ReadWriteMany} {
			modes := []corev1.PersistentVolumeAccessMode{mode}
			out = append(out,
				st.MakePersistentVolumeClaim().Name(claim).Namespace(name).VolumeName(name+"-"+claim).
					Annotation("pv.kubernetes.io/bind-completed", "yes").AccessModes(modes).Obj(),
				st.MakePersistentVolume().Name(name+"-"+claim).AccessModes(modes).
					PersistentVolumeSource(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: name + claim}}).Obj())
		}
	}
	return out
}
