package drift

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

var start = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// world is a pool and a class, both called default, and a claim that was launched for them half an hour ago.
type world struct {
	*Conditions
	t       *testing.T
	ctx     context.Context
	objects client.Client
	clock   *testingclock.FakeClock
	claim   *karpv1.NodeClaim
	// What the cloud answers, what it was last asked, and how often.
	answer cloudprovider.DriftReason
	err    error
	noCA   bool // the cluster's CA isn't known yet
	asked  cloudprovider.LaunchedNode
	times  int
}

func (w *world) Drifted(_ context.Context, n cloudprovider.LaunchedNode) (cloudprovider.DriftReason, error) {
	w.asked = n
	w.times++
	return w.answer, w.err
}

func newWorld(t *testing.T) *world {
	t.Helper()
	np := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "pool", Generation: 1, Annotations: map[string]string{}}}
	np.Spec.Template.Labels = map[string]string{"team": "a"}
	np.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	karpenter.PoolStamp(np).Put(np.Annotations)
	class := &ec2nc.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "class", Generation: 1, Annotations: map[string]string{}}}
	stampOf(class).Put(class.Annotations)
	w := &world{t: t, ctx: t.Context(), clock: testingclock.NewFakeClock(start)}
	w.claim = &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", CreationTimestamp: metav1.NewTime(start.Add(-30 * time.Minute)),
			Labels:      map[string]string{karpv1.NodePoolLabelKey: "default", corev1.LabelTopologyZone: "z1"},
			Annotations: map[string]string{}},
		Status: karpv1.NodeClaimStatus{ProviderID: "aws:///z1/i-1", ImageID: "ami-1", Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("29")}},
	}
	karpenter.PoolStamp(np).Put(w.claim.Annotations)
	stampOf(class).Put(w.claim.Annotations)
	w.claim.StatusConditions().SetTrue(karpv1.ConditionTypeLaunched)
	w.objects = crfake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(np, class, w.claim.DeepCopy()).Build()
	w.Conditions = New(w.objects, &nodeclass.Kind, w, w.clock)
	return w
}

const clusterCA = "Q0E="

func (w *world) ClusterCA() (string, bool) { return clusterCA, !w.noCA }

func stampOf(nc *ec2nc.EC2NodeClass) karpenter.Stamp {
	return karpenter.ClassStamp(&nodeclass.Kind, nc, clusterCA)
}

// pool and class change the objects, and stamp them as the store does.
func (w *world) pool(change func(*karpv1.NodePool)) {
	w.t.Helper()
	np := &karpv1.NodePool{}
	w.change(np, func() {
		change(np)
		karpenter.PoolStamp(np).Put(np.Annotations)
	})
}

func (w *world) class(change func(*ec2nc.EC2NodeClass)) {
	w.t.Helper()
	class := &ec2nc.EC2NodeClass{}
	w.change(class, func() {
		change(class)
		stampOf(class).Put(class.Annotations)
	})
}

func (w *world) change(o client.Object, change func()) {
	w.t.Helper()
	if err := w.objects.Get(w.ctx, client.ObjectKey{Name: "default"}, o); err != nil {
		w.t.Fatal(err)
	}
	change()
	o.SetGeneration(o.GetGeneration() + 1)
	if err := w.objects.Update(w.ctx, o); err != nil {
		w.t.Fatal(err)
	}
}

// look handles the claim and returns the reason of its condition, and when it is to be handled again. Before that, a round is made.
func (w *world) look() (string, time.Duration) {
	w.t.Helper()
	if _, err := w.Round(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	after, err := w.Reconcile(w.ctx, w.claim, w.claim.StatusConditions(status.WithClock(w.clock)))
	if err != nil {
		w.t.Fatal(err)
	}
	c := w.claim.StatusConditions(status.WithObservedOnly()).Get(karpv1.ConditionTypeDrifted)
	switch {
	case c == nil:
		return "", after
	case !c.IsTrue():
		return "a condition that isn't True", after
	}
	return c.Reason, after
}

func (w *world) want(reason cloudprovider.DriftReason) {
	w.t.Helper()
	w.clock.Step(pace)
	if got, _ := w.look(); got != string(reason) {
		w.t.Errorf("drifted because of %q, want %q", got, reason)
	}
}

func anotherLabel(np *karpv1.NodePool) { np.Spec.Template.Labels = map[string]string{"team": "b"} }

func anotherZone(np *karpv1.NodePool) {
	np.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelTopologyZone, Operator: "In", Values: []string{"z2"}}}
}

