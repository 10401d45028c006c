package integration

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

var recordAdopt = flag.String("record-adopt", "", "folder to write to what the scheduler of -older-binary leaves, for TestObjectsOfAnEarlierVersionAreAdopted")

const (
	adoptFolder = "testdata/adopt"
	// What the older scheduler is made to leave: nodes with pods, a node that boots, a claim whose launch was not sent, and a node whose drain waits.
	adoptWeb, adoptLate, adoptNext, adoptKept = "web", "late", "next", "kept"
)

// left is what a scheduler has left in the cluster, in the order in which it can be created again, and in the account.
type left struct {
	// ClusterCA is the cluster's certificate (PEM): it is part of a class's hash, and each API server of a test has one of its own.
	ClusterCA []byte            `json:"clusterCA"`
	Objects   []json.RawMessage `json:"objects"`
	Account   ec2.State         `json:"account"`
}

// adoptable are the kinds of left.Objects: what others name by its UID first.
func adoptable() []client.ObjectList {
	return []client.ObjectList{&ec2nc.EC2NodeClassList{}, &karpv1.NodePoolList{}, &corev1.PodList{}, &karpv1.NodeClaimList{}, &corev1.NodeList{}, &policyv1.PodDisruptionBudgetList{}}
}

// recordLeft makes a folder of testdata/adopt, with a scheduler of another version.
func recordLeft(t *testing.T) {
	authority, _, err := certutil.GenerateSelfSignedCertKey("cluster.invalid", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := start(t, func(s *setting) {
		s.mortal, s.idle = true, true
		// Builds of before the first release know no other version of their arguments.
		s.config = func(c cluster.Config) {
			c.SetProvisionArgs(map[string]any{"apiVersion": "config.dovetail.sh/v1", "clusterCABundle": authority})
		}
	})
	e.options.Binary = *olderBinary
	e.run()
	e.apply(nodeClass, strings.Replace(nodePool, "consolidateAfter: Never", "consolidateAfter: Never, budgets: [{nodes: 100%}]", 1))
	e.pods(adoptWeb, 4, "1", "1Gi", spread(corev1.LabelTopologyZone))
	e.pods(adoptKept, 1, "3", "1Gi", anti)
	e.running(adoptWeb, 4)
	kept := e.running(adoptKept, 1)[0]
	allowed := intstr.FromInt32(0)
	e.create(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: adoptKept},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &allowed, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": adoptKept}}}})
	if err := e.api.Delete(e.ctx, e.claimOf(kept.Spec.NodeName)); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Until(e.wait(), e.api, &corev1.NodeList{}, func(nodes []*corev1.Node) (bool, string, error) {
		return slices.ContainsFunc(nodes, disrupted), "the drain", nil
	}); err != nil {
		t.Fatal(err)
	}
	e.pods(adoptLate, 1, "15", "1Gi")
	late := e.bound(adoptLate, 1)[0]
	e.sim.Before("CreateFleet", func(*ec2.Request) *ec2.Fault { return &ec2.Fault{Drop: true} })
	e.pods(adoptNext, 1, "31", "1Gi")
	if err := wait.PollUntilContextCancel(e.wait(), 20*time.Millisecond, true, func(context.Context) (bool, error) {
		return slices.ContainsFunc(e.claims(), func(c *karpv1.NodeClaim) bool { return c.Status.ProviderID == "" }), nil
	}); err != nil {
		t.Fatal(err)
	}
	e.sched.Kill()
	if n := e.nodes()[late.Spec.NodeName]; n == nil || cluster.Ready(n) {
		t.Fatal("the node for the late pod is Ready already: record again")
	}

	out := left{ClusterCA: authority, Account: e.sim.Save()}
	for _, list := range adoptable() {
		if err := e.api.List(e.ctx, list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			t.Fatal(err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			object := o.(client.Object)
			gvk, err := e.api.GroupVersionKindFor(object)
			if err != nil {
				return err
			}
			object.GetObjectKind().SetGroupVersionKind(gvk)
			object.SetManagedFields(nil)
			object.SetResourceVersion("")
			text, err := json.Marshal(object)
			out.Objects = append(out.Objects, text)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*recordAdopt, "left.json"), append(text, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
}

// claimOf returns the NodeClaim of a node.
func (e *env) claimOf(node string) *karpv1.NodeClaim {
	e.Helper()
	for _, c := range e.claims() {
		if c.Status.NodeName == node {
			return c
		}
	}
	e.Fatalf("node %s has no NodeClaim", node)
	return nil
}

func disrupted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey })
}

// restore creates objects with their status. The API server gives them other UIDs than they had, so references are rewritten; what was being deleted is
// deleted again.
func (e *env) restore(objects []json.RawMessage) {
	e.Helper()
	renamed := []string{}
	for _, text := range objects {
		text = []byte(strings.NewReplacer(renamed...).Replace(string(text)))
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(text); err != nil {
			e.Fatal(err)
		}
		created := object.DeepCopy()
		was, ended := string(created.GetUID()), created.GetDeletionTimestamp() != nil
		created.SetUID("")
		created.SetDeletionTimestamp(nil)
		created.SetDeletionGracePeriodSeconds(nil)
		if err := e.api.Create(e.ctx, created); err != nil {
			e.Fatal(err)
		}
		renamed = append(renamed, was, string(created.GetUID()))
		if object.Object["status"] != nil {
			// The cluster's own controllers write to nodes at once.
			if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				if err := e.api.Get(e.ctx, client.ObjectKeyFromObject(created), created); err != nil {
					return err
				}
				object.Object["metadata"] = created.Object["metadata"]
				return e.api.Status().Update(e.ctx, object)
			}); err != nil {
				e.Fatal(err)
			}
		}
		if ended {
			if err := e.api.Delete(e.ctx, created); err != nil {
				e.Fatal(err)
			}
		}
	}
}

