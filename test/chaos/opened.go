package chaos

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// guardAnnotation is where the product stores its breakers: pod breakers on NodePools, machine breakers on EC2NodeClasses.
// pausedCondition is True on such an object while one of its breakers is open.
const (
	guardAnnotation = "dovetail.sh/guard"
	pausedCondition = "dovetail.sh/LaunchesPaused"
)

// opened returns the open breakers: the object and the message of its condition.
func opened(s *Stage) []string {
	var out []string
	for _, kind := range []struct{ group, resource string }{{"karpenter.sh", "nodepools"}, {"karpenter.k8s.aws", "ec2nodeclasses"}} {
		s.api.Visit(kind.group, kind.resource, func(o *unstructured.Unstructured) {
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			for _, c := range conditions {
				if c, ok := c.(map[string]any); ok && c["type"] == pausedCondition && c["status"] == "True" {
					out = append(out, fmt.Sprintf("%s %s: %v: %v (%s)", o.GetKind(), o.GetName(), c["reason"], c["message"], o.GetAnnotations()[guardAnnotation]))
				}
			}
		})
	}
	return out
}

// NothingOpens fails the scene, once for each breaker, if a breaker opens at any time from now on.
func (s *Stage) NothingOpens() {
	var told []string
	s.Each(func() {
		for _, what := range opened(s) {
			if !slices.Contains(told, what) {
				told = append(told, what)
				if len(told) <= 5 {
					s.Failf("a breaker is open: %s", what)
				}
			}
		}
	})
}

// Opened returns the breakers that are open now.
func (s *Stage) Opened() []string { return opened(s) }
