package clustermetrics

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// informer is a cache that reports what the test does to it.
type informer struct {
	cache.SharedIndexInformer
	store    cache.Store
	handlers []cache.ResourceEventHandler
}

func newInformer() *informer { return &informer{store: cache.NewStore(cache.MetaNamespaceKeyFunc)} }

func (i *informer) GetStore() cache.Store { return i.store }

func (i *informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, h)
	return nil, nil
}

func (i *informer) put(o client.Object) {
	before, there, _ := i.store.Get(o)
	_ = i.store.Add(o)
	for _, h := range i.handlers {
		if there {
			h.OnUpdate(before, o)
		} else {
			h.OnAdd(o, false)
		}
	}
}

func (i *informer) remove(o client.Object) {
	_ = i.store.Delete(o)
	for _, h := range i.handlers {
		h.OnDelete(o)
	}
}

// observedWorld is a world with informers of all kinds.
type observedWorld struct {
	*world
	claims, pools, classes, observed, buffers *informer
	start                                     time.Time
}

var testClass = capacity.NodeClassLabel{Key: "karpenter.k8s.aws/ec2nodeclass"}

func newObservedWorld(t testing.TB) *observedWorld {
	t.Helper()
	w := &observedWorld{newWorld(), newInformer(), newInformer(), newInformer(), newInformer(), newInformer(), time.Time{}}
	w.start = w.clock.Now()
	var err error
	if w.Conditions, err = NewConditions(Informers{NodeClaims: w.claims, NodePools: w.pools, NodeClasses: w.classes, Nodes: w.observed, CapacityBuffers: w.buffers}, testClass, w.clock); err != nil {
		t.Fatal(err)
	}
	return w
}

// claim returns a NodeClaim of a pool whose condition Registered has a status since so many seconds after the start.
func (w *observedWorld) claim(pool string, is metav1.ConditionStatus, reason string, since int) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: types.UID(pool), Labels: map[string]string{karpv1.NodePoolLabelKey: pool, testClass.Key: "default"}},
		Status: karpv1.NodeClaimStatus{Conditions: []status.Condition{{Type: "Registered", Status: is, Reason: reason, LastTransitionTime: w.at(since)}}}}
}

// buffer returns a CapacityBuffer whose condition Provisioning has a status since so many seconds after the start.
func (w *observedWorld) buffer(name string, is metav1.ConditionStatus, reason string, since int) *autoscalingv1beta1.CapacityBuffer {
	return &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)},
		Status: autoscalingv1beta1.CapacityBufferStatus{Conditions: []metav1.Condition{{Type: "Provisioning", Status: is, Reason: reason, LastTransitionTime: w.at(since)}}}}
}

func (w *observedWorld) at(second int) metav1.Time {
	return metav1.NewTime(w.start.Add(time.Duration(second) * time.Second))
}

