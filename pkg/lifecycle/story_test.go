package lifecycle

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

var update = flag.Bool("update", false, "write the effects that were seen into the stories; read the diff before you commit it")

// Stories are text files in testdata: what happens around the controller, and what it does then. docs/development.md says how to write one.
func TestStories(t *testing.T) {
	for _, path := range stories(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			text, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			wrong := play(t, text, func(*Controller) {})
			if *update {
				if err := os.WriteFile(path, txtar.Format(text), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			for _, diff := range wrong {
				t.Error(diff)
			}
		})
	}
}

// Each stage is told about: a story shows that it is missing.
func TestStoriesMissStages(t *testing.T) {
	told := map[string]bool{}
	var all []stage
	for _, path := range slices.Backward(stories(t)) {
		text, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = slices.Concat(newWorld(t).c.alive, newWorld(t).c.deleted)
		for _, s := range all {
			without := func(c *Controller) {
				other := func(o stage) bool { return reflect.TypeOf(o) == reflect.TypeOf(s) }
				c.alive, c.deleted = slices.DeleteFunc(c.alive, other), slices.DeleteFunc(c.deleted, other)
			}
			if name := fmt.Sprintf("%T", s); !told[name] && len(play(t, text, without)) > 0 {
				told[name] = true
			}
		}
	}
	for _, s := range all {
		if name := fmt.Sprintf("%T", s); !told[name] {
			t.Errorf("no story misses the stage %s", name)
		}
	}
}

func stories(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	return paths
}

// play plays a story with a controller that change may have changed, and returns where the effects differ from what the story says. In the
// story they are replaced by those that were seen.
func play(t *testing.T, text *txtar.Archive, change func(*Controller)) (wrong []string) {
	t.Helper()
	s := &story{world: newWorld(t)}
	change(s.c)
	s.registering = func(claim, node, _ string) { s.did("Registering: claim %s, node %s", claim, node) }
	s.registered = func(claim *karpv1.NodeClaim, node *corev1.Node) {
		s.did("Registered: claim %s, node %s", claim.Name, node.Name)
	}
	s.notRegistered = func(claim *karpv1.NodeClaim, message string) {
		s.did("NotRegistered: claim %s: %s", claim.Name, message)
	}
	s.givingUp = func(claim, why string, fault *guard.Fault) {
		s.did("GivingUp: claim %s: %s; a fault: %t", claim, why, fault != nil)
	}
	s.collectAt, s.seen = s.clock.Now(), map[string][]string{}
	for i := 0; i < len(text.Files); i += 2 {
		happens := text.Files[i]
		if i+1 == len(text.Files) || text.Files[i+1].Name != "effects" {
			t.Fatalf("%q has no section with its effects behind it", happens.Name)
		}
		for _, line := range strings.Split(strings.TrimSpace(string(happens.Data)), "\n") {
			line, _, _ = strings.Cut(line, "#")
			if words := strings.Fields(line); len(words) > 0 {
				s.do(words)
			}
		}
		s.settle()
		want, got := string(text.Files[i+1].Data), s.take()
		if diff := cmp.Diff(want, got); diff != "" {
			wrong = append(wrong, fmt.Sprintf("%s (-want +got):\n%s", happens.Name, diff))
		}
		text.Files[i+1].Data = []byte(got)
	}
	return wrong
}

// story is a world whose effects are written down.
type story struct {
	*world
	seen      map[string][]string // what was true of each object when the controller last did something
	lines     []string            // effects so far, with their times
	collectAt time.Time           // when garbage is collected next
}

