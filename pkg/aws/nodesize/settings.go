package nodesize

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Settings are the settings of a class that determine the size of its nodes, in a form that can be applied to any instance type.
type Settings struct {
	Config
	family *bootstrap.Family

	maxPods, podsPerCore         *int32
	kubeReserved, systemReserved capacity.Resources
	evictMemory, evictStorage    threshold

	// Own holds the kubelet settings in the class's own user data. reservedPods is the number of pods for which nodeadm reserves memory according to
	// that user data; 0: it doesn't say, unknownPods: by an expression that only the instance can evaluate.
	Own          *bootstrap.Kubelet
	reservedPods int64

	// rootBytes is the size of the volume with the kubelet's files; 0: not known.
	rootBytes int64
	raid0     bool
	// volumes is how many volumes are attached from the start, including root.
	volumes int64

	// Interfaces: the class lists its network interfaces.
	Interfaces bool
	// EFAOnly is how many of the interfaces that the class lists are EFA-only (without IP addresses).
	EFAOnly int64
	// efaOnlyCard0 is how many of these are on network card 0, where each takes the place of an interface with addresses for pods.
	efaOnlyCard0 int64
}

// threshold is an eviction threshold: an amount or a share of the capacity.
type threshold struct {
	bytes int64
	share float64 // 0 to 1
}

func (t threshold) of(capacity int64) int64 {
	return t.bytes + int64(math.Ceil(float64(capacity)*t.share))
}

// Config holds the program's settings that determine the size of nodes.
type Config struct {
	Overhead     float64 // share of an instance's memory, from 0 to 1, that hypervisor and kernel take before the kubelet sees it
	ReservedENIs int64   // number of network interfaces that pods don't use
	Prefixes     bool    // the CNI gives interfaces address prefixes instead of single addresses
}

// SettingsOf reads the settings of a class. The error names the first field that is invalid.
func SettingsOf(spec *ec2nc.EC2NodeClassSpec, f *bootstrap.Family, cfg Config) (s *Settings, err error) {
	s = &Settings{
		Config: cfg, family: f,
		evictMemory: threshold{bytes: evictMemory(f)}, evictStorage: threshold{share: 0.1},
		raid0:      spec.InstanceStorePolicy != nil && *spec.InstanceStorePolicy == ec2nc.InstanceStorePolicyRAID0 && !f.Windows(),
		Interfaces: len(spec.NetworkInterfaces) > 0,
	}
	for _, n := range spec.NetworkInterfaces {
		if n.InterfaceType == ec2nc.InterfaceTypeEFAOnly {
			s.EFAOnly++
			if n.NetworkCardIndex == 0 {
				s.efaOnlyCard0++
			}
		}
	}
	s.rootBytes, s.volumes = rootVolume(spec, f)
	if err := s.own(spec); err != nil {
		return nil, err
	}
	k := spec.Kubelet
	if k == nil {
		return s, nil
	}
	s.podsPerCore = k.PodsPerCore
	if s.maxPods == nil {
		s.maxPods = k.MaxPods
	}
	if err := s.reserve("spec.kubelet.", "", k.KubeReserved, k.SystemReserved, k.EvictionHard); err != nil {
		return nil, err
	}
	if f == bootstrap.Custom {
		return s, s.own(spec) // its user data is all that the kubelet gets
	}
	return s, nil
}

// own reads what the class's own user data sets.
func (s *Settings) own(spec *ec2nc.EC2NodeClassSpec) (err error) {
	if s.Own, err = s.family.OwnKubelet(spec); err != nil {
		return err
	}
	s.maxPods = s.Own.MaxPods
	if s.Own.MaxPodsExpression != "" {
		s.reservedPods = unknownPods
		if n, err := strconv.ParseInt(strings.TrimSpace(s.Own.MaxPodsExpression), 10, 32); err == nil {
			s.reservedPods = n
		}
	}
	return s.reserve("spec.userData: ", " of the kubelet", s.Own.KubeReserved, s.Own.SystemReserved, s.Own.EvictionHard)
}

