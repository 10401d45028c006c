package clustermetrics

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
)

// conditionGauges are the gauges of the conditions of objects, of one kind or, under deprecated names, of several.
type conditionGauges struct {
	count, seconds, terminating *gauge
}

func newConditionGauges(prefix string, labels ...string) conditionGauges {
	condition := append([]string{"namespace", "name", "type", "status", "reason"}, labels...)
	return conditionGauges{
		count: newGauge(prometheus.Opts{Namespace: karpentermetrics.Operator, Subsystem: prefix + karpentermetrics.ConditionSubsystem, Name: "count",
			Help: "1 for each condition of an object; the labels say which status it has, and why."}, condition...),
		seconds: newGauge(prometheus.Opts{Namespace: karpentermetrics.Operator, Subsystem: prefix + karpentermetrics.ConditionSubsystem, Name: "current_status_seconds",
			Help: "For how long a condition has had its status."}, condition...),
		terminating: newGauge(prometheus.Opts{Namespace: karpentermetrics.Operator, Subsystem: prefix + karpentermetrics.TerminationSubsystem, Name: "current_time_seconds",
			Help: "How long ago an object was deleted that isn't gone yet."}, append([]string{"namespace", "name"}, labels...)...),
	}
}

func (g *conditionGauges) all() []*gauge { return []*gauge{g.count, g.seconds, g.terminating} }

// observedKind is a kind whose objects' conditions are exported.
type observedKind struct {
	*karpentermetrics.Kind
	gauges conditionGauges
	// perNode: there is an object of the kind for each node.
	perNode bool
	// conditions calls f with each condition of an object.
	conditions func(o client.Object, f func(condition))
}

// condition is what is exported of a condition; since is when it got its status.
type condition struct {
	name, status, reason string
	since                time.Time
}

func newObservedKind(k *karpentermetrics.Kind, perNode bool, conditions func(client.Object, func(condition))) *observedKind {
	return &observedKind{Kind: k, gauges: newConditionGauges(k.Prefix(), k.Labels...), perNode: perNode, conditions: conditions}
}

// The kinds, and the gauges that all but Nodes share: Karpenter has no deprecated metrics of Nodes.
var (
	claimConditions = newObservedKind(karpentermetrics.NodeClaims, true, statusConditions)
	poolConditions  = newObservedKind(karpentermetrics.NodePools, false, statusConditions)
	classConditions = newObservedKind(karpentermetrics.NodeClasses, false, statusConditions)
	nodeConditions  = newObservedKind(karpentermetrics.Nodes, true, conditionsOfNode)
	// Conditions of buffers aren't those of Karpenter's own kinds.
	bufferConditions = newObservedKind(karpentermetrics.CapacityBuffers, false, conditionsOfBuffer)
	anyConditions    = newConditionGauges("", "group", "kind")
)

func statusConditions(o client.Object, f func(condition)) {
	if o, ok := o.(status.Object); ok {
		for _, c := range o.GetConditions() {
			f(condition{c.Type, string(c.Status), c.Reason, c.LastTransitionTime.Time})
		}
	}
}

func conditionsOfNode(o client.Object, f func(condition)) {
	if n, ok := o.(*corev1.Node); ok {
		for i := range n.Status.Conditions {
			c := &n.Status.Conditions[i]
			f(condition{string(c.Type), string(c.Status), c.Reason, c.LastTransitionTime.Time})
		}
	}
}

func conditionsOfBuffer(o client.Object, f func(condition)) {
	if b, ok := o.(*autoscalingv1beta1.CapacityBuffer); ok {
		for i := range b.Status.Conditions {
			c := &b.Status.Conditions[i]
			f(condition{c.Type, string(c.Status), c.Reason, c.LastTransitionTime.Time})
		}
	}
}

// Informers are the caches of the kinds whose conditions are exported.
type Informers struct {
	NodeClaims, NodePools, NodeClasses, Nodes, CapacityBuffers cache.SharedIndexInformer
}

// Conditions exports what Karpenter's status controllers export of the conditions of objects and of how long objects take to end: gauges when
// they are scraped, counters and histograms as the informers report changes. It counts nothing before Lead is called, and what happened
// while no process led is not counted.
type Conditions struct {
	clock     clock.PassiveClock
	class     capacity.NodeClassLabel
	leading   atomic.Bool
	informers map[*observedKind]cache.SharedIndexInformer
}