// do makes something happen. Claims, their instances and Nodes have the same name in a story: a, i-a, node of a.
func (s *story) do(words []string) {
	s.t.Helper()
	verb, name, rest := words[0], "", words[1:]
	before := s.podsByName()
	if len(rest) > 0 {
		name, rest = rest[0], rest[1:]
	}
	of := func(claim string) string { return s.cloud.instances["i-"+claim].NodeName } // its Node
	switch verb {
	case "claim": // a NodeClaim whose launch was asked for and isn't known to have happened: claim NAME batch=TOKEN
		s.intent(name, strings.TrimPrefix(rest[0], "batch="))
	case "launch": // an instance runs for a new NodeClaim: launch NAME [startup-taint=KEY] [grace=DURATION] [cpu=CAPACITY]
		s.launched(name, func(c *karpv1.NodeClaim) {
			for _, option := range rest {
				switch key, value, _ := strings.Cut(option, "="); key {
				case "startup-taint":
					c.Spec.StartupTaints = append(c.Spec.StartupTaints, taint(value, "NoSchedule"))
				case "cpu":
					c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
					c.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(value)}
				case "grace":
					c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: s.duration(value)}
				default:
					s.t.Fatalf("launch doesn't know %q", option)
				}
			}
		})
	case "node": // node NAME: the claim's Node is created ahead of its kubelet
		s.createNode(nodeFor(s.claim(name), *s.cloud.instances["i-"+name]))
	case "class": // class: the node class of all claims
		if err := s.claims.Create(s.ctx, &ec2nc.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}); err != nil {
			s.t.Fatal(err)
		}
	case "drifts": // drifts NAME [REASON]: why the cloud would launch the node otherwise now; without reason: it wouldn't
		s.cloud.drifted["i-"+name] = cloudprovider.DriftReason(strings.Join(rest, ""))
	case "pool": // pool CONSOLIDATE_AFTER: the NodePool of all claims
		p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		p.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
		p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration(name)
		if err := s.claims.Create(s.ctx, p); err != nil {
			s.t.Fatal(err)
		}
	case "kubelet": // kubelet NAME ready|unready [cpu=CAPACITY]: the node's kubelet posts its status, or is no longer heard of
		s.kubelet(of(name))
		s.changeNode(of(name), func(n *corev1.Node) {
			if rest[0] == "unready" {
				n.Status.Conditions[0].Status = corev1.ConditionUnknown
			}
			if len(rest) > 1 {
				n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(strings.TrimPrefix(rest[1], "cpu="))}
				n.Status.Allocatable = n.Status.Capacity
			}
		})
	case "untaint": // untaint NAME KEY: an agent removes a taint
		s.changeNode(of(name), func(n *corev1.Node) { dropTaint(n, rest[0]) })
	case "pod": // pod NAME on CLAIM [critical]
		s.pod(name, of(rest[1]), func(p *corev1.Pod) {
			if slices.Contains(rest, "critical") {
				p.Spec.PriorityClassName = "system-cluster-critical"
			}
		})
	case "budget": // budget POD blocks|allows: whether the pod's disruption budget allows its eviction
		s.blocked[name] = rest[0] == "blocks"
	case "cloud-controller": // cloud-controller NAME: the cloud controller manager deletes the claim's Node, and says so in an event
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default"}, InvolvedObject: corev1.ObjectReference{UID: s.node(of(name)).UID}, Reason: eventDeleting}
		if _, err := s.kube.CoreV1().Events("default").Create(s.ctx, e, metav1.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
		s.remove(name, "node")
	case "delete": // delete nodeclaim|node|pod NAME: a user does
		s.remove(rest[0], name)
	case "pods": // pods end: kubelets end all terminating pods
		s.endPods()
	case "instance": // instance ID pending|running|shutting-down|terminated|unknown [batch=TOKEN]: what EC2 says about it, perhaps a new one
		if s.cloud.instances[name] == nil {
			s.cloud.launch(name, strings.TrimPrefix(strings.Join(rest[1:], ""), "batch="))
		}
		if s.cloud.hidden[name] = rest[0] == "unknown"; !s.cloud.hidden[name] {
			s.cloud.instances[name].State = capacity.InstanceState(rest[0])
		}
	case "wait": // wait DURATION
		s.wait(s.duration(name))
		return
	default:
		s.t.Fatalf("nothing is called %q", verb)
	}
	after := s.podsByName()
	for _, pod := range slices.Sorted(maps.Keys(before)) {
		if after[pod] == nil {
			s.c.watcher.podChanged(before[pod], nil)
		}
	}
	for _, pod := range slices.Sorted(maps.Keys(after)) {
		if before[pod] == nil {
			s.c.watcher.podChanged(nil, after[pod])
		} else {
			s.c.watcher.podChanged(before[pod], after[pod])
		}
	}
	s.seen, s.done = s.state(), nil // what others do is no effect
}

func (s *story) podsByName() map[string]*corev1.Pod {
	out := map[string]*corev1.Pod{}
	for _, p := range s.podsLeft() {
		out[p.Name] = p
	}
	return out
}

