// Package admission adds to a pod what the API server adds when the pod is created, as far as placement depends on it: requests that
// follow limits, the defaults of LimitRanges, the overhead and the nodes of a RuntimeClass, the priority of a PriorityClass.
//
// It is for pods that don't exist yet but whose capacity is planned: those that DaemonSets will have on new nodes (pkg/launch), and
// those of workloads that are only read from files (pkg/manifest).
//
// It refuses nothing. The limits of a LimitRange (min, max, maxLimitRequestRatio) are checked after all webhooks, and change nothing
// in a pod. If a pod is planned for and then refused, its capacity is reserved in vain for a minute; if a pod appears that was not
// planned for, it takes the capacity of others.
//
// The package is not for existing pods: they contain what admission has added, including webhooks.
package admission
