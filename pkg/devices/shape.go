package devices

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Shape is what the unallocated ResourceClaims of a pod ask for. Pods of one shape can use the same devices.
type Shape struct {
	// Key identifies the shape: it is what capacity.DevicesOf takes to name the resource that counts such pods on a node.
	Key string
	// Specs are the specs of the claims, in the order of the pod's claims, without the configuration for the driver: it doesn't influence which devices
	// are allocated, and may differ from pod to pod.
	Specs []resourcev1.ResourceClaimSpec
	// names are the names of the claims in the pod.
	names []string
	// used is when the shape was last asked for.
	used time.Time
}

// maxShapes limits how many shapes are known. Plans count each of them on each kind of node.
const maxShapes = 200

// shapeLife is how long a shape is known after its last use. If there are maxShapes, a new one replaces the oldest that hasn't been used for twice the
// gate's deadline (SetPatience): no pod waits with that any more, because the scheduler asks again when a pod's gate has opened.
const shapeLife = 24 * time.Hour

// usualPatience is the default of gateDeadline.
const usualPatience = 25 * time.Minute

// SetPatience sets how long a pod waits for its node (gateDeadline). Call it before anything runs.
func (s *Source) SetPatience(gate time.Duration) { s.patience = gate }

// Of returns the key for the devices that the pod's claims still need; empty: none. An error says why the pod can't run for now. With
// successor, the answer is for the pod that will be created in the place of this one, with new claims where templates make them.
func (s *Source) Of(pod *corev1.Pod, successor bool) (string, error) {
	if s == nil || len(pod.Spec.ResourceClaims) == 0 {
		return "", nil
	}
	shape := &Shape{}
	for i := range pod.Spec.ResourceClaims {
		ref := &pod.Spec.ResourceClaims[i]
		name, made, err := claimName(pod, ref)
		if err != nil {
			return "", err
		}
		if name == "" {
			continue
		}
		claim, err := s.state.Claim(pod.Namespace, name)
		switch {
		case err != nil:
			return "", fmt.Errorf("resourceclaim %q: %w", name, err)
		case claim.Status.Allocation != nil && !(successor && made):
			continue // the DynamicResources plugin knows where the devices are
		}
		if len(claim.Spec.Devices.Requests) == 0 {
			continue // it can be allocated on any node, whatever that has published
		}
		spec := claim.Spec
		spec.Devices.Config = nil
		shape.Specs, shape.names = append(shape.Specs, spec), append(shape.names, ref.Name)
	}
	if len(shape.Specs) == 0 {
		s.mu.Lock()
		if s.byPod.get(pod.UID) == nil { // otherwise it is kept: plans may still use this pod as the example of its class
			s.byPod.put(pod.UID, shape)
		}
		s.mu.Unlock()
		return "", nil
	}
	return s.know(pod.UID, shape)
}

// claimName returns the name of the claim; made: a controller has made it for this pod, from a template.
func claimName(pod *corev1.Pod, ref *corev1.PodResourceClaim) (name string, made bool, err error) {
	if ref.ResourceClaimName != nil {
		return *ref.ResourceClaimName, false, nil
	}
	for _, st := range pod.Status.ResourceClaimStatuses {
		if st.Name == ref.Name {
			if st.ResourceClaimName == nil {
				return "", true, nil // none was needed
			}
			return *st.ResourceClaimName, true, nil
		}
	}
	return "", true, fmt.Errorf("the resourceclaim for %q has not been created yet", ref.Name)
}

// know remembers a shape and returns its key.
func (s *Source) know(pod types.UID, shape *Shape) (string, error) {
	raw, err := json.Marshal(shape.Specs)
	if err != nil {
		return "", fmt.Errorf("reading the pod's resourceclaims: %w", err)
	}
	sum := sha256.Sum256(raw)
	shape.Key = capacity.DevicesOf(strings.Join(deviceClasses(shape.Specs), ", "), hex.EncodeToString(sum[:6]))
	shape.used = s.clock.Now()
	s.mu.Lock()
	_, known := s.shapes[shape.Key]
	if !known && len(s.shapes) >= maxShapes {
		s.makeRoom()
	}
	if !known && len(s.shapes) >= maxShapes {
		s.mu.Unlock()
		return "", fmt.Errorf("more than %d different kinds of resourceclaims wait for nodes", maxShapes)
	}
	if !known {
		s.seen.version++
	}
	s.shapes[shape.Key] = shape
	s.byPod.put(pod, shape)
	s.mu.Unlock()
	if !known && s.onShape != nil {
		s.onShape()
	}
	return shape.Key, nil
}

// shapesByPod remembers the shapes of pods: at least those of the maxPods pods that were asked about last, and at most twice as many.
type shapesByPod struct{ recent, older map[types.UID]*Shape }

const maxPods = 100_000

func (b *shapesByPod) put(pod types.UID, shape *Shape) {
	if b.recent == nil || len(b.recent) >= maxPods {
		b.recent, b.older = map[types.UID]*Shape{}, b.recent
	}
	b.recent[pod] = shape
}

func (b *shapesByPod) get(pod types.UID) *Shape {
	if shape, ok := b.recent[pod]; ok {
		return shape
	}
	shape := b.older[pod]
	if shape != nil {
		b.put(pod, shape)
	}
	return shape
}

// makeRoom drops the shape that has been unused for longest, unless pods may still wait for their nodes with it. The caller holds mu.
func (s *Source) makeRoom() {
	var oldest *Shape
	for _, shape := range s.shapes {
		if oldest == nil || shape.used.Before(oldest.used) {
			oldest = shape
		}
	}
	if oldest != nil && s.clock.Now().Sub(oldest.used) > 2*s.patience {
		delete(s.shapes, oldest.Key)
	}
}

// forgetShapes drops shapes that have not been used for long. The caller holds mu.
func (s *Source) forgetShapes() {
	now := s.clock.Now()
	for key, shape := range s.shapes {
		if now.Sub(shape.used) > shapeLife {
			delete(s.shapes, key)
		}
	}
}

// deviceClasses returns the names of the device classes that claims ask for, sorted.
func deviceClasses(specs []resourcev1.ResourceClaimSpec) []string {
	var out []string
	for i := range specs {
		for _, r := range specs[i].Devices.Requests {
			if r.Exactly != nil {
				out = append(out, r.Exactly.DeviceClassName)
			}
			for _, sub := range r.FirstAvailable {
				out = append(out, sub.DeviceClassName)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Claims returns what a pod that Of was asked about needs, by the name of the claim in the pod; nil: that is not known.
func (s *Source) Claims(pod types.UID) map[string]resourcev1.ResourceClaimSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	shape := s.byPod.get(pod)
	if shape == nil {
		return nil
	}
	out := make(map[string]resourcev1.ResourceClaimSpec, len(shape.names))
	for i, name := range shape.names {
		out[name] = shape.Specs[i]
	}
	return out
}

// known returns all shapes, sorted by key.
func (s *Source) known() []*Shape {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Shape, 0, len(s.shapes))
	for _, shape := range s.shapes {
		out = append(out, shape)
	}
	slices.SortFunc(out, func(a, b *Shape) int { return strings.Compare(a.Key, b.Key) })
	return out
}
