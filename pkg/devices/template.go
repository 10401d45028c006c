package devices

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Template is what the ResourceSlices of a kind of node have in common. It is never changed.
type Template struct {
	// hash is equal for equal contents.
	hash string
	// slices name no node, and their pools are named by a number.
	slices []resourcev1.ResourceSliceSpec
}

// newTemplate returns a template, or nil if there are no slices.
func newTemplate(specs []resourcev1.ResourceSliceSpec) *Template {
	if len(specs) == 0 {
		return nil
	}
	raw, err := json.Marshal(specs)
	if err != nil {
		return nil // API objects can be encoded
	}
	sum := sha256.Sum256(raw)
	return &Template{hash: hex.EncodeToString(sum[:8]), slices: specs}
}

// usable returns how many devices can be allocated: those without a taint that keeps pods off.
func (t *Template) usable() int {
	n := 0
	if t == nil {
		return n
	}
	for i := range t.slices {
		for j := range t.slices[i].Devices {
			if !slices.ContainsFunc(t.slices[i].Devices[j].Taints, func(t resourcev1.DeviceTaint) bool { return t.Effect != resourcev1.DeviceTaintEffectNone }) {
				n++
			}
		}
	}
	return n
}

// on returns the slices of a hypothetical node.
func (t *Template) on(node string) []*resourcev1.ResourceSlice {
	if t == nil {
		return nil
	}
	out := make([]*resourcev1.ResourceSlice, 0, len(t.slices))
	for i := range t.slices {
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node, i), UID: types.UID(fmt.Sprintf("%s-%d", node, i))}, Spec: t.slices[i]}
		s.Spec.NodeName = &node
		s.Spec.Pool.Name = node + s.Spec.Pool.Name
		s.Spec.Pool.ResourceSliceCount = max(1, s.Spec.Pool.ResourceSliceCount)
		out = append(out, s)
	}
	return out
}

// shown returns what a node has published, as a template for others. complete is false while drivers are still publishing.
func shown(published []*resourcev1.ResourceSlice) (t *Template, complete bool) {
	type pool struct{ driver, name string }
	newest, number := map[pool]int64{}, map[pool]int64{}
	for _, s := range published {
		p := pool{s.Spec.Driver, s.Spec.Pool.Name}
		newest[p] = max(newest[p], s.Spec.Pool.Generation)
	}
	var specs []resourcev1.ResourceSliceSpec
	for _, s := range published {
		p := pool{s.Spec.Driver, s.Spec.Pool.Name}
		if s.Spec.Pool.Generation != newest[p] {
			continue
		}
		number[p]++
		specs = append(specs, *s.Spec.DeepCopy())
	}
	for i := range specs {
		if s := &specs[i]; number[pool{s.Driver, s.Pool.Name}] != s.Pool.ResourceSliceCount {
			return nil, false
		}
	}
	slices.SortStableFunc(specs, func(a, b resourcev1.ResourceSliceSpec) int {
		first := func(s *resourcev1.ResourceSliceSpec) string {
			if len(s.Devices) > 0 {
				return s.Devices[0].Name
			}
			return ""
		}
		return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Pool.Name, b.Pool.Name), cmp.Compare(first(&a), first(&b)))
	})
	numbers := map[pool]int{}
	perDriver := map[string]int{}
	for i := range specs {
		s := &specs[i]
		p := pool{s.Driver, s.Pool.Name}
		if _, known := numbers[p]; !known {
			numbers[p] = perDriver[s.Driver]
			perDriver[s.Driver]++
		}
		s.NodeName, s.Pool.Generation = nil, 0
		s.Pool.Name = ""
		if n := numbers[p]; n > 0 {
			s.Pool.Name = fmt.Sprintf("-%d", n)
		}
		for d := range s.Devices {
			withoutIdentity(&s.Devices[d])
		}
	}
	return newTemplate(specs), true
}

// withoutIdentity removes what no other node's device has.
func withoutIdentity(d *resourcev1.Device) {
	for name := range d.Attributes {
		id := string(name)[strings.LastIndexByte(string(name), '/')+1:]
		if lower := strings.ToLower(id); lower == "uuid" || strings.HasPrefix(lower, "serial") {
			delete(d.Attributes, name)
		}
	}
}

// over returns this template with those drivers of another one that it doesn't have.
func (t *Template) over(other *Template) *Template {
	switch {
	case t == nil:
		return other
	case other == nil:
		return t
	}
	has := map[string]bool{}
	for i := range t.slices {
		has[t.slices[i].Driver] = true
	}
	out := slices.Clone(t.slices)
	for i := range other.slices {
		if !has[other.slices[i].Driver] {
			out = append(out, other.slices[i])
		}
	}
	if len(out) == len(t.slices) {
		return t
	}
	return newTemplate(out)
}
