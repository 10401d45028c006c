package bootstrap

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/pelletier/go-toml/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Kubelet holds the kubelet settings that a class's own user data contains, as far as they can be read.
type Kubelet struct {
	// Labels and Taints are those that the kubelet would give a Node that it creates.
	Labels map[string]string
	Taints []corev1.Taint
	// KubeReserved and SystemReserved are by resource, EvictionHard by signal. What is not listed, the user data doesn't set.
	KubeReserved, SystemReserved, EvictionHard map[string]string
	// MaxPods is the kubelet's setting; nil: not set.
	MaxPods *int32
	// MaxPodsExpression is the value from which nodeadm computes the number of pods that it reserves memory for; empty: not set.
	MaxPodsExpression string
	// Script: the kubelet is started by something that can't be read, so that it may differ from all of this.
	Script bool
}

// OwnKubelet reads the kubelet settings in the class's user data. It returns an error for settings with which no node could register.
func (f *Family) OwnKubelet(spec *ec2nc.EC2NodeClassSpec) (*Kubelet, error) {
	own := ownUserData(spec)
	if strings.TrimSpace(own) == "" || f.ownKubelet == nil {
		return &Kubelet{Script: f == Custom}, nil // a custom image may start its kubelet by itself
	}
	k, err := f.ownKubelet(own)
	if err != nil {
		return nil, fmt.Errorf("spec.userData: %w", err)
	}
	if err := k.valid(); err != nil {
		return nil, fmt.Errorf("spec.userData: %w", err)
	}
	k.Taints = slices.DeleteFunc(k.Taints, passing)
	return k, nil
}

// passing reports whether Kubernetes or Dovetail removes the taint by itself. Karpenter's documentation tells users of custom images to register
// with karpenter.sh/unregistered, which is such a taint.
func passing(t corev1.Taint) bool {
	domain, _, _ := strings.Cut(t.Key, "/")
	return domain == "karpenter.sh" || domain == "node.kubernetes.io" || domain == "node.cloudprovider.kubernetes.io"
}

// valid returns why the API server would refuse a Node with these labels and taints.
func (k *Kubelet) valid() error {
	for _, key := range slices.Sorted(maps.Keys(k.Labels)) {
		for _, msg := range append(validation.IsQualifiedName(key), validation.IsValidLabelValue(k.Labels[key])...) {
			return fmt.Errorf("label %s=%s: %s", key, k.Labels[key], msg)
		}
	}
	for _, t := range k.Taints {
		for _, msg := range append(validation.IsQualifiedName(t.Key), validation.IsValidLabelValue(t.Value)...) {
			return fmt.Errorf("taint %s: %s", t.ToString(), msg)
		}
	}
	return nil
}

// ownNodeadm reads the NodeConfigs of a multi-part document. nodeadm merges them in order, key by key, and appends their flags
// (github.com/awslabs/amazon-eks-ami, nodeadm/internal/api/merge.go). Scripts beside them are not expected to change the kubelet's settings.
func ownNodeadm(own string) (*Kubelet, error) {
	parts, err := ownParts(own)
	if err != nil {
		return nil, err
	}
	k := &Kubelet{}
	var flags []string
	for _, p := range parts {
		if !strings.HasPrefix(p.contentType, nodeConfigType) {
			continue
		}
		body, err := p.decoded()
		if err != nil {
			return nil, err
		}
		more, err := k.nodeConfig(body)
		if err != nil {
			return nil, err
		}
		flags = append(flags, more...)
	}
	if err := k.flags(flags); err != nil {
		return nil, err
	}
	return k, nil
}

// ownAL2023 is ownNodeadm for nodes whose last NodeConfig comes from Dovetail and sets the node's taints.
func ownAL2023(own string) (*Kubelet, error) {
	k, err := ownNodeadm(own)
	if err != nil {
		return nil, err
	}
	if len(k.Taints) > 0 && !slices.ContainsFunc(k.Taints, func(t corev1.Taint) bool { return t.Key == Unregistered.Key }) {
		// The flag replaces the taints of our NodeConfig, among them the one that keeps pods of other schedulers off until the node has registered.
		return nil, errors.New("flag --register-with-taints of the kubelet: no node could register with it; taints belong into the NodePool's spec.template.spec.taints or startupTaints")
	}
	return k, nil
}

