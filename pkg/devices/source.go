package devices

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// State is what the scheduler knows of claims and classes. Its answers come from memory.
type State interface {
	Claim(namespace, name string) (*resourcev1.ResourceClaim, error)
	// Allocated returns the devices that are allocated, or are being allocated.
	Allocated() (*structured.AllocatedState, error)
	structured.DeviceClassLister
}

// Source knows the devices of nodes. Nil knows none, and is what there is while the setting is off. Safe for concurrent use; no lock is held
// while devices are counted.
type Source struct {
	state     State
	allocator *Allocator
	clock     clock.PassiveClock
	// onShape is called when pods ask for devices as none have before. Set before anything runs.
	onShape func()
	// patience is how long a pod waits for its node.
	patience time.Duration

	mu        sync.Mutex
	classes   nodeClasses
	seen      seen
	shapes    map[string]*Shape
	byPod     shapesByPod
	templates map[string]*Template // by hash
	counts    map[countKey]counted
}

// nodeClasses are what node classes declare, by name.
type nodeClasses struct {
	declared map[string][]Declared
	problems map[string]error
}

// countKey is all that a count depends on.
type countKey struct{ what, shape, classes string }

// counted is a count that is remembered: how many pods of a shape a node's devices suffice for.
type counted struct {
	n int64
	// until is when the number is forgotten because the count was cut off or has failed; zero: never.
	until time.Time
}

// recountAfter is how long after a count that was cut off or has failed the next one is made. It may fail for the same reason, and plans wait for it.
const recountAfter = 5 * time.Minute

// maxCounts and maxTemplates limit what is kept.
const (
	maxCounts    = 100_000
	maxTemplates = 10_000
)

// everywhere stands for the node of ResourceSlices that are for many nodes.
const everywhere = ""

// New returns a Source that knows no devices yet.
func New(state State, allocator *Allocator, clock clock.PassiveClock) *Source {
	return &Source{state: state, allocator: allocator, clock: clock, patience: usualPatience, classes: nodeClasses{map[string][]Declared{}, map[string]error{}},
		seen:   seen{published: map[string]map[string]*resourcev1.ResourceSlice{}, nodes: map[string]nodeKind{}, learned: map[kind]map[string]*observation{}},
		shapes: map[string]*Shape{}, templates: map[string]*Template{}, counts: map[countKey]counted{}}
}

// OnShape sets a func that is called when pods ask for devices as none have before. Call it before anything runs.
func (s *Source) OnShape(f func()) { s.onShape = f }

