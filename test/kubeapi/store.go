package kubeapi

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
)

// keptEvents is how many past changes of a resource are kept for watches that start at an old version.
const keptEvents = 20000

// object is an API object in its JSON form. Stored objects are never changed, only replaced.
type object = unstructured.Unstructured

// Server is the API server.
type Server struct {
	scheme *runtime.Scheme
	clock  clock.Clock
	kinds  map[schema.GroupVersionResource]schema.GroupVersionKind

	mu       sync.Mutex
	revision uint64
	tables   map[schema.GroupResource]*table
	admit    []Admission
	requests map[string]int // by verb and resource
}

// table holds all objects of a resource and its recent changes.
type table struct {
	resource schema.GroupResource
	objects  map[string]*object // by namespace/name
	// onNode are those with the name of a Node in spec.nodeName, by that name: as in kube-apiserver, the pods of one Node are found without a look at
	// all pods.
	onNode   map[string]map[string]*object
	events   []event // in order
	expired  uint64  // events up to this version have been dropped
	watchers map[*watcher]bool
}

// event is a change. before is nil for a new object, after for a deleted one, whose last state is in before with the version of its
// deletion.
type event struct {
	revision      uint64
	before, after *object
	written       *[]byte // JSON of the object that watchers see; guarded by the server's lock
}

// New returns an empty API server for the kinds of the scheme.
func New(scheme *runtime.Scheme, c clock.Clock) *Server {
	return &Server{scheme: scheme, clock: c, kinds: kindsOf(scheme), revision: 1, tables: map[schema.GroupResource]*table{}, requests: map[string]int{}}
}

func (s *Server) table(r schema.GroupResource) *table {
	t := s.tables[r]
	if t == nil {
		t = &table{resource: r, objects: map[string]*object{}, onNode: map[string]map[string]*object{}, watchers: map[*watcher]bool{}}
		s.tables[r] = t
	}
	return t
}

func key(namespace, name string) string { return namespace + "/" + name }

func (t *table) get(namespace, name string) (*object, error) {
	if o := t.objects[key(namespace, name)]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(t.resource, name)
}

// commit makes after the state of the object: it gets the next version, and all watchers see it. before and after are the same object;
// one of them may be nil.
func (s *Server) commit(t *table, before, after *object) *object {
	s.revision++
	version := strconv.FormatUint(s.revision, 10)
	if after != nil {
		after.SetResourceVersion(version)
		t.put(before, after)
	} else {
		before = before.DeepCopy()
		before.SetResourceVersion(version)
		t.drop(before)
	}
	e := event{s.revision, before, after, new([]byte)}
	t.events = append(t.events, e)
	if n := len(t.events) - keptEvents; n > keptEvents/4 {
		t.expired = t.events[n-1].revision
		t.events = slices.Clone(t.events[n:])
	}
	for w := range t.watchers {
		w.send(e)
	}
	if after == nil {
		return before
	}
	return after
}

// generatedNames is how many names a kube-apiserver draws for an object with generateName before it gives up (RetryGenerateName).
const generatedNames = 8

func (s *Server) create(t *table, call *Call, o *object) (*object, error) {
	for _, admit := range s.admit {
		if err := admit(call, o); err != nil {
			return nil, err
		}
	}
	if o.GetName() == "" && o.GetGenerateName() != "" {
		for range generatedNames {
			o.SetName(o.GetGenerateName() + strings.ReplaceAll(string(uuid.NewUUID()), "-", "")[:5])
			if t.objects[key(o.GetNamespace(), o.GetName())] == nil {
				break
			}
		}
	}
	if o.GetName() == "" {
		return nil, apierrors.NewBadRequest("name is required")
	}
	if o.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if _, exists := t.objects[key(o.GetNamespace(), o.GetName())]; exists {
		return nil, apierrors.NewAlreadyExists(t.resource, o.GetName())
	}
	o.SetUID(uuid.NewUUID())
	o.SetCreationTimestamp(metav1.NewTime(s.clock.Now()))
	o.SetDeletionTimestamp(nil)
	o.SetGeneration(generation(t.resource, 1))
	prepareCreate(t.resource, o)
	if call.dryRun {
		return o, nil
	}
	return s.commit(t, nil, o), nil
}

