package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/cluster/inprocess"
	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
)

// TestKubeAPIAgrees checks that the API server in memory, against which the product runs under virtual time, answers like the real
// one.
func TestKubeAPIAgrees(t *testing.T) {
	t.Parallel()
	real := inprocess.Start(t).AdminConfig()
	inMemory := kubeapi.New(cluster.Scheme, clock.RealClock{}).Client().Config()
	if diff := cmp.Diff(dialogue(t, real), dialogue(t, inMemory)); diff != "" {
		t.Errorf("answers (-kube-apiserver +kubeapi):\n%s", diff)
	}
}

// talk is a sequence of requests to an API server, with the answers as lines that can be compared.
type talk struct {
	*testing.T
	ctx   context.Context
	kube  kubernetes.Interface
	crs   client.Client
	lines []string
}

func (d *talk) say(what string, o metav1.Object, err error) {
	line := what + ": "
	switch {
	case err != nil:
		line += string(apierrors.ReasonForError(err))
	case o != nil:
		line += fmt.Sprintf("generation=%d finalizers=%v deleting=%v", o.GetGeneration(), o.GetFinalizers(), o.GetDeletionTimestamp() != nil)
		if g := o.GetDeletionGracePeriodSeconds(); g != nil {
			line += fmt.Sprintf(" grace=%d", *g)
		}
	default:
		line += "ok"
	}
	d.lines = append(d.lines, line)
}

func dialogue(t *testing.T, cfg *rest.Config) []string {
	ctx, cancel := context.WithTimeout(t.Context(), *patience)
	defer cancel()
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"NodePool", "NodeClaim"} {
		mapper.Add(karpv1Version.WithKind(kind), meta.RESTScopeRoot)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType, cfg.AcceptContentTypes = "application/json", "application/json"
	crs, err := client.New(cfg, client.Options{Scheme: cluster.Scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	d := &talk{T: t, ctx: ctx, kube: kubernetes.NewForConfigOrDie(cfg), crs: crs}
	d.nodes()
	d.pods()
	d.claims()
	d.leases()
	d.workloads()
	return d.lines
}

var karpv1Version = schema.GroupVersion{Group: "karpenter.sh", Version: "v1"}

func (d *talk) nodes() {
	nodes := d.kube.CoreV1().Nodes()
	n, err := nodes.Create(d.ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Finalizers: []string{"example.com/f"}},
		Spec:       corev1.NodeSpec{ProviderID: "aws:///z/i-1"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}},
	}, metav1.CreateOptions{})
	d.say("create a node", n, err)
	d.lines = append(d.lines, fmt.Sprint("a new node keeps its status: ", len(n.Status.Conditions)))
	_, err = nodes.Create(d.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	d.say("create it again", nil, err)
	patch := func(what, body string, sub ...string) *corev1.Node {
		got, err := nodes.Patch(d.ctx, "n", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, sub...)
		d.say(what, got, err)
		return got
	}
	old := n.ResourceVersion
	n = patch("patch a label and a taint", `{"metadata":{"labels":{"a":"b"}},"spec":{"taints":[{"key":"x","effect":"NoSchedule"}]}}`)
	patch("patch with an old version", fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"labels":{"a":"c"}}}`, old))
	got := patch("patch the status by the main way", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	d.lines = append(d.lines, fmt.Sprint("is it ready: ", got.Status.Conditions[0].Status))
	got = patch("patch the status by its own", `{"metadata":{"finalizers":["example.com/g"]},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status")
	d.lines = append(d.lines, fmt.Sprint("is it ready: ", got.Status.Conditions[0].Status, " and has labels ", got.Labels["a"]))
	_, err = nodes.Patch(d.ctx, "n", types.MergePatchType, []byte(`{"spec":{"providerID":"aws:///z/i-2"}}`), metav1.PatchOptions{})
	d.say("change the provider id", nil, err)
	d.say("delete with another UID", nil, nodes.Delete(d.ctx, "n", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("other"))}}))
	d.say("delete", nil, nodes.Delete(d.ctx, "n", metav1.DeleteOptions{}))
	n, err = nodes.Get(d.ctx, "n", metav1.GetOptions{})
	d.say("it waits for its finalizer", n, err)
	d.say("delete again", nil, nodes.Delete(d.ctx, "n", metav1.DeleteOptions{}))
	_, err = nodes.Patch(d.ctx, "n", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/f","example.com/new"]}}`), metav1.PatchOptions{})
	d.say("add a finalizer while it is being deleted", nil, err)
	_, err = nodes.Patch(d.ctx, "n", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	d.say("drop the finalizer", nil, err)
	_, err = nodes.Get(d.ctx, "n", metav1.GetOptions{})
	d.say("it is gone", nil, err)
}

func (d *talk) pod(name string) *corev1.Pod {
	d.Helper()
	p, err := d.kube.CoreV1().Pods("default").Create(d.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "a"}},
		Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}, metav1.CreateOptions{})
	d.say("create pod "+name, p, err)
	d.lines = append(d.lines, "its phase is "+string(p.Status.Phase))
	return p
}