func anotherHash(nc *ec2nc.EC2NodeClass) { nc.Spec.UserData = new("#!/bin/sh") }

func firstHash(nc *ec2nc.EC2NodeClass) { nc.Spec.UserData = nil }

// The condition comes with each reason, and goes when the change is taken back.
func TestConditionComesAndGoes(t *testing.T) {
	w := newWorld(t)
	w.want("")
	w.pool(anotherLabel)
	w.want(cloudprovider.NodePoolDrifted)
	w.pool(func(np *karpv1.NodePool) { np.Spec.Template.Labels["team"] = "a"; anotherZone(np) })
	w.want(cloudprovider.RequirementsDrifted)
	w.pool(func(np *karpv1.NodePool) { np.Spec.Template.Spec.Requirements = nil })
	w.want("")
	w.class(anotherHash)
	w.want(cloudprovider.NodeClassDrift)
	w.class(firstHash)
	w.want("")
	w.answer = "AMIDrift"
	w.clock.Step(every)
	w.want("AMIDrift")
	w.answer = ""
	w.clock.Step(every)
	w.want("")
}

// Pool and class were edited while nobody led. The new leader creates a claim before it has written their new hashes: that claim has not
// drifted, and a node must not be replaced because of the order of two writes.
func TestClaimsOfAnEditThatIsNotStampedYet(t *testing.T) {
	w := newWorld(t)
	np, class := &karpv1.NodePool{}, &ec2nc.EC2NodeClass{}
	w.change(np, func() { anotherLabel(np) })
	w.change(class, func() { anotherHash(class) })
	karpenter.PoolStamp(np).Put(w.claim.Annotations)
	stampOf(class).Put(w.claim.Annotations)
	if got, after := w.look(); got != "" || after != retry {
		t.Errorf("drifted because of %q, again after %s", got, after)
	}
	w.pool(func(*karpv1.NodePool) {})
	w.want("")
	w.class(func(*ec2nc.EC2NodeClass) {})
	w.want("")
	// Without the cluster's CA a class's hash can't be told; then an edit counts as soon as it is known.
	w.class(firstHash)
	w.noCA = true
	w.want("")
	w.noCA = false
	w.want(cloudprovider.NodeClassDrift)
}

// The first of several reasons is Karpenter's.
func TestReasonsInOrder(t *testing.T) {
	w := newWorld(t)
	w.answer = cloudprovider.InstanceTypeNotFound
	w.pool(func(np *karpv1.NodePool) { anotherLabel(np); anotherZone(np) })
	w.class(anotherHash)
	w.want(cloudprovider.NodePoolDrifted)
	w.pool(func(np *karpv1.NodePool) { np.Spec.Template.Labels["team"] = "a" })
	w.want(cloudprovider.RequirementsDrifted)
	if w.times > 0 {
		t.Error("the cloud was asked although the pool alone decides")
	}
	w.pool(func(np *karpv1.NodePool) { np.Spec.Template.Spec.Requirements = nil })
	w.want(cloudprovider.InstanceTypeNotFound)
	w.answer = "AMIDrift"
	w.clock.Step(every)
	w.want(cloudprovider.NodeClassDrift)
	w.class(firstHash)
	w.want("AMIDrift")
	// The hash needs no answer of the cloud.
	w.err = errors.New("no answer")
	w.class(anotherHash)
	w.want(cloudprovider.NodeClassDrift)
}

// Edits that concern no running node.
func TestEditsThatDriftNothing(t *testing.T) {
	w := newWorld(t)
	w.want("")
	for i, change := range []func(*karpv1.NodePool){
		func(np *karpv1.NodePool) {
			np.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("1m")
		},
		func(np *karpv1.NodePool) { np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}} },
		func(np *karpv1.NodePool) { np.Spec.Weight = new(int32(5)) },
		func(np *karpv1.NodePool) { np.Spec.Limits = karpv1.Limits{} },
		func(np *karpv1.NodePool) { np.Spec.Replicas = new(int64(1)) },
		func(np *karpv1.NodePool) { np.Labels = map[string]string{"a": "b"} },
		func(np *karpv1.NodePool) { np.Annotations["a"] = "b" },
	} {
		w.pool(change)
		if got, _ := w.look(); got != "" {
			t.Errorf("edit %d: drifted because of %q", i, got)
		}
	}
}

