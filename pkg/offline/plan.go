package offline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/daemons"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/launch"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/simulate"
)

// Settings of a plan.
type Settings struct {
	Catalog Catalog
	// Plan are the planner's settings. Plan.Explain is filled in here.
	Plan capacity.Options
	// Profiles are the scheduler's. The filters of the first also check pods of schedulers without a profile; empty: the default
	// profile. They have in-tree plugins only.
	Profiles []schedulerapi.KubeSchedulerProfile
	// Coscheduling: a profile of the scheduler has that plugin, so PodGroups have an effect.
	Coscheduling bool
	// Warnings are warnings about the settings themselves.
	Warnings []string
	// NodeClass is the cloud's kind of node class.
	NodeClass cloudprovider.NodeClassKind
	// Pools are the profiles' settings about pools; Legacy converts the cloud's settings of Provisioners.
	Pools  []karpenter.Profile
	Legacy karpenter.LegacyCloud
	// Limits hold for the nodes of all pools together. Nodes of the Dovetail with the name ManagedBy count against them.
	Limits    capacity.Resources
	ManagedBy string
	// NamespaceSelector selects the namespaces whose pods may cause launches; nil: all.
	NamespaceSelector labels.Selector
	// Unread are the resources of the cluster that may not be read, such as persistentvolumes: what is missing of them may be there.
	Unread []string
	// NoVerify skips verification by the scheduler's filters: the plan is taken as it is.
	NoVerify bool
	// Explain is a pod, as namespace/name or name, whose placement is to be explained; empty: none.
	Explain string
	Clock   clock.PassiveClock
}

// ErrNoPool means that there is no pool in which nodes could be launched.
var ErrNoPool = errors.New("no NodePool or Provisioner in the input")

// Plan reports which nodes would be launched for the pods of the set, and where the pods would run. An error means that the input is
// invalid: a pod that fits nowhere is not an error, it is in the report.
func Plan(ctx context.Context, set *manifest.Set, s Settings) (*Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	shop, problems := newShop(set, &s)
	gangs, wrong := newGroups(set, s.Coscheduling)
	if problems = append(problems, wrong...); len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if len(shop.objects.NodePools()) == 0 {
		return nil, ErrNoPool
	}
	d := &demand{set: set}
	d.sort()
	explain, err := d.find(s.Explain)
	if err != nil {
		return nil, err
	}
	namespaces, unread := d.namespaces()
	if s.NamespaceSelector != nil {
		for _, name := range unread {
			shop.assumed = append(shop.assumed, fmt.Sprintf("Namespace %s: no labels but its name", name))
		}
	}
	c, err := newCluster(ctx, set, namespaces, d.bound, &s)
	if err != nil {
		return nil, err
	}
	spent := &spent{clock: s.Clock}
	var world provisioning.World = timedWorld{worldOf{c.world}, spent}
	if s.NoVerify {
		world = trusting{world}
	}
	if explain != nil {
		s.Plan.Explain = []types.UID{explain.UID}
	}
	daemons, err := daemons.New(c.informers)
	if err != nil {
		return nil, err
	}
	for _, pod := range d.daemons {
		daemons.ObservePod(pod)
	}
	classes := pending.NewClasses(c.informers)
	for _, name := range d.schedulers() {
		classes.SetDefaultSpread(name, simulate.DefaultSpread(c.informers, c.profileOf(name)))
	}
	ledger := reservations.New(&arrivals{})
	pods := pending.New(pending.Config{Schedulers: d.schedulers()}, ledger, classes)
	said := &words{}
	controllers := launch.New(launch.Config{Plan: s.Plan, NamespaceSelector: s.NamespaceSelector}, launch.Parts{
		Clock: clock.RealClock{}, Reservations: ledger, Cloud: shop, NodeClass: s.NodeClass.Label(), Claims: shop, World: world, Planner: timedPlanner{planner.New(), spent},
		Nodes: plannedNodes{}, Events: said, Gangs: gangs, Pending: pods, Owners: pending.NewOwners(c.informers),
		Daemons: daemons.List,
	})
	controllers.Bookings.Set(nil) // no ProvisioningRequest is read
	d.submit(ledger, pods, classes)
	view, plan, err := controllers.Rounds.Propose(ctx)
	if err != nil {
		return nil, err
	}
	r := newReport(view, plan, append(d.refused, said.refused...))
	mayBeThere(r, s.Unread)
	r.Warnings, r.Assumed = slices.Concat(s.Warnings, set.Warnings, shop.notes), shop.assumed
	for _, open := range capacity.OpenArchitectures(plan) {
		r.Warnings = append(r.Warnings, open.String())
	}
	if why := withoutCoscheduling(d.waiting); why != "" && !s.Coscheduling {
		r.Warnings = append(r.Warnings, why)
	}
	r.limits(capacity.TotalOf(view.Pools), plan)
	r.PlanMillis, r.VerifyMillis, r.Verified = millis(spent.planning), millis(spent.verifying), !s.NoVerify
	if explain != nil {
		r.explain(explain, plan)
	}
	return r, nil
}

