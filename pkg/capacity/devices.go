package capacity

import "strings"

// devicesPrefix is the prefix of no CSI driver's name: these have no slash.
const devicesPrefix = "devices/"

// DevicesOf returns the key, among CSI drivers (Volumes, VolumesFree, VolumeLimits, Drivers), for the devices that the ResourceClaims of one
// pod ask for, counted in pods. classes names the device classes for people; hash tells apart pods that ask for different devices. A pod
// with such claims waits until the devices of its node have been published, as it waits for a driver.
func DevicesOf(classes, hash string) string { return devicesPrefix + classes + "#" + hash }

// DeviceClassesOf returns the device classes that a key of DevicesOf names; ok is false for a driver.
func DeviceClassesOf(key string) (classes string, ok bool) {
	rest, ok := strings.CutPrefix(key, devicesPrefix)
	if i := strings.LastIndexByte(rest, '#'); ok && i >= 0 {
		rest = rest[:i]
	}
	return rest, ok
}

// PublishedLater reports whether a key stands for what drivers publish for a node, which may be after its initialization: storage and
// devices.
func PublishedLater(key string) bool {
	return strings.HasPrefix(key, storagePrefix) || strings.HasPrefix(key, devicesPrefix)
}
