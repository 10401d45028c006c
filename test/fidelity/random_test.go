package fidelity

import (
	"fmt"
	"math/rand/v2"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const (
	zoneKey   = corev1.LabelTopologyZone
	hostKey   = corev1.LabelHostname
	ctKey     = karpv1.CapacityTypeLabelKey
	familyKey = "karpenter.k8s.aws/instance-family"
	cpuKey    = "karpenter.k8s.aws/instance-cpu"
	teamKey   = "example.com/team"
	ebs       = "ebs.csi.aws.com"
)

var zones = []string{"z-a", "z-b", "z-c"}

// dice makes random worlds. They are small and use few names, so that all features interact.
type dice struct {
	*rand.Rand
	seed   uint64
	serial int
}

func (d *dice) oneIn(n int) bool { return d.IntN(n) == 0 }

func pick[T any](d *dice, from ...T) T { return from[d.IntN(len(from))] }

func newScene(seed uint64) *scene {
	d := &dice{Rand: rand.New(rand.NewPCG(seed, 77)), seed: seed}
	s := &scene{gangs: map[types.UID]*capacity.Gang{}}
	machines := d.types()
	for i := range 1 + d.IntN(3) {
		s.pools = append(s.pools, d.pool(fmt.Sprintf("pool-%d", i), int32(10*(3-i)*d.IntN(2)), machines))
	}
	sortPools(s.pools)
	for i := range d.IntN(6) {
		s.nodes = append(s.nodes, d.node(fmt.Sprintf("node-%d", i)))
	}
	for range d.IntN(10) {
		if len(s.nodes) == 0 {
			break
		}
		p := d.pod(d.shape())
		p.Spec.NodeName = s.nodes[d.IntN(len(s.nodes))].Name
		p.Spec.Volumes = nil
		if d.oneIn(8) {
			p.DeletionTimestamp = &metav1.Time{}
		}
		s.bound = append(s.bound, p)
	}
	if d.oneIn(3) {
		s.inFlight = append(s.inFlight, d.flight())
	}
	if d.oneIn(2) {
		s.daemons = d.daemons()
	}
	gang := &capacity.Gang{Key: "gang"}
	for range 1 + d.IntN(5) {
		shape := d.shape()
		joins := d.oneIn(8)
		for range 1 + d.IntN(8) {
			p := d.pod(shape)
			s.pending = append(s.pending, p)
			if joins {
				s.gangs[p.UID] = gang
				gang.Missing++
			}
		}
	}
	s.opts = capacity.Options{Effort: pick(d, 0, 0, 500, 3000), IgnorePreferences: d.oneIn(2)}
	return s
}

// sortPools sorts pools by descending weight, as they are in a view.
func sortPools(pools []*capacity.Pool) {
	for i := range pools {
		for k := i; k > 0 && pools[k].Weight > pools[k-1].Weight; k-- {
			pools[k], pools[k-1] = pools[k-1], pools[k]
		}
	}
}

// types returns the families c, m and r in three sizes, one of them for arm64, and one with GPUs.
func (d *dice) types() []*capacity.InstanceType {
	var out []*capacity.InstanceType
	for _, f := range []struct {
		name, arch string
		gi         int64
		price      float64
		gpus       int64
	}{{"c5", "amd64", 2, .04, 0}, {"m5", "amd64", 4, .05, 0}, {"r5", "amd64", 8, .065, 0}, {"m6g", "arm64", 4, .04, 0}, {"g4", "amd64", 4, .15, 1}} {
		for _, cpu := range []int64{2, 4, 16} {
			t := &capacity.InstanceType{
				Name: fmt.Sprintf("%s.%d", f.name, cpu),
				Labels: map[string]string{corev1.LabelArchStable: f.arch, corev1.LabelOSStable: "linux", familyKey: f.name, cpuKey: fmt.Sprint(cpu),
					corev1.LabelInstanceTypeStable: fmt.Sprintf("%s.%d", f.name, cpu)},
				Capacity:    capacity.Resources{"cpu": cpu * 1000, "memory": cpu * f.gi << 30, "pods": 12, "ephemeral-storage": 20 << 30},
				Allocatable: capacity.Resources{"cpu": cpu*1000 - 100, "memory": cpu*f.gi<<30 - 500<<20, "pods": 12, "ephemeral-storage": 18 << 30},
			}
			if f.gpus > 0 {
				t.Capacity["nvidia.com/gpu"], t.Allocatable["nvidia.com/gpu"] = f.gpus*cpu/2, f.gpus*cpu/2
			}
			if d.oneIn(4) {
				t.VolumeLimits = map[string]int64{ebs: int64(1 + d.IntN(3))}
			}
			for _, z := range zones {
				price := f.price * float64(cpu) * (0.9 + 0.2*d.Float64())
				t.Offers = append(t.Offers,
					capacity.Offer{Zone: z, CapacityType: "on-demand", Price: price, Available: !d.oneIn(10)},
					capacity.Offer{Zone: z, CapacityType: "spot", Price: price * (0.3 + 0.3*d.Float64()), Available: !d.oneIn(8)})
			}
			if d.oneIn(12) {
				id := "cr-" + t.Name
				t.Offers = append(t.Offers, capacity.Offer{Zone: pick(d, zones...), CapacityType: capacity.CapacityTypeReserved, Price: 1e-7, Available: true,
					ReservationID: id, Remaining: 1 + d.IntN(2), Labels: map[string]string{"karpenter.k8s.aws/capacity-reservation-id": id}})
			}
			out = append(out, t)
		}
	}
	return out
}

func (d *dice) pool(name string, weight int32, machines []*capacity.InstanceType) *capacity.Pool {
	p := &capacity.Pool{Name: name, Weight: weight, Labels: map[string]string{karpv1.NodePoolLabelKey: name}, Types: machines}
	if d.oneIn(3) {
		p.Requirements = p.Requirements.And(capacity.ValueIn(ctKey, pick(d, "on-demand", "spot")))
	}
	if d.oneIn(4) {
		p.Requirements = p.Requirements.And(capacity.ValueIn(zoneKey, pick(d, "z-a", "z-b"), "z-c"))
	}
	if d.oneIn(4) {
		p.Labels[teamKey] = "blue"
	} else if d.oneIn(3) {
		p.Requirements = p.Requirements.And(capacity.ValueIn(teamKey, "blue", "red"))
	}
	if d.oneIn(4) {
		p.Taints = append(p.Taints, corev1.Taint{Key: "special", Value: "x", Effect: pick(d, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)})
	}
	if d.oneIn(4) {
		p.StartupTaints = append(p.StartupTaints, corev1.Taint{Key: "agent", Effect: corev1.TaintEffectNoSchedule})
	}
	if d.oneIn(5) {
		p.Limits = capacity.Resources{"cpu": int64(1000 * d.IntN(40)), capacity.ResourceNodes: int64(d.IntN(8))}
		p.Used = capacity.Resources{"cpu": int64(1000 * d.IntN(5)), capacity.ResourceNodes: 1}
	}
	if d.oneIn(6) {
		r, err := capacity.NewRequirement(familyKey, capacity.Exists)
		if err != nil {
			panic(err)
		}
		r.MinValues = 1 + d.IntN(3)
		p.Requirements = p.Requirements.And(r)
	}
	if d.oneIn(12) {
		p.Unready = "not today"
	}
	return p
}

func (d *dice) nodeLabels(name string) map[string]string {
	l := map[string]string{hostKey: name, corev1.LabelArchStable: pick(d, "amd64", "amd64", "arm64"), corev1.LabelOSStable: "linux",
		familyKey: pick(d, "c5", "m5"), cpuKey: pick(d, "2", "4"), ctKey: pick(d, "on-demand", "spot")}
	if !d.oneIn(8) {
		l[zoneKey] = pick(d, "z-a", "z-b", "z-c", "z-old")
	}
	if d.oneIn(3) {
		l[teamKey] = pick(d, "blue", "red")
	}
	return l
}

func (d *dice) node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: d.nodeLabels(name)}}
	n.Status.Allocatable = capacity.Resources{"cpu": int64(1000 * d.IntN(6)), "memory": int64(d.IntN(12)) << 30, "pods": int64(4 + d.IntN(8)), "ephemeral-storage": 10 << 30}.List()
	n.Status.Capacity = n.Status.Allocatable
	n.Spec.Unschedulable = d.oneIn(10)
	if d.oneIn(8) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "special", Value: "x", Effect: pick(d, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule)})
	}
	return n
}