// mayBeThere corrects reasons that say that a volume or claim isn't there, if it only may not be read.
func mayBeThere(r *Report, resources []string) {
	for _, resource := range resources {
		kind := strings.TrimSuffix(resource, "s") + " \""
		for i := range r.Refused {
			if why, absent := strings.CutSuffix(r.Refused[i].Reason, " not found"); absent && strings.Contains(why, kind) {
				r.Refused[i].Reason = why + " may not be read: you may not list " + resource
			}
		}
	}
}

// demand sorts the pods by what has to be done for them.
type demand struct {
	set     *manifest.Set
	bound   []*corev1.Pod
	waiting []*corev1.Pod
	daemons []*corev1.Pod // waiting ones: they show what other pods of their DaemonSets will request
	refused []Refused
}

// sort separates pods on nodes from pods that need one.
func (d *demand) sort() {
	nodes := map[string]bool{}
	for _, n := range manifest.All[*corev1.Node](d.set) {
		nodes[n.Name] = true
	}
	for _, pod := range d.set.Pods() {
		switch {
		case pod.Spec.NodeName != "" && nodes[pod.Spec.NodeName]:
			d.bound = append(d.bound, pod)
		case pod.Spec.NodeName != "":
			d.set.Warnings = append(d.set.Warnings, fmt.Sprintf("Pod %s/%s is on node %s, and there is no such node: the pod is ignored", pod.Namespace, pod.Name, pod.Spec.NodeName))
		case objects.OfDaemonSet(pod): // its node exists, or it is created with its node
			d.daemons = append(d.daemons, pod)
		default:
			d.waiting = append(d.waiting, pod)
		}
	}
}

// find returns the waiting or bound pod with that name; nil for "".
func (d *demand) find(name string) (found *corev1.Pod, err error) {
	if name == "" {
		return nil, nil
	}
	var all []string
	for _, pod := range slices.Concat(d.waiting, d.bound) {
		full := pod.Namespace + "/" + pod.Name
		if pod.Name == name || full == name {
			found = pod
			all = append(all, full)
		}
	}
	switch len(all) {
	case 0:
		return nil, fmt.Errorf("there is no pod %s to explain%s", name, d.alike(name))
	case 1:
		return found, nil
	}
	return nil, fmt.Errorf("pod %s may be %s: name its namespace", name, strings.Join(all, " or "))
}

// alike names a pod whose name begins like the requested one: pods of workloads have generated names.
func (d *demand) alike(name string) string {
	_, short, ok := strings.Cut(name, "/")
	if !ok {
		short = name
	}
	for _, pod := range d.waiting {
		if strings.HasPrefix(pod.Name, short) {
			return fmt.Sprintf("; there is %s/%s", pod.Namespace, pod.Name)
		}
	}
	return ""
}

