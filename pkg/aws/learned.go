package aws

import (
	"context"
	"encoding/json"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/reported"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// ObserveNode learns from a registered node. It doesn't block.
func (s *classes) ObserveNode(n cloudprovider.RegisteredNode) {
	news := s.reported.See(reported.Node{
		ClassKey: reported.ClassKey{Class: reported.Class{Name: n.NodeClass, Hash: n.NodeClassHash}, Key: reported.Key{InstanceType: n.InstanceType, Image: n.ImageID}},
		Capacity: n.Capacity, Allocatable: n.Allocatable,
	})
	if news {
		s.changed()
	}
	c := s.get(n.NodeClass)
	if c == nil {
		return
	}
	if n.Name != "" && n.InstanceID != "" {
		news = c.nameSeen(bootstrap.NameFormSeen(n.Name, n.InstanceID, n.InternalIP)) || news
	}
	if news {
		c.poke() // so that it is recorded
	}
}

// nameSeen records the form of a name, and reports whether it differs from the last one.
func (c *class) nameSeen(f bootstrap.NameForm) bool {
	before := c.nodeName.Swap(&f)
	return before == nil || *before != f
}

// form returns how nodes of the class are named, as far as is known. The name of a node that has registered takes precedence over the annotation:
// if the annotation were wrong, each Node created ahead would have another name than its kubelet uses, and the pods bound to it would be lost.
func (c *class) form(f *bootstrap.Family) bootstrap.NameForm {
	if seen := c.nodeName.Load(); seen != nil {
		return *seen
	}
	said := ""
	if annotation := c.nameSaid.Load(); annotation != nil {
		said = *annotation
	}
	return bootstrap.NameFormOf(&c.current().Spec, said, f)
}

// OnLearned registers a function that is given what was learned of a class, to be kept on the object as objects.AnnotationLearned.
// It must be registered before Run, and it is called from the class's own goroutine: it may take its time. Where it fails it
// is called again later.
func (s *classes) OnLearned(f func(nodeClass, value string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onLearned = f
}

// remember takes over what an earlier process, or the process that leads now, has recorded on the object about nodes of the class.
func (s *classes) remember(c *class, nc *ec2nc.EC2NodeClass) {
	said, raw := nc.Annotations[objects.AnnotationNodeName], nc.Annotations[objects.AnnotationLearned]
	before, given := c.nameSaid.Swap(&said), bootstrap.NameForm(said).Known()
	if seen := c.nodeName.Load(); given && before != nil && *before != said && seen != nil && *seen == bootstrap.NameOther {
		c.nodeName.Store(nil) // the user has set the annotation since then; it counts until a node with another form of name is seen
	}
	c.kept.Store(&raw)
	if raw == "" {
		return
	}
	var l reported.Record
	if err := json.Unmarshal([]byte(raw), &l); err != nil {
		return // not our JSON: it is learned again and overwritten
	}
	if l.NodeName != bootstrap.NameUnknown && c.nodeName.Load() == nil && !(given && l.NodeName == bootstrap.NameOther) {
		c.nameSeen(l.NodeName)
	}
	news := false
	for image, types := range l.Memory {
		for name, bytes := range types {
			news = s.reported.Recall(reported.ClassKey{Key: reported.Key{InstanceType: name, Image: image}}, bytes, reported.Kept{}) || news
		}
	}
	for image, types := range l.Kept {
		for name, kept := range types {
			key := reported.ClassKey{Class: reported.Class{Name: nc.Name, Hash: l.Class}, Key: reported.Key{InstanceType: name, Image: image}}
			news = s.reported.Recall(key, 0, kept) || news
		}
	}
	if news {
		s.changed()
	}
}

// discoveredBy returns what is known of the class and worth recording.
func (s *classes) discoveredBy(c *class) reported.Record {
	l := reported.Record{}
	if seen := c.nodeName.Load(); seen != nil {
		l.NodeName = *seen
	}
	r := c.resolved.Load()
	if r == nil {
		return l
	}
	known := s.reported.Now()
	uses := map[string]bool{}
	for i := range r.images {
		image := r.images[i].id
		uses[image] = true
		known.Images(image, func(name string, bytes int64) { put(&l.Memory, image, name, bytes) })
	}
	if r.settings == nil || !r.settings.Own.Script {
		return l
	}
	known.OfClass(r.version(), func(k reported.Key, kept reported.Kept) {
		if uses[k.Image] {
			put(&l.Kept, k.Image, k.InstanceType, kept)
			l.Class = r.hash
		}
	})
	return l
}

// put sets an entry of a map of maps.
func put[V any](m *map[string]map[string]V, first, second string, v V) {
	if *m == nil {
		*m = map[string]map[string]V{}
	}
	if (*m)[first] == nil {
		(*m)[first] = map[string]V{}
	}
	(*m)[first][second] = v
}

// learnedPause is the time between two attempts to record what was learned, so that a burst of nodes is written once.
const learnedPause = 10 * time.Second

// keepLearned records what was learned of a class, unless it is recorded already. It returns when it should be called again; 0 means
// when there is something new. next is the earliest time of the next write.
func (s *classes) keepLearned(ctx context.Context, c *class, next *time.Time) time.Duration {
	s.mu.Lock()
	keep := s.onLearned
	s.mu.Unlock()
	if keep == nil || c.resolved.Load() == nil {
		return 0
	}
	l := s.discoveredBy(c)
	if l.NodeName == bootstrap.NameUnknown && len(l.Memory)+len(l.Kept) == 0 {
		return 0
	}
	if kept := c.kept.Load(); s.several && kept != nil {
		l = l.With(*kept)
	}
	raw, err := json.Marshal(l)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not encode what was discovered about the nodes of a class")
		return 0
	}
	if kept := c.kept.Load(); kept != nil && string(raw) == *kept {
		return 0
	}
	if wait := next.Sub(s.clock.Now()); wait > 0 {
		return wait
	}
	*next = s.clock.Now().Add(learnedPause)
	if err := keep(c.name, string(raw)); err != nil {
		klog.FromContext(ctx).Error(err, "Could not record what was discovered about the nodes of a class", "retryIn", learnedPause)
		return learnedPause
	}
	kept := string(raw)
	c.kept.Store(&kept)
	return 0
}