// flight returns a node that has been launched and has not registered yet.
func (d *dice) flight() *capacity.Node {
	room := capacity.Resources{"cpu": 3900, "memory": 7 << 30, "pods": 12, "ephemeral-storage": 18 << 30}
	return &capacity.Node{Name: "claim-0", Claim: "claim-0", InFlight: true, Labels: d.nodeLabels("claim-0"), Allocatable: room, Free: room.Clone()}
}

func (d *dice) daemons() []*capacity.DaemonSet {
	var sets []*appsv1.DaemonSet
	for i := range 1 + d.IntN(2) {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: fmt.Sprintf("agent-%d", i), UID: types.UID(fmt.Sprintf("agent-%d", i))}}
		ds.Spec.Template.Labels = map[string]string{"app": "agent"}
		ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Resources: requesting(pick(d, "100m", "300m"), pick(d, "64Mi", "300Mi"))}}
		if d.oneIn(3) {
			ds.Spec.Template.Spec.NodeSelector = pick(d, map[string]string{corev1.LabelArchStable: "amd64"}, map[string]string{familyKey: "m5"}, map[string]string{teamKey: "blue"}, map[string]string{zoneKey: "z-a"})
		}
		if d.oneIn(3) {
			ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}
		if d.oneIn(4) {
			ds.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, ContainerPort: 80, Protocol: corev1.ProtocolTCP}}
		}
		sets = append(sets, ds)
	}
	return daemonSets(sets...)
}

