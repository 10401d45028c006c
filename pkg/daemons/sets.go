package daemons

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
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
)

// Sets keeps the DaemonSets as the planner needs them: on which nodes their pods run, and what the next pod requests. The scheduler's
// informers feed it; it shares their objects, and recomputes only the DaemonSets that an event concerns. It is safe for concurrent use.
//
// The next pod of a DaemonSet is expected to request
//
//  1. what the newest live pod of the current template requests: that pod has been through admission, webhooks included;
//  2. while there is none, what the last one requested, as long as the template and the admission rules are unchanged;
//  3. else what the template requests, with what the API server's own admission adds.
type Sets struct {
	rules  admissionRules
	synced []cache.InformerSynced
	// changed is called when a DaemonSet's next pod has changed; frees: it leaves capacity that it took before.
	changed func(frees bool)

	mu   sync.Mutex
	sets map[types.UID]*daemonSet
	list []*capacity.DaemonSet // the result of List; nil: has to be built
}

// daemonSet is what is known about one DaemonSet.
type daemonSet struct {
	set  *appsv1.DaemonSet // nil: only its pods have been seen, or it is being deleted
	pods map[types.UID]*corev1.Pod
	// newest is the newest live pod of the current template. behind: that pod is gone, and the others have not been compared yet.
	newest *corev1.Pod
	behind bool
	// shown is the last pod that was newest; by is the key of the template's class at that time.
	shown *corev1.Pod
	by    capacity.ClassKey

	template *capacity.Class     // the class of its pods by template and admission rules; nil: they can't be planned for
	next     *capacity.DaemonSet // as List returns it; nil if template is
}

// Admit changes any pod as the API server's admission will, and as is done for pods of DaemonSets: its priority, what its RuntimeClass adds, the
// defaults of LimitRanges.
func (d *Sets) Admit(pod *corev1.Pod) { d.rules.admit(pod) }

// New returns Sets that watch through the informers. Call it before they start.
func New(f informers.SharedInformerFactory) (*Sets, error) {
	d := &Sets{rules: newAdmissionRules(f), sets: map[types.UID]*daemonSet{}}
	for _, h := range []struct {
		informer cache.SharedIndexInformer
		observe  func(before, now metav1.Object)
	}{
		{f.Apps().V1().DaemonSets().Informer(), d.observeSet},
		{f.Core().V1().Pods().Informer(), d.observePod},
		{f.Core().V1().LimitRanges().Informer(), d.observeRule},
		{f.Node().V1().RuntimeClasses().Informer(), d.observeRule},
		{f.Scheduling().V1().PriorityClasses().Informer(), d.observeRule},
	} {
		registration, err := h.informer.AddEventHandler(observe.Changes(h.observe))
		if err != nil {
			return nil, fmt.Errorf("watching what DaemonSets' pods are made of: %w", err)
		}
		d.synced = append(d.synced, registration.HasSynced)
	}
	return d, nil
}

// OnChange sets the func that is called on each change. Call it before the informers start.
func (d *Sets) OnChange(f func(frees bool)) { d.changed = f }

// HasSynced reports whether all objects that existed at the start have been seen.
func (d *Sets) HasSynced() bool {
	return !slices.ContainsFunc(d.synced, func(synced cache.InformerSynced) bool { return !synced() })
}

