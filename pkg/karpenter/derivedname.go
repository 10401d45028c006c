package karpenter

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Pools and classes that are derived from something other than a NodePool or a node class have names of their own. They fit the
// values of labels and tags, and no object can have such a name: object names don't contain underscores.
const (
	ProvisionerPrefix = "provisioner_"
	ArgsPrefix        = "args_"
	derivedMark       = "_"
)

// maxLabelValue is the longest value that a label may have.
const maxLabelValue = 63

func derivedName(prefix, name string) string {
	if len(prefix)+len(name) <= maxLabelValue {
		return prefix + name
	}
	const digits = 8
	sum := sha256.Sum256([]byte(name))
	return prefix + name[:maxLabelValue-len(prefix)-len(derivedMark)-digits] + derivedMark + hex.EncodeToString(sum[:])[:digits]
}

// Derived reports whether the name is that of a derived object; no NodePool or node class object can have such a name.
func Derived(name string) bool { return strings.Contains(name, derivedMark) }

// PoolOfProvisioner returns the name that a Provisioner's pool has in labels, tags and messages.
func PoolOfProvisioner(name string) string { return derivedName(ProvisionerPrefix, name) }

// PoolOfArgs returns the name that a pool of a profile's arguments has in labels, tags and messages.
func PoolOfArgs(name string) string { return derivedName(ArgsPrefix, name) }

// NameForUser returns a pool's kind and name as its user knows them.
func NameForUser(np *karpv1.NodePool) string {
	switch {
	case strings.HasPrefix(np.Name, ProvisionerPrefix):
		return "Provisioner " + np.Annotations[objects.AnnotationOrigin]
	case strings.HasPrefix(np.Name, ArgsPrefix):
		return "nodePools " + np.Annotations[objects.AnnotationOrigin]
	}
	return "NodePool " + np.Name
}
