package repair

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

const (
	// graceLeast is the least time for the drain of an unhealthy node whose kubelet answers. The drain has half of the toleration if that is longer.
	graceLeast = 5 * time.Minute
	// off is the value by which a pool turns off one policy, or all of them.
	off = "off"
)

// Policies are the repair policies of a pool's nodes.
type Policies []cloudprovider.RepairPolicy

// Override returns the policies as a pool's annotation changes them: "off", or conditions with their toleration, separated by commas:
// "Ready=10m, KernelReady=off".
func (p Policies) Override(text string) (Policies, error) {
	if strings.TrimSpace(text) == off {
		return nil, nil
	}
	out := slices.Clone(p)
	for part := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(part, "=")
		condition := corev1.NodeConditionType(strings.TrimSpace(name))
		if !found || !slices.ContainsFunc(p, func(x cloudprovider.RepairPolicy) bool { return x.Condition == condition }) {
			return p, fmt.Errorf(`it must be "off", or tolerations by condition, like "Ready=10m, KernelReady=off"; conditions are %s`, strings.Join(p.conditions(), ", "))
		}
		if value = strings.TrimSpace(value); value == off {
			out = slices.DeleteFunc(out, func(x cloudprovider.RepairPolicy) bool { return x.Condition == condition })
			continue
		}
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return p, fmt.Errorf(`the toleration of %s must be "off" or a duration above zero, like "10m"`, condition)
		}
		for i := range out {
			if out[i].Condition == condition {
				out[i].Toleration = d
			}
		}
	}
	return out, nil
}

// conditions returns the names of the conditions, each once.
func (p Policies) conditions() (out []string) {
	for _, x := range p {
		if name := string(x.Condition); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// Fault is why a node is unhealthy.
type Fault struct {
	// Condition is the repair policy's. Text says to people what is wrong, as a clause.
	Condition corev1.NodeConditionType
	Text      string
	// Since is when the node became unhealthy; from Due on that is not tolerated any more.
	Since, Due time.Time
	// Grace is how long the drain may take; 0: the kubelet doesn't answer, so no drain would end any pod.
	Grace time.Duration
}

// Find returns the fault of a node that is, or will be, the first not to be tolerated any more; nil: the node is healthy. impaired is what the
// cloud says of its instance; nil: nothing.
func (p Policies) Find(node *corev1.Node, impaired *cloudprovider.Impairment) (first *Fault) {
	for _, policy := range p {
		f := policyFault(policy, node, impaired)
		if f == nil {
			continue
		}
		f.Due = f.Since.Add(policy.Toleration)
		if ready(node) {
			f.Grace = max(policy.Toleration/2, graceLeast)
		}
		if first == nil || f.Due.Before(first.Due) {
			first = f
		}
	}
	return first
}

// policyFault returns the fault that one policy finds.
func policyFault(policy cloudprovider.RepairPolicy, node *corev1.Node, impaired *cloudprovider.Impairment) *Fault {
	if policy.Condition == cloudprovider.InstanceStatus {
		if impaired == nil {
			return nil
		}
		return &Fault{Condition: policy.Condition, Since: impaired.Since, Text: fmt.Sprintf("%s fails since %s", impaired.Check, impaired.Since.UTC().Format(time.RFC3339))}
	}
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == policy.Condition && c.Status == policy.Status {
			since := c.LastTransitionTime.Time
			return &Fault{Condition: policy.Condition, Since: since, Text: fmt.Sprintf("its condition %s is %s since %s", c.Type, c.Status, since.UTC().Format(time.RFC3339))}
		}
	}
	return nil
}

// ready reports whether the kubelet answers and can run pods.
func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