// change makes an update or patch; next is the wanted object. With part "status" only the status is written, with "" everything but
// the status.
func (s *Server) change(t *table, current, next *object, part string, dryRun bool) (*object, error) {
	if v := next.GetResourceVersion(); v != "" && v != current.GetResourceVersion() {
		return nil, apierrors.NewConflict(t.resource, current.GetName(), fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if uid := next.GetUID(); uid != "" && uid != current.GetUID() {
		return nil, apierrors.NewConflict(t.resource, current.GetName(), fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, current.GetUID()))
	}
	out := next.DeepCopy()
	if part == "status" && slices.Contains([]string{"", "apps", "batch"}, t.resource.Group) {
		out.Object["spec"] = runtime.DeepCopyJSONValue(current.Object["spec"]) // metadata may change too: that is how Deployments get their revision
		if t.resource.Group == "apps" {
			out.SetLabels(current.GetLabels())
		}
	} else if part == "status" {
		status := out.Object["status"]
		out = current.DeepCopy()
		if status != nil {
			out.Object["status"] = status
		} else {
			delete(out.Object, "status")
		}
	} else if status, ok := current.Object["status"]; ok {
		out.Object["status"] = runtime.DeepCopyJSONValue(status)
	} else {
		delete(out.Object, "status")
	}
	// Fields that clients can't change.
	out.SetUID(current.GetUID())
	out.SetCreationTimestamp(current.GetCreationTimestamp())
	out.SetDeletionTimestamp(current.GetDeletionTimestamp())
	out.SetDeletionGracePeriodSeconds(current.GetDeletionGracePeriodSeconds())
	out.SetGeneration(current.GetGeneration())
	out.SetResourceVersion(current.GetResourceVersion())
	if current.GetDeletionTimestamp() != nil {
		for _, f := range out.GetFinalizers() {
			if !slices.Contains(current.GetFinalizers(), f) {
				return nil, invalid(t.resource, current, "metadata.finalizers: no new finalizers can be added if the object is being deleted")
			}
		}
	}
	if err := validateChange(t.resource, current, out); err != nil {
		return nil, err
	}
	if equal(current, out) {
		return current, nil // no write, no event
	}
	if part == "" && !equalField(current, out, "spec") {
		out.SetGeneration(generation(t.resource, current.GetGeneration()+1))
	}
	if dryRun {
		return out, nil
	}
	if gone(out) {
		return s.commit(t, out, nil), nil
	}
	return s.commit(t, current, out), nil
}

// gone reports whether nothing delays the removal of a deleted object any more.
func gone(o *object) bool {
	grace := o.GetDeletionGracePeriodSeconds()
	return o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 && (grace == nil || *grace == 0)
}

func preconditions(t *table, current *object, o *metav1.DeleteOptions) error {
	pre := o.Preconditions
	if pre != nil && (pre.UID != nil && *pre.UID != current.GetUID() || pre.ResourceVersion != nil && *pre.ResourceVersion != current.GetResourceVersion()) {
		return apierrors.NewConflict(t.resource, current.GetName(), fmt.Errorf("Precondition failed"))
	}
	return nil
}

// remove deletes an object, at once or as soon as finalizers and grace period allow.
func (s *Server) remove(t *table, current *object, o *metav1.DeleteOptions) (*object, error) {
	if err := preconditions(t, current, o); err != nil {
		return nil, err
	}
	if len(o.DryRun) > 0 {
		return current, nil
	}
	next := current.DeepCopy()
	now := s.clock.Now().Truncate(time.Second)
	var grace int64
	if t.resource == podResource {
		grace = podGrace(current, o)
	}
	if at := current.GetDeletionTimestamp(); at != nil {
		// It is being deleted already: only a shorter grace period changes anything.
		if had := current.GetDeletionGracePeriodSeconds(); had == nil || *had <= grace {
			return current, nil
		}
	}
	until := metav1.NewTime(now.Add(time.Duration(grace) * time.Second))
	next.SetDeletionTimestamp(&until)
	next.SetDeletionGracePeriodSeconds(&grace)
	if current.GetDeletionTimestamp() == nil {
		next.SetGeneration(generation(t.resource, current.GetGeneration()+1))
	}
	if !gone(next) {
		return s.commit(t, current, next), nil
	}
	if t.resource == podResource {
		next = s.commit(t, current, next) // watchers first see that it is being deleted, or that its grace period is shorter
	}
	return s.commit(t, next, nil), nil
}

func (t *table) sorted() []*object { return sorted(t.objects) }

func sorted(objects map[string]*object) []*object {
	out := make([]*object, 0, len(objects))
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		out = append(out, objects[name])
	}
	return out
}

// matching returns the objects that the selector selects, in the order of their names.
func (t *table) matching(s selector) []*object {
	objects := t.objects
	if node, ok := s.fields.RequiresExactMatch("spec.nodeName"); ok && node != "" {
		objects = t.onNode[node]
	}
	return slices.DeleteFunc(sorted(objects), func(o *object) bool { return !s.matches(o) })
}

// put stores an object in place of its state before; nil: it is new.
func (t *table) put(before, after *object) {
	if before != nil {
		t.drop(before)
	}
	name := key(after.GetNamespace(), after.GetName())
	t.objects[name] = after
	if node := nodeOf(after); node != "" {
		if t.onNode[node] == nil {
			t.onNode[node] = map[string]*object{}
		}
		t.onNode[node][name] = after
	}
}

func (t *table) drop(o *object) {
	name, node := key(o.GetNamespace(), o.GetName()), nodeOf(o)
	delete(t.objects, name)
	delete(t.onNode[node], name)
	if len(t.onNode[node]) == 0 {
		delete(t.onNode, node)
	}
}

func nodeOf(o *object) string {
	node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
	return node
}
