// Package devices knows which devices of dynamic resource allocation a node will have that doesn't exist yet, and what the ResourceClaims of
// a pod ask for.
//
// The devices of a new node are known from two sources: its node class declares them (objects.AnnotationDevices), or a living node of the same
// node class, instance type and image has published its ResourceSlices. What a node has published replaces what is declared for the same
// driver. Supposed turns this into the ResourceSlices of a hypothetical node, with which the scheduler's own DynamicResources plugin checks
// plans (pkg/simulate).
//
// How many pods with the same claims fit on a node is counted by the allocator that the plugin uses. Plans see that number like the attach
// limit of a CSI driver, under a key of capacity.DevicesOf.
//
// The package writes nothing, and starts no goroutine. docs/design/devices.md has the reasons.
package devices