// nodeConfig merges a NodeConfig, and returns its flags.
func (k *Kubelet) nodeConfig(body string) (flags []string, err error) {
	var c struct {
		Spec struct {
			Kubelet struct {
				Config struct {
					KubeReserved   map[string]string `json:"kubeReserved"`
					SystemReserved map[string]string `json:"systemReserved"`
					EvictionHard   map[string]string `json:"evictionHard"`
				} `json:"config"`
				Flags             []string `json:"flags"`
				MaxPodsExpression string   `json:"maxPodsExpression"`
			} `json:"kubelet"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(body), &c); err != nil {
		return nil, fmt.Errorf("reading NodeConfig: %w", err)
	}
	of := &c.Spec.Kubelet
	// maxPods and registerWithTaints are not read: the last NodeConfig is ours, and sets them.
	merge(&k.KubeReserved, of.Config.KubeReserved)
	merge(&k.SystemReserved, of.Config.SystemReserved)
	merge(&k.EvictionHard, of.Config.EvictionHard)
	if of.MaxPodsExpression != "" {
		k.MaxPodsExpression = of.MaxPodsExpression
	}
	return of.Flags, nil
}

// ownBottlerocket reads Bottlerocket's settings.
func ownBottlerocket(own string) (*Kubelet, error) {
	var doc struct {
		Settings struct {
			Kubernetes struct {
				Labels         map[string]string `toml:"node-labels"`
				Taints         map[string]any    `toml:"node-taints"`
				KubeReserved   map[string]string `toml:"kube-reserved"`
				SystemReserved map[string]string `toml:"system-reserved"`
				EvictionHard   map[string]string `toml:"eviction-hard"`
			} `toml:"kubernetes"`
		} `toml:"settings"`
	}
	if err := toml.Unmarshal([]byte(own), &doc); err != nil {
		return nil, fmt.Errorf("reading TOML: %w", err)
	}
	of := &doc.Settings.Kubernetes
	k := &Kubelet{Labels: of.Labels, KubeReserved: of.KubeReserved, SystemReserved: of.SystemReserved, EvictionHard: of.EvictionHard}
	for _, key := range slices.Sorted(maps.Keys(of.Taints)) {
		values, ok := of.Taints[key].([]any)
		if !ok {
			values = []any{of.Taints[key]} // older versions have one value for each key
		}
		for _, v := range values {
			t, err := taintOf(fmt.Sprintf("%s=%v", key, v))
			if err != nil {
				return nil, fmt.Errorf("settings.kubernetes.node-taints: %w", err)
			}
			k.Taints = append(k.Taints, t)
		}
	}
	return k, nil
}

// ownCustom reads the user data of a custom image. It may have nodeadm's or Bottlerocket's format, because the image is derived from one of theirs.
// Anything else counts as a script, of which those kubelet flags are read that have literal values.
func ownCustom(own string) (*Kubelet, error) {
	parts, err := ownParts(own)
	if err != nil {
		return &Kubelet{Script: true}, nil // a format of the image's own
	}
	if slices.ContainsFunc(parts, func(p mimePart) bool { return strings.HasPrefix(p.contentType, nodeConfigType) }) {
		k, err := ownNodeadm(own)
		if err != nil {
			return nil, err
		}
		k.MaxPods = maxPodsOf(parts)
		return k, nil
	}
	if k, err := ownBottlerocket(own); err == nil && strings.Contains(own, "[settings") {
		return k, nil
	}
	k := &Kubelet{}
	for _, p := range parts {
		body, err := p.decoded()
		if err != nil {
			return &Kubelet{Script: true}, nil
		}
		for _, m := range writtenFlag.FindAllStringSubmatch(comment.ReplaceAllString(body, ""), -1) {
			k.written("--" + m[1] + "=" + strings.Trim(m[2], `"'`))
		}
	}
	k.Script = true
	return k, nil
}

