package integration

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/manifests"
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
	if err := e.api.Get(ctx, client.ObjectKey{Name: "dovetail-nodes"}, &admissionregistrationv1.ValidatingAdmissionPolicy{}); err != nil {
		t.Fatal(err)
	}
	controllers(t, e.c.AdminConfig())
	s.boots.Kube, s.boots.Speed, s.boots.Seed = e.c.NodesConfig(), s.sim.Speed, s.sim.Seed
	boots, err := kubelet.New(s.boots)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(boots.Close)
	s.sim.Machines, s.sim.Policy = boots, manifests.IAMPolicy()
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
	// Without the CIDR EKS is asked, as on most clusters.
	cfg.SetProvisionArgs(map[string]any{"clusterName": "dovetail", "region": e.sim.Region(), "clusterEndpoint": "https://cluster.invalid", "clusterCIDR": nil})
	s.config(cfg)
	e.options = cluster.SchedulerOptions{Config: cfg, AWSEnv: e.sim.Env(), Race: s.race, Verbosity: 4}
	t.Cleanup(func() {
		// Tests install no policy of their own for EC2, so whatever is refused is missing in the one that is shipped.
		if denied := e.sim.PolicyDenied(); len(denied) > 0 {
			t.Errorf("manifests/iam/policy.json allows none of: %s", strings.Join(denied, "; "))
		}
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
		pod := podsAs(app, cpu, memory)
		pod.Name = fmt.Sprintf("%s-%d", app, i)
		for _, o := range opts {
			o(pod)
		}
		objects = append(objects, pod)
	}
	e.create(objects...)
}

// podsAs returns a pod of an application.
func podsAs(app, cpu, memory string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Labels: map[string]string{"app": app},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app, UID: types.UID("rs-" + app), Controller: &owned}},
		},
		Spec: corev1.PodSpec{
			SchedulerName: ours,
			Containers: []corev1.Container{{Name: "app", Image: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}}},
		},
	}
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