// List returns the DaemonSets ordered by namespace and name. The caller must not change them.
func (d *Sets) List() []*capacity.DaemonSet {
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

// ObservePod adds a pod that the informers don't show.
func (d *Sets) ObservePod(pod *corev1.Pod) { d.observePod(nil, pod) }

// ObserveSet adds a DaemonSet that the informers don't show.
func (d *Sets) ObserveSet(set *appsv1.DaemonSet) { d.observeSet(nil, set) }

func (d *Sets) observeSet(before, now metav1.Object) {
	was, _ := before.(*appsv1.DaemonSet)
	set, _ := now.(*appsv1.DaemonSet)
	d.change(cmp.Or(set, was).UID, func(e *daemonSet) {
		if set != nil && set.DeletionTimestamp != nil {
			set = nil
		}
		same := set != nil && e.set != nil && set.Generation == e.set.Generation && set.Generation != 0
		if e.set = set; !same { // more than its status has changed
			d.rebuild(e)
			e.catchUp()
		}
	})
}

func (d *Sets) observePod(before, now metav1.Object) {
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

// observeRule recomputes the DaemonSets whose pods admission changes because of the object.
func (d *Sets) observeRule(before, now metav1.Object) {
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

// concerns reports whether admission applies the rule, as it is or as it was, to pods of the DaemonSet.
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

// change applies do to what is known about a DaemonSet, and calls changed if its next pod is different afterwards.
func (d *Sets) change(uid types.UID, do func(e *daemonSet)) {
	d.mu.Lock()
	e := d.sets[uid]
	if e == nil {
		e = &daemonSet{pods: map[types.UID]*corev1.Pod{}}
		d.sets[uid] = e
	}
	before, newest, template := e.next, e.newest, e.template
	do(e)
	if e.newest != newest || e.template != template { // most pod events don't concern the newest
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

// rebuild computes the class of the template's pods from the admission rules.
func (d *Sets) rebuild(e *daemonSet) {
	e.template = nil
	if e.set == nil {
		return
	}
	pod := daemonPod(e.set)
	d.rules.admit(pod)
	if class, err := capacity.ClassOf(pod, capacity.VolumeInfo{}); err == nil {
		e.template = class
	} // else its pods can't be planned for; they schedule wherever they fit
}

// choose updates what the next pod is.
func (d *Sets) choose(e *daemonSet) {
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
		if class, err := capacity.ClassOf(asAdmitted(e.template.Pod, e.shown), capacity.VolumeInfo{}); err == nil {
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
		e.newest, e.behind = nil, true // thousands may go in a row: catchUp compares the others once
	}
}

// catchUp finds the newest live pod of the current template.
func (e *daemonSet) catchUp() {
	e.newest, e.behind = nil, false
	for pod := range maps.Values(e.pods) {
		e.see(pod)
	}
}

// current reports whether the pod is of the DaemonSet's current template, or its labels don't tell.
func (e *daemonSet) current(pod *corev1.Pod) bool {
	if e.set == nil {
		return false
	}
	generation, of := e.set.Annotations[appsv1.DeprecatedTemplateGeneration], pod.Labels[labelTemplateGeneration]
	return generation == "" || of == "" || generation == of
}

// labelTemplateGeneration is on every pod of a DaemonSet; its value is also an annotation of the DaemonSet. (controller-revision-hash can
// be compared with ControllerRevisions only.)
const labelTemplateGeneration = "pod-template-generation"

func newer(a, b *corev1.Pod) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID)) > 0
}

// frees reports whether the DaemonSet's next pod leaves capacity that it took before.
func frees(before, now *capacity.DaemonSet) bool {
	switch {
	case before == nil:
		return false
	case now == nil || maps.Equal(before.Class.Requests, now.Class.Requests): // something else has changed, such as where it runs
		return true
	case !reflect.DeepEqual(before.Class.HostPorts, now.Class.HostPorts) || !reflect.DeepEqual(before.Class.Terms, now.Class.Terms) ||
		!reflect.DeepEqual(before.Class.Tolerations, now.Class.Tolerations): // or something besides its requests
		return true
	}
	for r, q := range before.Class.Requests {
		if now.Class.Requests[r] < q {
			return true
		}
	}
	return false
}

// daemonSetOf returns the UID of the DaemonSet that controls the pod, or "".
func daemonSetOf(pod *corev1.Pod) types.UID {
	if pod == nil {
		return ""
	}
	if ref := objects.DaemonSetOf(pod); ref != nil {
		return ref.UID
	}
	return ""
}