// A static pool's nodes drift like all others.
func TestStaticPool(t *testing.T) {
	w := newWorld(t)
	w.pool(func(np *karpv1.NodePool) { np.Spec.Replicas = new(int64(1)) })
	w.want("")
	w.pool(anotherLabel)
	w.want(cloudprovider.NodePoolDrifted)
}

func TestClaimsThatCanNotDrift(t *testing.T) {
	drifted := func(w *world) {
		w.claim.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDrifted, "AMIDrift", "AMIDrift")
	}
	for name, tc := range map[string]struct {
		change func(w *world)
		want   string
	}{
		"not launched: it is cleared": {func(w *world) { w.claim.StatusConditions().SetUnknown(karpv1.ConditionTypeLaunched) }, ""},
		"standalone: it is left":      {func(w *world) { delete(w.claim.Labels, karpv1.NodePoolLabelKey) }, "AMIDrift"},
		"the pool is gone: it is left": {func(w *world) {
			if err := w.objects.Delete(w.ctx, &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}); err != nil {
				w.t.Fatal(err)
			}
		}, "AMIDrift"},
		"the class is gone: it is cleared": {func(w *world) {
			if err := w.objects.Delete(w.ctx, &ec2nc.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}); err != nil {
				w.t.Fatal(err)
			}
		}, ""},
		"the cloud doesn't answer: it is left": {func(w *world) { w.err = errors.New("no answer") }, "AMIDrift"},
		"the instance is gone: it is left":     {func(w *world) { w.err = fmt.Errorf("describing: %w", capacity.ErrInstanceNotFound) }, "AMIDrift"},
		"hashes of another version: they tell nothing": {func(w *world) {
			w.pool(anotherLabel)
			w.claim.Annotations[karpv1.NodePoolHashVersionAnnotationKey] = "v2"
		}, "another reason"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pool(anotherLabel)
			drifted(w)
			w.pool(func(np *karpv1.NodePool) { np.Spec.Template.Labels["team"] = "a" })
			tc.change(w)
			if tc.want == "another reason" {
				tc.want = ""
			}
			if got, _ := w.look(); got != tc.want {
				t.Errorf("drifted because of %q, want %q", got, tc.want)
			}
		})
	}
}

// Most calls of Reconcile are about something else, such as pods: they ask nobody, but write what was found before if a write was lost.
func TestComparedOnlyWhenDue(t *testing.T) {
	w := newWorld(t)
	w.answer = "AMIDrift"
	if got, after := w.look(); got != "AMIDrift" || after != every {
		t.Fatalf("drifted because of %q, again after %s", got, after)
	}
	w.clock.Step(time.Minute)
	if err := w.claim.StatusConditions().Clear(karpv1.ConditionTypeDrifted); err != nil {
		t.Fatal(err)
	}
	if got, after := w.look(); got != "AMIDrift" || after != every-time.Minute || w.times != 1 {
		t.Errorf("drifted because of %q, again after %s, asked %d times", got, after, w.times)
	}
	w.claim.Annotations[karpv1.NodePoolHashAnnotationKey] = "stamped anew"
	w.want(cloudprovider.NodePoolDrifted)
	karpenter.Stamp{HashKey: karpv1.NodePoolHashAnnotationKey, VersionKey: karpv1.NodePoolHashVersionAnnotationKey,
		Hash: w.stored().Annotations[karpv1.NodePoolHashAnnotationKey], Version: karpv1.NodePoolHashVersion}.Put(w.claim.Annotations)
	w.want("AMIDrift")
	w.answer = ""
	w.want("AMIDrift") // nothing has changed that could be noticed
	w.clock.Step(every)
	w.want("")
	// What wasn't known is asked again soon.
	w.err = errors.New("no answer")
	w.clock.Step(every)
	if _, after := w.look(); after != retry {
		t.Errorf("again after %s", after)
	}
}

