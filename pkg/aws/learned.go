package aws

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// discovered is what the nodes of a class have shown of themselves and nobody publishes: the value of objects.AnnotationLearned.
type discovered struct {
	// NodeName is the form of their names.
	NodeName nameForm `json:"nodeName,omitempty"`
	// Memory is the capacity in bytes by image and instance type, of images that the class uses now.
	Memory map[string]map[string]int64 `json:"memory,omitempty"`
}

// learned is how much memory nodes of a type and image really have, once one has said so. Nobody publishes what hypervisor
// and kernel keep for themselves; until then a share is taken off that fits almost all types.
type learned struct {
	changed func()
	mu      sync.Mutex // serializes writers of now
	now     atomic.Pointer[map[typeAndImage]int64]
}

type typeAndImage struct{ instanceType, image string }

func newLearned(changed func()) *learned {
	l := &learned{changed: changed}
	l.now.Store(&map[typeAndImage]int64{})
	return l
}

// see takes note of amounts. The smallest counts: nodes of a type differ by a few pages.
func (l *learned) see(amounts map[typeAndImage]int64) (changed bool) {
	l.mu.Lock()
	old := *l.now.Load()
	var next map[typeAndImage]int64
	for key, bytes := range amounts {
		have, ok := old[key]
		bytes -= bytes % mi // a few pages more or less are no news
		if key.instanceType == "" || key.image == "" || bytes <= 0 || ok && bytes >= have {
			continue
		}
		if next == nil {
			next = maps.Clone(old)
		}
		next[key] = bytes
	}
	if next != nil {
		l.now.Store(&next)
	}
	l.mu.Unlock()
	if next != nil {
		l.changed()
	}
	return next != nil
}

// NodeSeen is a node whose kubelet has come.
type NodeSeen struct {
	NodeClass string
	Name      string
	// InstanceID, InstanceType and ImageID of its instance.
	InstanceID, InstanceType, ImageID string
	// InternalIP and Memory (capacity, in bytes) are the kubelet's own words.
	InternalIP string
	Memory     int64
}

// ObserveNode learns from a node that has registered. It may be told of the same node many times, and doesn't block.
func (p *Provider) ObserveNode(n NodeSeen) {
	news := p.learned.see(map[typeAndImage]int64{{n.InstanceType, n.ImageID}: n.Memory})
	c := p.class(n.NodeClass)
	if c == nil {
		return
	}
	if n.Name != "" && n.InstanceID != "" {
		news = c.nameSeen(nameFormSeen(n.Name, n.InstanceID, n.InternalIP)) || news
	}
	if news {
		c.poke() // to have it kept
	}
}

// nameSeen takes note of the form of a name, and says whether it is another one than before.
func (c *class) nameSeen(f nameForm) bool {
	before := c.nodeName.Swap(&f)
	return before == nil || *before != f
}

// form is how nodes of the class are named, as far as that is known: what was seen counts more than what was said.
func (c *class) form(f *family) nameForm {
	if seen := c.nodeName.Load(); seen != nil {
		return *seen
	}
	said := ""
	if s := c.nameSaid.Load(); s != nil {
		said = *s
	}
	return nameFormOf(&c.current().Spec, said, f)
}

// OnLearned registers a function that is given what was learned of a class, to be kept on the object as objects.AnnotationLearned.
// It must be registered before Run, and it is called from the class's own goroutine: it may take its time. Where it fails it
// is called again later.
func (p *Provider) OnLearned(f func(nodeClass, value string) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onLearned = f
}

// remember takes in what an earlier process learned of the class, or another one that leads now.
func (p *Provider) remember(c *class, nc *ec2nc.EC2NodeClass) {
	said, raw := nc.Annotations[objects.AnnotationNodeName], nc.Annotations[objects.AnnotationLearned]
	c.nameSaid.Store(&said)
	c.kept.Store(&raw)
	if raw == "" {
		return
	}
	var l discovered
	if err := json.Unmarshal([]byte(raw), &l); err != nil {
		return // somebody wrote something else there; it is learned anew and written over
	}
	if l.NodeName != nameUnknown && c.nodeName.Load() == nil {
		c.nameSeen(l.NodeName)
	}
	amounts := map[typeAndImage]int64{}
	for image, types := range l.Memory {
		for name, bytes := range types {
			amounts[typeAndImage{name, image}] = bytes
		}
	}
	p.learned.see(amounts)
}

// discoveredBy is what is known of the class and worth keeping.
func (p *Provider) discoveredBy(c *class) discovered {
	l := discovered{}
	if seen := c.nodeName.Load(); seen != nil {
		l.NodeName = *seen
	}
	r := c.resolved.Load()
	if r == nil {
		return l
	}
	for key, bytes := range *p.learned.now.Load() {
		for i := range r.images {
			if r.images[i].id != key.image {
				continue
			}
			if l.Memory == nil {
				l.Memory = map[string]map[string]int64{}
			}
			if l.Memory[key.image] == nil {
				l.Memory[key.image] = map[string]int64{}
			}
			l.Memory[key.image][key.instanceType] = bytes
		}
	}
	return l
}

// learnedPause is between two attempts to have what was learned kept: a burst of nodes is one lesson.
const learnedPause = 10 * time.Second

// keepLearned has what was learned of a class kept, if it isn't. It says when it wants to be called again; 0: when there is
// something new. next is when it may be kept again.
func (p *Provider) keepLearned(ctx context.Context, c *class, next *time.Time) time.Duration {
	p.mu.Lock()
	keep := p.onLearned
	p.mu.Unlock()
	if keep == nil || c.resolved.Load() == nil {
		return 0
	}
	l := p.discoveredBy(c)
	if l.NodeName == nameUnknown && len(l.Memory) == 0 {
		return 0
	}
	raw, err := json.Marshal(l)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not write down what was learned of a node class")
		return 0
	}
	if kept := c.kept.Load(); kept != nil && string(raw) == *kept {
		return 0
	}
	if wait := next.Sub(p.clock.Now()); wait > 0 {
		return wait
	}
	*next = p.clock.Now().Add(learnedPause)
	if err := keep(c.name, string(raw)); err != nil {
		klog.FromContext(ctx).Error(err, "Could not keep what was learned of a node class", "retryIn", learnedPause)
		return learnedPause
	}
	kept := string(raw)
	c.kept.Store(&kept)
	return 0
}