func (d *talk) pods() {
	pods := d.kube.CoreV1().Pods("default")
	seen, err := pods.Watch(d.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=w,status.phase!=Failed"})
	if err != nil {
		d.Fatal(err)
	}
	defer seen.Stop()
	p := d.pod("p")
	bind := func(what string, b *corev1.Binding) { d.say(what, nil, pods.Bind(d.ctx, b, metav1.CreateOptions{})) }
	to := func(name string, uid types.UID) *corev1.Binding {
		return &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}, Target: corev1.ObjectReference{Kind: "Node", Name: "w"}}
	}
	bind("bind another UID", to("p", "other"))
	bind("bind", to("p", p.UID))
	bind("bind again", to("p", p.UID))
	p, err = pods.Get(d.ctx, "p", metav1.GetOptions{})
	d.say("bound", p, err)
	d.lines = append(d.lines, fmt.Sprint("node ", p.Spec.NodeName, ", conditions ", len(p.Status.Conditions)))
	_, err = pods.Patch(d.ctx, "p", types.StrategicMergePatchType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
	d.say("it runs", nil, err)
	d.say("evict another UID", nil, d.kube.PolicyV1().Evictions("default").Evict(d.ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: "p"}, DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("other"))}}}))
	d.say("evict", nil, d.kube.PolicyV1().Evictions("default").Evict(d.ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p"}}))
	p, err = pods.Get(d.ctx, "p", metav1.GetOptions{})
	d.say("it has its time", p, err)
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget {
			d.lines = append(d.lines, fmt.Sprint("it says why: ", c.Status, " ", c.Reason, " ", c.Message))
		}
	}
	d.say("delete with more time", nil, pods.Delete(d.ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](300)}))
	p, err = pods.Get(d.ctx, "p", metav1.GetOptions{})
	d.say("it doesn't get more", p, err)
	d.say("delete with none", nil, pods.Delete(d.ctx, "p", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	_, err = pods.Get(d.ctx, "p", metav1.GetOptions{})
	d.say("it is gone", nil, err)

	d.pod("q")
	d.say("delete an unbound pod", nil, pods.Delete(d.ctx, "q", metav1.DeleteOptions{}))
	_, err = pods.Get(d.ctx, "q", metav1.GetOptions{})
	d.say("it is gone at once", nil, err)
	d.say("bind what is gone", nil, pods.Bind(d.ctx, to("q", ""), metav1.CreateOptions{}))

	d.pod("r")
	bind("bind", to("r", ""))
	_, err = pods.Patch(d.ctx, "r", types.StrategicMergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
	d.say("it fails, and leaves the watch", nil, err)
	list, err := pods.List(d.ctx, metav1.ListOptions{LabelSelector: "app=a", FieldSelector: "status.phase=Failed"})
	d.say(fmt.Sprint("failed pods: ", len(list.Items)), nil, err)

	var events []string
	for len(events) < 7 {
		select {
		case e := <-seen.ResultChan():
			p := e.Object.(*corev1.Pod)
			events = append(events, fmt.Sprint(e.Type, " ", p.Name, " ", p.Status.Phase, " ", p.DeletionTimestamp != nil))
		case <-d.ctx.Done():
			d.Fatalf("events of the watch: %q", events)
		}
	}
	d.lines = append(d.lines, strings.Join(events, ", "))
	d.past(p.ResourceVersion)
}

// past watches from a version on. What has happened since comes at once, but on a busy machine not within a second.
func (d *talk) past(version string) {
	again, err := d.kube.CoreV1().Pods("default").Watch(d.ctx, metav1.ListOptions{ResourceVersion: version, TimeoutSeconds: ptr.To[int64](3)})
	if err != nil {
		d.Fatal(err)
	}
	defer again.Stop()
	var events []string
	for e := range again.ResultChan() {
		if e.Type != watch.Bookmark {
			events = append(events, fmt.Sprint(e.Type, " ", e.Object.(*corev1.Pod).Name))
		}
	}
	d.lines = append(d.lines, "since then: "+strings.Join(events, ", "))
}

func (d *talk) claims() {
	claim := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Finalizers: []string{karpv1.TerminationFinalizer}},
		Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: "g", Kind: "k", Name: "n"}, Requirements: []karpv1.NodeSelectorRequirementWithMinValues{},
			ExpireAfter: karpv1.MustParseNillableDuration("720h")},
		Status: karpv1.NodeClaimStatus{ProviderID: "too soon"},
	}
	d.say("create a claim", claim, d.crs.Create(d.ctx, claim))
	d.lines = append(d.lines, "its provider id is "+claim.Status.ProviderID)
	base := claim.DeepCopy()
	next := claim.DeepCopy()
	next.Status.ProviderID = "aws:///z/i-1"
	next.Labels = map[string]string{"not": "this way"}
	err := d.crs.Status().Patch(d.ctx, next, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	d.say("record the instance", next, err)
	d.lines = append(d.lines, fmt.Sprint(next.Status.ProviderID, " ", next.Labels))
	stale := base.DeepCopy()
	stale.Status.NodeName = "n"
	d.say("record with an old version", nil, d.crs.Status().Patch(d.ctx, stale, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})))
	d.say("annotate", next, d.crs.Patch(d.ctx, next, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}},"status":{"nodeName":"no"}}`))))
	d.lines = append(d.lines, fmt.Sprint(next.Annotations, " node ", next.Status.NodeName))
	d.say("change what may not change", nil, d.crs.Patch(d.ctx, next.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"expireAfter":"1h"}}`))))
	d.say("delete", nil, d.crs.Delete(d.ctx, next, client.Preconditions{UID: &next.UID}))
	d.say("it waits", next, d.crs.Get(d.ctx, client.ObjectKeyFromObject(next), next))
	d.say("drop the finalizer", nil, d.crs.Patch(d.ctx, next.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`))))
	d.say("it is gone", nil, d.crs.Get(d.ctx, client.ObjectKeyFromObject(next), next))
}

func (d *talk) leases() {
	leases := d.kube.CoordinationV1().Leases("default")
	l, err := leases.Create(d.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "l-"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a")}}, metav1.CreateOptions{})
	d.say("create a lease", nil, err)
	mine := l.DeepCopy()
	mine.Spec.HolderIdentity = ptr.To("b")
	_, err = leases.Update(d.ctx, mine, metav1.UpdateOptions{})
	d.say("renew", nil, err)
	_, err = leases.Update(d.ctx, l, metav1.UpdateOptions{})
	d.say("renew from an old version", nil, err)
}