// reserve sets reservations and eviction thresholds over those that were set before; before and after stand around a field's name in errors.
func (s *Settings) reserve(before, after string, kube, system, evict map[string]string) error {
	for _, one := range []struct {
		name string
		to   *capacity.Resources
		from map[string]string
	}{{"kubeReserved", &s.kubeReserved, kube}, {"systemReserved", &s.systemReserved, system}} {
		more, err := amounts(before+one.name+after, one.from)
		if err != nil {
			return err
		}
		if *one.to == nil {
			*one.to = capacity.Resources{}
		}
		maps.Copy(*one.to, more)
	}
	for signal, t := range map[string]*threshold{"memory.available": &s.evictMemory, "nodefs.available": &s.evictStorage} {
		if v, ok := evict[signal]; ok {
			parsed, err := thresholdOf(v)
			if err != nil {
				return fmt.Errorf("%sevictionHard%s[%s]: %w", before, after, signal, err)
			}
			*t = parsed
		}
	}
	return nil
}

// evictMemory returns the kubelet's own default for the signal memory.available, in bytes (k8s.io/kubernetes/pkg/kubelet/eviction,
// defaults_linux.go and defaults_windows.go). The user data of no family sets it.
func evictMemory(f *bootstrap.Family) int64 {
	if f.Windows() {
		return 500 * mi
	}
	return 100 * mi
}

func amounts(field string, m map[string]string) (capacity.Resources, error) {
	out := capacity.Resources{}
	for name, v := range m {
		q, err := resource.ParseQuantity(v)
		if err != nil || q.Sign() < 0 {
			return nil, fmt.Errorf("%s[%s]: %q is not an amount", field, name, v)
		}
		out[corev1.ResourceName(name)] = capacity.ResourcesOf(corev1.ResourceList{corev1.ResourceName(name): q})[corev1.ResourceName(name)]
	}
	return out, nil
}

// thresholdOf parses "100Mi" or "10%". The kubelet takes 100 % as "no threshold".
func thresholdOf(v string) (threshold, error) {
	if p, ok := strings.CutSuffix(v, "%"); ok {
		f, err := strconv.ParseFloat(p, 64)
		if err != nil || f < 0 || f > 100 {
			return threshold{}, fmt.Errorf("%q is not a percentage", v)
		}
		return threshold{share: math.Mod(f, 100) / 100}, nil
	}
	q, err := resource.ParseQuantity(v)
	if err != nil || q.Sign() < 0 {
		return threshold{}, fmt.Errorf("%q is neither an amount nor a percentage", v)
	}
	return threshold{bytes: q.Value()}, nil
}

// rootVolume returns the size of the volume that holds the kubelet's files, and how many volumes the class attaches.
func rootVolume(spec *ec2nc.EC2NodeClassSpec, f *bootstrap.Family) (bytes, volumes int64) {
	size := func(m *ec2nc.BlockDeviceMapping) int64 {
		if m.EBS == nil || m.EBS.VolumeSize == nil {
			return 0
		}
		return m.EBS.VolumeSize.Value()
	}
	def := 20 * gi
	for _, v := range f.Volumes {
		if v.Device == f.RootDevice {
			def = v.SizeGiB * gi
		}
	}
	ms := spec.BlockDeviceMappings
	if len(ms) == 0 {
		return def, int64(max(1, len(f.Volumes)))
	}
	for _, m := range ms {
		if m.RootVolume && size(m) > 0 {
			return size(m), int64(len(ms))
		}
	}
	// If the image's root device is unknown, the last device counts as root, as in Karpenter.
	if f.RootDevice == "" && size(ms[len(ms)-1]) > 0 {
		return size(ms[len(ms)-1]), int64(len(ms))
	}
	for _, m := range ms {
		if m.DeviceName != nil && *m.DeviceName == f.RootDevice && size(m) > 0 {
			return size(m), int64(len(ms))
		}
	}
	return def, int64(len(ms))
}

// WithRootVolume returns the same settings with another size of the volume that holds the kubelet's files.
func (s *Settings) WithRootVolume(bytes int64) *Settings {
	other := *s
	other.rootBytes = bytes
	return &other
}
