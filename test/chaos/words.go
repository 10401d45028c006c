package chaos

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Sentence is what a user can read: an event's note, or a condition's message.
type Sentence struct {
	// Kind and Name of the object it is about.
	Kind, Name string
	// Where it is said: "event REASON", or "condition TYPE=STATUS (REASON)".
	Where string
	Text  string
}

func (s Sentence) String() string {
	return fmt.Sprintf("%s %s, %s: %s", s.Kind, s.Name, s.Where, s.Text)
}

// conditioned are the kinds of objects whose conditions users read.
var conditioned = []struct{ group, resource string }{
	{"", "pods"}, {"karpenter.sh", "nodeclaims"}, {"karpenter.sh", "nodepools"}, {"karpenter.k8s.aws", "ec2nodeclasses"},
}

// Listen collects what is said from now on, in the order in which it was first seen. Conditions are read at every look: one that is gone by the
// next is missed.
func (s *Stage) Listen() func() []Sentence {
	var heard []Sentence
	seen := map[Sentence]bool{}
	take := func(one Sentence) {
		if one.Text != "" && !seen[one] {
			seen[one] = true
			heard = append(heard, one)
		}
	}
	look := func() {
		// The API server in memory has no discovery: recorders write the core group's events there.
		s.api.Visit("", "events", func(o *unstructured.Unstructured) {
			text := func(fields ...string) string { v, _, _ := unstructured.NestedString(o.Object, fields...); return v }
			take(Sentence{text("involvedObject", "kind"), text("involvedObject", "name"), "event " + text("reason"), text("message")})
		})
		for _, kind := range conditioned {
			s.api.Visit(kind.group, kind.resource, func(o *unstructured.Unstructured) {
				conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
				for _, c := range conditions {
					if c, ok := c.(map[string]any); ok {
						message, _ := c["message"].(string)
						take(Sentence{o.GetKind(), o.GetName(), fmt.Sprintf("condition %v=%v (%v)", c["type"], c["status"], c["reason"]), message})
					}
				}
			})
		}
	}
	s.Each(look)
	return func() []Sentence {
		look()
		return slices.Clone(heard)
	}
}
