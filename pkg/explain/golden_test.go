package explain

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
)

var update = flag.Bool("update", false, "rewrite testdata with what comes out now; understand the difference before you keep it")

// golden compares what a test wrote with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

type noPrices struct{}

func (noPrices) Price(string, string, string) (float64, bool) { return 0, false }

var now = time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)

func clusterOf(set *manifest.Set) *Cluster {
	return New(set, offline.Settings{NodeClass: nodeclass.Kind, Clock: clocktesting.NewFakePassiveClock(now)}, noPrices{}, now, time.Second)
}

// Each reason that the program gives for a pod (internal/lint holds the file to the code) is a line of reasons.golden that begins with
// "> ". What follows is what 'dovetail why pod' says of a pod that has the reason in its condition and waits for its node.
func TestEveryReasonIsExplained(t *testing.T) {
	raw, err := os.ReadFile("testdata/reasons.golden")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	var got strings.Builder
	for line := range strings.Lines(string(raw)) {
		message, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "> ")
		if !ok {
			continue
		}
		advice, known := AdviceFor(message)
		if !known {
			t.Errorf("advice.go has nothing about %q", message)
		}
		used[advice.Says] = true
		fmt.Fprintf(&got, "> %s\n%s\n", message, adviceText(t, message))
	}
	for _, a := range advices {
		if !used[a.Says] {
			t.Errorf("reasons.golden has no message for the advice about %q", a.Says)
		}
		if a.Means == "" && a.Do == "" {
			t.Errorf("the advice about %q is empty", a.Says)
		}
	}
	golden(t, "reasons.golden", strings.TrimRight(got.String(), "\n")+"\n")
}

// adviceText returns the section about a message.
func adviceText(t *testing.T, message string) string {
	t.Helper()
	slots := `[{"pod":{"namespace":"shop","name":"web","uid":"u"},"class":"c","order":1}]`
	set := (&manifest.Set{}).With(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/3 nodes are available: 3 Insufficient cpu. " + message}}}},
		&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Annotations: map[string]string{objects.AnnotationPlannedPods: slots}},
			Spec: karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: nodeclass.Kind.Group, Kind: nodeclass.Kind.Kind, Name: "default"}}})
	a, err := clusterOf(set).Pod(t.Context(), "shop", "web")
	if err != nil {
		t.Fatal(err)
	}
	if a.Kind != PodReserved {
		t.Fatalf("the answer is %s", a.Kind)
	}
	i := slices.IndexFunc(a.Sections, func(s Section) bool { return strings.HasPrefix(s.Title, "What that means") })
	if i < 0 {
		return ""
	}
	return strings.Join(a.Sections[i].Lines, "\n") + "\n"
}

// kept is every kind of reason for which a node is kept, with what it says.
var kept = []consolidation.Kept{
	{Kind: consolidation.Protected, Pod: capacity.PodRef{Namespace: "shop", Name: "web"}},
	{Kind: consolidation.NotQuiet, Until: now},
	{Kind: consolidation.Unmovable, Pod: capacity.PodRef{Namespace: "shop", Name: "web"}, Message: "it has no controller"},
	{Kind: consolidation.BlockedByPDB, Name: "web", Pod: capacity.PodRef{Namespace: "shop", Name: "web"}},
	{Kind: consolidation.Surge, Name: "shop/web", Pod: capacity.PodRef{Namespace: "shop", Name: "web"}, Message: "its last roll-out isn't finished"},
	{Kind: consolidation.Paused, Message: "the pool has the annotation"},
	{Kind: consolidation.Static},
	{Kind: consolidation.NotReady},
	{Kind: consolidation.NotRepaired, Message: "Ready is Unknown for 4m0s"},
	{Kind: consolidation.Disrupting},
	{Kind: consolidation.Disabled},
	{Kind: consolidation.OtherReason, Message: "its last move failed"},
	{Kind: consolidation.PolicyWhenEmpty},
	{Kind: consolidation.Young, Until: now},
	{Kind: consolidation.Received, Until: now},
	{Kind: consolidation.NoPrice},
	{Kind: consolidation.Full, Pod: capacity.PodRef{Namespace: "shop", Name: "web"}, Resource: "cpu"},
	{Kind: consolidation.Dearer, Cheapest: 0.3, Price: 0.2},
	{Kind: consolidation.Dearer, Cheapest: 0.19, Price: 0.2, Message: "nodes of its pool may cost 10 % more than the cheapest, so that zones are even (annotation dovetail.sh/zone-balance)"},
	{Kind: consolidation.NotWorth, Saves: 0.01, Cost: 0.2},
	{Kind: consolidation.Unbalanced, Score: 0.4, Threshold: 0.5},
	{Kind: consolidation.Paying, Saves: 0.1, Accrued: 0.02, Cost: 0.05},
	{Kind: consolidation.Budget, Reason: "Underutilized"},
	{Kind: consolidation.Limit, Name: "default"},
	{Kind: consolidation.TotalLimit},
	{Kind: consolidation.Flexibility, Count: 3, Needed: 15},
	{Kind: consolidation.Covered, Name: "compute-sp"},
	{Kind: consolidation.RollOut, Message: "the first new node has yet to prove itself"},
	{Kind: consolidation.WantOfSpot},
}

