package integration

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/cluster/inprocess"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
)

const ours = "dovetail-scheduler"

// patience bounds every wait. Waits usually end much sooner, unless another flag asks for larger tests.
var patience = flag.Duration("patience", 5*time.Minute, "longest wait for anything")

// env is a cluster with a simulated AWS account and a running scheduler.
type env struct {
	*testing.T
	ctx     context.Context
	c       *cluster.Cluster
	api     client.WithWatch
	sim     *ec2.Sim
	sched   *cluster.SchedulerProcess
	options cluster.SchedulerOptions
}

// setting holds the configuration of an env, for a test to change.
type setting struct {
	sim    ec2.Config
	boots  kubelet.Config // how kubelets boot; their connection to the API server and the speed are set already
	config func(cluster.Config)
	race   bool
	mortal bool          // the test kills the scheduler, and another one takes over its lease
	idle   bool          // don't start the scheduler yet
	lives  time.Duration // how long the test may take
}

func start(t *testing.T, set func(*setting)) *env {
	t.Helper()
	s := setting{sim: ec2.Config{Seed: 1, Speed: 20, Cluster: "dovetail"}, config: func(cluster.Config) {}, lives: 15 * time.Minute}
	if set != nil {
		set(&s)
	}
	ctx, cancel := context.WithTimeout(t.Context(), s.lives)
	t.Cleanup(cancel)
	e := &env{T: t, ctx: ctx, c: inprocess.Start(t)}
	e.api = e.c.Client()
	controllers(t, e.c.AdminConfig())
	s.boots.Kube, s.boots.Speed, s.boots.Seed = e.c.NodesConfig(), s.sim.Speed, s.sim.Seed
	boots, err := kubelet.New(s.boots)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(boots.Close)
	s.sim.Machines = boots
	if e.sim, err = ec2.New(s.sim); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.sim.Close() })
	cfg, err := e.c.ShippedConfig()
	if err != nil {
		t.Fatal(err)
	}
	if s.mortal {
		// Short, because tests wait for the lease of a killed scheduler, but long enough for a live one to renew it on a busy machine.
		cfg.Leases(10*time.Second, 8*time.Second, 500*time.Millisecond)
		cfg.SetProvisionArgs(map[string]any{"newImageNodes": 0}) // a test's instances are launched all at once
	} else {
		cfg.LongLeases()
	}
	cfg.SetProvisionArgs(map[string]any{"clusterName": "dovetail", "region": e.sim.Region(), "clusterEndpoint": "https://cluster.invalid"})
	s.config(cfg)
	e.options = cluster.SchedulerOptions{Config: cfg, AWSEnv: e.sim.Env(), Race: s.race, Verbosity: 4}
	t.Cleanup(func() {
		if t.Failed() && e.sched != nil {
			log, _ := e.sched.Log()
			lines := strings.Split(log, "\n")
			t.Logf("the scheduler's last words:\n%s", strings.Join(lines[max(0, len(lines)-80):], "\n"))
		}
	})
	if !s.idle {
		e.run()
	}
	return e
}

// run starts the scheduler.
func (e *env) run() {
	e.Helper()
	var err error
	if e.sched, err = e.c.StartScheduler(e.ctx, e.options); err != nil {
		e.Fatal(err)
	}
}

// wait returns a context for one wait.
func (e *env) wait() context.Context {
	ctx, cancel := context.WithTimeout(e.ctx, *patience)
	e.Cleanup(cancel)
	return ctx
}

func (e *env) create(objects ...client.Object) {
	e.Helper()
	if err := e.c.Create(e.ctx, objects...); err != nil {
		e.Fatal(err)
	}
}

// nodeClass and nodePool are manifests as a user would write them.
const nodeClass = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  instanceProfile: DovetailNode
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: dovetail}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: dovetail}}]
`

const nodePool = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: kubernetes.io/arch, operator: In, values: [amd64]}
        - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never}
`

func (e *env) apply(manifests ...string) {
	e.Helper()
	for _, m := range manifests {
		if err := e.c.Apply(e.ctx, []byte(m)); err != nil {
			e.Fatal(err)
		}
	}
}

// patch changes an object as kubectl patch --type merge would.
func (e *env) patch(o client.Object, name, patch string) {
	e.Helper()
	o.SetName(name)
	if err := e.api.Patch(e.ctx, o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		e.Fatal(err)
	}
}

// podOpt changes a pod before it is created.
type podOpt func(*corev1.Pod)

var owned = true

// pods creates n pods of an application. They have a controller as owner, so they may be bound before their node has registered.
func (e *env) pods(app string, n int, cpu, memory string, opts ...podOpt) {
	e.Helper()
	objects := make([]client.Object, 0, n)
	for i := range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprintf("%s-%d", app, i), Labels: map[string]string{"app": app},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: types.UID("rs-" + app), Controller: &owned}},
			},
			Spec: corev1.PodSpec{
				SchedulerName: ours,
				Containers: []corev1.Container{{Name: "app", Image: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}}},
			},
		}
		for _, o := range opts {
			o(pod)
		}
		objects = append(objects, pod)
	}
	e.create(objects...)
}

