package store

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// leading also runs what only the leader runs.
func (w *world) leading() *world {
	w.ready()
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(w.ctx)
	go func() {
		defer close(done)
		_ = w.RunStatus(ctx)
	}()
	w.t.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *world) getPool(name string) *karpv1.NodePool {
	np := &karpv1.NodePool{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Name: name}, np); err != nil {
		w.t.Fatal(err)
	}
	return np
}

func readyClass(name string) *ec2nc.EC2NodeClass {
	return testClass(name, resolvedInto)
}

func resolvedInto(nc *ec2nc.EC2NodeClass) {
	set := nc.StatusConditions() // adds the conditions that must exist
	for _, c := range nc.Status.Conditions {
		if c.Type != "Ready" {
			set.SetTrue(c.Type)
		}
	}
}

func TestPoolConditions(t *testing.T) {
	for name, tc := range map[string]struct {
		pool  func(*karpv1.NodePool)
		class *ec2nc.EC2NodeClass
		want  map[string]string
	}{
		"all is well": {
			class: readyClass("default"),
			want:  map[string]string{"ValidationSucceeded": "True", "NodeClassReady": "True", "Ready": "True", objects.ConditionFieldsHonored: "True"},
		},
		"an invalid field is named": {
			pool: func(np *karpv1.NodePool) { np.Spec.Limits["cpu"] = resource.MustParse("-1") }, class: readyClass("default"),
			want: map[string]string{
				"ValidationSucceeded": `False NodePoolValidationFailed: spec.limits[cpu]: Invalid value: "-1": must not be negative`,
				"NodeClassReady":      "True", "Ready": "False UnhealthyDependents: ValidationSucceeded=False", objects.ConditionFieldsHonored: "True",
			},
		},
		"a canary has failed": {
			pool: func(np *karpv1.NodePool) {
				np.Annotations = map[string]string{objects.AnnotationRollOut: `{"template":"t","failed":1,"until":"2026-11-25T10:00:00Z","why":"it ended"}`}
			}, class: readyClass("default"),
			want: map[string]string{"ValidationSucceeded": "True", "NodeClassReady": "True", "Ready": "True", objects.ConditionFieldsHonored: "True",
				objects.ConditionRollOutPaused: "True"},
		},
		"no class of that name": {
			want: map[string]string{
				"ValidationSucceeded": "True", "Ready": "False UnhealthyDependents: NodeClassReady=False", objects.ConditionFieldsHonored: "True",
				"NodeClassReady": "False NodeClassNotFound: NodePool p: spec.template.spec.nodeClassRef.name: there is no EC2NodeClass default",
			},
		},
		"a class that nobody has looked at": {
			class: testClass("default"),
			want: map[string]string{
				"ValidationSucceeded": "True", "Ready": "False UnhealthyDependents: NodeClassReady=False", objects.ConditionFieldsHonored: "True",
				"NodeClassReady": "False NodeClassReadinessUnknown: EC2NodeClass default has not been resolved yet",
			},
		},
		"a class that is not ready, with its reason": {
			class: testClass("default", func(nc *ec2nc.EC2NodeClass) {
				resolvedInto(nc)
				nc.StatusConditions().SetFalse(ec2nc.ConditionTypeSubnetsReady, "SubnetsNotFound", "spec.subnetSelectorTerms matches nothing")
			}),
			want: map[string]string{
				"ValidationSucceeded": "True", "Ready": "False UnhealthyDependents: NodeClassReady=False", objects.ConditionFieldsHonored: "True",
				"NodeClassReady": "False UnhealthyDependents: EC2NodeClass default: SubnetsReady is False (SubnetsNotFound): spec.subnetSelectorTerms matches nothing",
			},
		},
		"a class of which another controller reports that it is not ready": {
			class: testClass("default", resolvedInto, saidNotReady),
			want: map[string]string{
				"ValidationSucceeded": "True", "Ready": "False UnhealthyDependents: NodeClassReady=False", objects.ConditionFieldsHonored: "True",
				"NodeClassReady": "False Quarantined: EC2NodeClass default: another controller reports that it is not ready (Quarantined): by order of security",
			},
		},
		"a class that is going": {
			class: testClass("default", func(nc *ec2nc.EC2NodeClass) {
				nc.DeletionTimestamp, nc.Finalizers = &metav1.Time{Time: start}, []string{"karpenter.k8s.aws/termination"}
			}),
			want: map[string]string{
				"ValidationSucceeded": "True", "Ready": "False UnhealthyDependents: NodeClassReady=False", objects.ConditionFieldsHonored: "True",
				"NodeClassReady": "False NodeClassTerminating: EC2NodeClass default is being deleted",
			},
		},
		"a class of another cloud": {
			pool: func(np *karpv1.NodePool) { np.Spec.Template.Spec.NodeClassRef.Kind = "AKSNodeClass" }, class: readyClass("default"),
			want: map[string]string{
				"ValidationSucceeded": `False NodePoolValidationFailed: spec.template.spec.nodeClassRef.kind: Unsupported value: "AKSNodeClass": supported values: "EC2NodeClass"`,
				"NodeClassReady":      "False NodeClassNotSupported: spec.template.spec.nodeClassRef names no EC2NodeClass of karpenter.k8s.aws",
				"Ready":               "False UnhealthyDependents: ValidationSucceeded=False, NodeClassReady=False", objects.ConditionFieldsHonored: "True",
			},
		},
		"a field without effect is said, and the pool is used": {
			pool:  func(np *karpv1.NodePool) { np.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration("0s") },
			class: readyClass("default"),
			want: map[string]string{
				"ValidationSucceeded": "True", "NodeClassReady": "True", "Ready": "True",
				objects.ConditionFieldsHonored: "False FieldsNotHonored: no effect: spec.template.spec.expireAfter (zero would terminate nodes as soon as they exist: they do not expire)",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := testPool("p", plain)
			if tc.pool != nil {
				tc.pool(pool)
			}
			objects := []client.Object{pool}
			if tc.class != nil {
				objects = append(objects, tc.class)
				tc.want["NodeRegistrationHealthy"] = "Unknown AwaitingReconciliation: object is awaiting reconciliation"
			}
			w := newWorld(t, newFakeAPI(objects...)).leading()
			var got map[string]string
			w.eventually("the pool has a status", func() bool { got = conditions(w.getPool("p")); return len(got) == len(tc.want) })
			// Which of the two is named first depends on when each was set.
			if r := got["Ready"]; strings.Contains(r, "NodeClassReady=False, ValidationSucceeded=False") {
				got["Ready"] = "False UnhealthyDependents: ValidationSucceeded=False, NodeClassReady=False"
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			w.reportedAll(tc.want)
		})
	}
}

// reportedAll checks that there was one event for every condition that is False, except Ready and those of a class that is being resolved.
func (w *world) reportedAll(conditions map[string]string) {
	w.t.Helper()
	want := map[string]bool{}
	for kind, c := range conditions {
		if rest, ok := strings.CutPrefix(c, "False "); ok && kind != "Ready" {
			reason, message, _ := strings.Cut(rest, ": ")
			if reason == reasonClassUnknown {
				continue
			}
			want["Warning "+reason+" "+message] = true
		}
	}
	got := map[string]bool{}
	for len(got) < len(want) {
		select {
		case e := <-w.events.Events:
			got[e] = true
		case <-time.After(10 * time.Second):
			w.t.Fatalf("events %v, want %v", got, want)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("events (-want +got):\n%s", diff)
	}
}

// hears waits for one event among others.
func (w *world) hears(want string) {
	w.t.Helper()
	var others []string
	for {
		select {
		case e := <-w.events.Events:
			if e == want {
				return
			}
			others = append(others, e)
		case <-time.After(20 * time.Second):
			w.t.Fatalf("no event %q, but %q", want, others)
		}
	}
}

// Of all that a NodePool can say only one thing has no effect.
func TestFieldsWithoutEffect(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*karpv1.NodePool)
		lost   bool
	}{
		"nothing":       {func(*karpv1.NodePool) {}, false},
		"consolidation": {func(np *karpv1.NodePool) { np.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyBalanced }, false},
		"a budget": {func(np *karpv1.NodePool) {
			np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonUnderutilized}}}
		}, false},
		"expiry at once": {func(np *karpv1.NodePool) { np.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration("0s") }, true},
	} {
		lost, idle := karpenter.UnhonoredBy(testPool("p", plain, tc.change))
		if (lost != "") != tc.lost || idle != "" {
			t.Errorf("%s: lost %q, idle %q", name, lost, idle)
		}
	}
}