func requesting(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}}
}

// pod returns a new pod of a shape.
func (d *dice) pod(shape *corev1.Pod) *corev1.Pod {
	p := shape.DeepCopy()
	d.serial++
	p.Name = fmt.Sprintf("%s-%d", shape.Labels["app"], d.serial)
	p.UID = types.UID(fmt.Sprintf("%d/%s", d.seed, p.Name)) // classes are cached by UID
	return p
}

// shared are the objects that all worlds have in common.
func shared() []runtime.Object {
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	out := []runtime.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"tier": "front"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"tier": "back"}}},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: ebs}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "anywhere"}, Provisioner: ebs, VolumeBindingMode: &wait},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "zoned"}, Provisioner: ebs, VolumeBindingMode: &wait,
			AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: zoneKey, Values: []string{"z-a", "z-b"}}}}}},
	}
	for i := range 6 {
		limit := int32(i % 3)
		out = append(out, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: ebs, NodeID: fmt.Sprint(i), Allocatable: &storagev1.VolumeNodeResources{Count: &limit}}}}})
	}
	for _, ns := range []string{"default", "other"} {
		for _, class := range []string{"anywhere", "zoned"} {
			out = append(out, claim(ns, "new-"+class, class, ""))
		}
		for _, z := range zones {
			name := ns + "-data-" + z
			out = append(out, claim(ns, "data-"+z, "anywhere", name), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: ebs, VolumeHandle: name}},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: zoneKey, Operator: corev1.NodeSelectorOpIn, Values: []string{z}}}}}}},
			}})
		}
	}
	return out
}

func claim(namespace, name, class, volume string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	c.Spec.StorageClassName, c.Spec.VolumeName = &class, volume
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	if volume != "" {
		c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
		c.Status.Phase = corev1.ClaimBound
	}
	return c
}
