package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

func TestRegistration(t *testing.T) {
	permanent, startup := taint("example.com/team", "NoSchedule"), taint("example.com/agent", "NoExecute")
	for _, tc := range []struct {
		name  string
		setup func(w *world, claim *karpv1.NodeClaim, node *corev1.Node)
		// what is there afterwards
		registered  bool
		reason      string
		nodeName    string
		nodes       string
		taints      string
		event       string
		podsDeleted []string
	}{
		{
			name:       "a Node made ahead whose kubelet has not come stays as it is",
			setup:      func(w *world, _ *karpv1.NodeClaim, node *corev1.Node) { w.createNode(node) },
			registered: false, nodeName: "ip-10-0-0-1", nodes: "ip-10-0-0-1",
			taints: "example.com/team:NoSchedule example.com/agent:NoExecute karpenter.sh/unregistered:NoSchedule",
		},
		{
			name: "when the kubelet posts, the taint goes and the finalizer comes",
			setup: func(w *world, _ *karpv1.NodeClaim, node *corev1.Node) {
				w.createNode(node)
				w.kubelet(node.Name)
			},
			registered: true, reason: "Registered", nodeName: "ip-10-0-0-1", nodes: "ip-10-0-0-1",
			taints: "example.com/team:NoSchedule example.com/agent:NoExecute",
		},
		{
			name: "a startup taint that its agent has removed before registration does not come back",
			setup: func(w *world, _ *karpv1.NodeClaim, node *corev1.Node) {
				dropTaint(node, startup.Key)
				w.createNode(node)
				w.kubelet(node.Name)
			},
			registered: true, reason: "Registered", nodeName: "ip-10-0-0-1", nodes: "ip-10-0-0-1",
			taints: "example.com/team:NoSchedule",
		},
		{
			name: "nor when the kubelet is faster than the record of its Node's name",
			setup: func(w *world, claim *karpv1.NodeClaim, node *corev1.Node) {
				dropTaint(node, startup.Key)
				w.createNode(node)
				w.kubelet(node.Name)
				claim.Status.NodeName = ""
				if err := w.claims.Status().Update(w.ctx, claim); err != nil {
					w.t.Fatal(err)
				}
			},
			registered: true, reason: "Registered", nodeName: "ip-10-0-0-1", nodes: "ip-10-0-0-1",
			taints: "example.com/team:NoSchedule",
		},
		{
			name: "nor when the kubelet has made the Node as user data says, and is Ready",
			setup: func(w *world, claim *karpv1.NodeClaim, node *corev1.Node) {
				dropTaint(node, startup.Key)
				node.OwnerReferences = nil
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
				w.createNode(node)
				w.kubelet(node.Name)
				claim.Status.NodeName = ""
				if err := w.claims.Status().Update(w.ctx, claim); err != nil {
					w.t.Fatal(err)
				}
			},
			registered: true, reason: "Registered", nodeName: "ip-10-0-0-1", nodes: "ip-10-0-0-1",
			taints: "example.com/team:NoSchedule",
		},
		{
			name: "a Node that its kubelet made gets everything",
			setup: func(w *world, claim *karpv1.NodeClaim, node *corev1.Node) {
				w.createNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "i-a"}, Spec: corev1.NodeSpec{ProviderID: claim.Status.ProviderID}})
				w.kubelet("i-a")
			},
			registered: true, reason: reasonOtherName, nodeName: "i-a", nodes: "i-a",
			taints: "example.com/team:NoSchedule example.com/agent:NoExecute",
			event:  reasonUnregisteredTaintMissing,
		},
		{
			name: "a kubelet under another name with the same provider ID: the Node made ahead goes, and its pods with it",
			setup: func(w *world, claim *karpv1.NodeClaim, node *corev1.Node) {
				w.createNode(node)
				w.pod("p", node.Name)
				w.createNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "i-a"}, Spec: corev1.NodeSpec{ProviderID: claim.Status.ProviderID}})
				w.kubelet("i-a")
			},
			registered: true, reason: reasonOtherName, nodeName: "i-a", nodes: "i-a",
			taints: "example.com/team:NoSchedule example.com/agent:NoExecute",
			event:  reasonOtherName, podsDeleted: []string{"p"},
		},
		{
			name: "a kubelet under another name that only its address tells",
			setup: func(w *world, claim *karpv1.NodeClaim, node *corev1.Node) {
				w.createNode(node)
				w.createNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host-a"}, Status: corev1.NodeStatus{Addresses: node.Status.Addresses}})
				w.kubelet("host-a")
			},
			registered: true, reason: reasonOtherName, nodeName: "host-a", nodes: "host-a",
			taints: "example.com/team:NoSchedule example.com/agent:NoExecute",
			event:  reasonOtherName,
		},
		{
			name: "a Node of the same name that belongs to another instance is never adopted",
			setup: func(w *world, _ *karpv1.NodeClaim, node *corev1.Node) {
				node.Spec.ProviderID = "aws:///z1/i-old"
				w.createNode(node)
				w.kubelet(node.Name)
			},
			registered: false, reason: "NodeNameTaken", nodeName: "ip-10-0-0-1", nodes: "ip-10-0-0-1",
			taints: "example.com/team:NoSchedule example.com/agent:NoExecute karpenter.sh/unregistered:NoSchedule",
		},
		{
			name: "two kubelets that say they are this instance register neither",
			setup: func(w *world, claim *karpv1.NodeClaim, node *corev1.Node) {
				w.createNode(node)
				w.kubelet(node.Name)
				w.createNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "twin"}, Spec: corev1.NodeSpec{ProviderID: claim.Status.ProviderID}})
				w.kubelet("twin")
			},
			registered: false, reason: "MultipleNodesFound", nodeName: "ip-10-0-0-1", nodes: "ip-10-0-0-1 twin",
			taints: "example.com/team:NoSchedule example.com/agent:NoExecute karpenter.sh/unregistered:NoSchedule",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			claim, inst := w.launched("a", func(c *karpv1.NodeClaim) {
				c.Spec.Taints, c.Spec.StartupTaints = []corev1.Taint{permanent}, []corev1.Taint{startup}
				c.Annotations = map[string]string{"example.com/note": "yes", "dovetail.sh/planned-pods": "[]"}
			})
			tc.setup(w, claim, nodeFor(claim, *inst))
			w.step()

			got := w.claim("a")
			if conditionTrue(got, karpv1.ConditionTypeRegistered) != tc.registered {
				t.Errorf("registered = %v, want %v", !tc.registered, tc.registered)
			}
			if cond := condition(got, karpv1.ConditionTypeRegistered); tc.reason != "" && cond.Reason != tc.reason {
				t.Errorf("reason %q, want %q", cond.Reason, tc.reason)
			}
			if diff := cmp.Diff(tc.nodeName, got.Status.NodeName); diff != "" {
				t.Errorf("status.nodeName (-want +got):\n%s", diff)
			}
			w.sync()
			list, _ := w.c.nodes.lister.List(everything)
			all := names(list)
			if diff := cmp.Diff(strings.Fields(tc.nodes), all, sorted); diff != "" {
				t.Errorf("Nodes (-want +got):\n%s", diff)
			}
			node := w.node(tc.nodeName)
			if diff := cmp.Diff(tc.taints, show(node.Spec.Taints)); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
			if tc.event != "" && !strings.Contains(strings.Join(w.events, "\n"), tc.event) {
				t.Errorf("no event %s in %q", tc.event, w.events)
			}
			if diff := cmp.Diff(tc.podsDeleted, w.killed); diff != "" {
				t.Errorf("pods ended (-want +got):\n%s", diff)
			}
			if !tc.registered {
				return
			}
			if !hasFinalizer(node) || node.Labels[karpv1.NodeRegisteredLabelKey] != "true" || node.Labels[corev1.LabelTopologyZone] != "z1" ||
				len(node.OwnerReferences) != 1 || node.Annotations["example.com/note"] != "yes" || node.Annotations["dovetail.sh/planned-pods"] != "" ||
				node.Spec.ProviderID != claim.Status.ProviderID {
				t.Errorf("the Node lacks something of its claim: %+v", node)
			}
		})
	}
}