// SetNodeClass reads what a node class declares. If the annotation can't be read, the class declares nothing, and the error says why.
// changed reports whether the declaration, or the error, differs from that of the last call.
func (s *Source) SetNodeClass(name string, annotations map[string]string, gone bool) (changed bool, err error) {
	var all []Declared
	if !gone {
		if all, err = Parse(annotations[objects.AnnotationDevices]); err != nil {
			err = fmt.Errorf("annotation %s of node class %s %w", objects.AnnotationDevices, name, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = text(s.classes.problems[name]) != text(err) || !slices.EqualFunc(s.classes.declared[name], all, equal)
	delete(s.classes.declared, name)
	delete(s.classes.problems, name)
	if err != nil {
		s.classes.problems[name] = err
	} else if len(all) > 0 {
		s.classes.declared[name] = all
	}
	if gone {
		s.seen.forgetClass(name)
	}
	return changed, err
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func equal(a, b Declared) bool {
	x, y := newTemplate([]resourcev1.ResourceSliceSpec{{Devices: []resourcev1.Device{a.device(0)}}}), newTemplate([]resourcev1.ResourceSliceSpec{{Devices: []resourcev1.Device{b.device(0)}}})
	return a.Driver == b.Driver && a.Count == b.Count && slices.Equal(a.InstanceTypes, b.InstanceTypes) && x.hash == y.hash
}

// ClaimChanged is called for each NodeClaim that was added, changed or deleted: claims say of which kind a node is.
func (s *Source) ClaimChanged(c *capacity.Claim, gone bool) (learned bool) {
	if s == nil || c.NodeName == "" || c.InstanceType == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone {
		delete(s.seen.nodes, c.NodeName) // what the node has published stays: it tells about the next node of its kind
		return false
	}
	s.seen.nodes[c.NodeName] = nodeKind{kind{c.NodeClass, c.InstanceType, c.ImageID}, c.CreatedAt}
	return s.learn(c.NodeName)
}

// SliceChanged is called for each ResourceSlice that was added, changed or deleted, and returns its node; empty: the slice is for many nodes. learned
// reports whether nodes of a kind are known to have other devices than before.
func (s *Source) SliceChanged(slice *resourcev1.ResourceSlice, gone bool) (node string, learned bool) {
	node = everywhere
	if slice.Spec.NodeName != nil {
		node = *slice.Spec.NodeName
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.version++
	if node == everywhere {
		s.seen.setShared(slice, gone)
		return node, false
	}
	if gone {
		delete(s.seen.published[node], slice.Name)
		if len(s.seen.published[node]) == 0 {
			delete(s.seen.published, node)
		}
	} else {
		if s.seen.published[node] == nil {
			s.seen.published[node] = map[string]*resourcev1.ResourceSlice{}
		}
		s.seen.published[node][slice.Name] = slice
	}
	return node, s.learn(node)
}

// ClassesChanged is called after DeviceClasses have changed.
func (s *Source) ClassesChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.version++
}

// Version changes before what Published returns does.
func (s *Source) Version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.version
}

// slicesOf returns what is published for a node, sorted by name. The caller holds mu.
func (s *Source) slicesOf(node string) []*resourcev1.ResourceSlice {
	out := make([]*resourcev1.ResourceSlice, 0, len(s.seen.published[node]))
	for _, name := range slices.Sorted(maps.Keys(s.seen.published[node])) {
		out = append(out, s.seen.published[node][name])
	}
	return out
}

// Template returns the key of what a new node of the class, instance type and image will publish; empty: nothing is known.
func (s *Source) Template(class, instanceType, image string) string {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.shownBy(kind{class, instanceType, image}).over(newTemplate(declaredOn(s.classes.declared[class], instanceType)))
	if t == nil {
		return ""
	}
	if len(s.templates) >= maxTemplates {
		clear(s.templates)
	}
	s.templates[t.hash] = t
	return t.hash
}

// OfClaim is Template for a claim that is launched.
func (s *Source) OfClaim(c *capacity.Claim) string {
	if s == nil || c.InstanceType == "" {
		return ""
	}
	return s.Template(c.NodeClass, c.InstanceType, c.ImageID)
}

// Idle reports whether no pod has asked for devices.
func (s *Source) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.shapes) == 0
}

// Supposed returns the ResourceSlices that a node will have, except those of drivers that have already published on it: all slices of their pools,
// with a device that can be allocated. The caller must ignore what the other drivers have published so far: these slices replace it.
func (s *Source) Supposed(template, node string) []*resourcev1.ResourceSlice {
	s.mu.Lock()
	defer s.mu.Unlock()
	byDriver := map[string][]*resourcev1.ResourceSlice{}
	for _, slice := range s.slicesOf(node) {
		byDriver[slice.Spec.Driver] = append(byDriver[slice.Spec.Driver], slice)
	}
	has := map[string]bool{}
	for driver, published := range byDriver {
		t, complete := shown(published)
		has[driver] = complete && t.usable() > 0
	}
	return slices.DeleteFunc(s.templates[template].on(node), func(slice *resourcev1.ResourceSlice) bool { return has[slice.Spec.Driver] })
}

// Counts returns for each shape how many of its pods fit on a new node with the template and labels.
func (s *Source) Counts(template string, labels map[string]string) map[string]int64 {
	if s == nil {
		return nil
	}
	shapes := s.known()
	if len(shapes) == 0 {
		return nil
	}
	node := &corev1.Node{}
	node.Name, node.Labels = "new", labels
	s.mu.Lock()
	published, all := s.templates[template].on(node.Name), s.seen.shared
	s.mu.Unlock()
	shared, key := sharedOn(all, node)
	return s.countAll("template/"+template+"/"+key, node, append(published, shared...), shapes, maxCount)
}

// Published returns the shapes of which a pod could use the devices that have been published for the node.
func (s *Source) Published(node *corev1.Node) []string {
	if s == nil {
		return nil
	}
	shapes := s.known()
	if len(shapes) == 0 {
		return nil
	}
	s.mu.Lock()
	published, all := s.slicesOf(node.Name), s.seen.shared
	s.mu.Unlock()
	shared, sharedKey := sharedOn(all, node)
	if len(published)+len(shared) == 0 {
		return nil
	}
	what := "published/" + versions(published) + "/" + sharedKey
	var out []string
	for key, n := range s.countAll(what, node, append(published, shared...), shapes, 1) {
		if n > 0 {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// countAll counts pods of the shapes on a node where nothing is allocated. what names the node's devices in the cache.
func (s *Source) countAll(what string, node *corev1.Node, published []*resourcev1.ResourceSlice, shapes []*Shape, most int64) map[string]int64 {
	classes := s.classVersion()
	out := make(map[string]int64, len(shapes))
	for _, shape := range shapes {
		key := countKey{what, shape.Key, classes}
		n, known := s.counted(key)
		if !known {
			var exact bool
			n, exact = s.allocator.count(node, published, Nothing(), shape, most)
			s.remember(key, n, exact)
		}
		out[shape.Key] = n
	}
	return out
}

// counted returns a number that is remembered.
func (s *Source) counted(key countKey) (n int64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, known := s.counts[key]
	return c.n, known && (c.until.IsZero() || s.clock.Now().Before(c.until))
}

// remember keeps a number; exact: it holds as long as what it depends on does.
func (s *Source) remember(key countKey, n int64, exact bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.counts) >= maxCounts {
		clear(s.counts)
	}
	c := counted{n: n}
	if !exact {
		c.until = s.clock.Now().Add(recountAfter)
	}
	s.counts[key] = c
}

// classVersion changes when any DeviceClass does.
func (s *Source) classVersion() string {
	all, err := s.state.List()
	if err != nil {
		return ""
	}
	names := make([]string, 0, len(all))
	for _, c := range all {
		names = append(names, c.Name+"@"+string(c.UID)+"@"+c.ResourceVersion)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

func versions(published []*resourcev1.ResourceSlice) string {
	var b strings.Builder
	for _, p := range published {
		fmt.Fprintf(&b, "%s@%s@%s,", p.Name, p.UID, p.ResourceVersion)
	}
	return b.String()
}

// Problem returns why a node class declares nothing although it has the annotation, or nil.
func (s *Source) Problem(class string) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.classes.problems[class]
}
