package capacity

import "strings"

// storagePrefix is the prefix of no CSI driver's name: these have no slash.
const storagePrefix = "storageclass/"

// StorageOf returns the key, among CSI drivers (Volumes, VolumesFree, VolumeLimits, Drivers), for a node's own storage for volumes of a
// StorageClass, in bytes. A pod with such volumes waits until the driver has published that capacity, as it waits for a driver.
func StorageOf(class string) string { return storagePrefix + class }

// StorageClassOf returns the StorageClass that a key of StorageOf is for; ok is false for a driver.
func StorageClassOf(key string) (class string, ok bool) { return strings.CutPrefix(key, storagePrefix) }
