package launch

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Daemons knows the DaemonSets as the planner wants them: where their pods run, and how much room the next one takes. It is fed by
// the scheduler's informers, whose objects it shares, and works out anew only what an event concerns. It may be called from several
// goroutines.
//
// The next pod of a DaemonSet is expected to ask for
//
//  1. what the newest live pod of the current template asks for: admission has made that pod, webhooks included;
//  2. while there is none, what the last one asked for, as long as the template and the rules of admission are what they were;
//  3. else what the template asks for, with what the API server's own admission adds.
type Daemons struct {
	rules  admissionRules
	synced []cache.InformerSynced
	// changed is told that a DaemonSet's next pod is not what it was; frees: it leaves room that it took before.
	changed func(frees bool)

	mu   sync.Mutex
	sets map[types.UID]*daemonSet
	list []*capacity.DaemonSet // what List answers; nil: to be put together
}

// daemonSet is what is known of one.
type daemonSet struct {
	set  *appsv1.DaemonSet // nil: only pods of it have been seen, or it is being deleted
	pods map[types.UID]*corev1.Pod
	// newest of the live pods of the current template; behind: it has gone, and the others haven't been looked at yet.
	newest *corev1.Pod
	behind bool
	// shown is the last that was the newest, beside a template of this class.
	shown *corev1.Pod
	by    capacity.ClassKey

	template *capacity.Class     // its pods by template and rules; nil: they can't be planned for
	next     *capacity.DaemonSet // as List answers it; nil with template
}

// NewDaemons returns the DaemonSets of the informers. To be called before they start.
func NewDaemons(f informers.SharedInformerFactory) (*Daemons, error) {
	d := &Daemons{rules: newAdmissionRules(f), sets: map[types.UID]*daemonSet{}}
	for _, h := range []struct {
		informer cache.SharedIndexInformer
		observe  func(before, now any)
	}{
		{f.Apps().V1().DaemonSets().Informer(), d.observeSet},
		{f.Core().V1().Pods().Informer(), d.observePod},
		{f.Core().V1().LimitRanges().Informer(), d.observeRule},
		{f.Node().V1().RuntimeClasses().Informer(), d.observeRule},
		{f.Scheduling().V1().PriorityClasses().Informer(), d.observeRule},
	} {
		registration, err := h.informer.AddEventHandler(handlerOf(h.observe))
		if err != nil {
			return nil, fmt.Errorf("watching what DaemonSets' pods are made of: %w", err)
		}
		d.synced = append(d.synced, registration.HasSynced)
	}
	return d, nil
}

// OnChange has f told of each change. To be called before the informers start.
func (d *Daemons) OnChange(f func(frees bool)) { d.changed = f }

// HasSynced says that everything has been seen that was there at the start.
func (d *Daemons) HasSynced() bool {
	return !slices.ContainsFunc(d.synced, func(synced cache.InformerSynced) bool { return !synced() })
}

