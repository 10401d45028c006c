package karpenter

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Pools and classes that are derived from something else than a NodePool or an EC2NodeClass have names of their own. They are
// the values of labels and tags, and can't be those of objects: no object's name holds an underscore.
const (
	provisionerPrefix = "provisioner_"
	argsPrefix        = "args_"
	derivedMark       = "_"
)

// maxLabelValue is the most that fits into a label.
const maxLabelValue = 63

func derivedName(prefix, name string) string {
	if len(prefix)+len(name) <= maxLabelValue {
		return prefix + name
	}
	const digits = 8
	sum := sha256.Sum256([]byte(name))
	return prefix + name[:maxLabelValue-len(prefix)-len(derivedMark)-digits] + derivedMark + hex.EncodeToString(sum[:])[:digits]
}

// derived says that no NodePool or EC2NodeClass object can have this name.
func derived(name string) bool { return strings.Contains(name, derivedMark) }

// PoolOfProvisioner is the name that a Provisioner's pool has in labels, tags and messages.
func PoolOfProvisioner(name string) string { return derivedName(provisionerPrefix, name) }

// PoolOfArgs is that name for a pool of a profile's arguments.
func PoolOfArgs(name string) string { return derivedName(argsPrefix, name) }

// called is a pool as its user would call it.
func called(np *karpv1.NodePool) string {
	switch {
	case strings.HasPrefix(np.Name, provisionerPrefix):
		return "Provisioner " + np.Annotations[objects.AnnotationOrigin]
	case strings.HasPrefix(np.Name, argsPrefix):
		return "nodePools " + np.Annotations[objects.AnnotationOrigin]
	}
	return "NodePool " + np.Name
}