// written applies a flag of a script if its value is literal. A variable, a command or a template gives it a value only when the script runs: what
// the kubelet really gets is then known when it has registered.
func (k *Kubelet) written(flag string) {
	var one Kubelet
	if strings.ContainsAny(flag, "$`{") || strings.HasSuffix(flag, "=") || one.flags([]string{flag}) != nil || one.valid() != nil || !one.amounts() {
		return
	}
	_ = k.flags([]string{flag}) // it has just been read
}

// amounts reports whether all reservations and eviction thresholds are valid quantities or percentages.
func (k *Kubelet) amounts() bool {
	for _, m := range []map[string]string{k.KubeReserved, k.SystemReserved, k.EvictionHard} {
		for _, v := range m {
			if p, ok := strings.CutSuffix(v, "%"); ok {
				if _, err := strconv.ParseFloat(p, 64); err != nil {
					return false
				}
			} else if q, err := resource.ParseQuantity(v); err != nil || q.Sign() < 0 {
				return false
			}
		}
	}
	return true
}

// comment matches a line that is a comment of a script; writtenFlag matches a kubelet flag with its value.
var comment = regexp.MustCompile(`(?m)^\s*#.*$`)

var writtenFlag = regexp.MustCompile(`--(node-labels|register-with-taints|kube-reserved|system-reserved|eviction-hard|max-pods)[= ]("[^"\n]*"|'[^'\n]*'|[^\s"'\\]+)`)

// maxPodsOf returns the last maxPods of NodeConfigs.
func maxPodsOf(parts []mimePart) (out *int32) {
	for _, p := range parts {
		var c struct {
			Spec struct {
				Kubelet struct {
					Config struct {
						MaxPods *int32 `json:"maxPods"`
					} `json:"config"`
				} `json:"kubelet"`
			} `json:"spec"`
		}
		if body, err := p.decoded(); err == nil && yaml.Unmarshal([]byte(body), &c) == nil && c.Spec.Kubelet.Config.MaxPods != nil {
			out = c.Spec.Kubelet.Config.MaxPods
		}
	}
	return out
}

// flags applies kubelet flags on top of the configuration file. A map or list in a flag replaces the file's; only the labels of several flags add up.
func (k *Kubelet) flags(flags []string) error {
	for _, flag := range flags {
		name, value, ok := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		value = strings.Trim(value, `"'`)
		if !ok || value == "" {
			continue
		}
		var err error
		switch name {
		case "node-labels":
			var labels map[string]string
			if labels, err = pairs(value, "="); err == nil {
				merge(&k.Labels, labels)
			}
		case "register-with-taints":
			k.Taints = nil
			for text := range strings.SplitSeq(value, ",") {
				var t corev1.Taint
				if t, err = taintOf(text); err != nil {
					break
				}
				k.Taints = append(k.Taints, t)
			}
		case "kube-reserved":
			k.KubeReserved, err = pairs(value, "=")
		case "system-reserved":
			k.SystemReserved, err = pairs(value, "=")
		case "eviction-hard":
			k.EvictionHard, err = pairs(value, "<")
		case "max-pods":
			var n int64
			if n, err = strconv.ParseInt(value, 10, 32); err == nil {
				most := int32(n)
				k.MaxPods = &most
			}
		}
		if err != nil {
			return fmt.Errorf("flag --%s of the kubelet: %w", name, err)
		}
	}
	return nil
}

// pairs parses a=b,c=d.
func pairs(text, sign string) (map[string]string, error) {
	out := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), sign)
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is not a name and a value with %s between them", pair, sign)
		}
		out[key] = value
	}
	return out, nil
}

// taintOf parses key=value:effect or key:effect.
func taintOf(text string) (corev1.Taint, error) {
	pair, effect, ok := strings.Cut(strings.TrimSpace(text), ":")
	key, value, _ := strings.Cut(pair, "=")
	t := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	switch {
	case !ok || key == "":
		return t, fmt.Errorf("%q is not a taint", text)
	case t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectPreferNoSchedule && t.Effect != corev1.TaintEffectNoExecute:
		return t, fmt.Errorf("taint %q: %q is no effect", text, effect)
	}
	return t, nil
}

func merge(into *map[string]string, from map[string]string) {
	if len(from) == 0 {
		return
	}
	if *into == nil {
		*into = map[string]string{}
	}
	maps.Copy(*into, from)
}