func TestPoolStatusFollows(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default", plain), testPool("other", plain))).leading()
	ready := func(pool, want string) func() bool {
		return func() bool { return strings.HasPrefix(conditions(w.getPool(pool))["Ready"], want) }
	}
	w.eventually("no class: not ready", ready("default", "False"))

	if err := w.api.Create(w.ctx, readyClass("default")); err != nil {
		t.Fatal(err)
	}
	w.eventually("the class came: ready", ready("default", "True"))

	for _, c := range []struct{ name, pool string }{{"default-1", "default"}, {"default-2", "default"}, {"default-3", "default"}, {"other-1", "other"}} {
		if _, err := w.Create(w.ctx, testClaim(c.name, func(cl *capacity.Claim) { cl.Pool = c.pool })); err != nil {
			t.Fatal(err)
		}
		if c.name == "default-3" {
			continue // not launched: it has no capacity yet
		}
		if err := w.RecordLaunched(w.ctx, &capacity.Claim{Name: c.name}, testInstance, nil, capacity.Resources{corev1.ResourceCPU: 2000, corev1.ResourceMemory: 8 << 30, "nvidia.com/gpu": 1}, nil); err != nil {
			t.Fatal(err)
		}
	}
	want := corev1.ResourceList{
		"cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi"), "nvidia.com/gpu": resource.MustParse("2"), "nodes": resource.MustParse("2"),
		"pods": resource.MustParse("0"), "ephemeral-storage": resource.MustParse("0"),
	}
	w.eventually("counts", func() bool {
		w.clock.Step(countDelay)
		np := w.getPool("default")
		return *np.Status.Nodes == 2 && cmp.Equal(want, np.Status.Resources)
	})

	nc := readyClass("default")
	if err := w.api.Delete(w.ctx, nc); err != nil {
		t.Fatal(err)
	}
	w.eventually("the class went: not ready", ready("default", "False"))
}