func TestConditionGauges(t *testing.T) {
	w := newObservedWorld(t)
	claim := w.claim("blue", "False", "Waits", -20)
	deleted := w.at(-3)
	claim.DeletionTimestamp = &deleted
	w.claims.put(claim)
	w.pools.put(&karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "blue"}, Status: karpv1.NodePoolStatus{Conditions: []status.Condition{
		{Type: "Ready", Status: "True", Reason: "Ready", LastTransitionTime: w.at(-60)}}}})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{karpv1.NodePoolLabelKey: "blue", testClass.Key: "default", karpv1.NodeInitializedLabelKey: "true"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True", Reason: "KubeletReady", LastTransitionTime: w.at(-5)}}}}
	w.observed.put(node)
	buffer := w.buffer("spare", "True", "Ready", -40)
	w.buffers.put(buffer)
	s := &state{source: w.Source}
	const registered, own = `reason="Waits",status="False",type="Registered"`, `karpenter_k8s_aws_ec2nodeclass="default",karpenter_sh_nodepool="blue",name="one"`
	const ready = `reason="Ready",status="True",type="Ready"`
	const spare = `name="spare",namespace="shop",reason="Ready",status="True",type="Provisioning"`
	want(t, text(t, s, "operator_"),
		`operator_capacitybuffer_status_condition_count{`+spare+`} 1`,
		`operator_capacitybuffer_status_condition_current_status_seconds{`+spare+`} 40`,
		`operator_node_status_condition_count{karpenter_k8s_aws_ec2nodeclass="default",karpenter_sh_initialized="true",karpenter_sh_nodepool="blue",name="n",reason="KubeletReady",status="True",type="Ready"} 1`,
		`operator_node_status_condition_current_status_seconds{karpenter_k8s_aws_ec2nodeclass="default",karpenter_sh_initialized="true",karpenter_sh_nodepool="blue",name="n",reason="KubeletReady",status="True",type="Ready"} 5`,
		`operator_nodeclaim_status_condition_count{`+own+`,`+registered+`} 1`,
		`operator_nodeclaim_status_condition_current_status_seconds{`+own+`,`+registered+`} 20`,
		`operator_nodeclaim_termination_current_time_seconds{`+own+`} 3`,
		`operator_nodepool_status_condition_count{name="blue",`+ready+`} 1`,
		`operator_nodepool_status_condition_current_status_seconds{name="blue",`+ready+`} 60`,
		`operator_status_condition_count{group="autoscaling.x-k8s.io",kind="CapacityBuffer",`+spare+`} 1`,
		`operator_status_condition_count{group="karpenter.sh",kind="NodeClaim",name="one",`+registered+`} 1`,
		`operator_status_condition_count{group="karpenter.sh",kind="NodePool",name="blue",`+ready+`} 1`,
		`operator_status_condition_current_status_seconds{group="autoscaling.x-k8s.io",kind="CapacityBuffer",`+spare+`} 40`,
		`operator_status_condition_current_status_seconds{group="karpenter.sh",kind="NodeClaim",name="one",`+registered+`} 20`,
		`operator_status_condition_current_status_seconds{group="karpenter.sh",kind="NodePool",name="blue",`+ready+`} 60`,
		`operator_termination_current_time_seconds{group="karpenter.sh",kind="NodeClaim",name="one"} 3`,
	)

	// Without series per node, those of pools and buffers stay.
	w.Objectless = true
	w.clock.Step(Freshness)
	for _, line := range text(t, s, "operator_") {
		if !strings.Contains(line, `name="blue"`) && !strings.Contains(line, `name="spare"`) {
			t.Errorf("a series of an object per node: %s", line)
		}
	}
	w.Objectless = false

	// Series end with their objects.
	w.claims.remove(claim)
	w.observed.remove(node)
	w.buffers.remove(buffer)
	w.clock.Step(Freshness)
	if got := text(t, s, "operator_node_", "operator_nodeclaim_", "operator_capacitybuffer_", "operator_termination"); len(got) > 0 {
		t.Errorf("series of objects that are gone: %q", got)
	}
}

func TestConditionsAreCounted(t *testing.T) {
	w := newObservedWorld(t)
	const pool = "counted"
	w.claims.put(w.claim(pool, "Unknown", "Waits", 0))
	w.claims.put(w.claim(pool, "True", "Before", 1)) // before this process leads
	if got := counted(t, "nodeclaim", "karpenter_sh_nodepool", pool); len(got) > 0 {
		t.Errorf("a replica that doesn't lead counts: %q", got)
	}
	w.Conditions.Lead()
	w.claims.put(w.claim(pool, "False", "Lost", 31))
	w.claims.put(w.claim(pool, "False", "Gone", 31)) // another reason is no transition
	last := w.claim(pool, "True", "Registered", 33)
	w.claims.put(last)
	kept := w.claim(pool, "Unknown", "Waits", 33) // never deleted by anybody: it took no time to end
	kept.Name = "other"
	w.claims.put(kept)
	w.claims.remove(kept)
	deleted := w.at(40)
	ends := last.DeepCopy()
	ends.DeletionTimestamp = &deleted
	w.claims.put(ends)
	w.clock.Step(45 * time.Second)
	w.claims.remove(ends)
	want(t, counted(t, "nodeclaim", "karpenter_sh_nodepool", pool, "karpenter_k8s_aws_ec2nodeclass", "default"),
		"operator_nodeclaim_status_condition_transition_seconds of False: 1 in 2 s",
		"operator_nodeclaim_status_condition_transition_seconds of True: 1 in 30 s",
		"operator_nodeclaim_status_condition_transitions_total to False because of Lost: 1",
		"operator_nodeclaim_status_condition_transitions_total to True because of Registered: 1",
		"operator_nodeclaim_termination_duration_seconds: 1 in 5 s",
	)
}