func TestInitialization(t *testing.T) {
	startup := taint("example.com/agent", "NoSchedule")
	for _, tc := range []struct {
		name   string
		change func(*corev1.Node)
		reason string // empty: initialized
	}{
		{name: "a node with everything is initialized", change: func(*corev1.Node) {}},
		{name: "not before it is Ready", change: func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, reason: "NodeNotReady"},
		{name: "not while a startup taint is there", change: func(n *corev1.Node) { setTaint(n, startup) }, reason: "StartupTaintsExist"},
		{name: "not while a taint is there that its pool should have declared", change: func(n *corev1.Node) { setTaint(n, taint("scanner", "NoExecute")) }, reason: "StartupTaintsExist"},
		{name: "not while it is hidden from the scheduler that the cloud has not initialized it",
			change: func(n *corev1.Node) { setTaint(n, taint(cloudproviderapi.TaintExternalCloudProvider, "NoSchedule")) }, reason: "KnownEphemeralTaintsExist"},
		{name: "not while a readiness rule holds it",
			change: func(n *corev1.Node) { setTaint(n, taint("readiness.k8s.io/cni", "NoSchedule")) }, reason: "KnownEphemeralTaintsExist"},
		{name: "not while the device plugin has not brought its resource",
			change: func(n *corev1.Node) { n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("0") }, reason: "ResourceNotRegistered"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.expected = func(string) []corev1.Taint { return []corev1.Taint{taint("scanner", "NoExecute")} }
			claim, inst := w.launched("a", func(c *karpv1.NodeClaim) {
				c.Spec.StartupTaints = []corev1.Taint{startup}
				c.Spec.Resources.Requests = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1"), "cpu": resource.MustParse("1"), "memory": resource.MustParse("0")}
			})
			w.createNode(nodeFor(claim, *inst))
			w.kubelet(inst.NodeName)
			w.changeNode(inst.NodeName, func(n *corev1.Node) {
				dropTaint(n, startup.Key)
				n.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4"), "cpu": resource.MustParse("8")}
				tc.change(n)
			})
			w.step()
			w.step() // as the scheduler's informer shows the node: with its ephemeral taints hidden

			cond, node := condition(w.claim("a"), karpv1.ConditionTypeInitialized), w.node(inst.NodeName)
			_, excluded := node.Labels[labelExcludeDisruption]
			if tc.reason != "" {
				if cond.Status == metav1.ConditionTrue || cond.Reason != tc.reason || node.Labels[karpv1.NodeInitializedLabelKey] != "" || !excluded {
					t.Errorf("condition %+v, labels %v; want reason %s", cond, node.Labels, tc.reason)
				}
				return
			}
			if cond.Status != metav1.ConditionTrue || node.Labels[karpv1.NodeInitializedLabelKey] != "true" || excluded {
				t.Errorf("condition %+v, labels %v", cond, node.Labels)
			}
			if !conditionTrue(w.claim("a"), "Ready") {
				t.Errorf("the claim is not Ready: %+v", w.claim("a").Status.Conditions)
			}
		})
	}
}