// List is the DaemonSets by name. What it returns must not be changed.
func (d *Daemons) List() []*capacity.DaemonSet {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.sets {
		if e.behind {
			e.catchUp()
			d.choose(e)
		}
	}
	if d.list == nil {
		d.list = []*capacity.DaemonSet{}
		for _, e := range d.sets {
			if e.next != nil {
				d.list = append(d.list, e.next)
			}
		}
		slices.SortFunc(d.list, func(a, b *capacity.DaemonSet) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
	}
	return d.list
}

// ObservePod tells of a pod that the informers don't show.
func (d *Daemons) ObservePod(pod *corev1.Pod) { d.observePod(nil, pod) }

// ObserveSet tells of a DaemonSet that the informers don't show.
func (d *Daemons) ObserveSet(set *appsv1.DaemonSet) { d.observeSet(nil, set) }

func (d *Daemons) observeSet(before, now any) {
	was, _ := before.(*appsv1.DaemonSet)
	set, _ := now.(*appsv1.DaemonSet)
	d.change(cmp.Or(set, was).UID, func(e *daemonSet) {
		if set != nil && set.DeletionTimestamp != nil {
			set = nil
		}
		same := set != nil && e.set != nil && set.Generation == e.set.Generation && set.Generation != 0
		if e.set = set; !same { // not its status alone
			d.rebuild(e)
			e.catchUp()
		}
	})
}

func (d *Daemons) observePod(before, now any) {
	was, _ := before.(*corev1.Pod)
	pod, _ := now.(*corev1.Pod)
	owner, had := daemonSetOf(pod), daemonSetOf(was)
	if had != "" && had != owner {
		d.change(had, func(e *daemonSet) { e.lose(was.UID) })
	}
	if owner == "" {
		return
	}
	d.change(owner, func(e *daemonSet) {
		if pod.DeletionTimestamp != nil || objects.Ended(pod) {
			e.lose(pod.UID)
		} else {
			e.see(pod)
		}
	})
}

// observeRule looks at the DaemonSets whose pods admission treats by the object.
func (d *Daemons) observeRule(before, now any) {
	if now == nil {
		now = before
	}
	var concerned []types.UID
	d.mu.Lock()
	for uid, e := range d.sets {
		if e.set != nil && concerns(now, before, e.set) {
			concerned = append(concerned, uid)
		}
	}
	d.mu.Unlock()
	for _, uid := range concerned {
		d.change(uid, d.rebuild)
	}
}

// concerns says whether admission treats pods of the DaemonSet by the rule, as it is or as it was.
func concerns(rule, was any, set *appsv1.DaemonSet) bool {
	spec := &set.Spec.Template.Spec
	switch rule := rule.(type) {
	case *corev1.LimitRange:
		return rule.Namespace == set.Namespace
	case *nodev1.RuntimeClass:
		return spec.RuntimeClassName != nil && *spec.RuntimeClassName == rule.Name
	case *schedulingv1.PriorityClass:
		before, _ := was.(*schedulingv1.PriorityClass)
		return spec.PriorityClassName == rule.Name || spec.PriorityClassName == "" && (rule.GlobalDefault || before != nil && before.GlobalDefault)
	}
	return false
}

// change does something to what is known of a DaemonSet, and tells if its next pod is another one for it.
func (d *Daemons) change(uid types.UID, do func(e *daemonSet)) {
	d.mu.Lock()
	e := d.sets[uid]
	if e == nil {
		e = &daemonSet{pods: map[types.UID]*corev1.Pod{}}
		d.sets[uid] = e
	}
	before, newest, template := e.next, e.newest, e.template
	do(e)
	if e.newest != newest || e.template != template { // few events of pods are about the newest
		d.choose(e)
	}
	now := e.next
	if e.set == nil && len(e.pods) == 0 {
		delete(d.sets, uid)
	}
	d.mu.Unlock()
	if before != now && d.changed != nil {
		d.changed(frees(before, now))
	}
}

// rebuild works out the pods of a template by the rules.
func (d *Daemons) rebuild(e *daemonSet) {
	e.template = nil
	if e.set == nil {
		return
	}
	pod := daemonPod(e.set)
	d.rules.admit(pod)
	if class, err := capacity.ClassOf(pod, capacity.VolumeFacts{}); err == nil {
		e.template = class
	} // else its pods can't be planned for, and find their own place
}

// choose settles what the next pod is.
func (d *Daemons) choose(e *daemonSet) {
	class := e.class()
	switch {
	case class == nil && e.next == nil, class != nil && e.next != nil && class.Key == e.next.Class.Key:
		return
	case class == nil:
		e.next = nil
	default:
		e.next = &capacity.DaemonSet{Namespace: e.set.Namespace, Name: e.set.Name, Class: class}
	}
	d.list = nil
}

func (e *daemonSet) class() *capacity.Class {
	if e.template == nil {
		return nil
	}
	if e.newest != nil {
		e.shown, e.by = e.newest, e.template.Key
	} else if e.by != e.template.Key {
		e.shown = nil
	}
	if e.shown != nil {
		if class, err := capacity.ClassOf(asAdmitted(e.template.Pod, e.shown), capacity.VolumeFacts{}); err == nil {
			return class
		}
	}
	return e.template
}

// see takes a live pod into account.
func (e *daemonSet) see(pod *corev1.Pod) {
	e.pods[pod.UID] = pod
	if e.current(pod) && (e.newest == nil || e.newest.UID == pod.UID || newer(pod, e.newest)) {
		e.newest = pod
	}
}

func (e *daemonSet) lose(uid types.UID) {
	delete(e.pods, uid)
	if e.newest != nil && e.newest.UID == uid {
		e.newest, e.behind = nil, true // thousands may go in a row: the others are looked at once
	}
}

// catchUp finds the newest live pod of the current template.
func (e *daemonSet) catchUp() {
	e.newest, e.behind = nil, false
	for pod := range maps.Values(e.pods) {
		e.see(pod)
	}
}

// current says that the pod is of the template that the DaemonSet has now, or that nothing tells.
func (e *daemonSet) current(pod *corev1.Pod) bool {
	if e.set == nil {
		return false
	}
	generation, of := e.set.Annotations[appsv1.DeprecatedTemplateGeneration], pod.Labels[labelTemplateGeneration]
	return generation == "" || of == "" || generation == of
}

// labelTemplateGeneration is on every pod of a DaemonSet, and its number on the DaemonSet itself. (controller-revision-hash can be
// compared with ControllerRevisions only.)
const labelTemplateGeneration = "pod-template-generation"

func newer(a, b *corev1.Pod) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID)) > 0
}

// frees says that there is room beside the DaemonSet's next pod that there was not before.
func frees(before, now *capacity.DaemonSet) bool {
	switch {
	case before == nil:
		return false
	case now == nil || maps.Equal(before.Class.Requests, now.Class.Requests): // it is about where it runs, say
		return true
	case !reflect.DeepEqual(before.Class.HostPorts, now.Class.HostPorts) || !reflect.DeepEqual(before.Class.Terms, now.Class.Terms) ||
		!reflect.DeepEqual(before.Class.Tolerations, now.Class.Tolerations): // or that beside its size
		return true
	}
	for r, q := range before.Class.Requests {
		if now.Class.Requests[r] < q {
			return true
		}
	}
	return false
}

// daemonSetOf is the DaemonSet that controls the pod, or "".
func daemonSetOf(pod *corev1.Pod) types.UID {
	if pod == nil {
		return ""
	}
	if ref := objects.DaemonSetOf(pod); ref != nil {
		return ref.UID
	}
	return ""
}

// handlerOf hands each event to a function: of what came before is nil, of what went now is. An update whose UID has changed is
// both: what was deleted and made again under the same name while nobody watched.
func handlerOf(observe func(before, now any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { observe(nil, o) },
		UpdateFunc: func(before, now any) {
			if a, ok := before.(metav1.Object); ok && a.GetUID() != now.(metav1.Object).GetUID() {
				observe(before, nil)
				before = nil
			}
			observe(before, now)
		},
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			observe(o, nil)
		},
	}
}
