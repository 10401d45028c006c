// Package admission gives a pod what the API server adds when it creates the pod, as far as placement depends on it: requests that
// follow limits, the defaults of LimitRanges, the overhead and the nodes of a RuntimeClass, the priority of a PriorityClass.
//
// It serves pods that don't exist yet and whose room is planned nevertheless: those that DaemonSets will have on new nodes
// (pkg/launch), and those of workloads that are only read from files (pkg/manifest).
//
// It refuses nothing. The bounds of a LimitRange (min, max, maxLimitRequestRatio) are checked after webhooks have had their say, and
// no part of a pod is changed for them; a pod that is planned for and then refused costs room for a minute, a pod that comes
// without having been planned for takes the room of others.
//
// It is not for pods that exist: they show what admission has made of them, webhooks included.
package admission
