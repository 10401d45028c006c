package store

import (
	"strings"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter/guardmap"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// keptOf returns the guard's record of a pool or class one of whose breakers is open.
func keptOf(t *testing.T, k guard.Key) string {
	g := guard.New()
	m := guard.Bought{Purchase: guard.Purchase{Round: "r", Workloads: []guard.Workload{k.Workload}}, Pool: k.Pool, Class: k.Class, Images: []string{k.Image}, At: start}
	g.Buy("m", m)
	g.Fail("m", guard.Fault{Machine: k.Machine(), Cause: "x", Message: "the agent evicts them"}, start)
	text := g.Encode(guard.OwnerOf(k), start)
	if text == "" {
		t.Fatal("nothing to keep")
	}
	return text
}

// messageOf returns status and message of a condition.
func messageOf(o status.Object, kind string) string {
	for _, c := range o.GetConditions() {
		if c.Type == kind {
			return string(c.Status) + " " + c.Message
		}
	}
	return ""
}

var podsOfWeb = guard.Workload{Namespace: "d", Owner: "Deployment/web"}

// Records are stored on the object that they are about, or in one ConfigMap, are read back unchanged, and are removed when they are
// empty.
func TestGuardRecordsAreKept(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default", plain), testClass("default"), provisioner(t, byRef+`}`), nodeTemplate(t, settled+`}`)))
	kube := fake.NewClientset()
	w.guardMap = guardmap.New(kube, "kube-system", w.nodeClass.ManagedBy)
	pools, classes := readInlined(t, []karpenter.Inline{inlined(t, "main", inlinePool+`}}}`)}, []karpenter.Inline{inlined(t, "main", inlineClass)})
	if err := w.derived.SetProfiles([]karpenter.Profile{{Scheduler: "ours", Pools: pools, Classes: classes}}); err != nil {
		t.Fatal(err)
	}
	w.leading()
	owners := map[guard.Owner]string{}
	for _, pool := range []string{"default", "provisioner_old", "args_main"} {
		owners[guard.Owner{Pool: pool}] = keptOf(t, guard.PodKey(pool, podsOfWeb))
	}
	for _, class := range []string{"default", "provisioner_old", "args_main"} {
		owners[guard.Owner{Class: class}] = keptOf(t, guard.MachineKey(class, "ami", ""))
	}
	for o, text := range owners {
		if err := w.RecordGuard(w.ctx, o, text); err != nil {
			t.Fatal(err)
		}
	}
	same := func(want map[guard.Owner]string) bool {
		got, err := w.GuardRecords(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for o, text := range want {
			if got[o] != text {
				return false
			}
		}
		return len(got) == len(want)
	}
	w.eventually("all are read back", func() bool { return same(owners) })
	cm, err := kube.CoreV1().ConfigMaps("kube-system").Get(w.ctx, "dovetail-guard", metav1.GetOptions{})
	if err != nil || len(cm.Data) != 3 {
		t.Errorf("ConfigMap %v, %v; want a pool and two classes", cm, err)
	}
	if w.getPool("default").Annotations[objects.AnnotationGuard] == "" || w.getProvisioner("old").Annotations[objects.AnnotationGuard] == "" {
		t.Error("not on the objects")
	}
	w.eventually("people can read it", func() bool {
		return strings.Contains(messageOf(w.getPool("default"), objects.ConditionLaunchesPaused), "the agent evicts them") &&
			strings.Contains(messageOf(w.getProvisioner("old"), objects.ConditionLaunchesPaused), "the agent evicts them") &&
			strings.Contains(messageOf(w.class("default"), objects.ConditionLaunchesPaused), "the agent evicts them")
	})
	for o := range owners {
		if err := w.RecordGuard(w.ctx, o, ""); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("nothing is left", func() bool { return same(nil) })
	w.eventually("nothing is said any more", func() bool {
		_, pool := conditions(w.getPool("default"))[objects.ConditionLaunchesPaused]
		_, class := conditions(w.class("default"))[objects.ConditionLaunchesPaused]
		return !pool && !class
	})
	for _, o := range []guard.Owner{{Pool: "nobody"}, {Class: "nobody"}} {
		if err := w.RecordGuard(w.ctx, o, "{}"); err != nil {
			t.Errorf("of an owner that is gone: %v", err)
		}
	}
}

// An empty record doesn't create the ConfigMap.
func TestGuardMapIsMadeWhenItIsNeeded(t *testing.T) {
	w := newWorld(t, newFakeAPI())
	kube := fake.NewClientset()
	w.guardMap = guardmap.New(kube, "kube-system", w.nodeClass.ManagedBy)
	if err := w.RecordGuard(t.Context(), guard.Owner{Pool: "args_main"}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := kube.CoreV1().ConfigMaps("kube-system").Get(t.Context(), guardmap.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("made for nothing: %v", err)
	}
}

// An annotation that can't be read is reported in the condition, and has no other effect.
func TestGuardRecordThatCannotBeRead(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default", plain, func(np *karpv1.NodePool) { np.Annotations = map[string]string{objects.AnnotationGuard: "{nonsense"} }), readyClass("default"))).leading()
	w.eventually("it says so", func() bool {
		c := conditions(w.getPool("default"))[objects.ConditionLaunchesPaused]
		return strings.HasPrefix(c, "Unknown "+karpenter.ReasonMalformed) && strings.Contains(c, objects.AnnotationGuard)
	})
	if p := w.pool("default"); p == nil || p.Unready != "" {
		t.Errorf("pool %+v", p)
	}
}

// An invalid budget makes the pool unusable, with the reason; a valid one limits the pool, and a Provisioner's pool as well.
func TestBudgetOfAPool(t *testing.T) {
	for text, want := range map[string]float64{"12.50": 12.5, "0": 0, "-1": 0, "much": 0, "Inf": 0, "NaN": 0, "": 0} {
		np := testPool("default", plain, func(np *karpv1.NodePool) {
			np.Annotations = map[string]string{objects.AnnotationMaxDollarsPerHour: text}
		})
		p := karpenter.PoolOf(np, classKind)
		if p.MaxDollars != want || (p.Unready == "") != (want > 0) {
			t.Errorf("%q: $%v, unready %q", text, p.MaxDollars, p.Unready)
		}
		if want == 0 && !strings.Contains(p.Unready, "metadata.annotations["+objects.AnnotationMaxDollarsPerHour+"]") {
			t.Errorf("%q: %s", text, p.Unready)
		}
	}
	o := provisioner(t, byRef+`}`)
	o.Annotations = map[string]string{objects.AnnotationMaxDollarsPerHour: "7"}
	w := newWorld(t, newFakeAPI(o, nodeTemplate(t, settled+`}`))).ready()
	if p := w.pool("provisioner_old"); p == nil || p.MaxDollars != 7 {
		t.Errorf("the Provisioner's pool: %+v", p)
	}
	w.edit(o, func() { o.Annotations[objects.AnnotationMaxDollarsPerHour] = "8" })
	w.eventually("another amount", func() bool { return w.pool("provisioner_old").MaxDollars == 8 })
}

// An invalid zone balance makes the pool unusable, with the reason; a valid one is the pool's, and a Provisioner's pool's as well.
func TestZoneBalanceOfAPool(t *testing.T) {
	for text, want := range map[string]float64{"10%": .1, "0%": 0, "100%": 1, "2.5%": .025} {
		p := karpenter.PoolOf(testPool("default", plain, func(np *karpv1.NodePool) {
			np.Annotations = map[string]string{objects.AnnotationZoneBalance: text}
		}), classKind)
		if p.Unready != "" || p.ZoneBalance == nil || *p.ZoneBalance != want {
			t.Errorf("%q: balance %v, unready %q", text, p.ZoneBalance, p.Unready)
		}
	}
	for _, text := range []string{"", "10", "0.1", "10 %", " 10%", "-1%", "+1%", "101%", "100.1%", "010%", "1e1%", "NaN%", "Inf%", "true", "%", "10%%", "10%\n"} {
		p := karpenter.PoolOf(testPool("default", plain, func(np *karpv1.NodePool) {
			np.Annotations = map[string]string{objects.AnnotationZoneBalance: text}
		}), classKind)
		if p.ZoneBalance != nil || !strings.Contains(p.Unready, "NodePool default: metadata.annotations["+objects.AnnotationZoneBalance+"]") ||
			!strings.Contains(p.Unready, `must be a percentage from "0%" to "100%", like "10%"`) {
			t.Errorf("%q: balance %v, unready %q", text, p.ZoneBalance, p.Unready)
		}
	}
	static := karpenter.PoolOf(testPool("default", plain, func(np *karpv1.NodePool) {
		np.Spec.Replicas, np.Annotations = new(int64(2)), map[string]string{objects.AnnotationZoneBalance: "10%"}
	}), classKind)
	if static.ZoneBalance != nil || !strings.Contains(static.Unready, "the zones of a static pool's nodes aren't balanced") {
		t.Errorf("a static pool: balance %v, unready %q", static.ZoneBalance, static.Unready)
	}
	if p := karpenter.PoolOf(testPool("default", plain), classKind); p.ZoneBalance != nil {
		t.Errorf("without the annotation: %v", *p.ZoneBalance)
	}
	o := provisioner(t, byRef+`}`)
	o.Annotations = map[string]string{objects.AnnotationZoneBalance: "7%"}
	w := newWorld(t, newFakeAPI(o, nodeTemplate(t, settled+`}`))).ready()
	if p := w.pool("provisioner_old"); p == nil || p.ZoneBalance == nil || *p.ZoneBalance != .07 {
		t.Errorf("the Provisioner's pool: %+v", p)
	}
	w.edit(o, func() { o.Annotations[objects.AnnotationZoneBalance] = "8%" })
	w.eventually("another balance", func() bool { b := w.pool("provisioner_old").ZoneBalance; return b != nil && *b == .08 })
	w.edit(o, func() { delete(o.Annotations, objects.AnnotationZoneBalance) })
	w.eventually("no balance", func() bool { return w.pool("provisioner_old").ZoneBalance == nil })
}

// A condition reports a budget that is reached, as long as it is.
func TestBudgetReachedIsReported(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default", plain), readyClass("default"))).leading()
	w.BudgetReached("default", "nodes of the pool cost at most $2.00 an hour")
	w.eventually("it is said", func() bool {
		return messageOf(w.getPool("default"), objects.ConditionBudgetReached) == "True no more nodes are launched for now: nodes of the pool cost at most $2.00 an hour"
	})
	w.BudgetReached("default", "")
	w.eventually("it is over", func() bool { _, said := conditions(w.getPool("default"))[objects.ConditionBudgetReached]; return !said })
}

// OnGuard is called for changes of a spec and new values of the retry annotation, but not for our own writes.
func TestGuardHearsOfChanges(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default", plain), testClass("default")))
	told := make(chan string, 100)
	w.OnGuard(func(o guard.Owner, retry bool) {
		word := o.Pool + o.Class
		if retry {
			word += " retry"
		}
		told <- word
	})
	w.ready()
	next := func(want string) {
		t.Helper()
		if got := <-told; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	np, nc := &karpv1.NodePool{}, testClass("default")
	np.Name = "default"
	if err := w.RecordGuard(w.ctx, guard.Owner{Pool: "default"}, keptOf(t, guard.PodKey("default", podsOfWeb))); err != nil {
		t.Fatal(err)
	}
	w.edit(np, func() { np.Status.Nodes = new(int64) })
	w.update(np, func() { np.Spec.Weight = new(int32) })
	next("default")
	w.edit(np, func() { np.Annotations[objects.AnnotationRetry] = "now" })
	next("default retry")
	w.edit(np, func() { delete(np.Annotations, objects.AnnotationRetry) })
	w.edit(nc, func() { nc.Annotations = map[string]string{objects.AnnotationRetry: "now"} })
	next("default retry")
	w.update(nc, func() { nc.Spec.Tags = map[string]string{"a": "b"} })
	next("default")
	for _, id := range []string{"ami-1", "ami-2"} {
		amd64 := []corev1.NodeSelectorRequirement{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}}}
		st := ec2nc.EC2NodeClassStatus{AMIs: []ec2nc.AMI{{ID: id, Name: id, Requirements: amd64}}}
		if err := w.SetNodeClassStatus(w.ctx, nodeclass.Resolved("default", w.class("default").GetGeneration(), st)); err != nil {
			t.Fatal(err)
		}
		w.eventually("image "+id, func() bool {
			c := w.class("default").(*ec2nc.EC2NodeClass)
			return len(c.Status.AMIs) == 1 && c.Status.AMIs[0].ID == id
		})
	}
	next("default") // once: the first image is no change
	w.update(np, func() { np.Spec.Replicas = new(int64) })
	w.edit(np, func() { np.Finalizers = nil })
	if err := w.api.Delete(w.ctx, w.getPool("default")); err != nil {
		t.Fatal(err)
	}
	w.eventually("the pool to be gone", func() bool { return w.poolObject("default") == nil })
	again := testPool("default", plain)
	again.UID = "another"
	if err := w.api.Create(w.ctx, again); err != nil {
		t.Fatal(err)
	}
	next("default")
	if len(told) > 0 {
		t.Errorf("told %q, too", <-told)
	}
}

// Served is recorded as a condition of the claim, and the purchase as an annotation; both are read back.
func TestClaimRemembersItsPurchase(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default", plain), testClass("default"))).ready()
	c := testClaim("a")
	c.Purchase = &guard.Purchase{Round: "r-1", Workloads: []guard.Workload{podsOfWeb}, Probes: []guard.Key{guard.MachineKey("default", "ami", "a")}, When: 7}
	c, err := w.Create(w.ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.RecordServed(w.ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("both are read", func() bool { got := w.Claim("a"); return got != nil && got.Served && got.Purchase != nil })
	got := w.Claim("a")
	if p := got.Purchase; p.Round != "r-1" || p.When != 7 || len(p.Workloads) != 1 || p.Workloads[0] != podsOfWeb || len(p.Probes) != 1 || p.Probes[0] != c.Purchase.Probes[0] {
		t.Errorf("purchase %+v", p)
	}
	nc := &karpv1.NodeClaim{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: "a"}, nc); err != nil || !strings.HasPrefix(conditions(nc)[objects.ConditionServed], "True") || got.ServedAt.IsZero() {
		t.Errorf("%v, conditions %v, served at %s", err, conditions(nc), got.ServedAt)
	}
}