// What a scheduler of an earlier version has left is adopted by this one: it launches what that one had recorded and not sent, and nothing else, ends what
// was being ended, and nothing else, lets pods that were bound early start, and finds no node drifted.
func TestObjectsOfAnEarlierVersionAreAdopted(t *testing.T) {
	if *recordAdopt != "" {
		recordLeft(t)
		return
	}
	t.Parallel()
	paths, err := filepath.Glob(filepath.Join(adoptFolder, "*", "left.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d versions in %s: %v", len(paths), adoptFolder, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var had left
			if err := json.Unmarshal(text, &had); err != nil {
				t.Fatal(err)
			}
			adopt(t, had)
		})
	}
}

func adopt(t *testing.T, had left) {
	e := start(t, func(s *setting) {
		s.idle = true
		s.config = func(c cluster.Config) { c.SetProvisionArgs(map[string]any{"clusterCABundle": had.ClusterCA}) }
	})
	e.restore(had.Objects)
	if err := e.sim.Restore(had.Account); err != nil {
		t.Fatal(err)
	}
	instances := len(had.Account.Instances)
	claims := map[string]*karpv1.NodeClaim{}
	unsent := ""
	for _, c := range e.claims() {
		claims[c.Name] = c
		if c.Status.ProviderID == "" {
			unsent = c.Name
		}
	}
	if len(claims) != instances+1 || unsent == "" {
		t.Fatalf("%d claims for %d instances, %q was not sent", len(claims), instances, unsent)
	}
	nodes := sets.KeySet(e.nodes())
	pods := map[string]string{}
	for _, app := range []string{adoptWeb, adoptLate, adoptKept} {
		for _, p := range e.podsOf(app) {
			pods[p.Name] = p.Spec.NodeName
		}
	}
	e.run()

	e.running(adoptWeb, 4)
	e.running(adoptLate, 1)
	next := e.running(adoptNext, 1)[0]
	if c := e.claimOf(next.Spec.NodeName); c.Name != unsent {
		t.Errorf("the pod without a node runs on claim %s, and %s was recorded for it", c.Name, unsent)
	}
	if launched := e.launches() - instances; launched != 1 {
		t.Errorf("%d instances were launched, want the one of %s", launched, unsent)
	}
	for _, app := range []string{adoptWeb, adoptLate, adoptKept} {
		for _, p := range e.podsOf(app) {
			if pods[p.Name] != p.Spec.NodeName {
				t.Errorf("pod %s was on %s, and is on %s", p.Name, pods[p.Name], p.Spec.NodeName)
			}
			delete(pods, p.Name)
		}
	}
	if len(pods) > 0 {
		t.Errorf("pods are gone: %v", pods)
	}
	e.claimsAre("Initialized and not drifted", func(c *karpv1.NodeClaim) bool {
		return c.StatusConditions().IsTrue(karpv1.ConditionTypeInitialized) && !c.StatusConditions().IsTrue(karpv1.ConditionTypeDrifted)
	})
	if now := sets.KeySet(e.nodes()); !now.IsSuperset(nodes) {
		t.Errorf("nodes %v are gone", nodes.Difference(now).UnsortedList())
	}

	// The drain goes on when it may, and nothing else ends.
	kept := e.podsOf(adoptKept)[0].Spec.NodeName
	if err := e.api.Delete(e.ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: adoptKept}}); err != nil {
		t.Fatal(err)
	}
	if err := wait.PollUntilContextCancel(e.wait(), 200*time.Millisecond, true, func(context.Context) (bool, error) {
		return len(e.sim.Live()) == instances && e.nodes()[kept] == nil, nil
	}); err != nil {
		t.Errorf("%d instances are left, want %d without node %s", len(e.sim.Live()), instances, kept)
	}

	// And the others end as any nodes do.
	e.patch(&karpv1.NodePool{}, "default", `{"spec":{"disruption":{"consolidateAfter":"0s"}}}`)
	for _, app := range []string{adoptWeb, adoptLate, adoptNext} {
		for _, p := range e.podsOf(app) {
			if err := e.api.Delete(e.ctx, &p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := wait.PollUntilContextCancel(e.wait(), 200*time.Millisecond, true, func(context.Context) (bool, error) {
		return len(e.sim.Live()) == 0 && len(e.claims()) == 0, nil
	}); err != nil {
		t.Errorf("%d instances and %d claims are left", len(e.sim.Live()), len(e.claims()))
	}
}
