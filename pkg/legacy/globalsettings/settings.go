// Package globalsettings reads the ConfigMap karpenter-global-settings, in which Karpenter had its settings at the time of v1alpha5 (0.20 to 0.32).
package globalsettings

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// Name is the name of the ConfigMap.
const Name = "karpenter-global-settings"

// Settings are the ConfigMap's settings, under the names that the settings of Dovetail's chart and ProvisionArgs have for them. Values that
// Karpenter's chart wrote there by default are left out, so that our defaults apply.
type Settings struct {
	ClusterName             string   `json:"clusterName,omitempty"`
	ClusterEndpoint         string   `json:"clusterEndpoint,omitempty"`
	ClusterCABundle         string   `json:"clusterCABundle,omitempty"`
	InterruptionQueue       string   `json:"interruptionQueue,omitempty"`
	DefaultInstanceProfile  string   `json:"defaultInstanceProfile,omitempty"`
	VMMemoryOverheadPercent *float64 `json:"vmMemoryOverheadPercent,omitempty"`
	ReservedENIs            int      `json:"reservedENIs,omitempty"`
	BatchIdleDuration       string   `json:"batchIdleDuration,omitempty"`
	BatchMaxDuration        string   `json:"batchMaxDuration,omitempty"`
}

// Karpenter's defaults.
const (
	batchIdle      = time.Second
	batchMax       = 10 * time.Second
	memoryOverhead = 0.075
)

// Parse reads the ConfigMap as YAML or JSON. Warnings name the keys that have no effect here, sorted; an error names each key whose value can't be read.
func Parse(raw []byte) (s Settings, warnings []string, err error) {
	var m corev1.ConfigMap
	if err := yaml.UnmarshalStrict(raw, &m); err != nil {
		return Settings{}, nil, fmt.Errorf("it is not a ConfigMap: %w", err)
	}
	if m.Kind != "ConfigMap" || m.APIVersion != "v1" {
		return Settings{}, nil, fmt.Errorf("it is a %s of %s, not a ConfigMap of v1", cmp.Or(m.Kind, "kind without a name"), cmp.Or(m.APIVersion, "no version"))
	}
	if len(m.BinaryData) > 0 {
		return Settings{}, nil, errors.New("binaryData: settings are in data")
	}
	return Read(m.Data)
}

// Read is Parse for the ConfigMap's data.
func Read(data map[string]string) (s Settings, warnings []string, err error) {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(data)) {
		value := strings.TrimSpace(data[key])
		if value == "" {
			continue
		}
		warning, err := s.set(key, value)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), value, err.Error()))
		}
		if warning != "" {
			warnings = append(warnings, key+": "+warning)
		}
	}
	if len(errs) > 0 {
		return Settings{}, nil, errs.ToAggregate()
	}
	return s, warnings, nil
}

// set takes one setting. It returns a warning if that has no effect here, or not the same.
func (s *Settings) set(key, value string) (warning string, err error) {
	switch key {
	case "aws.clusterName":
		s.ClusterName = value
	case "aws.clusterEndpoint":
		s.ClusterEndpoint = value
	case "aws.clusterCABundle":
		s.ClusterCABundle = value
	case "aws.interruptionQueueName", "aws.interruptionQueue":
		s.InterruptionQueue = value
	case "aws.defaultInstanceProfile":
		s.DefaultInstanceProfile = value
	case "aws.vmMemoryOverheadPercent":
		share, err := strconv.ParseFloat(value, 64)
		if err != nil || !(share >= 0 && share < 1) {
			return "", errors.New("must be a fraction: 0 <= x < 1")
		}
		if math.Abs(share-memoryOverhead) > 1e-9 {
			s.VMMemoryOverheadPercent = &share
		}
	case "aws.reservedENIs":
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return "", errors.New("must be a number of network interfaces")
		}
		s.ReservedENIs = n
	case "batchIdleDuration":
		s.BatchIdleDuration, err = duration(value, batchIdle)
	case "batchMaxDuration":
		s.BatchMaxDuration, err = duration(value, batchMax)
	default:
		return unused(key, value)
	}
	return "", err
}

// duration returns a duration as it is written; empty: it is the default.
func duration(value string, byDefault time.Duration) (string, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return "", errors.New("must be a positive duration, as 1s")
	}
	if d == byDefault {
		return "", nil
	}
	return value, nil
}

// unused returns what to do about a setting that Dovetail doesn't have. Karpenter's default needs no warning where Dovetail does the same.
func unused(key, value string) (warning string, err error) {
	flag := func(means bool, warning string) (string, error) {
		on, err := strconv.ParseBool(value)
		if err != nil {
			return "", errors.New("must be true or false")
		}
		if on == means {
			return warning, nil
		}
		return "", nil
	}
	switch key {
	case "aws.assumeRoleARN", "aws.assumeRoleDuration":
		return "Dovetail has the role of its ServiceAccount (Pod Identity or IRSA), or that of the AWS profile that AWS_PROFILE names; it takes no other", nil
	case "aws.enablePodENI": // without the VPC controller no pod asks for vpc.amazonaws.com/pod-eni
		return flag(true, "")
	case "aws.enableENILimitedPodDensity":
		return flag(false, "has no effect: set spec.kubeletConfiguration.maxPods: 110 on the Provisioners")
	case "aws.isolatedVPC":
		return flag(true, "has no effect: prices that can't be read are estimated, and a metric says so")
	case "aws.nodeNameConvention":
		if value == "ip-name" {
			return "", nil
		}
		return "has no effect: nodes are named as EC2 names the instance in its private DNS", nil
	case "featureGates.driftEnabled":
		return flag(false, "has no effect: drifted nodes are always replaced, within their pool's budgets")
	}
	if key == "aws.tags" {
		var tags map[string]string
		if err := json.Unmarshal([]byte(value), &tags); err != nil {
			return "", errors.New("must be a JSON object of strings")
		}
		if len(tags) == 0 {
			return "", nil
		}
	}
	if key == "aws.tags" || strings.HasPrefix(key, "aws.tags.") {
		return "has no effect: write these tags into spec.provider.tags of the Provisioners, or spec.tags of the AWSNodeTemplates", nil
	}
	return "isn't a setting that Dovetail knows", nil
}