func TestEveryKindOfKeepIsExplained(t *testing.T) {
	var got strings.Builder
	for _, k := range kept {
		// As pkg/disruption writes it.
		text := string(k.Kind) + ": " + k.Text()
		set := (&manifest.Set{}).With(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{NodeName: "node"}},
			&karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Annotations: map[string]string{objects.AnnotationKept: text}}, Status: karpv1.NodeClaimStatus{
				NodeName: "node", Conditions: conditions(karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized)}})
		a, err := clusterOf(set).Node("node")
		if err != nil {
			t.Fatal(err)
		}
		if a.Kind != string(k.Kind) || keptAdvice[k.Kind] == "" {
			t.Errorf("%s: the answer is %s, the advice %q", k.Kind, a.Kind, keptAdvice[k.Kind])
		}
		fmt.Fprintf(&got, "> %s\n%s %s\n%s\n\n", a.Kind, a.Object, a.Summary, strings.Join(a.Sections[0].Lines, "\n"))
	}
	for kind := range keptAdvice {
		if !slices.ContainsFunc(kept, func(k consolidation.Kept) bool { return k.Kind == kind }) {
			t.Errorf("%s is not tested", kind)
		}
	}
	golden(t, "kept.golden", strings.TrimRight(got.String(), "\n")+"\n")
}

func conditions(names ...string) (out []status.Condition) {
	for _, name := range names {
		out = append(out, status.Condition{Type: name, Status: metav1.ConditionTrue})
	}
	return out
}

func TestEveryPoolConditionIsExplained(t *testing.T) {
	var got strings.Builder
	for _, name := range []string{
		karpv1.ConditionTypeValidationSucceeded, karpv1.ConditionTypeNodeClassReady, karpv1.ConditionTypeNodeRegistrationHealthy,
		objects.ConditionFieldsHonored, objects.ConditionLaunchesPaused, objects.ConditionBudgetReached, objects.ConditionRollOutPaused,
		objects.ConditionStartupTaintsDeclared, objects.ConditionArchitectureDeclared,
	} {
		state := metav1.ConditionFalse
		if bad[name] != "" {
			state = metav1.ConditionTrue
		}
		set := (&manifest.Set{}).With(&karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Status: karpv1.NodePoolStatus{Conditions: []status.Condition{
			{Type: name, Status: state, Message: "what the controller says", LastTransitionTime: metav1.NewTime(now.Add(-time.Minute))}}}})
		a, err := clusterOf(set).NodePool("default")
		if err != nil {
			t.Fatal(err)
		}
		if a.Sections[0].Title != "What isn't as it should be" || !strings.Contains(a.Sections[0].Lines[0], "To do: ") {
			t.Errorf("%s is not explained: %v", name, a.Sections[0])
		}
		fmt.Fprintf(&got, "> %s\n%s %s\n%s\n\n", name, a.Object, a.Summary, strings.Join(a.Sections[0].Lines, "\n"))
	}
	golden(t, "conditions.golden", strings.TrimRight(got.String(), "\n")+"\n")
}
