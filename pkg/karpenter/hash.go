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

// HashVersion is written beside each of our hashes. Only hashes of the same version can be compared: nodes that Karpenter created
// carry Karpenter's hashes, and until they are stamped again (stamp.go), there is nothing to compare with. Change it whenever the same
// spec would get another hash.
const HashVersion = "dovetail-v1"

// PoolHash changes when nodes of the pool's template would come out different in a way that only a new node can have: labels,
// annotations, taints, node class reference, expireAfter, terminationGracePeriod. It does not cover requirements, since a node that
// still satisfies them can stay, nor limits, weight and disruption settings. The order of lists doesn't matter.
func PoolHash(np *karpv1.NodePool) string {
	t := &np.Spec.Template
	h := struct {
		Labels, Annotations       map[string]string
		Taints, StartupTaints     []corev1.Taint
		NodeClassRef              *karpv1.NodeClassReference
		ExpireAfter, TerminateFor string
	}{Labels: t.Labels, Annotations: t.Annotations, Taints: t.Spec.Taints, StartupTaints: t.Spec.StartupTaints, NodeClassRef: t.Spec.NodeClassRef}
	if d := t.Spec.ExpireAfter.Duration; d != nil {
		h.ExpireAfter = d.String() // the parsed value, because 60m and 1h are equal
	}
	if d := t.Spec.TerminationGracePeriod; d != nil {
		h.TerminateFor = d.Duration.String()
	}
	return hash(h)
}

// ClassHash does the same for a node class. It leaves out the selectors, because drift compares what they select, and the number of
// address prefixes, which doesn't concern running nodes. The AMI family counts by its effective value, whether it is named or follows
// from the alias. clusterCA is the certificate with which nodes verify the API server; it doesn't count for family Custom, whose user
// data is not ours.
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

// amiFamily returns the family in lower case: the named one, or else that of the alias.
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

// hash returns the hash of a value's JSON, without unset fields and with lists as sets. The values are API types, which were decoded
// from JSON and can be encoded as such.
func hash(v any) string {
	raw, _ := json.Marshal(v)
	var plain any
	_ = json.Unmarshal(raw, &plain)
	raw, _ = json.Marshal(canonical(plain))
	sum := sha256.Sum256(raw)
	return strconv.FormatUint(binary.BigEndian.Uint64(sum[:]), 10)
}

// canonical drops empty lists, maps and nulls, and sorts lists by the JSON of their elements.
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