// CapacityBuffers are listed when the process leads already. Those of before are no news; what becomes of them is.
func TestConditionsOfBuffersAreCounted(t *testing.T) {
	w := newObservedWorld(t)
	w.Conditions.Lead()
	listed := w.buffer("listed", "True", "Before", 0)
	_ = w.buffers.store.Add(listed)
	for _, h := range w.buffers.handlers {
		h.OnAdd(listed, true)
	}
	if got := counted(t, "capacitybuffer"); len(got) > 0 {
		t.Errorf("what was so before is counted: %q", got)
	}
	w.buffers.put(w.buffer("listed", "False", "Missing", 7))
	made := w.buffer("made", "True", "Ready", 8)
	w.buffers.put(made)
	deleted := w.at(9)
	ends := made.DeepCopy()
	ends.DeletionTimestamp = &deleted
	w.buffers.put(ends)
	w.clock.Step(12 * time.Second)
	w.buffers.remove(ends)
	want(t, counted(t, "capacitybuffer"),
		"operator_capacitybuffer_status_condition_transition_seconds of True: 1 in 7 s",
		"operator_capacitybuffer_status_condition_transitions_total to False because of Missing: 1",
		"operator_capacitybuffer_status_condition_transitions_total to True because of Ready: 1",
		"operator_capacitybuffer_termination_duration_seconds: 1 in 3 s",
	)
}

// counted returns what was counted for objects of a kind, with these labels.
func counted(t *testing.T, kind string, nameValues ...string) (out []string) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			other := !strings.HasPrefix(f.GetName(), "operator_"+kind+"_")
			for i := 0; i < len(nameValues); i += 2 {
				other = other || labels[nameValues[i]] != nameValues[i+1]
			}
			if other {
				continue
			}
			line := f.GetName()
			switch {
			case m.Counter != nil:
				line += fmt.Sprintf(" to %s because of %s: %v", labels["status"], labels["reason"], m.Counter.GetValue())
			case labels["type"] != "":
				line += fmt.Sprintf(" of %s: %d in %v s", labels["status"], m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum())
			default:
				line += fmt.Sprintf(": %d in %v s", m.Histogram.GetSampleCount(), m.Histogram.GetSampleSum())
			}
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

// The labels of each kind's series are those of Karpenter's status controllers.
func TestLabelsOfConditions(t *testing.T) {
	const own, both = "namespace name type status reason", "karpenter_k8s_aws_ec2nodeclass karpenter_sh_nodepool"
	for g, want := range map[*gauge]string{
		claimConditions.gauges.count: own + " " + both, nodeConditions.gauges.seconds: own + " " + both + " karpenter_sh_initialized",
		poolConditions.gauges.count: own, classConditions.gauges.seconds: own, anyConditions.count: own + " group kind", anyConditions.terminating: "namespace name group kind",
		bufferConditions.gauges.count: own,
	} {
		_, after, _ := strings.Cut(g.desc.String(), "variableLabels: {")
		is := strings.FieldsFunc(strings.TrimSuffix(after, "}}"), func(r rune) bool { return r == ',' })
		if !maps.Equal(set(is), set(strings.Fields(want))) {
			t.Errorf("%s has the labels %q, want %q", g.name(), is, want)
		}
	}
}

// docs/signals.md lists all of them.
func TestConditionMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/signals.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range gauges {
		if strings.HasPrefix(g.name(), "operator_") {
			names = append(names, g.name())
		}
	}
	for _, kind := range []string{"", "nodeclaim_", "nodepool_", "ec2nodeclass_", "node_", "capacitybuffer_"} {
		names = append(names, "operator_"+kind+"status_condition_transitions_total", "operator_"+kind+"status_condition_transition_seconds", "operator_"+kind+"termination_duration_seconds")
	}
	if len(names) != 6*6 {
		t.Errorf("%d metrics: %q", len(names), names)
	}
	for _, name := range names {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/signals.md doesn't list %s", name)
		}
	}
}

func set(of []string) map[string]bool {
	out := map[string]bool{}
	for _, s := range of {
		out[s] = true
	}
	return out
}