func TestMalformedObjectsAreReportedAndTheOthersWork(t *testing.T) {
	api := newFakeAPI(testPool("good", plain), readyClass("default"))
	api.broken(karpenter.NodePools, fromYAML(t, `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: bad, uid: u1, generation: 1, resourceVersion: "7"}
spec: {disruption: {consolidateAfter: 9999999h}, template: {spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}
`))
	api.broken(karpenter.NodeClasses(nodeclass.Kind), fromYAML(t, `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: bad, uid: u2, generation: 1, resourceVersion: "8"}
spec: {kubelet: {maxPods: many}}
`))
	w := newWorld(t, api)
	classes := map[string]bool{}
	w.OnNodeClass(func(nc status.Object, _ bool) { classes[nc.GetName()] = true })
	w.leading()

	unready := map[string]string{}
	for _, p := range w.Pools(func(string) ([]*capacity.InstanceType, error) { return nil, nil }) {
		unready[p.Name] = p.Unready
	}
	const reason = `spec.disruption.consolidateAfter: time: invalid duration "9999999h"`
	if diff := cmp.Diff(map[string]string{"good": "", "bad": "NodePool bad: " + reason}, unready); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"default": true}, classes); diff != "" {
		t.Errorf("classes passed on (-want +got):\n%s", diff)
	}
	if _, err := w.Create(w.ctx, testClaim("bad-1", func(c *capacity.Claim) { c.Pool = "bad" })); !errors.Is(err, ErrPoolUnusable) {
		t.Errorf("creating a claim for the malformed pool: %v", err)
	}

	w.eventually("both have been told", func() bool { return api.body("NodePool bad") != nil && api.body("EC2NodeClass bad") != nil })
	pool, class := &karpv1.NodePool{}, &ec2nc.EC2NodeClass{}
	for object, into := range map[string]any{"NodePool bad": pool, "EC2NodeClass bad": class} {
		if err := json.Unmarshal(api.body(object), into); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := conditions(pool)["ValidationSucceeded"], "False Malformed: "+reason; got != want {
		t.Errorf("pool: %q, want %q", got, want)
	}
	if got, want := conditions(class)["ValidationSucceeded"], "False Malformed: spec.kubelet.maxPods: "; !strings.HasPrefix(got, want) {
		t.Errorf("class: %q, want %q", got, want)
	}
}
