package capacity

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// hash is stable across processes, because class keys are recorded on claims. It leaves out what pods of a class may differ in (name,
// UID, owner, images, environment).
func (c *Class) hash(pod *corev1.Pod, vol VolumeInfo) ClassKey {
	k := make(keyBytes, 0, 1024)
	k.text(pod.Namespace, pod.Spec.SchedulerName, strconv.Itoa(int(c.Priority)), strconv.Itoa(int(c.Bind)))
	k.texts(c.Labels)
	k.amounts(c.Requests)
	k.texts(pod.Spec.NodeSelector)
	if a := pod.Spec.Affinity; a != nil {
		k.message(a.Size(), a.MarshalTo)
	}
	k.count(len(pod.Spec.Tolerations))
	for i := range pod.Spec.Tolerations {
		t := &pod.Spec.Tolerations[i]
		k.text(t.Key, string(t.Operator), t.Value, string(t.Effect))
	}
	k.count(len(c.Spread))
	for i := range pod.Spec.TopologySpreadConstraints {
		t := &pod.Spec.TopologySpreadConstraints[i]
		k.message(t.Size(), t.MarshalTo)
		k.text(c.Spread[i].Selector.String()) // with matchLabelKeys: the selector differs between revisions
	}
	k.count(len(c.HostPorts))
	for _, p := range c.HostPorts {
		k.text(p.HostIP, string(p.Protocol), strconv.Itoa(int(p.HostPort)))
	}
	k.count(len(pod.Spec.ResourceClaims))
	k.count(len(vol.Topology))
	for _, alternatives := range vol.Topology {
		k.count(len(alternatives))
		for _, term := range alternatives {
			k.requirements(term)
		}
	}
	k.count(len(vol.Attach))
	for _, driver := range slices.Sorted(maps.Keys(vol.Attach)) {
		k.text(driver, strconv.FormatInt(vol.Attach[driver], 10))
	}
	k.text(c.Drivers...)
	k.text(strconv.FormatBool(vol.Unbound))
	sum := sha256.Sum256(k)
	return ClassKey(hex.EncodeToString(sum[:12]))
}

// keyBytes is an unambiguous encoding: every text and list is preceded by its length.
type keyBytes []byte

func (k *keyBytes) count(n int) { *k = binary.AppendUvarint(*k, uint64(n)) }

func (k *keyBytes) text(texts ...string) {
	for _, t := range texts {
		k.count(len(t))
		*k = append(*k, t...)
	}
}

func (k *keyBytes) texts(m map[string]string) {
	k.count(len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		k.text(key, m[key])
	}
}

func (k *keyBytes) amounts(r Resources) {
	k.count(len(r))
	for _, name := range slices.Sorted(maps.Keys(r)) {
		k.text(string(name))
		*k = binary.AppendVarint(*k, r[name])
	}
}

func (k *keyBytes) requirements(rs Requirements) {
	k.count(len(rs))
	for _, r := range rs.sorted() {
		k.text(r.String(), strconv.FormatBool(r.present))
	}
}

// message appends a protobuf message, whose generated encoding sorts maps.
func (k *keyBytes) message(size int, marshalTo func([]byte) (int, error)) {
	k.count(size)
	at := len(*k)
	*k = append(*k, make([]byte, size)...)
	if n, err := marshalTo((*k)[at:]); err != nil || n != size {
		panic("capacity: API message of " + strconv.Itoa(size) + " bytes does not marshal") // generated MarshalTo methods never fail
	}
}

// Shape returns a hash of what pods of the class request: requests, node constraints, tolerations and ports, but no names and no labels.
// It tells apart pods that no object owns.
func (c *Class) Shape() string {
	k := make(keyBytes, 0, 256)
	k.text(c.Namespace)
	k.amounts(c.Requests)
	k.count(len(c.Terms))
	for _, term := range c.Terms {
		k.requirements(term)
	}
	k.count(len(c.Tolerations))
	for i := range c.Tolerations {
		t := &c.Tolerations[i]
		k.text(t.Key, string(t.Operator), t.Value, string(t.Effect))
	}
	k.count(len(c.HostPorts))
	for _, p := range c.HostPorts {
		k.text(p.HostIP, string(p.Protocol), strconv.Itoa(int(p.HostPort)))
	}
	sum := sha256.Sum256(k)
	return hex.EncodeToString(sum[:6])
}
