package capacity

import "strings"

// devicesPrefix tells keys for devices from the names of CSI drivers, which have no slash.
const devicesPrefix = "devices/"

// DevicesOf returns a key for the devices that the ResourceClaims of one pod ask for. The fields Volumes, VolumesFree, VolumeLimits and Drivers,
// which otherwise have the names of CSI drivers, have such keys, too, and count them in pods. classes names the device classes for people; hash
// tells apart pods that ask for different devices. A pod with such claims waits until the devices of its node have been published.
func DevicesOf(classes, hash string) string { return devicesPrefix + classes + "#" + hash }

// DeviceClassesOf returns the device classes that a key of DevicesOf names; ok is false if the key is another, such as the name of a CSI driver.
func DeviceClassesOf(key string) (classes string, ok bool) {
	rest, ok := strings.CutPrefix(key, devicesPrefix)
	if i := strings.LastIndexByte(rest, '#'); ok && i >= 0 {
		rest = rest[:i]
	}
	return rest, ok
}

// PublishedLater reports whether a key stands for storage or devices. Drivers publish how much of these a node has, which may be after its
// initialization.
func PublishedLater(key string) bool {
	return strings.HasPrefix(key, storagePrefix) || strings.HasPrefix(key, devicesPrefix)
}
