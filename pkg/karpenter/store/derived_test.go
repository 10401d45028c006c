package store

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// noTypes is a cloud without instance types and without a problem.
func noTypes(string) ([]*capacity.InstanceType, error) { return nil, nil }

func (w *world) pool(name string) *capacity.Pool {
	for _, p := range w.Pools(noTypes) {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// update is edit for a change of the spec.
func (w *world) update(o client.Object, change func()) {
	w.t.Helper()
	w.edit(o, func() {
		o.SetGeneration(o.GetGeneration() + 1) // the fake client doesn't
		change()
	})
}

// edit changes an object as a user would: again, if it was written to meanwhile.
func (w *world) edit(o client.Object, change func()) {
	w.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := w.api.Get(w.ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change()
		return w.api.Update(w.ctx, o)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// resolveAll sets the status that a cloud would resolve for a class.
func (w *world) resolveAll(name string) {
	w.t.Helper()
	st := ec2nc.EC2NodeClassStatus{
		Subnets: []ec2nc.Subnet{{ID: "subnet-1", Zone: "us-west-2a", ZoneID: "usw2-az1"}}, SecurityGroups: []ec2nc.SecurityGroup{{ID: "sg-1", Name: "nodes"}},
		AMIs: []ec2nc.AMI{{ID: "ami-1", Name: "al2023"}}, InstanceProfile: "p",
	}
	for _, kind := range []string{"SubnetsReady", "SecurityGroupsReady", "AMIsReady", "InstanceProfileReady", "ValidationSucceeded"} {
		st.Conditions = append(st.Conditions, status.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind})
	}
	nc := &ec2nc.EC2NodeClass{}
	w.eventually("class "+name+" is there", func() bool { return w.Client().Get(w.ctx, client.ObjectKey{Name: name}, nc) == nil })
	if err := w.SetNodeClassStatus(w.ctx, nodeclass.Resolved(name, nc.Generation, st)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) getProvisioner(name string) *legacy.Provisioner {
	w.t.Helper()
	p := &legacy.Provisioner{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Name: name}, p); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// messagesOf returns the conditions of an object as text, without those that are True.
func messagesOf(o status.Object) map[string]string {
	out := map[string]string{}
	for _, c := range o.GetConditions() {
		if !c.IsTrue() {
			out[c.Type] = strings.TrimSuffix(fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), ": ")
		}
	}
	return out
}

func TestProvisionerIsAPool(t *testing.T) {
	w := newWorld(t, newFakeAPI(provisioner(t, byRef+`, limits: {resources: {cpu: 1000}}, weight: 3, ttlSecondsAfterEmpty: 30}`), nodeTemplate(t, settled+`}`),
		testPool("default"), testClass("default")))
	var mu sync.Mutex
	told := []string{}
	w.OnNodeClass(func(nc status.Object, gone bool) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprintf("%s %d %v", nc.GetName(), nc.GetGeneration(), gone))
	})
	w.leading()

	p := w.pool("provisioner_old")
	if p == nil || p.Unready != "" || p.Weight != 3 || p.NodeClass != "provisioner_old" || p.Limits["cpu"] != 1000_000 {
		t.Fatalf("pool %+v", p)
	}
	// Pool and class are listed among the others.
	var pools karpv1.NodePoolList
	var classes ec2nc.EC2NodeClassList
	for _, list := range []client.ObjectList{&pools, &classes} {
		if err := w.Client().List(w.ctx, list); err != nil {
			t.Fatal(err)
		}
	}
	if len(pools.Items) != 2 || len(classes.Items) != 2 {
		t.Fatalf("%d pools and %d classes, want two of each", len(pools.Items), len(classes.Items))
	}
	np := &karpv1.NodePool{}
	if err := w.Client().Get(w.ctx, client.ObjectKey{Name: "provisioner_old"}, np); err != nil {
		t.Fatal(err)
	}
	if after := np.Spec.Disruption.ConsolidateAfter.Duration; after == nil || after.String() != "30s" || np.Spec.Disruption.ConsolidationPolicy != "WhenEmpty" {
		t.Errorf("disruption %+v", np.Spec.Disruption)
	}
	if err := w.Client().Get(w.ctx, client.ObjectKey{Name: "provisioner_other"}, np); !apierrors.IsNotFound(err) {
		t.Errorf("a pool that isn't there: %v", err)
	}

	// What the cloud finds is written to the objects that the user knows.
	w.resolveAll("provisioner_old")
	w.eventually("the Provisioner is ready", func() bool { return w.getProvisioner("old").StatusConditions().Root().IsTrue() })
	template := &legacy.AWSNodeTemplate{}
	w.eventually("the template is ready", func() bool {
		return w.api.Get(w.ctx, client.ObjectKey{Name: "t"}, template) == nil && template.StatusConditions().Root().IsTrue()
	})
	if diff := cmp.Diff([]legacy.Subnet{{ID: "subnet-1", Zone: "us-west-2a"}}, template.Status.Subnets); diff != "" {
		t.Errorf("subnets (-want +got):\n%s", diff)
	}
	if len(template.Status.SecurityGroups) != 1 || len(template.Status.AMIs) != 1 {
		t.Errorf("status of the template: %+v", template.Status)
	}

	// A claim counts for the Provisioner.
	c, err := w.Create(w.ctx, testClaim("provisioner-old-abc", func(c *capacity.Claim) { c.Pool, c.NodeClass, c.Labels = "provisioner_old", "provisioner_old", nil }))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.RecordLaunched(w.ctx, &capacity.Claim{Name: c.Name}, testInstance, nil, capacity.Resources{"cpu": 2000}, nil); err != nil {
		t.Fatal(err)
	}
	w.eventually("the Provisioner counts its node", func() bool {
		w.clock.Step(countDelay)
		st := w.getProvisioner("old").Status
		return ptr.Deref(st.Nodes, 0) == 1 && st.Resources.Cpu().Value() == 2
	})

	// A change of the template changes the class, and nothing else.
	w.update(template, func() { template.Spec.InstanceProfile = ptr.To("q") })
	w.eventually("the class is another", func() bool {
		return ptr.Deref(w.class("provisioner_old").(*ec2nc.EC2NodeClass).Spec.InstanceProfile, "") == "q"
	})
	old := w.getProvisioner("old")
	w.update(old, func() { old.Spec.Weight = ptr.To[int32](4) })
	w.eventually("the pool is another", func() bool { return w.pool("provisioner_old").Weight == 4 })

	if err := w.api.Delete(w.ctx, w.getProvisioner("old")); err != nil {
		t.Fatal(err)
	}
	w.eventually("the pool goes with the Provisioner", func() bool { return w.pool("provisioner_old") == nil && w.class("provisioner_old") == nil })
	mu.Lock()
	defer mu.Unlock()
	var own []string
	for _, s := range told {
		if strings.HasPrefix(s, "provisioner_old") {
			own = append(own, s)
		}
	}
	if diff := cmp.Diff([]string{"provisioner_old 1 false", "provisioner_old 2 false", "provisioner_old 2 true"}, own); diff != "" {
		t.Errorf("told of the class (-want +got):\n%s", diff)
	}
}

func TestProvisionerThatIsWrong(t *testing.T) {
	w := newWorld(t, newFakeAPI(provisioner(t, byRef+`}`))).leading()
	p := w.pool("provisioner_old")
	want := `Provisioner old: spec.providerRef.name: Invalid value: "t": there is no such AWSNodeTemplate`
	if p == nil || p.Unready != want {
		t.Fatalf("pool %+v, want it unready: %s", p, want)
	}
	said := map[string]string{
		"ValidationSucceeded": `False ProvisionerValidationFailed: spec.providerRef.name: Invalid value: "t": there is no such AWSNodeTemplate`,
		"NodeClassReady":      "Unknown ProvisionerValidationFailed: the spec can't be read",
		"Ready":               "False UnhealthyDependents: ValidationSucceeded=False, NodeClassReady=Unknown",
	}
	w.eventually("what is wrong is said", func() bool { return cmp.Equal(said, messagesOf(w.getProvisioner("old"))) })
	if e := <-w.events.Events; e != `Warning ProvisionerValidationFailed spec.providerRef.name: Invalid value: "t": there is no such AWSNodeTemplate` {
		t.Errorf("event %q", e)
	}

	// The template is created, but is invalid; then it is fixed.
	template := nodeTemplate(t, settled+`, amiFamily: AL2}`)
	if err := w.api.Create(w.ctx, template); err != nil {
		t.Fatal(err)
	}
	got := &legacy.AWSNodeTemplate{}
	w.eventually("what is wrong is said on the template, too", func() bool {
		_ = w.api.Get(w.ctx, client.ObjectKey{Name: "t"}, got)
		return messagesOf(got)["ValidationSucceeded"] == `False AWSNodeTemplateValidationFailed: spec.amiFamily: Invalid value: "AL2": AL2 has no images for Kubernetes 1.33 and newer; use AL2023 or Bottlerocket`
	})
	w.eventually("and on the Provisioner", func() bool {
		return strings.Contains(messagesOf(w.getProvisioner("old"))["ValidationSucceeded"], "AWSNodeTemplate t: spec.amiFamily")
	})
	if w.class("provisioner_old") != nil {
		t.Error("there is a class of a template that is no good")
	}
	w.update(got, func() { got.Spec.AMIFamily = nil })
	w.eventually("the Provisioner can be used", func() bool { return w.pool("provisioner_old").Unready == "" })
	w.eventually("the class is there", func() bool { return w.class("provisioner_old") != nil })

	// It becomes invalid again: pool and class stay.
	w.update(got, func() { got.Spec.SecurityGroupSelector = map[string]string{"a": ""} })
	w.eventually("the pool can't be used", func() bool { return w.pool("provisioner_old").Unready != "" })
	if w.class("provisioner_old") == nil {
		t.Error("the class of nodes that may be there has gone")
	}
	var pools karpv1.NodePoolList
	if err := w.Client().List(w.ctx, &pools); err != nil || len(pools.Items) != 1 || pools.Items[0].Spec.Disruption.ConsolidateAfter.Duration != nil {
		t.Errorf("pools %v (%v), want one that ends nothing", pools.Items, err)
	}
}

func TestProvisionerWithASettingWithoutEffect(t *testing.T) {
	w := newWorld(t, newFakeAPI(provisioner(t, `{provider: `+settled+`, blockDeviceMappings: [{deviceName: /dev/sdb, virtualName: ephemeral0}]}}`))).leading()
	const want = "without effect, which is harmless: spec.provider.blockDeviceMappings[0].virtualName (EC2 maps instance store volumes by itself)"
	w.eventually("it is said, and is no loss", func() bool {
		for _, c := range w.getProvisioner("old").Status.Conditions {
			if string(c.Type) == objects.ConditionFieldsHonored {
				return string(c.Status) == "True" && c.Message == want
			}
		}
		return false
	})
}

// Events about the pool are recorded on the Provisioner; there is no NodePool object.
func TestEventsOfAProvisionersPool(t *testing.T) {
	w := newWorld(t, newFakeAPI(provisioner(t, inline+`}`))).ready()
	about, ok := w.origin(w.poolObject("provisioner_old"))
	if p, is := about.(*legacy.Provisioner); !ok || !is || p.Name != "old" || p.Kind != "Provisioner" {
		t.Errorf("events are about %v", about)
	}
	np := testPool("default")
	if about, ok := w.origin(np); !ok || about != np {
		t.Errorf("events about a NodePool are about %v", about)
	}
	if _, ok := w.origin(&karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: karpenter.PoolOfArgs("x")}}); ok {
		t.Error("there is an object for a pool of arguments")
	}
	if _, ok := w.origin(nil); ok {
		t.Error("nothing has an origin")
	}
}