// schedulers returns the names of all schedulers that pods ask for: pods of every scheduler are planned for.
func (d *demand) schedulers() []string {
	var out []string
	for _, pod := range d.waiting {
		if !slices.Contains(out, pod.Spec.SchedulerName) {
			out = append(out, pod.Spec.SchedulerName)
		}
	}
	return out
}

// namespaces returns those of the input and those of all pods, each with the label that an API server sets. unread are the names of those of
// waiting pods that the input doesn't contain.
func (d *demand) namespaces() (all []*corev1.Namespace, unread []string) {
	known := map[string]bool{}
	named := func(ns *corev1.Namespace) {
		known[ns.Name] = true
		if ns.Labels == nil {
			ns.Labels = map[string]string{}
		}
		ns.Labels[corev1.LabelMetadataName] = ns.Name
		all = append(all, ns)
	}
	for _, ns := range manifest.All[*corev1.Namespace](d.set) {
		named(ns.DeepCopy())
	}
	for _, pod := range d.waiting {
		if name := pod.Namespace; !known[name] {
			unread = append(unread, name)
			named(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
	for _, pod := range d.bound { // a waiting pod's anti-affinity may select their namespaces
		if name := pod.Namespace; !known[name] {
			named(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
	return all, unread
}

// submit makes the waiting pods demand, as the scheduler does with pods that fit nowhere. Pods that no node could help are refused with a reason.
func (d *demand) submit(ledger *reservations.Ledger, pods *pending.Pods, classes *pending.Classes) {
	handler := pods.Handler()
	for _, pod := range d.bound {
		handler.OnAdd(pod, true) // a bound pod counts as a member of its PodGroup
	}
	for _, pod := range d.waiting {
		why := ""
		switch class, err := classes.Class(pod); {
		case pod.DeletionTimestamp != nil:
			continue
		case len(pod.Spec.SchedulingGates) > 0:
			why = fmt.Sprintf("spec.schedulingGates: it waits for %s to be removed", pod.Spec.SchedulingGates[0].Name)
		case err != nil:
			why = err.Error()
		default:
			handler.OnAdd(pod, true)
			ledger.Submit(capacity.RefOf(pod), class)
		}
		if why != "" {
			d.refused = append(d.refused, Refused{Namespace: pod.Namespace, Name: pod.Name, Reason: why})
		}
	}
}

// arrivals is a clock that advances with every call, so that the demand has the order of the input.
type arrivals struct{ n time.Duration }

func (a *arrivals) Now() time.Time {
	a.n++
	return time.Unix(0, 0).Add(a.n)
}

func (a *arrivals) Since(t time.Time) time.Duration { return a.Now().Sub(t) }

// spent is the time spent on planning and on verifying.
type spent struct {
	clock               clock.PassiveClock
	planning, verifying time.Duration
}

type timedPlanner struct {
	provisioning.Planner
	spent *spent
}

func (p timedPlanner) Plan(v *capacity.View, o capacity.Options) *capacity.Plan {
	start := p.spent.clock.Now()
	defer func() { p.spent.planning += p.spent.clock.Since(start) }()
	return p.Planner.Plan(v, o)
}

type timedWorld struct {
	provisioning.World
	spent *spent
}

func (w timedWorld) Verify(ctx context.Context, t capacity.Trial) ([]capacity.Rejection, error) {
	start := w.spent.clock.Now()
	defer func() { w.spent.verifying += w.spent.clock.Since(start) }()
	return w.World.Verify(ctx, t)
}

// trusting accepts every placement.
type trusting struct{ provisioning.World }

func (trusting) Verify(context.Context, capacity.Trial) ([]capacity.Rejection, error) {
	return nil, nil
}

// plannedNodes creates the Nodes of a plan for the filters. The other methods of NodeBuilder are not called.
type plannedNodes struct{ launch.NodeBuilder }

func (plannedNodes) PlannedNode(p *capacity.PlannedNode, name string) *corev1.Node {
	return karpenter.PlannedNodeObject(p, name)
}