func (s *story) remove(name, kind string) {
	s.t.Helper()
	var err error
	switch kind {
	case "nodeclaim":
		err = s.claims.Delete(s.ctx, s.claim(name))
	case "node":
		err = s.kube.CoreV1().Nodes().Delete(s.ctx, s.cloud.instances["i-"+name].NodeName, metav1.DeleteOptions{})
	case "pod":
		p, _ := s.objects.Get(podsResource, "default", name)
		uid := p.(*corev1.Pod).UID
		err = s.kube.CoreV1().Pods("default").Delete(s.ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	default:
		s.t.Fatalf("a user can't delete a %s", kind)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *story) duration(text string) time.Duration {
	s.t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// wait lets time pass. The controller works when it has asked to, and as long as it has an effect.
func (s *story) wait(d time.Duration) {
	s.t.Helper()
	until := s.clock.Now().Add(d)
	for {
		next := until.Sub(s.clock.Now())
		if soon := s.settle(); soon > 0 {
			next = min(next, soon)
		}
		if next <= 0 {
			return
		}
		s.clock.Step(next)
	}
}

// settle lets the controller work until that has no effect any more, and returns when it wants to work again.
func (s *story) settle() time.Duration {
	s.t.Helper()
	for range 20 {
		soon := s.step()
		if !s.clock.Now().Before(s.collectAt) {
			after, err := s.c.reconcile(s.ctx, key{})
			if err != nil {
				s.t.Fatal(err)
			}
			s.collectAt = s.clock.Now().Add(after)
		}
		if !s.effects() {
			return soonest(soon, s.collectAt.Sub(s.clock.Now()))
		}
	}
	s.t.Fatal("the controller doesn't come to rest")
	return 0
}

// effects writes down what the controller has done since the last call, and reports whether there was anything.
func (s *story) effects() bool {
	now := s.state()
	done := s.done
	for _, object := range slices.Sorted(maps.Keys(now)) {
		if diff := gained(s.seen[object], now[object]); diff != "" {
			done = append(done, object+": "+diff)
		}
	}
	for _, object := range slices.Sorted(maps.Keys(s.seen)) {
		if now[object] == nil {
			done = append(done, object+": gone")
		}
	}
	s.seen, s.done = now, nil
	for _, line := range done {
		s.lines = append(s.lines, fmt.Sprintf("%-8s %s", s.clock.Since(epoch), line))
	}
	return len(done) > 0
}

// take returns the effects since the last call. One that is repeated is written down once.
func (s *story) take() string {
	var out []string
	times := map[string]int{}
	what := func(line string) string {
		_, effect, _ := strings.Cut(line, " ")
		return strings.TrimSpace(effect)
	}
	for _, line := range s.lines {
		if times[what(line)]++; times[what(line)] == 1 {
			out = append(out, line)
		}
	}
	for i, line := range out {
		if n := times[what(line)]; n > 1 {
			out[i] = fmt.Sprintf("%s (%d times)", line, n)
		}
		out[i] += "\n"
	}
	s.lines = nil
	return strings.Join(out, "")
}

// state returns what is true of each object, as far as stories are about it.
func (s *story) state() map[string][]string {
	s.t.Helper()
	out := map[string][]string{}
	var all karpv1.NodeClaimList
	if err := s.claims.List(s.ctx, &all); err != nil {
		s.t.Fatal(err)
	}
	for i := range all.Items {
		claim := &all.Items[i]
		facts := metadata(claim)
		if at := claim.Status.LastPodEventTime; !at.IsZero() {
			facts = append(facts, "lastPodEventTime="+at.Sub(epoch).String())
		}
		for _, c := range claim.Status.Conditions {
			if c.Reason == "AwaitingReconciliation" || c.Reason == "ReconcilingDependents" {
				continue // not set by a stage
			}
			fact := c.Type + "=" + string(c.Status)
			if c.Reason != c.Type {
				fact += " (" + c.Reason + ")"
			}
			facts = append(facts, fact)
		}
		out["nodeclaim "+claim.Name] = facts
	}
	nodes, err := s.kube.CoreV1().Nodes().List(s.ctx, metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		facts := metadata(n)
		for _, t := range n.Spec.Taints {
			facts = append(facts, "taint "+t.ToString())
		}
		for _, label := range []string{karpv1.NodeRegisteredLabelKey, karpv1.NodeInitializedLabelKey, corev1.LabelNodeExcludeBalancers} {
			if value, ok := n.Labels[label]; ok {
				facts = append(facts, "label "+label+"="+value)
			}
		}
		out["node "+n.Name] = facts
	}
	for _, p := range s.podsLeft() {
		out["pod "+p.Name] = metadata(p)
	}
	leases, err := s.objects.List(leaseResource, coordv1.SchemeGroupVersion.WithKind("Lease"), "")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range leases.(*coordv1.LeaseList).Items {
		out["lease "+l.Name] = []string{"exists"}
	}
	return out
}

// metadata returns the facts of an object's metadata.
func metadata(obj metav1.Object) []string {
	facts := []string{"exists"}
	if obj.GetDeletionTimestamp() != nil {
		facts = append(facts, "deleted")
	}
	for _, f := range obj.GetFinalizers() {
		facts = append(facts, "finalizer "+f)
	}
	for _, key := range []string{AnnotationTagged, karpv1.NodeClaimTerminationTimestampAnnotationKey, objects.AnnotationFailed} {
		if value, ok := obj.GetAnnotations()[key]; ok {
			facts = append(facts, "annotation "+key+"="+value)
		}
	}
	return facts
}

// gained returns what has become true, with a plus, and what no longer is and has no new value, with a minus.
func gained(before, now []string) string {
	var out []string
	has := map[string]bool{}
	for _, fact := range now {
		key, _, _ := strings.Cut(fact, "=")
		if has[key] = true; !slices.Contains(before, fact) {
			out = append(out, "+"+fact)
		}
	}
	for _, fact := range before {
		if key, _, _ := strings.Cut(fact, "="); !has[key] {
			out = append(out, "-"+fact)
		}
	}
	return strings.Join(out, ", ")
}