func spread(key string) podOpt {
	return func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.Labels["app"]}},
		})
	}
}

func scheduler(name string) podOpt { return func(p *corev1.Pod) { p.Spec.SchedulerName = name } }

// bound waits until all n pods of the application are bound and returns them.
func (e *env) bound(app string, n int) []*corev1.Pod {
	e.Helper()
	pods, err := cluster.UntilPods(e.wait(), e.api, n, cluster.Bound, client.MatchingLabels{"app": app})
	if err != nil {
		e.Fatal(err)
	}
	return pods
}

// running waits until all n pods of the application run.
func (e *env) running(app string, n int) []*corev1.Pod {
	e.Helper()
	pods, err := cluster.UntilPods(e.wait(), e.api, n, cluster.Running, client.MatchingLabels{"app": app})
	if err != nil {
		e.Fatal(err)
	}
	return pods
}

func (e *env) claims() []*karpv1.NodeClaim {
	e.Helper()
	var list karpv1.NodeClaimList
	if err := e.api.List(e.ctx, &list); err != nil {
		e.Fatal(err)
	}
	out := make([]*karpv1.NodeClaim, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

func (e *env) nodes() map[string]*corev1.Node {
	e.Helper()
	var list corev1.NodeList
	if err := e.api.List(e.ctx, &list); err != nil {
		e.Fatal(err)
	}
	out := map[string]*corev1.Node{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out
}

// settled waits until exactly n instances are live, each with one NodeClaim and one Node.
func (e *env) settled(n int) {
	e.Helper()
	_, err := cluster.Until(e.wait(), e.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		live := e.sim.Live()
		ids := map[string]bool{}
		for _, in := range live {
			ids["aws:///"+in.Zone+"/"+in.ID] = true
		}
		for _, c := range claims {
			if !ids[c.Status.ProviderID] {
				return false, fmt.Sprintf("claim %s to have a live instance (has %q)", c.Name, c.Status.ProviderID), nil
			}
		}
		return len(claims) == n && len(live) == n, fmt.Sprintf("%d nodes (%d claims, %d instances)", n, len(claims), len(live)), nil
	})
	if err != nil {
		e.Fatal(err)
	}
	e.noDoubles()
}

// noDoubles fails if a NodeClaim has more than one instance.
func (e *env) noDoubles() {
	e.Helper()
	if d := e.sim.Doubles("karpenter.sh/nodeclaim"); len(d) > 0 {
		e.Errorf("claims with more than one instance: %v", d)
	}
}

// launches returns the number of instances ever launched.
func (e *env) launches() int { return len(e.sim.Instances()) }

// onPlan checks that every planned pod is on a slot that was planned for its class: none was placed elsewhere, the NodeClaims record
// as many slots, and each node has at least as many pods of a class as slots for it. Pods without a plan must have found a node in
// their first scheduling cycle.
func (e *env) onPlan(pods []*corev1.Pod) {
	e.Helper()
	app := map[types.UID]string{}
	on := map[string]map[string]int{}
	for _, p := range pods {
		app[p.UID] = p.Labels["app"]
		if on[p.Spec.NodeName] == nil {
			on[p.Spec.NodeName] = map[string]int{}
		}
		on[p.Spec.NodeName][p.Labels["app"]]++
	}
	var said string
	// Slots promised on a node that already existed are recorded afterwards, and bindings are counted then.
	if err := wait.PollUntilContextCancel(e.wait(), 100*time.Millisecond, true, func(context.Context) (ok bool, _ error) {
		ok, said = e.planKept(app, on)
		return ok, nil
	}); err != nil {
		e.Errorf("not every planned pod is on a slot of its class: %s", said)
	}
}

// planKept compares the NodeClaims' records and the scheduler's counts with where pods are: app by pod, count by app and node.
func (e *env) planKept(app map[types.UID]string, on map[string]map[string]int) (bool, string) {
	e.Helper()
	claims := e.claims()
	classes := map[capacity.ClassKey]string{}
	for _, nc := range claims {
		for _, s := range karpenter.ClaimOf(nc, nodeclass.Kind.GroupKind()).Slots {
			if a, ok := app[s.Pod.UID]; ok {
				classes[s.Class] = a
			}
		}
	}
	slots, problem := 0, ""
	for _, nc := range claims {
		want := map[string]int{}
		for _, s := range karpenter.ClaimOf(nc, nodeclass.Kind.GroupKind()).Slots {
			if a, ok := classes[s.Class]; ok {
				want[a]++
				slots++
			}
		}
		for a, n := range want {
			if got := on[nc.Status.NodeName]; got[a] < n {
				problem = fmt.Sprintf("; node %s (claim %s) was planned for %v and has %v", nc.Status.NodeName, nc.Name, want, got)
			}
		}
	}
	kept := int(e.metric("dovetail_pods_bound_total", `room="planned"`))
	found := int(e.metric("dovetail_pods_bound_total", `room="found"`))
	elsewhere := int(e.metric("dovetail_pods_bound_total", `room="other"`))
	fitted := int(e.metric("scheduler_pod_scheduling_attempts_bucket", `le="1"`))
	return slots == kept && kept+found == len(app) && elsewhere == 0 && found <= fitted && problem == "",
		fmt.Sprintf("%d pods, %d on planned room, %d found room (%d at the first try), %d went elsewhere, %d slots recorded%s",
			len(app), kept, found, fitted, elsewhere, slots, problem)
}

// metric returns the sum of a metric's samples whose labels contain all of the given texts.
func (e *env) metric(name string, labels ...string) float64 {
	e.Helper()
	text, err := e.sched.Get(e.ctx, "/metrics")
	if err != nil {
		e.Fatal(err)
	}
	sum := 0.0
	for line := range strings.SplitSeq(string(text), "\n") {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(line, l) }) {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v); err != nil {
			e.Fatalf("metric line %q: %v", line, err)
		}
		sum += v
	}
	return sum
}