// The status of a derived class is written by who resolves it and by who judges it; neither must undo what the other has written.
func TestAStatusIsNotUndone(t *testing.T) {
	w := newWorld(t, newFakeAPI(provisioner(t, inline+`}`))).ready()
	old := w.derived.Class("provisioner_old")
	judged := copyOf(old)
	judged.StatusConditions().SetFalse("SubnetsReady", "Test", "computed from the class as it was")
	w.resolveAll("provisioner_old")
	if err := w.derived.PutStatus(old, judged); !apierrors.IsConflict(err) {
		t.Errorf("the resolved status was undone: %v", err)
	}
	if subnets := w.derived.Class("provisioner_old").(*ec2nc.EC2NodeClass).Status.Subnets; len(subnets) != 1 {
		t.Errorf("subnets %v", subnets)
	}
}

// The stamp of a derived pool is written with the object from which its status was computed; that object's own status is out of date
// by then.
func TestAStampLeavesTheStatusAlone(t *testing.T) {
	w := newWorld(t, newFakeAPI(provisioner(t, inline+`}`))).ready()
	old := w.poolObject("provisioner_old").DeepCopy()
	newer := old.DeepCopy()
	newer.Status.Resources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
	if err := w.derived.PutStatus(old, newer); err != nil {
		t.Fatal(err)
	}
	if err := w.derived.PutStatus(old, old); !apierrors.IsConflict(err) {
		t.Errorf("a status that was computed from an older one: %v", err)
	}
	st := karpenter.PoolStamp(old)
	st.Hash = "another"
	if err := w.status.annotate(w.ctx, "NodePool", old, st); err != nil {
		t.Fatal(err)
	}
	got := w.poolObject("provisioner_old")
	if cpu := got.Status.Resources[corev1.ResourceCPU]; cpu.Value() != 3 || got.Annotations[karpv1.NodePoolHashAnnotationKey] != "another" {
		t.Errorf("status %v, annotations %v", got.Status, got.Annotations)
	}
}
