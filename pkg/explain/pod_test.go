package explain

import (
	"strings"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
	"github.com/dovetail-scheduler/dovetail/pkg/whatif"
)

// classNamed returns a function that makes the class with a condition Ready.
func classNamed(name string) func(ready metav1.ConditionStatus, message string) *ec2nc.EC2NodeClass {
	return func(ready metav1.ConditionStatus, message string) *ec2nc.EC2NodeClass {
		out := &ec2nc.EC2NodeClass{TypeMeta: metav1.TypeMeta{APIVersion: "karpenter.k8s.aws/v1", Kind: "EC2NodeClass"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
		out.Status.Conditions = []status.Condition{{Type: "Ready", Status: ready, Message: message}}
		return out
	}
}

// A pod may name a node that doesn't exist. It is counted, and the answer says so.
func TestPodOfANodeThatIsNotThere(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}, Spec: corev1.PodSpec{NodeName: "ip-nope"}}
	c := clusterOf((&manifest.Set{}).With(pod))
	a, err := c.Pod(t.Context(), "shop", "web")
	if err != nil || a.Kind != PodBound || !strings.Contains(a.Summary, "ip-nope, and there is no such node") {
		t.Errorf("%+v, %v", a, err)
	}
	o, err := c.Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := o.Money()[1]; got != "0 pods with a node, 0 without, 1 on nodes that aren't there" {
		t.Errorf("the overview says %q", got)
	}
}

// A place may be on a node that is there, or on a NodeClaim whose instance is starting.
func TestPlaceOnAnInstanceThatIsStarting(t *testing.T) {
	c := clusterOf((&manifest.Set{}).With(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim"}}))
	for name, want := range map[string]string{"node": "node node, which is there", "claim": "NodeClaim claim, whose instance is starting"} {
		if got := c.placeText(whatif.Place{Existing: name}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A pod that is refused isn't said to be planned in seconds, which is what its last scheduling cycle found.
func TestRefusedPodIsNotBeingPlanned(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}}
	a := &Answer{}
	c := clusterOf((&manifest.Set{}).With(pod))
	refused := &offline.Report{Refused: []offline.Refused{{Namespace: "shop", Name: "web", Reason: "there is no node pool"}}}
	if err := c.refused(t.Context(), a, refused, pod, []string{"0/1 nodes are available. capacity for the pod is being planned"}); err != nil {
		t.Fatal(err)
	}
	for _, s := range a.Sections {
		if text := strings.Join(s.Lines, "\n"); strings.Contains(text, "being planned") {
			t.Errorf("it says %q", text)
		}
	}
}