// oneCycleAfterGate checks that none of n pods needed more than two scheduling cycles: the one that found no node and the one that
// bound it.
func (e *env) oneCycleAfterGate(n int) {
	e.Helper()
	all := 0
	// The metric counts a pod after its binding is complete, while watchers see the binding before that.
	if err := wait.PollUntilContextCancel(e.wait(), 100*time.Millisecond, true, func(context.Context) (bool, error) {
		all = int(e.metric("scheduler_pod_scheduling_attempts_count"))
		return all >= n, nil
	}); err != nil || all != n {
		e.Errorf("%d pods were scheduled, want %d", all, n)
	}
	if atMostTwo := int(e.metric("scheduler_pod_scheduling_attempts_bucket", `le="2"`)); atMostTwo != n {
		e.Errorf("%d of %d pods were scheduled in at most two cycles", atMostTwo, n)
	}
}

// eventOf waits for an event with that reason about a pod and returns its note.
func (e *env) eventOf(pod, reason string) string {
	e.Helper()
	note := ""
	_, err := cluster.Until(e.wait(), e.api, &corev1.EventList{}, func(events []*corev1.Event) (bool, string, error) {
		for _, ev := range events {
			if ev.InvolvedObject.Name == pod && ev.Reason == reason {
				note = ev.Message
				return true, "", nil
			}
		}
		return false, fmt.Sprintf("event %s of %s", reason, pod), nil
	}, client.InNamespace("default"))
	if err != nil {
		e.Fatal(err)
	}
	return note
}

// labelled selects the pods of an application.
type labelled struct{ app string }

// ApplyToList implements client.ListOption.
func (l labelled) ApplyToList(o *client.ListOptions) {
	client.MatchingLabels{"app": l.app}.ApplyToList(o)
}

func (e *env) podsOf(app string) []corev1.Pod {
	e.Helper()
	var list corev1.PodList
	if err := e.api.List(e.ctx, &list, labelled{app}); err != nil {
		e.Fatal(err)
	}
	return list.Items
}

// awaitClaims waits until NodeClaims exist and every one has its instance.
func (e *env) awaitClaims() []*karpv1.NodeClaim {
	e.Helper()
	claims, err := cluster.Until(e.wait(), e.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		for _, c := range claims {
			if c.Status.ProviderID == "" {
				return false, "claim " + c.Name + " to be launched", nil
			}
		}
		return len(claims) > 0, "claims", nil
	})
	if err != nil {
		e.Fatal(err)
	}
	return claims
}

// onPlanOf is onPlan for the pods of one application, which may share nodes with other pods.
func (e *env) onPlanOf(app string) {
	e.Helper()
	on := map[string]int{}
	uids := map[types.UID]bool{}
	for _, p := range e.podsOf(app) {
		on[p.Spec.NodeName]++
		uids[p.UID] = true
	}
	for _, nc := range e.claims() {
		want := 0
		for _, s := range karpenter.ClaimOf(nc, nodeclass.Kind.GroupKind()).Slots {
			if uids[s.Pod.UID] {
				want++
			}
		}
		if got := on[nc.Status.NodeName]; got != want {
			e.Errorf("node %s (claim %s) was planned for %d pods of %s and has %d", nc.Status.NodeName, nc.Name, want, app, got)
		}
	}
}

func (e *env) podsIn(namespace string) []corev1.Pod {
	e.Helper()
	var list corev1.PodList
	if err := e.api.List(e.ctx, &list, client.InNamespace(namespace)); err != nil {
		e.Fatal(err)
	}
	return list.Items
}
