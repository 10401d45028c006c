package chaos

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Sentence is a text that a user can read: an event's note or a condition's message.
type Sentence struct {
	// Kind and Name of the object that the text is about.
	Kind, Name string
	// Where the text is: "event REASON", or "condition TYPE=STATUS (REASON)".
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

// Listen collects the texts of events and conditions from now on, in the order in which they were first seen; the function it returns
// returns them. Conditions are read at every look, so a message that is replaced before the next look is missed.
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
		// The API server in memory has no discovery, so recorders write events in the core group.
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