// NewConditions registers handlers with the informers.
func NewConditions(in Informers, class capacity.NodeClassLabel, c clock.PassiveClock) (*Conditions, error) {
	out := &Conditions{clock: c, class: class, informers: map[*observedKind]cache.SharedIndexInformer{
		claimConditions: in.NodeClaims, poolConditions: in.NodePools, classConditions: in.NodeClasses, nodeConditions: in.Nodes,
		bufferConditions: in.CapacityBuffers}}
	var errs []error
	for k, informer := range out.informers {
		if _, err := informer.AddEventHandler(out.handler(k)); err != nil {
			errs = append(errs, fmt.Errorf("watching %ss: %w", k.Kind.Kind, err))
		}
	}
	return out, errors.Join(errs...)
}

// Lead begins to count: this process leads.
func (c *Conditions) Lead() { c.leading.Store(true) }

// handler counts what happens to objects of a kind.
func (c *Conditions) handler(k *observedKind) cache.ResourceEventHandler {
	return afterwards{observe.Changes(func(before, now client.Object) {
		switch {
		case !c.leading.Load():
		case now != nil:
			c.changed(k, before, now)
		case before.GetDeletionTimestamp() != nil:
			k.Ended(c.labels(k, before), c.clock.Since(before.GetDeletionTimestamp().Time))
		}
	})}
}

// afterwards leaves out the objects that exist when the watch begins: they aren't new. This matters for CapacityBuffers, whose watch begins when this
// process leads and counts already.
type afterwards struct{ cache.ResourceEventHandler }

// OnAdd implements cache.ResourceEventHandler.
func (a afterwards) OnAdd(o any, initial bool) {
	if !initial {
		a.ResourceEventHandler.OnAdd(o, initial)
	}
}

// changed counts the conditions whose status has changed. As in Karpenter, a condition that isn't there counts as Unknown.
func (c *Conditions) changed(k *observedKind, before, now client.Object) {
	k.conditions(now, func(is condition) {
		was, had := condition{status: string(corev1.ConditionUnknown)}, false
		if before != nil {
			k.conditions(before, func(other condition) {
				if other.name == is.name {
					was, had = other, true
				}
			})
		}
		if was.status == is.status {
			return
		}
		labels := c.labels(k, now)
		k.Transitioned(labels, is.name, is.status, is.reason)
		if had {
			k.Lasted(labels, was.name, was.status, max(0, is.since.Sub(was.since)))
		}
	})
}

// labels returns the values of a kind's labels for an object.
func (c *Conditions) labels(k *observedKind, o client.Object) []string {
	out := make([]string, 0, len(k.Labels))
	for _, name := range k.Labels {
		key := ""
		switch name {
		case karpentermetrics.ClassLabel:
			key = c.class.Key
		case karpentermetrics.PoolLabel:
			key = karpv1.NodePoolLabelKey
		case karpentermetrics.InitializedLabel:
			key = karpv1.NodeInitializedLabelKey
		}
		out = append(out, o.GetLabels()[key])
	}
	return out
}

// add adds the gauges. objectless leaves out kinds that have an object per node.
func (c *Conditions) add(l *list, objectless bool, now time.Time) {
	for k, informer := range c.informers {
		if k.perNode && objectless {
			continue
		}
		for _, o := range informer.GetStore().List() {
			if o, ok := o.(client.Object); ok {
				c.object(l, k, o, now)
			}
		}
	}
}

// object adds the gauges of an object.
func (c *Conditions) object(l *list, k *observedKind, o client.Object, now time.Time) {
	own := []string{"name", o.GetName(), "namespace", o.GetNamespace()}
	for i, value := range c.labels(k, o) {
		own = append(own, k.Labels[i], value)
	}
	shared := []string{"name", o.GetName(), "namespace", o.GetNamespace(), "group", k.Group, "kind", k.Kind.Kind}
	each := func(add func(g *conditionGauges, of []*dto.LabelPair), more ...string) {
		add(&k.gauges, pairs(append(own[:len(own):len(own)], more...)...))
		if k.Deprecated {
			add(&anyConditions, pairs(append(shared[:len(shared):len(shared)], more...)...))
		}
	}
	k.conditions(o, func(is condition) {
		each(func(g *conditionGauges, of []*dto.LabelPair) {
			l.add(g.count, of, 1)
			if !is.since.IsZero() {
				l.add(g.seconds, of, now.Sub(is.since).Seconds())
			}
		}, "type", is.name, "status", is.status, "reason", is.reason)
	})
	if deleted := o.GetDeletionTimestamp(); deleted != nil {
		each(func(g *conditionGauges, of []*dto.LabelPair) {
			l.add(g.terminating, of, now.Sub(deleted.Time).Seconds())
		})
	}
}
