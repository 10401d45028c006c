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

// hash returns the class's key. It is the same in every process, because keys are recorded on claims. What pods of a class may differ in is left out
// (name, UID, owner, images, environment).
func (c *Class) hash(pod *corev1.Pod, vol VolumeInfo) ClassKey {
	k := make(KeyBytes, 0, 1024)
	k.Text(pod.Namespace, pod.Spec.SchedulerName, strconv.Itoa(int(c.Priority)), strconv.Itoa(int(c.Bind)))
	k.Texts(c.Labels)
	k.amounts(c.Requests)
	k.Texts(pod.Spec.NodeSelector)
	if a := pod.Spec.Affinity; a != nil {
		k.Message(a.Size(), a.MarshalTo)
	}
	k.Count(len(pod.Spec.Tolerations))
	for i := range pod.Spec.Tolerations {
		t := &pod.Spec.Tolerations[i]
		k.Text(t.Key, string(t.Operator), t.Value, string(t.Effect))
	}
	k.Count(len(c.Spread))
	for i := range pod.Spec.TopologySpreadConstraints {
		t := &pod.Spec.TopologySpreadConstraints[i]
		k.Message(t.Size(), t.MarshalTo)
		k.Text(c.Spread[i].Selector.String()) // with matchLabelKeys: the selector differs between revisions
	}
	k.Count(len(c.HostPorts))
	for _, p := range c.HostPorts {
		k.Text(p.HostIP, string(p.Protocol), strconv.Itoa(int(p.HostPort)))
	}
	k.Count(len(pod.Spec.ResourceClaims))
	k.Count(len(vol.Topology))
	for _, alternatives := range vol.Topology {
		k.Count(len(alternatives))
		for _, term := range alternatives {
			k.Requirements(term)
		}
	}
	k.Count(len(vol.Attach))
	for _, driver := range slices.Sorted(maps.Keys(vol.Attach)) {
		k.Text(driver, strconv.FormatInt(vol.Attach[driver], 10))
	}
	k.Text(c.Drivers...)
	k.Text(strconv.FormatBool(vol.Unbound))
	if c.Request != "" { // last, so that all other classes keep the keys that older versions recorded
		k.Text(c.Request)
	}
	sum := sha256.Sum256(k)
	return ClassKey(hex.EncodeToString(sum[:12]))
}

// KeyBytes is an unambiguous encoding of what a key stands for: every text and list is preceded by its length.
type KeyBytes []byte

// Count appends a number, such as the length of a list.
func (k *KeyBytes) Count(n int) { *k = binary.AppendUvarint(*k, uint64(n)) }

// Text appends texts.
func (k *KeyBytes) Text(texts ...string) {
	for _, t := range texts {
		k.Count(len(t))
		*k = append(*k, t...)
	}
}

// Texts appends a map in the order of its keys.
func (k *KeyBytes) Texts(m map[string]string) {
	k.Count(len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		k.Text(key, m[key])
	}
}

func (k *KeyBytes) amounts(r Resources) {
	k.Count(len(r))
	for _, name := range slices.Sorted(maps.Keys(r)) {
		k.Text(string(name))
		*k = binary.AppendVarint(*k, r[name])
	}
}

// Requirements appends requirements in the order of their keys.
func (k *KeyBytes) Requirements(rs Requirements) {
	k.Count(len(rs))
	for _, r := range rs.Sorted() {
		k.Text(r.String(), strconv.FormatBool(r.present))
	}
}

// Message appends a protobuf message, whose generated encoding sorts maps.
func (k *KeyBytes) Message(size int, marshalTo func([]byte) (int, error)) {
	k.Count(size)
	at := len(*k)
	*k = append(*k, make([]byte, size)...)
	if n, err := marshalTo((*k)[at:]); err != nil || n != size {
		panic("capacity: API message of " + strconv.Itoa(size) + " bytes does not marshal") // generated MarshalTo methods never fail
	}
}

// Shape returns a hash of what pods of the class request: requests, node constraints, tolerations and ports, but no names and no labels.
// To the guard on spending, pods of the same shape are one workload if they have no controller, or only a Job that has none.
func (c *Class) Shape() string {
	k := make(KeyBytes, 0, 256)
	k.Text(c.Namespace)
	k.amounts(c.Requests)
	k.Count(len(c.Terms))
	for _, term := range c.Terms {
		k.Requirements(term)
	}
	k.Count(len(c.Tolerations))
	for i := range c.Tolerations {
		t := &c.Tolerations[i]
		k.Text(t.Key, string(t.Operator), t.Value, string(t.Effect))
	}
	k.Count(len(c.HostPorts))
	for _, p := range c.HostPorts {
		k.Text(p.HostIP, string(p.Protocol), strconv.Itoa(int(p.HostPort)))
	}
	sum := sha256.Sum256(k)
	return hex.EncodeToString(sum[:6])
}
