package karpenter

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// HashVersion stands beside every hash of ours. A hash says something only about another of the same version: nodes that Karpenter
// made bear its own, and until they are stamped anew (stamp.go), there is nothing to compare them with. To be changed whenever
// the same spec would get another hash.
const HashVersion = "dovetail-v1"

// PoolHash changes when nodes made of the pool's template would come out different in a way that only a new node can have: labels,
// annotations, taints, node class reference, expireAfter, terminationGracePeriod. Requirements are no part of it, since a node that
// still satisfies them needn't go; neither are limits, weight and disruption settings. The order of lists doesn't count.
func PoolHash(np *karpv1.NodePool) string {
	t := &np.Spec.Template
	h := struct {
		Labels, Annotations       map[string]string
		Taints, StartupTaints     []corev1.Taint
		NodeClassRef              *karpv1.NodeClassReference
		ExpireAfter, TerminateFor string
	}{Labels: t.Labels, Annotations: t.Annotations, Taints: t.Spec.Taints, StartupTaints: t.Spec.StartupTaints, NodeClassRef: t.Spec.NodeClassRef}
	if d := t.Spec.ExpireAfter.Duration; d != nil {
		h.ExpireAfter = d.String() // not as it was written: 60m is 1h
	}
	if d := t.Spec.TerminationGracePeriod; d != nil {
		h.TerminateFor = d.Duration.String()
	}
	return hash(h)
}

// ClassHash does the same for a node class. What its selectors find is compared by what they find; a number of address prefixes is
// of no concern to nodes that run; the AMI family counts as what it comes out as, named or following from the alias. clusterCA is
// what nodes verify the API server with. User data of family Custom doesn't get it from us, so that it doesn't count there.
func ClassHash(nc *ec2nc.EC2NodeClass, clusterCA string) string {
	spec := nc.Spec.DeepCopy()
	family := amiFamily(spec)
	spec.SubnetSelectorTerms, spec.SecurityGroupSelectorTerms, spec.CapacityReservationSelectorTerms, spec.AMISelectorTerms = nil, nil, nil, nil
	spec.IPPrefixCount, spec.AMIFamily = nil, nil
	if family == strings.ToLower(ec2nc.AMIFamilyCustom) {
		clusterCA = ""
	}
	return hash(map[string]any{"spec": spec, "family": family, "ca": clusterCA})
}

// amiFamily is the family in lower case: named, or else that of the alias.
func amiFamily(spec *ec2nc.EC2NodeClassSpec) string {
	if spec.AMIFamily != nil {
		return strings.ToLower(*spec.AMIFamily)
	}
	for _, term := range spec.AMISelectorTerms {
		if family, _, ok := strings.Cut(term.Alias, "@"); ok {
			return strings.ToLower(family)
		}
	}
	return strings.ToLower(ec2nc.AMIFamilyCustom)
}

// hash of a value as JSON has it, without what isn't set and with lists as sets. The values are API types, which have been read
// from JSON and can be written as such.
func hash(v any) string {
	raw, _ := json.Marshal(v)
	var plain any
	_ = json.Unmarshal(raw, &plain)
	raw, _ = json.Marshal(canonical(plain))
	sum := sha256.Sum256(raw)
	return strconv.FormatUint(binary.BigEndian.Uint64(sum[:]), 10)
}

// canonical drops empty lists, maps and nulls, and sorts lists by what their elements are written as.
func canonical(v any) any {
	switch t := v.(type) {
	case map[string]any:
		for key, value := range t {
			if c := canonical(value); c == nil {
				delete(t, key)
			} else {
				t[key] = c
			}
		}
		if len(t) == 0 {
			return nil
		}
	case []any:
		type element struct {
			text  string
			value any
		}
		var elements []element
		for _, value := range t {
			if c := canonical(value); c != nil {
				text, _ := json.Marshal(c)
				elements = append(elements, element{string(text), c})
			}
		}
		slices.SortFunc(elements, func(a, b element) int { return strings.Compare(a.text, b.text) })
		if len(elements) == 0 {
			return nil
		}
		out := make([]any, len(elements))
		for i := range elements {
			out[i] = elements[i].value
		}
		return out
	}
	return v
}
