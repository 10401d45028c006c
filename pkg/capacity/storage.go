package capacity

import "strings"

// storagePrefix begins no name of a CSI driver: those have no slash.
const storagePrefix = "storageclass/"

// StorageOf is the key among CSI drivers (Volumes, VolumesFree, VolumeLimits, Drivers) of the room that a node has for a StorageClass's
// volumes, in bytes, where that comes with the node. A pod with such volumes waits until the driver has published it, as it waits for a driver.
func StorageOf(class string) string { return storagePrefix + class }

// StorageClassOf is the class whose room the key stands for, if it isn't a driver.
func StorageClassOf(key string) (class string, ok bool) { return strings.CutPrefix(key, storagePrefix) }
