package provision

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	// clusterForm is what EKS allows, plus dots, which cluster names elsewhere have.
	clusterForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]{0,99}$`)
	regionForm  = regexp.MustCompile(`^[a-z]{2,4}(-[a-z]+)+-[0-9]+$`)
	queueForm   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)
	profileForm = regexp.MustCompile(`^[\w+=,.@-]{1,128}$`)
	familyForm  = regexp.MustCompile(`^[a-z0-9-]+$`)
)

// placeholder stands in the shipped configuration for the cluster's name, also as part of the queue's name.
const placeholder = "CHANGE-ME"

// validateCluster checks what nodes need to know about the cluster, and where their instances are launched.
func (a *Args) validateCluster() (errs field.ErrorList) {
	form := func(name, value string, form *regexp.Regexp) {
		if value != "" && !form.MatchString(value) {
			errs = append(errs, field.Invalid(field.NewPath(name), value, "must have the form "+form.String()))
		}
	}
	form("region", a.Region, regionForm)
	if strings.Contains(a.InterruptionQueue, placeholder) {
		errs = append(errs, field.Invalid(field.NewPath("interruptionQueue"), a.InterruptionQueue, "must be the name of the queue: that of manifests/iam/cloudformation.yaml is called Dovetail-CLUSTER; without a queue leave the field out"))
	}
	form("interruptionQueue", a.InterruptionQueue, queueForm)
	form("defaultInstanceProfile", a.DefaultInstanceProfile, profileForm)
	if u, err := url.Parse(a.ClusterEndpoint); a.ClusterEndpoint != "" && (err != nil || u.Scheme != "https" || u.Host == "") {
		errs = append(errs, field.Invalid(field.NewPath("clusterEndpoint"), a.ClusterEndpoint, "must be a URL that begins with https://"))
	}
	if err := validBundle(a.ClusterCABundle); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("clusterCABundle"), field.OmitValueType{}, err.Error()))
	}
	if _, err := netip.ParsePrefix(a.ClusterCIDR); a.ClusterCIDR != "" && err != nil {
		errs = append(errs, field.Invalid(field.NewPath("clusterCIDR"), a.ClusterCIDR, "must be a network like 10.100.0.0/16"))
	}
	return errs
}

// validateName checks the fields that depend on Name. Several Dovetails tell their pools apart by labels. Pools and classes in arguments have no labels
// that other Dovetails could read, so a Dovetail with a name may have none.
func (a *Args) validateName() (errs field.ErrorList) {
	if a.Name == "" {
		return nil
	}
	for _, msg := range validation.IsDNS1123Label(a.Name) {
		errs = append(errs, field.Invalid(field.NewPath("name"), a.Name, msg))
	}
	if a.NodePoolSelector == nil {
		errs = append(errs, field.Required(field.NewPath("nodePoolSelector"), "with a name it says which NodePools and Provisioners are this Dovetail's"))
	}
	for name, inline := range map[string][]Inline{"nodePools": a.NodePools, "ec2NodeClasses": a.EC2NodeClasses} {
		if len(inline) > 0 {
			errs = append(errs, field.Forbidden(field.NewPath(name), "with a name, pools and classes must be objects: other Dovetails don't know those of our arguments"))
		}
	}
	return errs
}

// validBundle returns an error unless text is base64 of certificates in PEM form.
func validBundle(text string) error {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return fmt.Errorf("must be base64: %w", err)
	}
	for rest := bytes.TrimSpace(data); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return fmt.Errorf("must hold certificates in PEM form")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("must hold certificates in PEM form: %w", err)
		}
	}
	return nil
}

// validatePlan checks the fields that influence plans. Pools and classes are validated elsewhere, against their definitions.
func (a *Args) validatePlan() (errs field.ErrorList) {
	if s := a.NodeSurchargeDollarsPerHour; !(s >= 0) || math.IsInf(s, 1) {
		errs = append(errs, field.Invalid(field.NewPath("nodeSurchargeDollarsPerHour"), s, "must not be negative"))
	}
	for _, family := range slices.Sorted(maps.Keys(a.PriceFactors)) {
		at := field.NewPath("priceFactors").Key(family)
		if !familyForm.MatchString(family) {
			errs = append(errs, field.Invalid(at, family, "is not the name of an instance family"))
		}
		if f := a.PriceFactors[family]; !(f > 0) || math.IsInf(f, 1) {
			errs = append(errs, field.Invalid(at, f, "must be positive"))
		}
	}
	errs = append(errs, a.validateCommitments()...)
	if _, err := metav1.LabelSelectorAsSelector(a.NodePoolSelector); err != nil {
		errs = append(errs, field.Invalid(field.NewPath("nodePoolSelector"), metav1.FormatLabelSelector(a.NodePoolSelector), err.Error()))
	}
	errs = append(errs, metav1validation.ValidateLabelSelector(a.NamespaceSelector, metav1validation.LabelSelectorValidationOptions{}, field.NewPath("namespaceSelector"))...)
	for i, plugin := range a.SimulationDenyList {
		if plugin == "" {
			errs = append(errs, field.Required(field.NewPath("simulationDenyList").Index(i), "names a plugin"))
		}
	}
	return errs
}

// limitable are the resources without a domain that nodes have; hugepages aside.
var limitable = sets.New[corev1.ResourceName]("nodes", corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods)

// validateLimits checks the limit of all pools. A misspelt resource would limit nothing.
func (a *Args) validateLimits() (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(a.Limits)) {
		at := field.NewPath("limits").Key(string(name))
		if strings.Contains(string(name), "/") {
			for _, msg := range validation.IsQualifiedName(string(name)) {
				errs = append(errs, field.Invalid(at, name, msg))
			}
		} else if !limitable.Has(name) && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			errs = append(errs, field.NotSupported(at, name, sets.List(limitable)))
		}
		if q := a.Limits[name]; q.Sign() < 0 {
			errs = append(errs, field.Invalid(at, q.String(), "must not be negative"))
		}
	}
	return errs
}

// ofProfile are the fields that each profile has for itself; all others apply to the whole process.
var ofProfile = sets.New("apiVersion", "kind", "preemptFirst", "nodePools", "ec2NodeClasses", "nodePoolSelector", "simulationDenyList", "provisionFor")

// validateMetrics checks the address for scrapes.
func (a *Args) validateMetrics() field.ErrorList {
	if a.MetricsBindAddress == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(a.MetricsBindAddress)
	if err == nil && host != "" {
		_, err = netip.ParseAddr(host)
	}
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("metricsBindAddress"), a.MetricsBindAddress, "must be an IP address, or nothing, and a port, such as \":8080\"")}
	}
	return nil
}

// Contradicts returns a field that applies to the whole process and in which the arguments of two profiles differ, or "".
func (a *Args) Contradicts(b *Args) string {
	of := func(a *Args) map[string]json.RawMessage {
		out := map[string]json.RawMessage{}
		raw, err := json.Marshal(a)
		if err == nil {
			err = json.Unmarshal(raw, &out)
		}
		if err != nil {
			panic(err) // decoded arguments can be encoded
		}
		return out
	}
	x, y := of(a), of(b)
	for _, name := range slices.Sorted(maps.Keys(merge(x, y))) {
		if !ofProfile.Has(name) && !bytes.Equal(x[name], y[name]) {
			return name
		}
	}
	return ""
}

func merge[V any](a, b map[string]V) map[string]V {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}