// A kubelet whose Node was deleted by force creates a bare one when it comes back.
func TestRegistrationCompletesANodeMadeAnew(t *testing.T) {
	w := newWorld(t)
	w.up("a")
	name := w.claim("a").Status.NodeName
	if err := w.objects.Delete(nodesResource, "", name); err != nil {
		t.Fatal(err)
	}
	w.createNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: w.claim("a").Status.ProviderID}})
	w.kubelet(name)
	w.pass(2*time.Second, time.Second)
	if n := w.node(name); n.Labels[karpv1.NodeInitializedLabelKey] != "true" || !hasFinalizer(n) {
		t.Errorf("labels %v, finalizers %v", n.Labels, n.Finalizers)
	}
}

func TestTagging(t *testing.T) {
	w := newWorld(t)
	w.up("a")
	if diff := cmp.Diff([]string{"i-a a ip-10-0-0-1"}, w.cloud.tagged); diff != "" {
		t.Errorf("tagged (-want +got):\n%s", diff)
	}
	w.pass(time.Minute, 10*time.Second)
	if n := w.cloud.calls["TagClaim"]; n != 1 {
		t.Errorf("tagged %d times", n)
	}
}

// Costs are allocated by Name in some accounts: a Name that the class's tags give stays, as with Karpenter. One that is the name under which
// the Node was expected is ours.
func TestAClassMayNameItsInstances(t *testing.T) {
	for _, tt := range []struct{ had, want string }{{"team-a", "i-a a "}, {"ip-10-0-0-1", "i-a a ip-10-0-0-7"}, {"", "i-a a ip-10-0-0-7"}} {
		w := newWorld(t)
		claim, inst := w.launched("a")
		if tt.had != "" {
			inst.Tags = map[string]string{"Name": tt.had}
		}
		n := nodeFor(claim, *inst)
		n.Name = "ip-10-0-0-7"
		w.createNode(n)
		w.kubelet(n.Name)
		w.step()
		if diff := cmp.Diff([]string{tt.want}, w.cloud.tagged); diff != "" {
			t.Errorf("Name was %q; tagged (-want +got):\n%s", tt.had, diff)
		}
	}
}

