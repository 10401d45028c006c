package capacity

import "strings"

// storagePrefix tells keys for storage from the names of CSI drivers, which have no slash.
const storagePrefix = "storageclass/"

// StorageOf returns a key for a node's own storage for volumes of a StorageClass, in bytes. The fields that have the names of CSI drivers (Volumes,
// VolumesFree, VolumeLimits, Drivers) have such keys, too. A pod with such volumes waits until the driver has published that capacity.
func StorageOf(class string) string { return storagePrefix + class }

// StorageClassOf returns the StorageClass that a key of StorageOf is for; ok is false if the key is another, such as the name of a CSI driver.
func StorageClassOf(key string) (class string, ok bool) { return strings.CutPrefix(key, storagePrefix) }