// When thousands drift at once, their conditions are written one after the other, each claim's once.
func TestPace(t *testing.T) {
	w := newWorld(t)
	w.answer = "AMIDrift"
	var claims []*karpv1.NodeClaim
	for i := range 100 {
		claim := w.claim.DeepCopy()
		claim.Name, claim.UID = fmt.Sprint("claim-", i), types.UID(fmt.Sprint(i))
		claims = append(claims, claim)
	}
	written := func() (n int) {
		for _, claim := range claims {
			w.claim = claim
			if got, after := w.look(); got != "" {
				n++
			} else if after <= 0 || after > 100*pace {
				t.Errorf("a claim whose turn it isn't is looked at again after %s", after)
			}
		}
		return n
	}
	if n := written(); n != 1 {
		t.Errorf("%d written at once", n)
	}
	w.clock.Step(time.Second)
	if n := written(); n != 21 {
		t.Errorf("%d written after a second, want 20 more", n)
	}
	// A claim that waits for so long that it is compared again keeps its turn.
	late := w.claim.DeepCopy()
	late.Name, late.UID = "late", "late"
	w.claim = late
	for range 3 {
		w.memory.next = w.clock.Now().Add(every) // so many others wait
		w.look()
		w.clock.Step(every)
	}
	if got, _ := w.look(); got != "AMIDrift" || len(late.Status.Conditions) == 0 {
		t.Errorf("a claim that waits for long has drifted because of %q", got)
	}
	if n := written(); n != 100 {
		t.Errorf("%d written in the end", n)
	}
}

// stored returns the claim as it was created.
func (w *world) stored() *karpv1.NodeClaim {
	w.t.Helper()
	nc := &karpv1.NodeClaim{}
	if err := w.objects.Get(w.ctx, client.ObjectKey{Name: "a"}, nc); err != nil {
		w.t.Fatal(err)
	}
	return nc
}

func TestRound(t *testing.T) {
	w := newWorld(t)
	round := func(what string, want ...string) {
		t.Helper()
		if got, err := w.Round(w.ctx); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: claims %v, want %v; %v", what, got, want, err)
		}
	}
	round("at first", "a")
	round("again")
	w.pool(anotherLabel)
	round("the pool has changed", "a")
	w.class(func(nc *ec2nc.EC2NodeClass) { nc.Status.AMIs = []ec2nc.AMI{{ID: "ami-2"}} })
	round("the class has been resolved to something else", "a")
	np := &karpv1.NodePool{}
	w.change(np, func() {
		np.Status.Resources = corev1.ResourceList{}
		np.SetGeneration(np.GetGeneration() - 1) // a write of the status alone
	})
	round("the pool's counts have changed")
}

// A pool is deleted without its claims (--cascade=orphan), and one of the same name is created: what was compared with the first doesn't count for
// the second.
func TestPoolThatIsCreatedAgain(t *testing.T) {
	for _, between := range []bool{true, false} { // whether a round is made while there is no pool
		t.Run(fmt.Sprintf("a round between: %t", between), func(t *testing.T) {
			w := newWorld(t)
			w.want("")
			np := &karpv1.NodePool{}
			if err := w.objects.Get(w.ctx, client.ObjectKey{Name: "default"}, np); err != nil {
				t.Fatal(err)
			}
			if err := w.objects.Delete(w.ctx, np); err != nil {
				t.Fatal(err)
			}
			if between {
				w.want("")
			}
			np.UID, np.ResourceVersion = "another", ""
			anotherLabel(np)
			karpenter.PoolStamp(np).Put(np.Annotations)
			if err := w.objects.Create(w.ctx, np); err != nil {
				t.Fatal(err)
			}
			w.want(cloudprovider.NodePoolDrifted)
		})
	}
}

// The instance is recorded before the labels of its type, if the catalogue isn't known yet, as after a restart.
func TestLabelsThatAreRecordedLater(t *testing.T) {
	w := newWorld(t)
	w.pool(func(np *karpv1.NodePool) {
		np.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelArchStable, Operator: "In", Values: []string{"amd64"}}}
	})
	allocatable := w.claim.Status.Allocatable
	w.claim.Status.Allocatable = nil
	w.want("")
	w.claim.Status.Allocatable = allocatable
	w.want(cloudprovider.RequirementsDrifted)
	w.claim.Labels[corev1.LabelArchStable] = "amd64"
	w.want("")
}

// What the cloud is asked.
func TestQuestion(t *testing.T) {
	w := newWorld(t)
	w.want("")
	if w.asked.NodeClass != "default" || w.asked.InstanceID != "i-1" || w.asked.ImageID != "ami-1" || w.asked.Labels[corev1.LabelTopologyZone] != "z1" || w.asked.TypeCounts {
		t.Errorf("asked %+v", w.asked)
	}
	w.clock.Step(30*time.Minute + time.Second)
	w.want("")
	if !w.asked.TypeCounts {
		t.Error("after an hour the type counts")
	}
}