func TestTaggingIsLeftToTheLaunchThatDidIt(t *testing.T) {
	w := newWorld(t)
	claim, inst := w.launched("a")
	inst.Claim, inst.Tags = "a", map[string]string{"Name": inst.NodeName}
	w.createNode(nodeFor(claim, *inst))
	w.kubelet(inst.NodeName)
	w.step()
	if w.cloud.calls["TagClaim"] != 0 || w.claim("a").Annotations[AnnotationTagged] != "true" {
		t.Errorf("calls %v, annotations %v", w.cloud.calls, w.claim("a").Annotations)
	}
}

// A standalone NodeClaim has no finalizer at first; it gets one before anything is launched for it.
func TestClaimsGetTheirFinalizer(t *testing.T) {
	w := newWorld(t)
	w.intent("a", "", func(c *karpv1.NodeClaim) { c.Finalizers = nil })
	w.step()
	if !hasFinalizer(w.claim("a")) {
		t.Error("no finalizer")
	}
}

// A Node that is created ahead is kept from load balancers until its kubelet has registered, unless its claim keeps it from them for good.
func TestLoadBalancersWaitForRegistration(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		w := newWorld(t)
		claim, inst := w.launched("a", func(c *karpv1.NodeClaim) {
			if wanted {
				c.Labels[corev1.LabelNodeExcludeBalancers] = "true"
			}
		})
		w.createNode(nodeFor(claim, *inst))
		w.step()
		if w.node(inst.NodeName).Labels[corev1.LabelNodeExcludeBalancers] == "" {
			t.Error("load balancers may use the Node before its instance runs")
		}
		w.kubelet(inst.NodeName)
		w.step()
		n := w.node(inst.NodeName)
		if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; n.Labels[karpv1.NodeRegisteredLabelKey] != "true" || excluded != wanted {
			t.Errorf("after registration the labels are %v; the claim wants to be excluded: %v", n.Labels, wanted)
		}
	}
}

// A kubelet may change labels of its own Node. If it takes the mark of initialization off, the mark comes back, also while the node isn't Ready:
// otherwise its taints would be hidden from the scheduler.
func TestInitializedLabelComesBack(t *testing.T) {
	w := newWorld(t)
	claim, inst := w.launched("a", func(*karpv1.NodeClaim) {})
	w.createNode(nodeFor(claim, *inst))
	w.kubelet(inst.NodeName)
	w.step()
	w.step()
	if w.node(inst.NodeName).Labels[karpv1.NodeInitializedLabelKey] != "true" {
		t.Fatal("the node is not initialized")
	}
	w.changeNode(inst.NodeName, func(n *corev1.Node) {
		delete(n.Labels, karpv1.NodeInitializedLabelKey)
		setTaint(n, taint(corev1.TaintNodeNotReady, "NoExecute"))
		for i := range n.Status.Conditions {
			if n.Status.Conditions[i].Type == corev1.NodeReady {
				n.Status.Conditions[i].Status = corev1.ConditionFalse
			}
		}
	})
	w.step()
	if n := w.node(inst.NodeName); n.Labels[karpv1.NodeInitializedLabelKey] != "true" {
		t.Errorf("the labels are %v", n.Labels)
	}
}
