package explain

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/offline"
)

const (
	unknownLabel = "the pod asks for ..., a label that the pool's nodes don't have"
	taint        = "taint ... is not tolerated"
)

var labelAsked = regexp.MustCompile(`the pod asks for (\S+) .*, a label that the pool's nodes don't have( \(is \S+ meant\?\))?`)

// forLabel returns the advice about a label that no node has. Labels of Kubernetes' and Karpenter's own domains can't be added to a pool: then the name
// is wrong.
func forLabel(a Advice, message string) Advice {
	m := labelAsked.FindStringSubmatch(message)
	if m == nil || !reservedLabel(m[1]) {
		return a
	}
	a.Means = "the label's domain belongs to Kubernetes or Karpenter, which don't know a label of that name: no pool can add it"
	a.Do = "correct the name in the pod" + m[2]
	return a
}

// reservedLabel reports whether a label is of a domain in which users name none.
func reservedLabel(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return false
	}
	of := func(domains ...string) bool {
		return slices.ContainsFunc(domains, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
	}
	return of("karpenter.sh", "karpenter.k8s.aws", "kubernetes.io", "k8s.io") &&
		!of(corev1.LabelNamespaceNodeRestriction, "node.kubernetes.io", "node-role.kubernetes.io", "kops.k8s.io")
}

// withoutTaints leaves out what to do about taints of pools, where tolerating them alone doesn't get the pod a node and there is other advice.
func withoutTaints(all []Advice) []Advice {
	rest := slices.DeleteFunc(slices.Clone(all), func(a Advice) bool { return a.Says == taint })
	if len(rest) == 0 {
		return all
	}
	return rest
}

// atMost returns how much of a resource the largest node of a pool has for the pod, as the pool's reason says; empty: it says nothing.
func atMost(pools []offline.PoolReason, pool, resource string) string {
	amount := regexp.MustCompile(`(?:^|[ ,:])` + regexp.QuoteMeta(resource) + ` \S+ requested, (\S+) at most`)
	for _, p := range pools {
		if p.Pool != pool {
			continue
		}
		if m := amount.FindStringSubmatch(p.Reason); m != nil {
			return m[1]
		}
	}
	return ""
}
